"""The wire between a client and `serve`: a proxy that passes each event on by itself, and cuts where it is told to.

It reads HTTP/1.1 as far as it must: where a request and an answer end, which call a stream belongs to, and each event of it.
"""

import asyncio
import contextlib
import json
import socket
import struct
import time
from dataclasses import dataclass, field

# Time that a client gets to read the event that gives it the stream's first id, before the cut that follows on it.
TO_READ = 0.05
# Places of cuts: before a request is passed on, and right after that.
BEFORE, ASKED = -2, -1


@dataclass
class Call:
    """What went over the wire for one call."""

    key: str
    # What is cut once so many of its events were passed on, or BEFORE or ASKED.
    cuts: list = field(default_factory=list)
    # What is cut when its client comes back for the rest: before it is asked for, or right after that.
    return_cuts: list = field(default_factory=list)
    id: object = None
    events: int = 0
    # The ids of the events that answer it.
    answers: list = field(default_factory=list)
    # The ids of the events that tell each number of its progress.
    progress: dict = field(default_factory=dict)
    # The status of its POST, and of each GET for the rest.
    statuses: list = field(default_factory=list)
    resumed: int = 0
    # How many of its requests were not answered, as `serve` was away or the connection was cut.
    failed: int = 0
    # How many streams with the rest of it broke.
    broken: int = 0
    # Whether its client could come back: an event with an id was passed on before its connection was cut for the first time.
    resumable: bool = False
    was_cut: bool = False
    # Whether it is about to be cut.
    waits: bool = False


class Broken(Exception):
    """One of the two sides is gone."""


class Wire:
    """The proxy. `client_port` is where clients come, `serve_port` where `serve` listens."""

    def __init__(self, log):
        self.log, self.began = log, time.monotonic()
        self.serve_port = None
        self.calls, self.now = {}, []
        # Which call each event belongs to.
        self.owners = {}
        # What each event is called in the log.
        self.names = {}
        self.sessions = set()
        self.handshakes = 0
        # Carries out a cut: `await act(what, how)`.
        self.act = None
        self.open = set()

    async def listen(self):
        self.listener = await asyncio.start_server(self._visit, "127.0.0.1", 0)
        self.client_port = self.listener.sockets[0].getsockname()[1]

    def note(self, text):
        """A line of the log of what went over the wire."""
        print(f"{time.monotonic() - self.began:9.3f} {text}", file=self.log, flush=True)

    def name(self, event):
        """A short name of an event's id, for the log."""
        return self.names.setdefault(event, f"e{len(self.names)}") if event else "without id"

    def expect(self, calls):
        """The calls that are made now, at one time."""
        self.now = calls
        self.calls.update((call.key, call) for call in calls)

    async def others_begin(self, call):
        """Waits until every other call has its first event, or is about to be cut before that: the rest can be resumed."""
        call.waits = True
        for _ in range(1000):
            if all(other.resumable or other.was_cut or other.waits for other in self.now):
                return
            await asyncio.sleep(0.005)

    def cut_all(self):
        """Ends every connection, as the kernel does when `serve` is killed."""
        for visit in list(self.open):
            if visit.call:
                visit.call.was_cut = True
            visit.cut("fin")

    async def _visit(self, reader, writer):
        visit = Visit(self, reader, writer)
        self.open.add(visit)
        try:
            await visit.serve()
        except asyncio.CancelledError:
            # The campaign ends.
            return
        except (Broken, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError) as error:
            self.note(f"{visit.name} ends: {type(error).__name__} {error}")
        finally:
            self.open.discard(visit)
            visit.cut("fin")


class Visit:
    """One connection of a client, and its other half to `serve`."""

    count = 0

    def __init__(self, wire, reader, writer):
        Visit.count += 1
        self.name = f"#{Visit.count}"
        self.wire, self.reader, self.writer = wire, reader, writer
        self.up_reader = self.up_writer = None
        # What is being answered.
        self.call = None

    def cut(self, how):
        """Ends both halves: `fin` after what was sent, `reset` at once."""
        if how == "reset":
            with contextlib.suppress(OSError, AttributeError):
                linger = struct.pack("ii", 1, 0)
                self.writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.writer.transport.abort()
        else:
            self.writer.close()
        if self.up_writer:
            self.up_writer.transport.abort()

    async def serve(self):
        while True:
            try:
                head = await self.reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:
                return
            line, headers = parsed(head)
            body = await whole(self.reader, headers) if has_body(headers) else b""
            await self._exchange(line, headers, head, body)

    async def _exchange(self, line, headers, head, body):
        wire = self.wire
        call = self.call = self._call(line, headers, body)
        await self._reach(call, BEFORE)
        await self._return(call, BEFORE)
        if not self.up_writer:
            try:
                self.up_reader, self.up_writer = await asyncio.open_connection("127.0.0.1", wire.serve_port)
            except OSError:
                if call:
                    call.failed += 1
                    call.was_cut = True
                raise
        self.up_writer.write(head + framed(headers, body))
        await self.up_writer.drain()
        await self._reach(call, ASKED)
        await self._return(call, ASKED)
        head = await self.up_reader.readuntil(b"\r\n\r\n")
        status, headers = parsed(head)
        code = int(status.split()[1])
        wire.note(f"{self.name} <- {code} {headers.get('content-type', '')}")
        if session := headers.get("mcp-session-id"):
            wire.sessions.add(session)
        if call:
            call.statuses.append(code)
        self.writer.write(head)
        if headers.get("content-type", "").startswith("text/event-stream"):
            await self._events(call, headers)
        elif line.startswith("HEAD") or code in (204, 304):
            pass
        else:
            body = await whole(self.up_reader, headers)
            wire.note(f"{self.name} <- {body[:300]!r}")
            self._answered(call, body, None)
            self.writer.write(framed(headers, body))
        await self.writer.drain()
        self.call = None

    def _call(self, line, headers, body):
        """Notes the request, and finds the call that it is about."""
        wire, call, said = self.wire, None, ""
        if line.startswith("POST"):
            with contextlib.suppress(ValueError, AttributeError):
                message = json.loads(body)
                said = f"{message.get('method', 'an answer')} id={message.get('id')!r}"
                wire.handshakes += message.get("method") == "initialize"
                if message.get("method") == "tools/call":
                    call = wire.calls.get(message["params"]["arguments"]["key"])
                    call.id = message["id"]
                if message.get("method") == "notifications/cancelled":
                    said += f" {json.dumps(message['params'])}"
        elif event := headers.get("last-event-id"):
            call = wire.owners.get(event)
            if call:
                call.resumed += 1
            said = f"after {wire.name(event)}"
        of = f" of {call.key}" if call else ""
        wire.note(f"{self.name} -> {line.rsplit(' ', 1)[0]} {said}{of}")
        return call

    async def _events(self, call, headers):
        """Passes a stream of events on, one by one."""
        buffer = b""
        try:
            async for data in parts(self.up_reader, headers):
                buffer += data
                while (end := buffer.find(b"\n\n")) >= 0:
                    event, buffer = buffer[:end + 2], buffer[end + 2:]
                    self.writer.write(chunk(event))
                    await self.writer.drain()
                    await self._passed(call, event)
        except Exception:
            if call and call.resumed:
                call.broken += 1
            raise
        self.wire.note(f"{self.name} <- end of stream")
        self.writer.write(b"0\r\n\r\n")

    async def _passed(self, call, event):
        if event.startswith(b":"):
            return
        fields = dict(line.split(": ", 1) for line in event.decode().splitlines() if ": " in line)
        data, name = fields.get("data", ""), fields.get("id", "")
        self.wire.note(f"{self.name} <- event {self.wire.name(name)} {data[:200]}{' of ' + call.key if call else ''}")
        if not call:
            return
        first = name not in self.wire.owners
        if name:
            self.wire.owners[name] = call
            call.resumable |= not call.was_cut
        self._answered(call, data, name)
        if first:
            call.events += 1
            await self._reach(call, call.events - 1)

    def _answered(self, call, data, name):
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(data)
            if call and "method" not in message and message.get("id") == call.id and name not in call.answers:
                call.answers.append(name)
            if call and message.get("method") == "notifications/progress":
                call.progress.setdefault(message["params"]["progress"], set()).add(name)

    async def _reach(self, call, place):
        """Cuts, if this is where."""
        while call and call.cuts and call.cuts[0].at <= place:
            await self.wire.others_begin(call)
            if place == 0:
                await asyncio.sleep(TO_READ)
            await self._make(call.cuts.pop(0), call, place)

    async def _return(self, call, place):
        """Cuts, if this is a client that is back, and where."""
        if call and call.resumed and call.return_cuts and call.return_cuts[0].at == place:
            cut = call.return_cuts.pop(0)
            call.failed += cut.breaks
            await self._make(cut, call, place)

    async def _make(self, cut, call, place):
        call.was_cut |= cut.breaks
        self.wire.note(f"{self.name} CUT {cut.what} ({cut.how}) at {place} of {call.key}")
        await self.wire.act(cut)
        if cut.what == "connection":
            if cut.how == "end" and place >= 0:
                self.writer.write(b"0\r\n\r\n")
                await self.writer.drain()
            if cut.scope == "all":
                self.wire.cut_all()
            self.cut(cut.how)
            raise Broken("cut")
        if self.writer.is_closing():
            raise Broken("serve was killed")


def parsed(head):
    """The first line and the headers, with names in lower case."""
    first, *rest = head.decode("latin-1").split("\r\n")
    return first, {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in rest if line)}


def has_body(headers):
    return "content-length" in headers or "transfer-encoding" in headers


def chunk(data):
    return b"%x\r\n%s\r\n" % (len(data), data)


def framed(headers, body):
    """A body as its headers announce it."""
    if "transfer-encoding" not in headers:
        return body
    return (chunk(body) if body else b"") + b"0\r\n\r\n"


async def parts(reader, headers):
    """The parts of a body."""
    if headers.get("transfer-encoding", "").lower() == "chunked":
        while True:
            size = int((await reader.readuntil(b"\r\n")).split(b";")[0], 16)
            data = await reader.readexactly(size + 2)
            if not size:
                return
            yield data[:-2]
    elif "content-length" in headers:
        if length := int(headers["content-length"]):
            yield await reader.readexactly(length)


async def whole(reader, headers):
    return b"".join([part async for part in parts(reader, headers)])
