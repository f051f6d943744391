"""A case: steps, each of which sends something or does something to a process, and says what has to come of it."""

import contextlib
import itertools
import json
import time

from exchange import Exchange, Silent
from matcher import MISSING, Mismatch, match, substitute

SESSION = "mcp-session-id"
VERSION = "mcp-protocol-version"
LATEST = "2025-11-25"
MODERN = "2026-07-28"
KEYS = itertools.count(1)
# A server that ends again and again is started again within 30 s.
AGAIN_PATIENCE, AGAIN_PAUSE = 60, 0.1


class Failed(Exception):
    """A step has not gone as the case says."""


class Run:
    """One case against one world."""

    def __init__(self, case, world):
        self.case, self.world = case, world
        # Keys and callers are this run's own, so that cases can share a world.
        number = next(KEYS)
        self.names = {"key": f"k{number}-{id(self) & 0xffff}", "me": f"t{number}", "other": f"t{number}x"}
        self.open = {}
        self.sessions = {}

    def run(self):
        """Raises `Failed`."""
        try:
            for at, step in enumerate(self.case["steps"]):
                try:
                    self.step(step)
                except (Mismatch, Silent, ConnectionError, OSError) as why:
                    shown = json.dumps(step, ensure_ascii=False)
                    raise Failed(f"step {at + 1} {shown[:300]}: {why}") from None
        finally:
            self.clean()

    def clean(self):
        for exchange in self.open.values():
            exchange.close()
        with contextlib.suppress(Exception):
            self.world.start()
            for session, caller in self.sessions.items():
                exchange = Exchange(self.world.address)
                exchange.patience(2)
                headers = {**self.world.headers(caller), SESSION: session}
                exchange.send(self.head("DELETE", "/mcp", headers, b""))
                exchange.whole()
                exchange.close()

    def step(self, step):
        verb = next(name for name in step if name in VERBS)
        paths = step.get("path", "/mcp")
        for path in paths if isinstance(paths, list) else [paths]:
            VERBS[verb](self, step, path)

    # What is sent.

    def head(self, method, path, headers, body):
        lines = [f"{method} {path} HTTP/1.1"]
        headers = {"host": f"127.0.0.1:{self.world.address[1]}", "connection": "close", **headers}
        if body or method == "POST":
            headers.setdefault("content-length", str(len(body)))
        for name, value in headers.items():
            for one in value if isinstance(value, list) else [value]:
                if one is not None:
                    lines.append(f"{name}: {one}")
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def headers(self, step, defaults):
        """Defaults, the caller's, the session's; `headers` of the step add, replace and (null) leave out."""
        caller = substitute(step.get("as", "$me"), self.names)
        headers = {**defaults, **self.world.headers(caller)}
        session = step.get("session", "$sid" if "sid" in self.names else None)
        if session is not None:
            headers[SESSION] = substitute(session, self.names)
            headers[VERSION] = self.names.get("version", LATEST)
        for name, value in substitute(step.get("headers", {}), self.names).items():
            headers[name] = value
        return {name: value for name, value in headers.items() if value is not None}

    def body(self, step):
        """The bytes of a POST, and the id of its request."""
        posted = substitute(step["post"], self.names)
        if isinstance(posted, str):
            text = posted
            if "repeat" in step:
                text = text.replace("@BIG@", step["repeat"]["text"] * step["repeat"]["times"])
            return text.encode("utf-8", "surrogatepass"), step.get("id")
        if isinstance(posted, list):
            return json.dumps(posted).encode(), None
        if "tool" in posted:
            given = {name: value for name, value in posted.items() if name not in ("tool", "token")}
            params = {"name": posted["tool"], "arguments": given}
            if "token" in posted:
                params["_meta"] = {"progressToken": posted["token"]}
            posted = {"method": "tools/call", "params": params}
        message = {"jsonrpc": "2.0", **posted}
        method = message.get("method")
        if "id" in step or "method" in message and not str(method).startswith("notifications/"):
            message.setdefault("id", substitute(step.get("id", 1), self.names))
        if method == "initialize":
            message.setdefault("params", self.initialize({}))
        text = json.dumps(message)
        if "repeat" in step:
            text = text.replace("@BIG@", step["repeat"]["text"] * step["repeat"]["times"])
        return text.encode(), message.get("id")

    def initialize(self, given):
        return {"protocolVersion": given.get("version", LATEST), "capabilities": given.get("capabilities", {"roots": {}}),
                "clientInfo": {"name": given.get("client", "conformance"), "version": "1"}}

    def post(self, step, path):
        data, identity = self.body(step)
        defaults = {"content-type": "application/json", "accept": "application/json, text/event-stream"}
        self.exchange("POST", path, self.headers(step, defaults), data, step, identity)

    def modern(self, step, path):
        """A request of MCP 2026-07-28, which has no session: versions and capabilities come with each."""
        asked = dict(step["modern"])
        method = asked.pop("method", "tools/call")
        params = {"name": asked.pop("tool"), "arguments": asked} if "tool" in asked else asked
        meta = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": {"name": "conformance", "version": "1"}}
        params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()} | params.get("_meta", {})
        headers = {VERSION: MODERN, "mcp-method": method, **({"mcp-name": params["name"]} if "name" in params else {}), **step.get("headers", {})}
        self.post({**step, "post": {"method": method, "params": params}, "session": None, "headers": headers}, path)

    def get(self, step, path):
        defaults = {"accept": "text/event-stream"}
        if "after" in step:
            defaults["last-event-id"] = substitute(step["after"], self.names)
        self.exchange("GET", path, self.headers(step, defaults), b"", step)

    def request(self, step, path):
        """Any other method."""
        self.exchange(step["request"], path, self.headers(step, {}), b"", step)

    def raw(self, step, _):
        """Bytes as they are; a list is of lines of a head, with a body after the empty one."""
        names = {**self.names, "host": f"127.0.0.1:{self.world.address[1]}"}
        caller = self.world.headers(names["me"])
        text = substitute(step["raw"], names)
        if isinstance(text, list):
            text = "\r\n".join(text)
        text = text.replace("@CREDENTIALS@", "\r\n".join(f"{name}: {value}" for name, value in caller.items()))
        exchange = Exchange(self.world.address)
        self.finish(exchange, text.encode("latin-1"), step, step.get("id"))

    def exchange(self, method, path, headers, body, step, identity=None):
        """With `"again": 503` it is sent again after Retry-After, for as long as it gets this status, or is answered that it was not sent: a
        server that has ended often is started again after a pause.
        """
        data, until = self.head(method, path, headers, body) + body, time.monotonic() + AGAIN_PATIENCE
        while "again" in step and time.monotonic() < until:
            exchange = Exchange(self.world.address)
            exchange.send(data)
            exchange.whole()
            exchange.close()
            if exchange.status != step["again"] and b'"not_sent"' not in exchange.body:
                exchange.identity, exchange.seen = identity, 0
                self.expect(exchange, step.get("expect", {"status": [200, 202]}))
                return
            time.sleep(float(exchange.header("retry-after") or AGAIN_PAUSE))
        self.finish(Exchange(self.world.address), data, step, identity)

    def finish(self, exchange, data, step, identity):
        exchange.identity = identity
        exchange.seen = 0
        # A target may refuse a large body before it has read it, and close.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            exchange.send(data)
        if step.get("half close"):
            exchange.half_close()
        name = step.get("open")
        if name:
            self.open[name] = exchange
            if "expect" in step:
                exchange.head()
                self.expect(exchange, step["expect"], is_open=True)
            return
        try:
            if data.startswith(b"HEAD "):
                exchange.head()
            else:
                exchange.whole()
            self.expect(exchange, step.get("expect", {"status": [200, 202]}))
        finally:
            exchange.close()

    # What is expected.

    def expect(self, exchange, expected, is_open=False):
        expected = dict(expected)
        if "status" in expected:
            wanted = expected.pop("status")
            wanted = wanted if isinstance(wanted, list) else [wanted]
            # Which status the SDK has for the same refusal, with its reason in targets.json.
            same = self.world.target.get("same", {})
            wanted = wanted + [status for one in wanted for status in same.get(str(one), ())]
            if exchange.status not in wanted:
                raise Mismatch(f"status {' or '.join(map(str, wanted))}, not {exchange.status} {exchange.body[:400]!r}")
        elif exchange.status != 200:
            raise Mismatch(f"status 200, not {exchange.status} {exchange.body[:400]!r}")
        for name, pattern in expected.pop("header", {}).items():
            found = exchange.header(name)
            match(pattern, MISSING if found is None else found, self.names, name)
        if "events" in expected:
            self.events(exchange, expected.pop("events"), is_open)
        for kind in ("has", "lacks"):
            if kind in expected:
                match({f"~{kind}": substitute(expected.pop(kind), self.names)}, exchange.body.decode("utf-8", "replace"), self.names, "the body")
        for what, pattern in expected.items():
            match(pattern, self.found(exchange, what), self.names, what)

    def found(self, exchange, what):
        """`answer`: the answer to the request; `text`: the text of its result; `error`: its error; `messages`: all messages; `json`: the body."""
        messages = [message for _, message in exchange.messages()]
        if what == "messages":
            return messages
        if what == "json":
            return messages[0] if messages else MISSING
        if what == "body":
            return exchange.body.decode("utf-8", "replace")
        if what == "primed":
            return next((event["id"] for event in exchange.events() if "id" in event and not event.get("data")), MISSING)
        if what == "last event":
            ids = [event["id"] for event in exchange.events() if "id" in event]
            return ids[-1] if ids else MISSING
        answers = [one for one in messages if isinstance(one, dict) and "method" not in one and one.get("id") == exchange.identity
                   and type(one.get("id")) is type(exchange.identity)]
        if len(answers) > 1:
            raise Mismatch(f"it was answered {len(answers)} times")
        if not answers:
            shown = exchange.body[:600].decode("utf-8", "replace")
            if what != "no answer":
                raise Mismatch(f"there is no answer to {exchange.identity!r} in {exchange.status} {shown!r}")
            return True
        if what == "answer":
            return answers[0]
        if what == "error":
            if "error" not in answers[0]:
                raise Mismatch(f"there is no error in {json.dumps(answers[0])[:400]}")
            return answers[0]["error"]
        if what == "outcome":
            return (answers[0].get("error", {}).get("data") or {}).get("outcome", MISSING)
        if what == "text":
            if "result" not in answers[0]:
                raise Mismatch(f"there is no result in {json.dumps(answers[0])[:400]}")
            content = answers[0]["result"].get("content") or [{}]
            return content[0].get("text", MISSING)
        raise ValueError(f"there is nothing called {what} to expect")

    def events(self, exchange, patterns, is_open):
        """The next messages of a stream, in this order. `event` binds the event's id; `times`: so many in a row."""
        for pattern in patterns:
            pattern = dict(pattern)
            event, times = pattern.pop("event", None), pattern.pop("times", 1)
            for _ in range(times):
                while len(exchange.messages()) <= exchange.seen:
                    if not exchange.more() and len(exchange.messages()) <= exchange.seen:
                        raise Mismatch(f"the stream ended before {json.dumps(pattern)}: {exchange.body[-400:]!r}")
                number, message = exchange.messages()[exchange.seen]
                exchange.seen += 1
                match(pattern, message, self.names, "event")
            if event:
                match(event, number if number is not None else MISSING, self.names, "the event's id")

    # What else a step may be.

    def begin(self, step, path):
        """A session: `initialize`, and `notifications/initialized`."""
        given = step["begin"] if isinstance(step["begin"], dict) else {}
        self.names["version"] = given.get("version", LATEST)
        name = given.get("name", "sid")
        common = {key: value for key, value in step.items() if key in ("as", "headers")}
        self.post({**common, "post": {"method": "initialize", "params": self.initialize(given)}, "id": 0, "session": None,
                   "expect": {"answer": {"result": {"protocolVersion": self.names["version"]}}, "header": {SESSION: f"${name}"}}}, path)
        self.sessions[self.names[name]] = substitute(step.get("as", "$me"), self.names)
        self.post({**common, "post": {"method": "notifications/initialized"}, "session": f"${name}", "expect": {"status": 202}}, path)

    def read(self, step, _):
        """Goes on with a response that was left open. `"whole": true`: up to its end."""
        exchange = self.open[step["read"]]
        exchange.patience()
        if exchange.status is None:
            exchange.head()
        if step.get("whole", "events" not in step["expect"]):
            exchange.whole()
        self.expect(exchange, step["expect"], is_open=True)

    def close(self, step, _):
        self.open.pop(step["close"]).close()

    def do(self, step, _):
        order = step["do"]
        if order == "kill":
            self.world.kill()
            self.world.start()
        elif order == "deploy":
            # The same app in another version, which has a tool that the former one had not.
            self.world.deploy()
        elif order == "kill daemon":
            self.world.kill("daemon")
            self.world._start_daemon()
        elif order == "kill server":
            self.world.kill_servers()
        elif order == "restart behind":
            self.world.kill("behind")
            self.world.start()
        elif order == "revoke":
            (self.world.revoked / substitute(step["token"], self.names)).touch()
        elif order == "open gate":
            # By a move: who waits for it may see moves alone.
            gate = self.world.gates / substitute(step.get("gate", "$key"), self.names)
            made = self.world.root / f"gate-{gate.name}"
            made.touch()
            made.rename(gate)
        else:
            raise ValueError(f"there is nothing called {order} to do")

    def wait(self, step, _):
        """For an event: `journal`: a call with this key was begun; `times`: so often."""
        self.world.wait_journal(substitute(step["wait"], self.names), step.get("times", 1))

    def executed(self, step, _):
        """How often calls of this key were begun so far."""
        for key, wanted in step["executed"].items():
            key = substitute(key, self.names)
            match(wanted, self.world.executed(key), self.names, f"calls of {key}")

    def upstream(self, step, _):
        """Tells the server behind what to do."""
        self.world.control(substitute(step["upstream"], self.names))

    def received(self, step, _):
        """What the server behind has received."""
        match(step["received"], self.world.control(), self.names, "what the server behind has received")

    def bind(self, step, _):
        for name, value in step["let"].items():
            self.names[name] = substitute(value, self.names)


VERBS = {
    "begin": Run.begin, "post": Run.post, "modern": Run.modern, "get": Run.get, "raw": Run.raw, "request": Run.request, "read": Run.read, "close": Run.close, "do": Run.do,
    "wait": Run.wait, "executed": Run.executed, "upstream": Run.upstream, "received": Run.received, "let": Run.bind,
    "delete": lambda run, step, path: run.exchange("DELETE", path, run.headers(step, {}), b"", step),
}
