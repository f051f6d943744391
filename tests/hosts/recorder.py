"""What goes over the wire between a host and `serve`: a proxy on loopback that passes every byte on as it comes, and writes
down each request, each response and each event of a stream."""

import contextlib
import itertools
import json
import socket
import threading
import time

# Headers that tell how a client speaks; all others say nothing of MCP.
TOLD = ("accept", "authorization", "last-event-id", "mcp-protocol-version", "mcp-session-id", "mcp-method", "mcp-name",
        "content-type", "user-agent", "retry-after", "cookie", "origin")


class Recorder:
    """The proxy. `port` is where the host comes. While it is down, connections to it are refused, as those to a killed `serve` are."""

    def __init__(self, log):
        self.log, self.began, self.notes, self.lock = log, time.monotonic(), [], threading.Lock()
        self.numbers, self.listener, self.port, self.serve_port = itertools.count(1), None, 0, None

    def up(self, serve_port):
        """Listens, at the same port each time, and passes on to `serve_port`."""
        self.serve_port = serve_port
        self.listener = socket.create_server(("127.0.0.1", self.port), backlog=64)
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, args=[self.listener], daemon=True).start()

    def down(self):
        """Listens no more. What is open stays open until one of its ends closes it."""
        if self.listener:
            # close() alone would leave it listening while the thread waits in accept().
            with contextlib.suppress(OSError):
                self.listener.shutdown(socket.SHUT_RDWR)
            self.listener.close()
            self.listener = None

    def accept(self, listener):
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                number = next(self.numbers)
                try:
                    serve = socket.create_connection(("127.0.0.1", self.serve_port))
                except OSError:
                    client.close()
                    continue
                for ends in ((client, serve, Reader(self, number, True)), (serve, client, Reader(self, number, False))):
                    threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, sink, reader):
        """One direction of a connection."""
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                reader.read(data)
                sink.sendall(data)
        reader.end()
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        if not reader.of_client:
            # `serve` is gone: so is this connection, for whoever is at its other end.
            with contextlib.suppress(OSError):
                sink.shutdown(socket.SHUT_RDWR)

    def note(self, number, what, **more):
        """One line: what was seen on which connection."""
        entry = {"at": round(time.monotonic() - self.began, 3), "connection": number, "what": what, **more}
        with self.lock, open(self.log, "a") as log:
            self.notes.append(entry)
            log.write(json.dumps(entry) + "\n")

    def seen(self, what, method=None):
        """All that was seen of a kind: `request` (of an HTTP or MCP method), `response`, `event`, `end`."""
        with self.lock:
            return [one for one in self.notes if one["what"] == what and method in (None, one.get("http"), one.get("method"))]


class Reader:
    """One direction of a connection, read as HTTP/1.1."""

    def __init__(self, recorder, number, of_client):
        self.recorder, self.number, self.of_client, self.rest = recorder, number, of_client, b""
        self.body = self.take_head()
        next(self.body)

    def read(self, data):
        self.rest += data
        with contextlib.suppress(StopIteration):
            self.body.send(None)

    def end(self):
        self.recorder.note(self.number, "end", by="the host" if self.of_client else "serve")

    def line(self):
        """A line, once it is there."""
        while b"\r\n" not in self.rest:
            yield
        line, self.rest = self.rest.split(b"\r\n", 1)
        return line.decode("latin-1")

    def exactly(self, count):
        """So many bytes, once they are there."""
        while len(self.rest) < count:
            yield
        data, self.rest = self.rest[:count], self.rest[count:]
        return data

    def take_head(self):
        yield
        while True:
            first, headers = (yield from self.line()), {}
            while line := (yield from self.line()):
                name, _, value = line.partition(":")
                headers[name.lower()] = value.strip()
            told = {name: headers[name] for name in TOLD if name in headers}
            if "authorization" in told:
                told["authorization"] = told["authorization"].split(" ")[0] + " …"
            if self.of_client:
                yield from self.take_request(first, headers, told)
            else:
                yield from self.take_response(first, headers, told)

    def take_request(self, first, headers, told):
        body = b""
        if "content-length" in headers:
            body = yield from self.exactly(int(headers["content-length"]))
        elif "transfer-encoding" in headers:
            chunks = []
            while chunk := (yield from self.chunk()):
                chunks.append(chunk)
            body = b"".join(chunks)
        http, path, _ = first.split(" ", 2)
        message = loaded(body)
        self.recorder.note(self.number, "request", http=http, path=path, headers=told, **said(message))

    def take_response(self, first, headers, told):
        status = int(first.split(" ")[1])
        self.recorder.note(self.number, "response", status=status, headers=told)
        if status == 204 or 100 <= status < 200:
            return
        is_stream = headers.get("content-type", "").startswith("text/event-stream")
        if "content-length" in headers:
            body = yield from self.exactly(int(headers["content-length"]))
            if body:
                self.recorder.note(self.number, "body", **said(loaded(body)))
            return
        events = b""
        while chunk := (yield from self.chunk()):
            events += chunk
            while is_stream and b"\n\n" in events:
                event, events = events.split(b"\n\n", 1)
                self.tell(event.decode(errors="replace"))
        self.recorder.note(self.number, "whole")

    def chunk(self):
        size = int((yield from self.line()).split(";")[0], 16)
        data = yield from self.exactly(size)
        yield from self.line()
        return data

    def tell(self, event):
        fields = dict(line.split(": ", 1) for line in event.splitlines() if ": " in line and not line.startswith(":"))
        if fields:
            message = said(loaded(fields.get("data", "").encode()))
            self.recorder.note(self.number, "event", **{name: fields[name] for name in ("id", "event", "retry") if name in fields}, **message)


def loaded(body):
    try:
        return json.loads(body)
    except ValueError:
        return {"text": body.decode(errors="replace")[:200]} if body else None


def said(message):
    """What a message says, in short."""
    if not isinstance(message, dict):
        return {} if message is None else {"message": message}
    return {**({"method": message["method"]} if "method" in message else {}), "message": message}
