"""The connections of a host: over stdio to a front, and over HTTP to `serve`. Both are used alike."""

import asyncio
import contextlib
import json

from wire import parsed, parts, whole

CLIENT = {"name": "kills", "version": "1"}
VERSION = "2025-11-25"
# Seconds from the end of input after which a host sends a signal: the SDKs wait for 2.
SIGNALLED = 0.2


class Call:
    """One call of the server `name`, and what became of it: `text`, or `error`; neither where its connection has ended before.
    What it is refused with is added to `refusals`."""

    def __init__(self, name, key, refusals):
        self.name, self.key, self.refusals = name, key, refusals
        self.text, self.error, self.done = None, None, asyncio.Event()

    def answered(self, message):
        if "error" in message:
            self.error = message["error"]
            self.refusals.append(self.error.get("message", ""))
        else:
            self.text = message["result"]["content"][0]["text"]
        self.done.set()

    @property
    def outcome(self):
        return ((self.error or {}).get("data") or {}).get("outcome")


def request(number, method, params):
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def tool_call(number, call, gate):
    arguments = {"key": call.key, **({"gate": str(gate)} if gate else {})}
    return request(number, "tools/call", {"name": f"work_{call.name[0]}", "arguments": arguments})


def initialize(number):
    return request(number, "initialize", {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": CLIENT})


def discover(number):
    meta = {"io.modelcontextprotocol/protocolVersion": "2026-07-28", "io.modelcontextprotocol/clientInfo": CLIENT,
            "io.modelcontextprotocol/clientCapabilities": {}}
    return request(number, "server/discover", {"_meta": meta})


def list_tools(number):
    return request(number, "tools/list", {})


INITIALIZED = {"jsonrpc": "2.0", "method": "notifications/initialized"}


class Stdio:
    """One front. Its ids begin with 1, as those of the connection before did. `bad(what, why)` is told what must not be; `errors` is the file
    for its standard error, and `command` another command than the world's. `environment` is what the host gives this one beside the world's.
    """

    def __init__(self, world, bad, errors, command=None, environment=()):
        self.world, self.bad, self.errors, self.command = world, bad, errors, command or world.command
        self.environment = {**world.environment, **dict(environment)}
        self.last, self.waiting, self.calls, self.process = 0, {}, {}, None

    async def spawn(self):
        with open(self.errors, "ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log,
                env=self.environment, cwd=self.world.root, limit=2**24)
        self.reading = asyncio.create_task(self._read())
        return self

    async def start(self, probes=False, seconds=60):
        """Connects. False: the front has ended before."""
        await self.spawn()
        return await self.initialize(probes, seconds)

    async def initialize(self, probes=False, seconds=60):
        """Connects on a front that runs."""
        if probes and await self.ask(discover, seconds) is None:
            return False
        answer = await self.ask(initialize, seconds)
        if answer is None:
            return False
        if "error" in answer:
            self.bad("lost", f"initialize: {answer['error']}")
        self.write(INITIALIZED)
        return await self.ask(list_tools, seconds) is not None

    @property
    def is_there(self):
        return self.process.returncode is None and not self.reading.done()

    def write(self, message):
        # It may have been killed.
        with contextlib.suppress(OSError, RuntimeError):
            self.process.stdin.write(json.dumps(message).encode() + b"\n")

    async def ask(self, make, seconds=60):
        """The whole answer, or None where the connection has ended."""
        self.last += 1
        waiting = self.waiting[self.last] = asyncio.get_running_loop().create_future()
        self.write(make(self.last))
        return await asyncio.wait_for(waiting, seconds)

    def begin(self, call, gate=None):
        self.last += 1
        self.calls[self.last] = call
        self.write(tool_call(self.last, call, gate))
        return call

    async def _read(self):
        # What a front had written is read to its end also after a kill.
        while line := await self.process.stdout.readline():
            if not line.endswith(b"\n"):
                break
            message = json.loads(line)
            if "method" not in message:
                self._answered(message)
        for call in self.calls.values():
            call.done.set()
        for waiting in self.waiting.values():
            if not waiting.done():
                waiting.set_result(None)

    def _answered(self, message):
        if waiting := self.waiting.pop(message["id"], None):
            return waiting.done() or waiting.set_result(message)
        call = self.calls.pop(message["id"], None)
        if call is None:
            return self.bad("wrong", f"an answer to nobody: {message}")
        call.answered(message)

    async def close(self, seconds=15):
        """As a host closes: the end of input, a signal to a front that has not ended then, as it waits for answers, and the front's own end.
        False: it has not come in time.
        """
        with contextlib.suppress(OSError, RuntimeError):
            self.process.stdin.close()
        for patience, signal in ((SIGNALLED, self.process.terminate), (seconds, self.process.kill)):
            try:
                await asyncio.wait_for(self.process.wait(), patience)
                break
            except asyncio.TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    signal()
        else:
            await self.process.wait()
            return False
        await self.reading
        return True

    async def gone(self):
        """Waits for its end, once it was killed."""
        await self.process.wait()
        await self.reading


class Http:
    """One session with `serve`. A connection that breaks is resumed by the last event's id. What it is told about losses goes to the world's
    `notices`.
    """

    # Calls under way, those of former sessions, too: nothing else refers to a task that waits for a StreamReader, so that it could be collected.
    tasks = set()

    def __init__(self, world, bad, errors):
        self.world, self.bad = world, bad
        self.last, self.session = 0, None

    async def start(self, probes=False, seconds=60):
        message = initialize(self._number())
        answer = await asyncio.wait_for(self._exchange(message, Call("", "initialize", [])), seconds)
        if not answer or "error" in answer:
            self.bad("lost", f"initialize: {answer}")
            return False
        await self._exchange(INITIALIZED, None)
        await asyncio.wait_for(self._exchange(list_tools(self._number()), Call("", "tools/list", [])), seconds)
        return True

    is_there = True

    def _number(self):
        self.last += 1
        return self.last

    def begin(self, call, gate=None):
        task = asyncio.create_task(self._carry(tool_call(self._number(), call, gate), call))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return call

    async def _carry(self, message, call):
        answer = await self._exchange(message, call)
        if answer:
            call.answered(answer)
        call.done.set()

    async def _exchange(self, message, call):
        """The answer. None: there is none, since nothing of it had come when its connection ended."""
        event, found, sent = None, None, False
        while True:
            await self.world.serves.wait()
            try:
                reader, writer = await asyncio.open_connection("127.0.0.1", self.world.port)
            except OSError:
                await asyncio.sleep(0.01)
                continue
            try:
                headers = {"Host": f"127.0.0.1:{self.world.port}", "Accept": "application/json, text/event-stream",
                           "Connection": "close", "MCP-Protocol-Version": VERSION}
                if self.session:
                    headers["Mcp-Session-Id"] = self.session
                verb, body = ("GET", b"") if sent else ("POST", json.dumps(message).encode())
                headers |= {"Last-Event-ID": event} if sent else {"Content-Type": "application/json", "Content-Length": str(len(body))}
                head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
                writer.write(f"{verb} /mcp HTTP/1.1\r\n{head}\r\n".encode() + body)
                sent = True
                first, answered = parsed(await reader.readuntil(b"\r\n\r\n"))
                status = int(first.split()[1])
                if session := answered.get("mcp-session-id"):
                    self.session = session
                if status == 204:
                    self.bad("lost", f"{call.key}: its stream has ended without an answer")
                    return None
                if answered.get("content-type", "").startswith("text/event-stream"):
                    async for event_id, data in events(reader, answered):
                        event = event_id or event
                        found = self._hear(data, message) or found
                elif status not in (200, 202):
                    text = (await whole(reader, answered)).decode(errors="replace")
                    outcome = "not_sent" if status == 503 else f"status {status}"
                    return {"error": {"message": text[:300], "data": {"outcome": outcome}}}
                else:
                    body = await whole(reader, answered)
                    found = json.loads(body) if body else None
                if found or call is None:
                    return found
            except (OSError, asyncio.IncompleteReadError, ValueError):
                if found:
                    return found
            finally:
                writer.close()
            if event is None:
                return None

    def _hear(self, data, message):
        """The answer, if this is it."""
        if not data:
            return None
        heard = json.loads(data)
        if heard.get("method") == "notifications/message" and heard["params"].get("logger") == "mcp-sessiond":
            self.world.notices.append(heard["params"]["data"])
        if "method" in heard:
            return None
        if heard.get("id") != message["id"]:
            self.bad("wrong", f"an answer to nobody: {heard}")
            return None
        return heard

    async def close(self):
        """Ends the session."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.world.port)
        writer.write(f"DELETE /mcp HTTP/1.1\r\nHost: 127.0.0.1:{self.world.port}\r\nMcp-Session-Id: {self.session}\r\nConnection: close\r\n\r\n".encode())
        await reader.read()
        writer.close()
        return True

    async def gone(self):
        """A session outlasts its `serve`."""


async def events(reader, headers):
    """The events of a stream: id and data of each."""
    buffer = b""
    async for data in parts(reader, headers):
        buffer += data
        while (end := buffer.find(b"\n\n")) >= 0:
            event, buffer = buffer[:end], buffer[end + 2:]
            fields = dict(line.split(": ", 1) for line in event.decode().splitlines() if ": " in line and not line.startswith(":"))
            yield fields.get("id"), fields.get("data", "")
