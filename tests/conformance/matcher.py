"""Compares what came with what a case expects.

A pattern is JSON. `"$name"` binds what stands there, or has to equal what it was bound to. An object has to have these members, and may
have others. A list is compared item by item. `{"~": …}` with one of these is a matcher:

  {"~one of": [patterns]}   one of them fits
  {"~has": text}            a text that has this part; a list of strings: each of them
  {"~lacks": text}          a text, or whatever there is as JSON, that does not have this part
  {"~not": pattern}         it does not fit
  {"~any": true}            whatever is there
  {"~missing": true}        nothing is there
  {"~form": expression}     a text of this regular expression, as a whole
  {"~only": object}         an object with these members and no others but `_meta`
  {"~entries": [[k, p]…]}   an object with as many members, each of which has a value that fits; its name fits, or is bound
  {"~within a second": t}   a moment that is no more than a second after the moment t
  {"~bytes": n}             a text of so many bytes
  {"~if": pattern}          nothing, or what fits
"""

import datetime
import json
import re

MISSING = object()


class Mismatch(Exception):
    """What came does not fit."""


def substitute(value, names):
    """The same with the values of all names in it. A text that is a name alone becomes its value."""
    if isinstance(value, str):
        if value.startswith("$") and value[1:] in names:
            return names[value[1:]]
        return re.sub(r"\$\{(\w+)\}", lambda found: str(names[found[1]]), value)
    if isinstance(value, dict):
        return {key: substitute(one, names) for key, one in value.items()}
    if isinstance(value, list):
        return [substitute(one, names) for one in value]
    return value


def fits(pattern, found, names):
    try:
        match(pattern, found, dict(names))
    except Mismatch:
        return False
    return True


def match(pattern, found, names, where=""):
    """Raises `Mismatch`. Binds names."""
    def fail(why):
        shown = "nothing" if found is MISSING else json.dumps(found, ensure_ascii=False, default=str)
        shown = shown if len(shown) <= 600 else f"{shown[:600]}… ({len(shown)} characters)"
        raise Mismatch(f"{where or 'it'}: {why}, not {shown}")

    if isinstance(pattern, dict) and len(pattern) == 1 and next(iter(pattern)).startswith("~"):
        (kind, wanted), = pattern.items()
        text = found if isinstance(found, str) else json.dumps(found, ensure_ascii=False, default=str)
        if kind == "~one of":
            whys = []
            for one in wanted:
                trial = dict(names)
                try:
                    match(one, found, trial, where)
                except Mismatch as why:
                    whys.append(why)
                else:
                    names.update(trial)
                    return
            fail(f"one of {json.dumps(wanted)}")
        elif kind == "~has":
            if found is MISSING or not all(part in text for part in ([wanted] if isinstance(wanted, str) else wanted)):
                fail(f"something with {wanted!r}")
        elif kind == "~lacks":
            if found is not MISSING and any(part in text for part in ([wanted] if isinstance(wanted, str) else wanted)):
                fail(f"nothing with {wanted!r}")
        elif kind == "~not":
            try:
                match(wanted, found, dict(names), where)
            except Mismatch:
                return
            fail(f"anything but {json.dumps(wanted)}")
        elif kind == "~any":
            if found is MISSING:
                fail("anything")
        elif kind == "~missing":
            if found is not MISSING:
                fail("nothing")
        elif kind == "~form":
            if found is MISSING or not re.fullmatch(wanted, text):
                fail(f"a text like {wanted}")
        elif kind == "~only":
            match(wanted, found, names, where)
            more = found.keys() - wanted.keys() - {"_meta"}
            if more:
                fail(f"nothing but {', '.join(wanted)}")
        elif kind == "~entries":
            if not isinstance(found, dict) or len(found) != len(wanted):
                fail(f"an object with {len(wanted)} members")
            for name, value in wanted:
                match([name, value], next(([key, one] for key, one in found.items() if fits(value, one, names)), MISSING), names, where)
        elif kind == "~within a second":
            moments = [datetime.datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (found, substitute(wanted, names))]
            if (moments[0] - moments[1]).total_seconds() > 1:
                fail(f"within a second of {moments[1]}")
        elif kind == "~if":
            if found is not MISSING:
                match(wanted, found, names, where)
        elif kind == "~bytes":
            if not isinstance(found, str) or len(found.encode()) != wanted:
                fail(f"a text of {wanted} bytes")
        else:
            raise ValueError(f"there is no matcher {kind}")
    elif isinstance(pattern, str) and re.fullmatch(r"\$\w+", pattern):
        name = pattern[1:]
        if found is MISSING:
            fail(f"a value for {pattern}")
        if name not in names:
            names[name] = found
        elif names[name] != found:
            fail(f"{pattern}, which is {names[name]!r}")
    elif isinstance(pattern, dict):
        if not isinstance(found, dict):
            fail(f"an object with {', '.join(pattern)}")
        for key, wanted in pattern.items():
            match(wanted, found.get(key, MISSING), names, f"{where}.{key}" if where else key)
    elif isinstance(pattern, list):
        if not isinstance(found, list) or len(found) != len(pattern):
            fail(f"a list of {len(pattern)}")
        for at, (wanted, one) in enumerate(zip(pattern, found)):
            match(wanted, one, names, f"{where}[{at}]")
    else:
        pattern = substitute(pattern, names)
        if found is MISSING or type(pattern) is not type(found) and not {type(pattern), type(found)} <= {int, float} or pattern != found:
            fail(f"{pattern!r}")
