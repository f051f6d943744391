"""A case: steps, each of which sends something or does something to a process, and says what has to come of it."""

import base64
import contextlib
import datetime
import itertools
import json
import time

from exchange import PATIENCE, Exchange, Silent
from matcher import MISSING, Mismatch, fits, match, substitute

SESSION = "mcp-session-id"
VERSION = "mcp-protocol-version"
LATEST = "2025-11-25"
MODERN = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
KEYS = itertools.count(1)
# A server that ends again and again is started again within 30 s.
AGAIN_PATIENCE, AGAIN_PAUSE = 60, 0.1


class Failed(Exception):
    """A step has not gone as the case says."""


def repeated(value):
    """`{"~repeat": "x", "times": n}`: so long a text, or list."""
    return value["~repeat"] * value["times"] if isinstance(value, dict) and "~repeat" in value else value


class Run:
    """One case against one world."""

    # How long what has to come is waited for, in seconds.
    patience = PATIENCE

    def __init__(self, case, world):
        self.case, self.world = case, world
        # Keys and callers are this run's own, so that cases can share a world.
        number = next(KEYS)
        key = f"k{number}-{id(self) & 0xffff}"
        self.names = {"key": key, "me": f"t{number}", "other": f"t{number}x", "gate": str(world.gates / key)}
        self.names |= {name.lower(): {"action": "accept", "content": {"name": name}} for name in ("Ann", "Bob", "Eve", "red")}
        # What the target has said before is another case's.
        self.said = world.said()
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
        if "notifications" in asked:
            asked["notifications"] = {name: repeated(value) for name, value in asked["notifications"].items()}
        method = asked.pop("method", "tools/call")
        params = {"name": asked.pop("tool"), "arguments": asked} if "tool" in asked else asked
        # A state that the server did not send is not sent back.
        if params.get("requestState") == "$state" and "state" not in self.names:
            del params["requestState"]
        capabilities = step.get("capabilities", self.world.target.get("capabilities", {}))
        meta = {"protocolVersion": MODERN, "clientCapabilities": capabilities, "clientInfo": {"name": "conformance", "version": "1"}}
        params["_meta"] = {f"io.modelcontextprotocol/{name}": value for name, value in meta.items()} | params.get("_meta", {})
        names = [params[name] for name in ("name", "taskId") if name in params]
        headers = {VERSION: MODERN, "mcp-method": method, **({"mcp-name": names[0]} if names else {}), **step.get("headers", {})}
        post = {**step, "post": {"method": method, "params": params}, "session": None, "headers": headers}
        if "until" not in step:
            self.post(post, path)
            return
        # A client of tasks polls.
        deadline, names = time.monotonic() + PATIENCE, dict(self.names)
        while True:
            try:
                self.post({**post, "expect": step["until"]}, path)
                return
            except Mismatch:
                if time.monotonic() > deadline:
                    raise
                self.names = dict(names)

    # Tasks of MCP 2026-07-28.

    def begin_task(self, step, path):
        """A call that goes on as a task, whose id and what its parts are get names: `"task"`, unless `name` says another."""
        name = step.get("name", "task")
        for old in (name, f"{name}_session", f"{name}_secret"):
            self.names.pop(old, None)
        created = {"resultType": "task", "taskId": f"${name}", **step.get("is", {})}
        self.modern({**step, "modern": step["begin task"], "expect": {"result": created}}, path)
        self.names[f"{name}_session"], _, self.names[f"{name}_secret"] = self.names[name].partition(".")

    def task(self, step, path):
        """`tasks/get`: what the task `is`, or what it becomes (`until`)."""
        kind = "until" if "until" in step else "expect"
        wanted = step["until"] if kind == "until" else step["is"]
        self.modern({**step, "modern": {"method": "tasks/get", "taskId": step["task"]}, kind: {"result": wanted}}, path)

    def acknowledged(self, step, path):
        """`tasks/update`, with the answers in `with`, or `tasks/cancel`, which are acknowledged by an empty result."""
        params = {"method": "tasks/cancel", "taskId": step.get("cancel")}
        if "update" in step:
            answers = {substitute(key, self.names): answer for key, answer in step["with"].items()}
            params = {"method": "tasks/update", "taskId": step["update"], "inputResponses": answers}
        self.modern({**step, "modern": params, "expect": {"result": {"~only": {"resultType": "complete"}}}}, path)

    def logged(self, step, _):
        """The target has said this word, in its log or on its output, since the case or the last such step began."""
        self.said = self.world.wait_said(step["logged"], self.said)

    def check(self, step, _):
        """What a name stands for."""
        match(step["is"], substitute(step["check"], self.names), self.names, step["check"])

    def log(self, step, _):
        """How often the target has said each of these (`says` in targets.json has its words), and what it has never said."""
        said = (self.world.root / "start.log").read_text(errors="replace")
        for words, times in step["log"]["times"].items():
            match(times, said.count(self.world.target.get("says", {}).get(words, words)), self.names, f"how often it has said {words}")
        match({"~lacks": substitute(step["log"]["lacks"], self.names)}, said, self.names, "the log")

    def answer_all(self, step, path):
        """Waits until a task asks so many questions, and gives each the answer that is its message's."""
        by = step["by"]
        asked = [[{"~any": True}, {}] for _ in range(step.get("count", len(by)))]
        self.names.pop("asked", None)
        self.task({"task": step["answer all"], "until": {"inputRequests": {"~entries": asked}}}, path)
        self.task({"task": step["answer all"], "is": {"inputRequests": "$asked"}}, path)
        answers = {key: by[one["params"]["message"]] for key, one in self.names["asked"].items()}
        self.acknowledged({"update": step["answer all"], "with": answers}, path)

    def repeat(self, step, _):
        """The same steps so often, or for `each` of some values, which has this name, and with `64` behind it in Base64 as SEP-2243 has it."""
        values = step["of"] if "each" in step else range(step["times"])
        for value in values:
            if "each" in step:
                self.names[step["each"]] = value = substitute(repeated(value), self.names)
                self.names[f"{step['each']}64"] = f"=?base64?{base64.b64encode(str(value).encode()).decode()}?="
            for one in step.get("steps", step.get("repeat")):
                self.step(one)

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
        server that has ended often is started again after a pause. With `"again": true` it is sent again until what is expected has
        come: for what a target does only where that takes it less than a second or two.
        """
        data, until = self.head(method, path, headers, body) + body, time.monotonic() + AGAIN_PATIENCE
        while "again" in step and time.monotonic() < until:
            exchange = Exchange(self.world.address)
            exchange.send(data)
            exchange.whole()
            exchange.close()
            if exchange.status != step["again"] and b'"not_sent"' not in exchange.body:
                exchange.identity, exchange.seen = identity, 0
                try:
                    self.expect(exchange, step.get("expect", {"status": [200, 202]}))
                    return
                except Mismatch:
                    if step["again"] is not True:
                        raise
            time.sleep(float(exchange.header("retry-after") or AGAIN_PAUSE))
        self.finish(Exchange(self.world.address), data, step, identity)

    def finish(self, exchange, data, step, identity):
        exchange.identity = identity
        exchange.seen = 0
        exchange.patience(self.patience)
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
        # An answer with an error may have what the SDK has for it.
        if "status" in expected or "error" in expected:
            wanted = expected.pop("status", 200)
            wanted = wanted if isinstance(wanted, list) else [wanted]
            # Which status the SDK has for the same refusal, with its reason in targets.json.
            same = self.world.target.get("same", {})
            wanted = wanted + [status for one in wanted for status in same.get(str(one), ())]
            if exchange.status not in wanted:
                raise Mismatch(f"status {' or '.join(map(str, wanted))}, not {exchange.status} {bytes(exchange.body[:400])!r}")
        elif exchange.status != 200:
            raise Mismatch(f"status 200, not {exchange.status} {bytes(exchange.body[:400])!r}")
        for name, pattern in expected.pop("header", {}).items():
            found = exchange.header(name)
            match(pattern, MISSING if found is None else found, self.names, name)
        if "events" in expected:
            self.events(exchange, expected.pop("events"), expected.pop("skip", False))
        for kind in ("has", "lacks"):
            if kind in expected:
                match({f"~{kind}": substitute(expected.pop(kind), self.names)}, exchange.body.decode("utf-8", "replace"), self.names, "the body")
        for what, pattern in expected.items():
            match(pattern, self.found(exchange, what), self.names, what)

    def found(self, exchange, what):
        """`answer`: the answer to the request; `result`: its result, `text`: the text of that; `error`: its error; `messages`: all messages; `json`: the body."""
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
        if what == "refused":
            # FastMCP has a result of a tool for it.
            told = answers[0].get("error") or answers[0]["result"]
            text = told.get("message") or told["content"][0]["text"]
            return (told.get("code") == -32603 or told.get("isError") is True) and "again" in text
        if what in ("text", "result"):
            if "result" not in answers[0]:
                raise Mismatch(f"there is no result in {json.dumps(answers[0])[:400]}")
            if what == "result":
                return answers[0]["result"]
            content = answers[0]["result"].get("content") or [{}]
            return content[0].get("text", MISSING)
        raise ValueError(f"there is nothing called {what} to expect")

    def events(self, exchange, patterns, skip):
        """The next messages of a stream, in this order. `event` binds the event's id; `times`: so many in a row. `skip`: those before the first
        that fits are passed over.
        """
        for pattern in patterns:
            pattern = dict(pattern)
            event, times = pattern.pop("event", None), pattern.pop("times", 1)
            for _ in range(times):
                number, message = self.next_message(exchange, pattern)
                while skip and not fits(pattern, message, self.names):
                    number, message = self.next_message(exchange, pattern)
                match(pattern, message, self.names, "event")
            if event:
                match(event, number if number is not None else MISSING, self.names, "the event's id")

    def next_message(self, exchange, pattern):
        while len(exchange.messages()) <= exchange.seen:
            if not exchange.more() and len(exchange.messages()) <= exchange.seen:
                raise Mismatch(f"the stream ended before {json.dumps(pattern)}: {bytes(exchange.body[-400:])!r}")
        exchange.seen += 1
        return exchange.messages()[exchange.seen - 1]

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
        exchange.patience(self.patience)
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
            self.names["killed"] = datetime.datetime.now(datetime.timezone.utc).isoformat()
            self.world.kill()
            self.world.start()
        elif order == "deploy":
            # The same app in another version, which has a tool that the former one had not.
            self.world.deploy()
        elif order == "end":
            # As a supervisor ends it, by SIGTERM.
            self.world.end()
            self.world.start()
        elif order == "kill daemon":
            self.world.kill("daemon")
            self.world.start_daemon()
        elif order == "stop daemon":
            # Nor is another one started: a directory that others may enter is not used.
            self.world.kill("daemon")
            self.world.directory.chmod(0o777)
        elif order == "start daemon":
            self.world.directory.chmod(0o700)
            self.world.start_daemon()
        elif order == "kill all":
            self.world.kill("daemon")
            self.world.kill()
            self.world.start_daemon()
            self.world.start()
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
    "begin task": Run.begin_task, "task": Run.task, "update": Run.acknowledged, "cancel": Run.acknowledged, "logged": Run.logged, "log": Run.log, "check": Run.check,
    "answer all": Run.answer_all, "repeat": Run.repeat, "each": Run.repeat,
    "delete": lambda run, step, path: run.exchange("DELETE", path, run.headers(step, {}), b"", step),
}
