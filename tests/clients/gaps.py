"""A proxy in front of `serve` that kills `serve` or the daemon, one after the other, in every gap between two
requests.

A request is held until what was killed is there again. No gap is before a request that comes while another one of
its session is open, unless it answers what the server has asked in that one; nor before a GET with `Last-Event-ID`,
which a client sends because of a kill.

MCP 2026-07-28 has no sessions, and a request ends with its connection. A `subscriptions/listen` stays open, so other
requests come after it and not beside it. No client could resume it, so only the daemon is killed until one of these is
answered; after that the suite reads no more of it, though it leaves some open.
"""

import asyncio
import contextlib
import json
import time

from wire import TO_READ, chunk, framed, has_body, parsed, parts, whole

WHAT = ["serve", "daemon"]


class Gaps:
    """The proxy. `await kill(what)` kills, and brings back what was killed; without it nothing is killed."""

    def __init__(self, log, kill=None):
        self.log, self.kill, self.began = log, kill, time.monotonic()
        self.serve_port = None
        self.one_at_a_time = asyncio.Lock()
        # Requests, those of them that come because of a kill, and those that come beside others.
        self.requests = self.resumes = self.beside = 0
        self.kills = dict.fromkeys(WHAT, 0)
        # Requests that have no answer yet.
        self.unanswered = {}
        # GETs that have no event yet: a client whose connection is cut then does not come back.
        self.unprimed = set()
        self.streams = 0
        self.visits = set()

    async def listen(self):
        self.listener = await asyncio.start_server(self._visit, "127.0.0.1", 0)
        self.client_port = self.listener.sockets[0].getsockname()[1]

    def note(self, text):
        """A line of the log of what went over the wire."""
        print(f"{time.monotonic() - self.began:9.3f} {text}", file=self.log, flush=True)

    async def _visit(self, reader, writer):
        """One request. No client uses its connection for another one: when more comes, it has hung up."""
        self.visits.add(asyncio.current_task())
        carrying = None
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            line, headers = parsed(head)
            body = await whole(reader, headers) if has_body(headers) else b""
            carrying = asyncio.create_task(Exchange(self, writer, line, headers, body).carry(head))
            hung_up = asyncio.create_task(reader.read())
            await asyncio.wait([carrying, hung_up], return_when=asyncio.FIRST_COMPLETED)
            hung_up.cancel()
            if carrying.done():
                carrying.result()
        except (OSError, EOFError, asyncio.LimitOverrunError, ValueError) as error:
            self.note(f"cut: {type(error).__name__} {error}")
        finally:
            if carrying:
                carrying.cancel()
                await asyncio.wait([carrying])
            writer.close()
            self.visits.discard(asyncio.current_task())

    async def close(self):
        self.listener.close()
        for visit in self.visits:
            visit.cancel()
        await asyncio.gather(*self.visits, return_exceptions=True)

    async def gap(self, exchange):
        """Kills, if a gap is before this request."""
        async with self.one_at_a_time:
            self.requests += 1
            self.resumes += exchange.is_resume
            is_gap = self.requests > 1 and exchange.is_next()
            self.beside += self.requests > 1 and not is_gap and not exchange.is_resume
            if self.kill and is_gap:
                is_heard = any(one.is_heard for one in self.unanswered.values())
                what = "daemon" if is_heard else WHAT[sum(self.kills.values()) % 2]
                while self.unprimed:
                    await asyncio.sleep(0.005)
                if self.streams:
                    await asyncio.sleep(TO_READ)
                self.kills[what] += 1
                self.note(f"KILL {what}")
                await self.kill(what)
            exchange.begin()


class Exchange:
    """One request and its answer, over a connection of its own to `serve`."""

    count = 0

    def __init__(self, gaps, writer, line, headers, body):
        Exchange.count += 1
        self.gaps, self.writer, self.name = gaps, writer, f"#{Exchange.count}"
        self.line, self.headers, self.body, self.message = line, headers, body, {}
        with contextlib.suppress(ValueError):
            self.message = json.loads(body)
        if not isinstance(self.message, dict):
            self.message = {}
        self.session, self.is_resume = headers.get("mcp-session-id"), "last-event-id" in headers
        self.method = self.message.get("method", "")
        self.listens = self.is_heard = self.method == "subscriptions/listen"
        # A request of a session may be answered over another connection, any other one over its own only.
        self.lasts = self.session is not None or self.method == "initialize"
        self.key = (self.session, self.message.get("id")) if self.lasts else self

    async def carry(self, head):
        await self.gaps.gap(self)
        upward = None
        try:
            back, upward = await asyncio.open_connection("127.0.0.1", self.gaps.serve_port)
            upward.write(head + framed(self.headers, self.body))
            await self._answer(back)
            await self.writer.drain()
        finally:
            self.gaps.unprimed.discard(self)
            if not self.lasts:
                self.gaps.unanswered.pop(self.key, None)
            if upward:
                upward.transport.abort()

    def is_next(self):
        """Whether the client sends this after its former requests, and not beside them."""
        if self.is_resume:
            return False
        answers = "id" in self.message and not self.method
        return answers or not any(one.session == self.session and not one.listens for one in self.gaps.unanswered.values())

    def begin(self):
        self.gaps.note(f"{self.name} -> {self.line} {self.method} {self.message.get('id', '')}")
        if "id" in self.message and self.method:
            self.gaps.unanswered[self.key] = self
        if self.line.startswith("GET") and not self.is_resume:
            self.gaps.unprimed.add(self)

    async def _answer(self, back):
        head = await back.readuntil(b"\r\n\r\n")
        status, headers = parsed(head)
        self.gaps.note(f"{self.name} <- {status}")
        # The client opens another one for its next request.
        self.writer.write(head[:-2] + b"connection: close\r\n\r\n")
        if headers.get("content-type", "").startswith("text/event-stream"):
            self.gaps.streams += 1
            try:
                await self._events(back, headers)
            finally:
                self.gaps.streams -= 1
        elif " 204 " not in f"{status} ":
            body = await whole(back, headers)
            self._said(body)
            if int(status.split()[1]) >= 400:
                # Whatever it says: this is the answer.
                self._answered(self.key)
            self.writer.write(framed(headers, body))

    async def _events(self, back, headers):
        buffer = b""
        async for data in parts(back, headers):
            self.writer.write(chunk(data))
            await self.writer.drain()
            *events, buffer = (buffer + data).split(b"\n\n")
            for event in events:
                if b"id: " in event:
                    self.gaps.unprimed.discard(self)
                lines = event.decode().splitlines()
                self._said("".join(line[6:] for line in lines if line.startswith("data: ")))
        self.writer.write(b"0\r\n\r\n")

    def _said(self, text):
        """Notes which request a message answers."""
        with contextlib.suppress(ValueError, AttributeError):
            message = json.loads(text)
            error = json.dumps(message["error"]) if "error" in message else ""
            self.gaps.note(f"{self.name} <- {message.get('method', 'answer')} {message.get('id', '')} {error}".rstrip())
            if "method" not in message:
                self._answered((self.session, message.get("id")) if self.lasts else self)

    def _answered(self, key):
        self.gaps.unanswered.pop(key, None)
        for one in self.gaps.unanswered.values():
            one.is_heard = False
