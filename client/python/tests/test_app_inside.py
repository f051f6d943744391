"""The middleware around an app of the test's own, which misbehaves as it is told. The daemon is real."""

from __future__ import annotations

import asyncio
import json
import logging
import unittest
import unittest.mock
from collections.abc import Awaitable, Callable
from typing import Any

import support

from mcp_sessiond import Options, Sessions, StreamStart
from mcp_sessiond.asgi import Durable, SessionCookie, durable, session_of
from mcp_sessiond.asgi.settings import Settings

Answer = Callable[[dict[str, Any], Any, Any], Awaitable[None]]
UNKNOWN = "the server ended before it had answered: the outcome of this call is unknown"


class Inside:
    """An app like an SDK's: `answer` says what it does with a request of a session."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self.ended = asyncio.Event()
        self.handshakes: list[dict[str, Any]] = []
        self.cancelled: list[object] = []
        self.has_forgotten = False
        self.is_stateless = False
        self.headers: list[tuple[bytes, bytes]] = []
        self.capabilities: dict[str, Any] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            await receive()
        elif scope["method"] == "DELETE":
            self.ended.set()
            await self.json(send, 200, None)
        elif scope["method"] == "GET":
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            while (await receive())["type"] != "http.disconnect":
                pass
        else:
            message = json.loads((await receive())["body"])
            if message["method"] == "initialize":
                self.has_forgotten = False
                self.handshakes.append(message["params"])
                told = {"protocolVersion": "2025-11-25", "capabilities": self.capabilities}
                await self.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": told})
            elif self.has_forgotten and not self.is_stateless:
                await self.json(send, 404, {})
            elif message["method"] == "ping":
                await self.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {}})
            elif "id" in message:
                await self.answer(message, scope, send)
            else:
                if message["method"] == "notifications/cancelled":
                    self.cancelled.append(message["params"]["requestId"])
                await self.json(send, 202, None)

    async def json(self, send: Any, status: int, value: object) -> None:
        named = [] if self.is_stateless else [(b"mcp-session-id", b"inside")]
        headers = [(b"content-type", b"application/json"), *named, *self.headers]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": json.dumps(value).encode() if value else b""})


class Client:
    """Speaks ASGI to the middleware."""

    def __init__(self, app: Any) -> None:
        self.app = app
        self.session: str | None = None
        self.type: bytes | None = None
        """The content type of the last response."""
        self.cookies: list[bytes] = []

    async def send(self, method: str, message: object = None, **headers: str) -> tuple[int, list[Any]]:
        """Status, and the messages of the body."""
        told = [(b"accept", b"application/json, text/event-stream")]
        told += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        if self.session:
            told.append((b"mcp-session-id", self.session.encode()))
        body, status, parts = json.dumps(message).encode(), 0, []
        read = asyncio.Event()

        async def receive() -> dict[str, Any]:
            if read.is_set():
                await asyncio.Event().wait()
            read.set()
            return {"type": "http.request", "body": body}

        async def sent(part: dict[str, Any]) -> None:
            nonlocal status
            if part["type"] == "http.response.start":
                status = part["status"]
                self.cookies = [value for name, value in part["headers"] if name == b"set-cookie"]
                self.type = dict(part["headers"]).get(b"content-type")
                named = dict(part["headers"]).get(b"mcp-session-id")
                self.session = named.decode() if named else self.session
            else:
                parts.append(part["body"])

        scope = {"type": "http", "method": method, "path": "/mcp", "headers": told}
        await self.app(scope, receive, sent)
        whole = b"".join(parts).decode()
        data = [line[6:] for line in whole.split("\n") if line.startswith("data: {")]
        return status, [json.loads(text) for text in data or [whole] if text]

    async def initialize(self) -> None:
        params = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "x"}}
        await self.request("initialize", params, id=0)

    async def request(self, method: str, params: object = None, id: object = 1) -> tuple[int, list[Any]]:
        return await self.send("POST", {"jsonrpc": "2.0", "id": id, "method": method, "params": params})


class AnAppInside(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.options = Options(directory=self.daemon.directory, binary=support.BINARY)

    async def kept(self, client: Client) -> Any:
        """The one message that is stored of the client's one call."""
        assert client.session
        session = await Sessions("test", self.options).open(client.session)
        (stream,) = [one.id for one in await session.streams() if one.id.startswith("post-")]
        (event,) = (await session.replay(StreamStart(stream))).events
        return event.message

    async def begun(self, answer: Answer, **options: Any) -> tuple[Inside, Client]:
        inside = Inside(answer)
        client = Client(durable(inside, service="test", options=self.options, **options))
        await client.initialize()
        return inside, client

    async def test_a_call_that_the_app_does_not_answer_is_answered(self) -> None:
        async def fails(message: Any, scope: Any, send: Any) -> None:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})

        _, client = await self.begun(fails)
        status, (said,) = await client.request("tools/call")
        self.assertEqual((status, said["id"], said["error"]["message"]), (200, 1, UNKNOWN))

    async def test_an_answer_that_can_not_be_read_says_why(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            headers = [(b"content-type", b"application/json"), (b"content-encoding", message["params"]["coding"].encode())]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"\xff{}"})

        _, client = await self.begun(answers)
        for coding, why in (("gzip", "`gzip` is damaged"), ("gzip, zstd", "`zstd`"), ("identity", "it is not UTF-8")):
            _, (said,) = await client.request("tools/call", {"coding": coding})
            self.assertIn(why, said["error"]["message"])
            self.assertEqual((said["id"], said["error"]["data"]), (1, {"outcome": "unknown"}))

    async def test_an_app_that_begins_sessions_is_not_taken_for_one_without(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {}})

        inside, client = await self.begun(answers)
        client.session = None
        for _ in range(2):
            self.assertEqual((await client.request("tools/call"))[0], 400)
        # It was asked once, and its session has ended.
        self.assertEqual(len(inside.handshakes), 2)
        self.assertTrue(inside.ended.is_set())

    async def test_a_session_whose_app_has_none_any_more_goes_on_there(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {"in": told(scope)}})

        def told(scope: Any) -> str:
            return dict(scope["headers"])[b"mcp-session-id"].decode()

        inside, client = await self.begun(answers)
        inside.is_stateless = True
        client.app = durable(inside, service="test", options=self.options)
        with self.assertLogs("mcp_sessiond", "WARNING") as logged:
            for _ in range(2):
                self.assertEqual((await client.request("tools/call"))[1][0]["result"], {"in": client.session})
        self.assertEqual(["nothing is kept" in line for line in logged.output], [True])

    async def test_cookies_of_the_app_come_with_the_one_of_the_session(self) -> None:
        inside = Inside(lambda *_: asyncio.sleep(0))
        inside.headers = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2")]
        client = Client(durable(inside, service="test", options=self.options, cookie=SessionCookie()))
        await client.initialize()
        names = [cookie.split(b"=")[0] for cookie in client.cookies]
        self.assertEqual(names, [b"mcp_session_id", b"a", b"b"])

    async def test_why_the_daemon_can_not_be_used_is_logged_at_the_start_and_once_a_minute(self) -> None:
        options = Options(directory=self.daemon.directory / "none", binary="/none", timeout=1.0)
        inside = Inside(lambda *_: asyncio.sleep(0))
        client = Client(durable(inside, service="test", options=options))
        logged: asyncio.Queue[str] = asyncio.Queue()
        handler = logging.Handler(logging.WARNING)
        handler.emit = lambda record: logged.put_nowait(record.getMessage())
        logging.getLogger("mcp_sessiond").addHandler(handler)
        self.addCleanup(logging.getLogger("mcp_sessiond").removeHandler, handler)
        with unittest.mock.patch("mcp_sessiond.log._next_hidden", 0.0):
            starting = asyncio.create_task(client.app({"type": "lifespan"}, asyncio.Event().wait, None))
            self.assertIn("/none could not be started", await logged.get())
            starting.cancel()
            for _ in range(2):
                await client.initialize()
        self.assertTrue(logged.empty())

    async def test_json_stays_json_however_long_it_takes_and_is_kept(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            result = {"jsonrpc": "2.0", "id": message["id"], "result": {"session": session_of().id}}
            await inside.json(send, 200, result)

        inside = Inside(answers)
        # Whatever the app takes is longer.
        settings = Settings("test", begin=0, options=self.options)
        client = Client(Durable(inside, settings))
        await client.initialize()
        status, (said,) = await client.request("tools/call", id="seven")
        self.assertEqual((status, said["id"], said["result"]), (200, "seven", {"session": client.session}))
        self.assertEqual(client.type, b"application/json")
        self.assertEqual(await self.kept(client), said)

    async def test_an_app_that_answers_one_call_by_events_has_it_answered_by_events(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            for said in ({"method": "notifications/message"}, {"id": message["id"], "result": {}}):
                body = f"data: {json.dumps({'jsonrpc': '2.0', **said})}\n\n".encode()
                await send({"type": "http.response.body", "body": body, "more_body": "method" in said})

        for begin in (0, 1):
            client = Client(Durable(Inside(answers), Settings("test", begin=begin, options=self.options)))
            await client.initialize()
            status, said = await client.request("tools/call")
            self.assertEqual((status, len(said), said[-1]["result"]), (200, 2, {}))
            self.assertEqual(client.type, b"text/event-stream")

    async def test_a_session_that_nobody_uses_leaves_the_app_and_comes_back(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {}})

        inside, client = await self.begun(answers, idle=0.01)
        await inside.ended.wait()
        self.assertEqual((await client.request("tools/call"))[1][0]["result"], {})
        self.assertEqual(len(inside.handshakes), 2)
        self.assertEqual(inside.handshakes[0], inside.handshakes[1])

    async def test_a_session_that_the_app_has_forgotten_is_restored_once(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {}})

        inside, client = await self.begun(answers)
        inside.has_forgotten = True
        self.assertEqual((await client.request("tools/call"))[1][0]["result"], {})
        self.assertEqual(len(inside.handshakes), 2)

    async def test_a_client_that_only_reads_hears_of_another_list_however_long_the_app_takes_to_list(self) -> None:
        tools, may_list, parts = [{"name": "a"}], asyncio.Event(), asyncio.Queue[str]()

        async def answers(message: Any, scope: Any, send: Any) -> None:
            await may_list.wait()
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {"tools": tools}})

        async def sent(part: dict[str, Any]) -> None:
            parts.put_nowait(part.get("body", b"").decode())

        inside = Inside(answers)
        inside.capabilities = {"tools": {"listChanged": True}}
        client = Client(durable(inside, service="test", options=self.options))
        await client.initialize()
        may_list.set()
        await client.request("tools/list")
        assert client.session
        tools.append({"name": "b"})
        may_list.clear()
        # Another process of the app.
        client.app = durable(inside, service="test", options=self.options)
        headers = [(b"accept", b"text/event-stream"), (b"mcp-session-id", client.session.encode())]
        scope = {"type": "http", "method": "GET", "path": "/mcp", "headers": headers}
        with unittest.mock.patch("mcp_sessiond.asgi.sessions._LISTS_SECONDS", 0):
            reading = asyncio.create_task(client.app(scope, asyncio.Event().wait, sent))
            self.assertEqual([await parts.get(), await parts.get()], ["", ": still here\n\n"])
        may_list.set()
        self.assertIn("notifications/tools/list_changed", await parts.get())
        reading.cancel()

    async def test_a_404_about_one_request_is_passed_on_and_ends_nothing(self) -> None:
        async def refuses(message: Any, scope: Any, send: Any) -> None:
            error = {"code": -32601, "message": "Method not found"}
            await inside.json(send, 404, {"jsonrpc": "2.0", "id": message["id"], "error": error})

        inside, client = await self.begun(refuses)
        status, (said,) = await client.request("prompts/list")
        self.assertEqual((status, said["id"], said["error"]["code"]), (404, 1, -32601))
        self.assertEqual(len(inside.handshakes), 1)

    async def test_an_answer_that_can_not_be_stored_reaches_who_waits_for_it(self) -> None:
        async def answers(message: Any, scope: Any, send: Any) -> None:
            result = {"jsonrpc": "2.0", "id": message["id"], "result": {"text": "x" * 2_000_000}}
            await inside.json(send, 200, result)

        inside, client = await self.begun(answers)
        status, (said,) = await client.request("tools/call")
        self.assertEqual((status, len(said["result"]["text"])), (200, 2_000_000))
        # What is stored in its place is short.
        self.assertEqual((await self.kept(client))["error"]["data"], {"outcome": "not_kept"})

    async def test_a_cancellation_that_may_mean_one_of_two_calls_cancels_none(self) -> None:
        came: asyncio.Queue[object] = asyncio.Queue()
        first = asyncio.Event()

        async def answers(message: Any, scope: Any, send: Any) -> None:
            came.put_nowait(message["id"])
            await (first if message["id"] == 1 else asyncio.Event()).wait()
            await inside.json(send, 200, {"jsonrpc": "2.0", "id": message["id"], "result": {}})

        inside, client = await self.begun(answers)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
        one = asyncio.create_task(client.request("tools/call"))
        self.assertEqual(await came.get(), 1)
        two = asyncio.create_task(client.request("tools/call"))
        name = await came.get()
        self.assertEqual((await client.send("POST", cancel))[0], 202)
        self.assertEqual(inside.cancelled, [])
        first.set()
        self.assertEqual((await one)[1], [{"jsonrpc": "2.0", "id": 1, "result": {}}])
        self.assertEqual((await client.send("POST", cancel))[0], 202)
        self.assertEqual(inside.cancelled, [name])
        two.cancel()

    async def test_a_call_is_not_mixed_up_with_the_one_before_which_the_app_has_not_done_with(self) -> None:
        names: list[object] = []
        came, done, first = asyncio.Queue[object](), asyncio.Event(), asyncio.Event()

        async def answers(message: Any, scope: Any, send: Any) -> None:
            names.append(message["id"])
            came.put_nowait(message["id"])
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            if len(names) == 2:
                await asyncio.Event().wait()
            said = json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": {"n": len(names)}})
            part = {"type": "http.response.body", "more_body": True}
            await send({**part, "body": f"data: {said}\r\n\r\n".encode()})
            if len(names) == 1:
                await first.wait()
                done.set()

        inside, client = await self.begun(answers)
        self.assertEqual((await client.request("tools/call", id=41))[1][0]["result"], {"n": 1})
        two = asyncio.create_task(client.request("tools/call", id=41))
        self.assertEqual(await came.get(), 41)
        name = await came.get()
        self.assertNotEqual(name, 41)
        cancel = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 41}}
        self.assertEqual((await client.send("POST", cancel))[0], 202)
        self.assertEqual(inside.cancelled, [name])
        two.cancel()
        first.set()
        await done.wait()
        self.assertEqual((await client.request("tools/call", id=42))[1][0]["result"], {"n": 3})
        self.assertEqual(await came.get(), 42)


if __name__ == "__main__":
    unittest.main()
