"""One request over a socket of its own, and its response as it comes: no library corrects what a case sends or what a target answers."""

import json
import re
import socket
import time
import zlib

# How long a case waits for what has to come, in seconds. A target that is silent for so long has failed.
PATIENCE = 60

EVENT_END = re.compile(rb"\r?\n\r?\n")


class Silent(Exception):
    """What had to come has not come."""


class Exchange:
    """A connection, the bytes sent on it, and the response."""

    def __init__(self, address):
        self.socket = socket.create_connection(address, timeout=PATIENCE)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.until = time.monotonic() + PATIENCE
        # What was read and not used yet; None once the peer has closed its side.
        self._rest, self._is_closed = bytearray(), False
        self.status, self.headers, self.body = None, [], bytearray()
        self._forget()
        # Whether the whole body is there.
        self.is_whole = False
        self._left = None
        self._chunked = False

    def send(self, data):
        self.socket.sendall(data)

    def half_close(self):
        self.socket.shutdown(socket.SHUT_WR)

    def close(self):
        self.socket.close()

    def patience(self, seconds=PATIENCE):
        self.until = time.monotonic() + seconds

    def _read(self):
        left = self.until - time.monotonic()
        if left <= 0:
            raise Silent("no more bytes came in time")
        self.socket.settimeout(left)
        try:
            data = self.socket.recv(1 << 20)
        except TimeoutError:
            raise Silent("no more bytes came in time") from None
        except OSError:
            data = b""
        if not data:
            self._is_closed = True
        self._rest += data

    def _line(self):
        seen = 0
        while (end := self._rest.find(b"\n", seen)) < 0:
            if self._is_closed:
                raise Silent("the connection was closed before a whole response")
            seen = len(self._rest)
            self._read()
        return bytes(self._take(end + 1)).rstrip(b"\r\n")

    def _take(self, size):
        part = self._rest[:size]
        del self._rest[:size]
        return part

    def head(self):
        """Reads up to the body."""
        while self.status in (None, 100):
            self.status = int(self._line().split(b" ")[1])
            self.headers = []
            while line := self._line():
                name, _, value = line.partition(b":")
                self.headers.append((name.decode("latin-1").lower(), value.strip().decode("latin-1")))
        self._chunked = "chunked" in (self.header("transfer-encoding") or "").lower()
        length = self.header("content-length")
        self._left = None if self._chunked or length is None else int(length)
        if self.status in (204, 304):
            self._left = 0

    def header(self, name):
        return next((value for key, value in self.headers if key == name), None)

    def more(self):
        """Reads a part of the body. False: that was all."""
        if self.is_whole:
            return False
        if self._chunked:
            size = int(self._line().split(b";")[0] or b"0", 16)
            while len(self._rest) < size + 2 and not self._is_closed:
                self._read()
            if len(self._rest) < size:
                raise Silent("the connection was closed within a chunk")
            self.body += self._take(size)
            self._take(2)
            self.is_whole = size == 0
        elif self._left is None:
            if not self._rest and not self._is_closed:
                self._read()
            self.body += self._take(len(self._rest))
            self.is_whole = self._is_closed
        else:
            if not self._rest and self._left and not self._is_closed:
                self._read()
            part = self._take(self._left)
            self.body += part
            self._left -= len(part)
            if self._left and self._is_closed:
                raise Silent("the connection was closed within the body")
            self.is_whole = not self._left
        return not self.is_whole

    def whole(self):
        """Reads the rest of the response."""
        if self.status is None:
            self.head()
        while self.more():
            pass

    @property
    def is_stream(self):
        return (self.header("content-type") or "").startswith("text/event-stream")

    def events(self):
        """The whole events of the stream so far, each with `id`, `event` and `data`, as far as they are there."""
        while end := EVENT_END.search(self.body, self._searched):
            block = self.body[self._read_to:end.start()].decode("utf-8", "replace").replace("\r\n", "\n")
            self._read_to = self._searched = end.end()
            event = {}
            for line in block.split("\n"):
                name, _, value = line.partition(":")
                if name in ("id", "event", "data", "retry"):
                    value = value.removeprefix(" ")
                    event[name] = f"{event[name]}\n{value}" if name == "data" and name in event else value
            if event:
                self._events.append(event)
        # An end may have come in part.
        self._searched = max(self._read_to, len(self.body) - 3)
        return self._events

    def _forget(self):
        # The whole events, the messages of the first of them, how many that are, and up to where the body was read and searched: many MiB are
        # read once.
        self._events, self._messages, self._told, self._read_to, self._searched = [], [], 0, 0, 0

    def decompress(self):
        """Reads the body of what has come whole as gzip."""
        self.body = bytearray(zlib.decompress(self.body, wbits=31))
        self._forget()

    def messages(self):
        """The JSON-RPC messages so far: `(id of the event, message)`. What is not JSON is a text."""
        def read(text):
            def refuse(name):
                raise ValueError(f"{name} is not JSON")
            try:
                return json.loads(text, parse_constant=refuse)
            except (ValueError, RecursionError):
                return text

        if self.is_stream:
            self._messages += [(event.get("id"), read(event["data"])) for event in self.events()[self._told:] if event.get("data")]
            self._told = len(self._events)
            return self._messages
        text = self.body.decode("utf-8", "replace")
        if not text.strip():
            return []
        message = read(text)
        return [(None, one) for one in message] if isinstance(message, list) else [(None, message)]
