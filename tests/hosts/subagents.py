"""Subagents that bring servers of their own: each has to find what it would find directly.

A host's file gives `host(world, command)`, which writes down a subagent with this server and returns how to ask a prompt; the model
delegates by a tool of the host's. Each scenario runs directly, and then by every entry point.
"""

import json
import time

from entry_points import GOES_ON, OWNERS, command, ended, in_turn
from harness import number, until


def delegating(world, tool, arguments, *words):
    """The model has a word for each subagent, which delegates the prompt of that name to it. `arguments(prompt)` are those of the tool, whose
    name ends with `tool`."""
    for word in words:
        world.api.calls[word] = (tool, arguments(f"STEPS: {word} count meet count"))


def counted(world, word):
    return [number(text) or text for text in world.api.results(word)]


class Story:
    """One run of a host: who is asked, and what the subagents counted to."""

    def __init__(self, world, ask, way, tool, arguments, closes):
        self.world, self.ask, self.way, self.delegation, self.closes = world, ask, way, (tool, arguments), closes

    def run(self, words, gap, meets):
        """The main conversation delegates to each of these in turn, `gap` seconds after the one before has ended and its server was closed;
        with `meets` all at once, each of which waits in the middle until all have called. What each counted to."""
        world, words = self.world, [f"{self.way}-{word}" for word in words]
        delegating(world, *self.delegation, *words)
        world.api.hooks["meet"] = (lambda: until(lambda: all(world.api.results(word) for word in words))) if meets else lambda: None
        for word in words:
            world.api.hooks[f"after-{word}"] = self.pausing(word, gap)
        world.api.hooks["wait"] = lambda: until(lambda: all(word in world.api.done for word in words))
        steps = [*words, "wait"] if meets else [step for word in words for step in (word, f"after-{word}")]
        self.ask(f"{self.way}-main {' '.join(steps)}")
        return [counted(world, word) for word in words]

    def pausing(self, word, gap):
        """A hook that waits for the end of a subagent and of its server, and then `gap` seconds. A host that tells the model of that end asks
        it once more."""
        paused = []

        def pause():
            if not paused:
                paused.append(word)
                until(lambda: word in self.world.api.done)
                until(lambda: not self.closes or not self.left())
                time.sleep(gap)
        return pause

    def left(self):
        """What a host has not closed yet: fronts, or servers where there are none."""
        return self.world.servers() if self.way.startswith("direct") else self.world.ours("wrap")


def heard(world, way):
    """What the servers of one way have said on standard error."""
    path = world.root / f"{way}.err"
    return path.read_text() if path.exists() else ""


def overheard(world, way, command):
    """The same command, whose standard error goes to a file, too: hosts keep it to themselves."""
    return ["/bin/sh", "-c", 'exec "$@" 2>> "$0"', str(world.root / f"{way}.err"), *command]


def scenarios(host, tool, arguments, gaps=(1.5, 6), too_soon=None, at_once=True, closes=True):
    """In turn with these gaps, and at once. `too_soon` is a gap after which the host can't be told from one that reconnects. `closes`: whether the
    host closes a subagent's server at the subagent's end."""
    def compared(name, words, gap=0, meets=False, judge=None):
        def scenario(world):
            def story(way, command):
                return Story(world, host(world, overheard(world, way, command)), way, tool, arguments, closes).run(words, gap, meets)
            direct = story("direct", world.server())
            if not meets:
                world.check("directly each subagent has a fresh server", direct == [[1, 2]] * len(words), direct)
            for entry in OWNERS:
                already = len(world.started())
                wrapped = story(f"wrapped-{entry}", command(world, entry))
                (judge or alike)(world, entry, in_turn(entry, direct, closes), wrapped)
                ended(world, entry, already)
        scenario.__name__ = name
        return scenario
    named = lambda gap: f"subagents_{str(gap).replace('.', '_')}_s_apart"
    found = [compared(named(gap), ("first", "second", "third"), gap) for gap in gaps]
    if at_once:
        found.append(compared("subagents_at_once", ("left", "right"), meets=True, judge=in_any_order))
    if too_soon:
        found.append(compared(named(too_soon), ("first", "second"), too_soon, judge=may_go_on))
    return found


def alike(world, entry, expected, wrapped):
    world.check(f"{entry}: the subagents count {expected}", wrapped == expected, (wrapped, heard(world, f"wrapped-{entry}")[-600:]))


def in_any_order(world, entry, expected, wrapped):
    """They may share a server, whose calls come in any order."""
    flat = lambda counts: sorted(str(count) for many in counts for count in many)
    world.check(f"{entry}: two subagents at once count {flat(expected)}", flat(wrapped) == flat(expected),
                (expected, wrapped, heard(world, f"wrapped-{entry}")[-600:]))


def may_go_on(world, entry, expected, wrapped):
    """A host that reconnects looks the same, so a host's server may go on: then a line says so."""
    if OWNERS[entry] != "host":
        return alike(world, entry, expected, wrapped)
    goes_on = wrapped == [[1, 2], [3, 4]]
    said = heard(world, f"wrapped-{entry}")
    world.check(f"{entry}: the second subagent begins afresh, or goes on and a line says that it was resumed",
                wrapped == expected or goes_on and GOES_ON[entry] in said, (wrapped, said[-600:]))


def observed(host, tool, arguments, closes=True):
    """What it does to the servers of two subagents, 2 s apart, that are not wrapped."""
    def scenario(world):
        story = Story(world, host(world, world.server()), "direct", tool, arguments, closes)
        story.run(("first", "second"), 2, False)
        first = None
        for entry in world.journal("start"):
            own = [one for one in world.journal() if one["pid"] == entry["pid"] and one is not entry]
            said = [one["message"] for one in own if one["what"] == "message" and one["message"].get("method") == "initialize"]
            first = first or (entry, said)
            names = {*first[0]["environment"], *entry["environment"]}
            differs = sorted(name for name in names if first[0]["environment"].get(name) != entry["environment"].get(name))
            print(f"  {entry['pid']} started at {entry['at'] - first[0]['at']:.2f} s, differs in {differs or 'nothing'}, "
                  f"`initialize` {'equal' if said == first[1] else said}")
            for one in own:
                print(f"    {one['at'] - entry['at']:6.2f} s  {one['what']} {one.get('name') or one.get('message', {}).get('method', '')}")
        print(f"  they counted: {json.dumps({word: counted(world, word) for word in world.api.told})[:600]}", flush=True)
    scenario.__name__ = "subagents"
    return scenario
