"""What drives a host: `Terminal` by keys, `Peer` by JSON-RPC, `Client` as the client of a gateway."""

import contextlib
import fcntl
import itertools
import json
import os
import pty
import re
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

from harness import number, until


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
                # What comes after close() nobody reads.
                if self.log.closed:
                    return
                self.log.write(line.decode(errors="replace"))
                self.log.flush()
                with contextlib.suppress(ValueError):
                    message = json.loads(line)
                    if "method" not in message:
                        self.answers[message["id"]] = message
                    elif "id" in message:
                        self.write({"jsonrpc": "2.0", "id": message["id"], "result": self.on_request(message["method"], message["params"])})
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
        with self.arrived:
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
