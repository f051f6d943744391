"""Clients with little between their clock and the kernel: over HTTP with one connection, and on stdio."""

import json, os, select, socket, subprocess, time

# What is read at one time.
CHUNK = 256 * 1024
OLDER, MODERN = "2025-11-25", "2026-07-28"
# Ids have one length, so that a request is made once and sent with many ids.
FIRST_ID = 100_000_000
# Seconds after which a connection without requests may be closed by some gateways.
IDLE = 2
CLIENT = {"name": "bench", "version": "1"}


class Lost(Exception):
    """There is no answer, or not in time."""


class Refused(Exception):
    """The answer is an error. `args`: its status and its message."""


def message_of(method, params, era):
    """A request with the first id."""
    if era == MODERN:
        meta = {"protocolVersion": MODERN, "clientCapabilities": {}, "clientInfo": CLIENT}
        params = {**params, "_meta": {f"io.modelcontextprotocol/{key}": value for key, value in meta.items()}}
    return json.dumps({"jsonrpc": "2.0", "id": FIRST_ID, "method": method, "params": params}).encode()


def events(body):
    """The whole events of a stream so far: id and data."""
    *whole, _ = body.replace(b"\r\n", b"\n").decode().split("\n\n")
    for event in whole:
        fields = [line.partition(":") for line in event.split("\n") if not line.startswith(":")]
        of = lambda name: "\n".join(value.removeprefix(" ") for key, _, value in fields if key == name)
        if fields:
            yield of("id"), of("data")


class Reply:
    """What came for one request so far."""

    def __init__(self):
        self.raw, self.body, self.at = bytearray(), bytearray(), 0
        self.status, self.headers, self.complete = None, {}, False

    def feed(self, data):
        self.raw += data
        if self.status is None:
            end = self.raw.find(b"\r\n\r\n")
            if end < 0:
                return
            first, *rest = self.raw[:end].decode("latin-1").split("\r\n")
            self.status, self.at = int(first.split()[1]), end + 4
            self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest)}
        if self.headers.get("transfer-encoding") == "chunked":
            self.chunks()
        elif self.status == 204 or "content-length" in self.headers:
            self.body += self.raw[self.at :]
            self.at = len(self.raw)
            self.complete = len(self.body) >= int(self.headers.get("content-length", 0))

    def chunks(self):
        while (line := self.raw.find(b"\r\n", self.at)) >= 0:
            length = int(self.raw[self.at : line].split(b";")[0], 16)
            end = line + 2 + length
            if len(self.raw) < end + 2:
                return
            if not length:
                self.complete = True
                return
            self.body += self.raw[line + 2 : end]
            self.at = end + 2

    def messages(self):
        """The messages of MCP that came."""
        if self.headers.get("content-type", "").startswith("text/event-stream"):
            return [json.loads(data) for _, data in events(self.body) if data]
        try:
            return [json.loads(self.body)] if self.body else []
        except ValueError:
            return []

    def result(self):
        """The result that answers the request."""
        answer = next((one for one in self.messages() if "method" not in one and ("result" in one or "error" in one)), None)
        if not answer or "error" in answer or answer["result"].get("isError"):
            said = answer["error"] if answer and "error" in answer else self.body[:200].decode(errors="replace")
            raise Refused(self.status, said)
        return answer["result"]


class Http:
    """A client with one connection. `era` says which version of MCP it speaks; without a session its gateway has none."""

    def __init__(self, port, path, era=OLDER):
        self.port, self.path, self.era = port, path, era
        self.session, self.version = None, era
        self.socket, self.used, self.number = None, 0, FIRST_ID
        self.prepared = self.least = None

    # One request at a time.

    def initialize(self):
        """Begins a session; nothing in the later era, which has none."""
        if self.era == OLDER:
            self.version = None
            params = {"protocolVersion": OLDER, "capabilities": {}, "clientInfo": CLIENT}
            reply = self.ask("initialize", params)
            self.version = reply.result()["protocolVersion"]
            self.session = reply.headers.get("mcp-session-id")
            self.post(self.head(None) + self.sized(b'{"jsonrpc":"2.0","method":"notifications/initialized"}'))
            if self.whole().status != 202:
                raise Refused(self.reply.status, bytes(self.reply.body[:200]))
        return self

    def head(self, method, name=None):
        lines = [f"POST {self.path} HTTP/1.1", *self.common(), "Content-Type: application/json"]
        if self.era == MODERN:
            lines += [f"Mcp-Method: {method}", *([f"Mcp-Name: {name}"] if name else [])]
        return "".join(f"{line}\r\n" for line in lines).encode()

    def common(self):
        of = [("MCP-Protocol-Version", self.version), ("Mcp-Session-Id", self.session)]
        more = [f"{name}: {value}" for name, value in of if value]
        return [f"Host: 127.0.0.1:{self.port}", "Accept: application/json, text/event-stream", *more]

    @staticmethod
    def sized(body):
        return b"Content-Length: %d\r\n\r\n%b" % (len(body), body)

    def connect(self):
        self.close()
        self.socket = socket.create_connection(("127.0.0.1", self.port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.used = time.monotonic()

    def ready(self):
        """Connects, unless a connection is there that nobody can have closed."""
        if not self.socket or time.monotonic() > self.used + IDLE:
            self.connect()

    def close(self):
        if self.socket:
            self.socket.close()
        self.socket = None

    def post(self, request):
        self.ready()
        self.reply = Reply()
        self.socket.sendall(request)

    def send(self, method, params):
        """Sends a request; its reply is not read yet."""
        self.post(self.head(method, params.get("name")) + self.sized(message_of(method, params, self.era)))

    def ask(self, method, params, seconds=30):
        """The whole reply."""
        self.send(method, params)
        return self.whole(seconds)

    def tool(self, name, arguments=None, seconds=30):
        """The text that it answers."""
        params = {"name": name, "arguments": arguments or {}}
        return self.ask("tools/call", params, seconds).result()["content"][0]["text"]

    def whole(self, seconds=30):
        """The reply."""
        self.read_until(lambda reply: reply.complete, seconds)
        self.used = time.monotonic()
        if self.reply.headers.get("connection") == "close":
            self.close()
        return self.reply

    def read_until(self, enough, seconds):
        """Reads until there is enough, or the reply is complete."""
        until = time.monotonic() + seconds
        while not (enough(self.reply) or self.reply.complete):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.socket], [], [], left)[0]:
                raise Lost("no answer in time")
            data = self.socket.recv(CHUNK)
            if not data:
                raise Lost("the connection was closed")
            self.reply.feed(data)

    def resume(self, event):
        """Asks for the rest of a stream."""
        lines = [f"GET {self.path} HTTP/1.1", *self.common(), f"Last-Event-ID: {event}"]
        self.reply = Reply()
        self.socket.sendall("".join(f"{line}\r\n" for line in [*lines, ""]).encode())

    # Many of the same calls.

    def prepare(self, tool, arguments, least):
        """The call that is made from now on, and how many bytes its answer has at least."""
        params = {"name": tool, "arguments": arguments}
        body = message_of("tools/call", params, self.era)
        request = self.head("tools/call", tool) + self.sized(body)
        self.prepared, self.least = request.split(b"%d" % FIRST_ID), least
        self.asked = (tool, arguments)

    def look(self):
        """Makes the call once, and looks at the whole answer."""
        if len(text := self.tool(*self.asked)) != self.least:
            raise Refused(self.reply.status, text[:200])

    def fileno(self):
        return self.socket.fileno()

    def call(self):
        """Sends the call."""
        self.number += 1
        self.reply = Reply()
        before, after = self.prepared
        self.socket.sendall(b"%b%d%b" % (before, self.number, after))

    def take(self):
        """Reads once. Whether the answer is complete."""
        reply = self.reply
        data = self.socket.recv(CHUNK)
        if not data:
            raise Lost("the connection was closed")
        reply.feed(data)
        if not reply.complete:
            return False
        if reply.status != 200 or len(reply.body) < self.least:
            raise Refused(reply.status, bytes(reply.body[-400:]))
        self.used = time.monotonic()
        return True


class Stdio:
    """A client of the server itself, as its child, with the same calls."""

    def __init__(self, command, era=OLDER):
        self.era, self.number = era, FIRST_ID
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        self.input, self.output = self.process.stdin.fileno(), self.process.stdout.fileno()

    def initialize(self):
        return self

    def ready(self):
        """It always is."""

    def prepare(self, tool, arguments, least):
        body = message_of("tools/call", {"name": tool, "arguments": arguments}, self.era) + b"\n"
        self.prepared, self.least = body.split(b"%d" % FIRST_ID), least

    def look(self):
        """What the server answers is looked at through the gateways."""

    def fileno(self):
        return self.output

    def call(self):
        self.number += 1
        self.got = 0
        before, after = self.prepared
        os.write(self.input, b"%b%d%b" % (before, self.number, after))

    def take(self):
        data = os.read(self.output, CHUNK)
        if not data:
            raise Lost("the server has exited")
        self.got += len(data)
        if not data.endswith(b"\n"):
            return False
        if self.got < self.least:
            raise Refused(None, data[:200])
        return True

    def close(self):
        self.process.stdin.close(), self.process.stdout.close()
        self.process.wait()
