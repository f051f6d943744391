"""The stores for FastMCP and the SDK, on a real daemon."""

from __future__ import annotations

import asyncio
import time
import unittest
from typing import Any
from unittest import mock

import support
from fastmcp import Client, Context, FastMCP
from mcp.server.streamable_http import EventMessage

from mcp_sessiond import Options, Sessions, UnknownSession
from mcp_sessiond.asgi import durable
from mcp_sessiond.asgi.settings import Message, Receive, Scope, Send
from mcp_sessiond.bus import DurableBus
from mcp_sessiond.event_store import DurableEventStore
from mcp_sessiond.key_value import KeyValue


class Stores(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.options = Options(directory=self.daemon.directory, binary=support.BINARY)

    async def test_values_by_collection_and_key(self) -> None:
        from key_value.aio.protocols.key_value import AsyncKeyValue

        store: AsyncKeyValue = KeyValue("web", self.options)
        other = KeyValue("web", self.options)
        self.assertIsNone(await store.get("a"))
        await store.put("a", {"n": 1})
        await store.put("a", {"n": 2}, collection="tokens")
        self.daemon.kill()
        self.assertEqual(await other.get("a"), {"n": 1})
        self.assertEqual(await other.ttl("a", collection="tokens"), ({"n": 2}, None))
        names = [f"key {number}" for number in range(120)] + ["x" * 1000, "line\nend", ""]
        await store.put_many(names, [{"name": name} for name in names])
        self.assertEqual(await other.get_many(names), [{"name": name} for name in names])
        self.assertEqual(sorted(await other.keys()), sorted([*names, "a"]))
        self.assertEqual((await other.delete("a"), await other.delete("a")), (True, False))
        self.assertEqual(await other.delete_many(names), 123)
        self.assertEqual(await store.keys(), [])

    async def test_state_of_fastmcp_is_kept_where_its_author_names_no_store(self) -> None:
        from key_value.aio.stores.memory import MemoryStore
        from starlette.applications import Starlette
        from starlette.middleware.gzip import GZipMiddleware
        from starlette.routing import Mount

        def itself(app: Any) -> Any:
            return app

        def mounted(app: Any) -> Any:
            return GZipMiddleware(Starlette(routes=[Mount("/api", app)]))

        async def is_kept(server: FastMCP[Any], path: str, around: Any) -> bool:
            async def note(ctx: Context) -> None:
                await ctx.set_state("noted", path)

            server.tool(note)
            durable(around(server.http_app()), service="state", path=path, options=self.options)
            async with Client(server) as client:
                await client.call_tool("note")
            kept = KeyValue("state", self.options)
            found = await kept.get_many(await kept.keys("fastmcp_state"), collection="fastmcp_state")
            return {"value": path} in found

        self.assertTrue(await is_kept(FastMCP("a"), "/a", itself))
        self.assertTrue(await is_kept(FastMCP("b"), "/b", mounted))
        own = MemoryStore()
        self.assertFalse(await is_kept(FastMCP("c", session_state_store=own), "/c", itself))
        self.assertEqual(len(await own.keys(collection="fastmcp_state")), 1)

    async def test_a_value_expires(self) -> None:
        store = KeyValue("web", self.options)
        await store.put("a", {"n": 1}, ttl=60)
        await store.put("b", {"n": 1}, ttl=60)
        _, left = await store.ttl("a")
        assert left is not None
        self.assertTrue(0 < left <= 60)
        with mock.patch.object(time, "time", return_value=time.time() + 61):
            self.assertEqual(await store.ttl("a"), (None, None))
            self.assertFalse(await store.delete("a"))
            await store.cull()
        self.assertEqual(await store.get_many(["a", "b"]), [None, None])

    async def test_a_collection_that_was_terminated_begins_anew(self) -> None:
        self.daemon.kill()
        self.daemon.start("sessions.tombstone_ms=1")
        store, sessions = KeyValue("web", self.options), Sessions("web", self.options)

        async def terminated() -> None:
            (collection,) = await sessions.list()
            await (await sessions.open(collection.id)).terminate()
            while await self.exists(sessions, collection.id):
                pass

        for again in range(2):
            await store.put("a", {"n": again})
            self.assertEqual(await store.get("a"), {"n": again})
            await terminated()
            self.assertIsNone(await store.get("a"))
            await terminated()
        await store.put("a", {"n": 2})
        await terminated()
        self.assertEqual((await store.delete("a"), await store.keys()), (False, []))
        await terminated()
        await store.cull()
        self.assertTrue(await store.destroy_collection("default_collection"))

    async def test_no_session_replays_the_events_of_another(self) -> None:
        from mcp_types import JSONRPCNotification

        store = DurableEventStore("web", self.options)
        message = JSONRPCNotification(jsonrpc="2.0", method="m")
        ids: dict[str, str] = {}
        replayed: list[str | None] = []

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            async def told(event: EventMessage) -> None:
                replayed.append(event.event_id)

            if scope["method"] == "POST":
                ids[scope["path"]] = await store.store_event("1", None)
                ids["last"] = await store.store_event("1", message)
            else:
                replayed.append(await store.replay_events_after(ids[scope["path"]], told))

        async def nothing(*_: object) -> Message:
            return {}

        around = store.around(app)
        for method, session, path in (
            ("POST", b"a", "/a"),
            ("POST", b"b", "/b"),
            ("GET", b"a", "/b"),
            ("GET", b"b", "/b"),
        ):
            scope = {
                "type": "http",
                "method": method,
                "path": path,
                "headers": [(b"mcp-session-id", session)],
            }
            await around(scope, nothing, nothing)
        self.assertEqual(replayed, [None, ids["last"], "1"])

    async def test_an_event_reaches_the_listeners_of_every_process(self) -> None:
        from mcp.server.subscriptions import ResourceUpdated, SubscriptionBus, ToolsListChanged

        buses: list[SubscriptionBus] = [DurableBus("web", self.options) for _ in range(2)]
        heard: asyncio.Queue[object] = asyncio.Queue()
        stops = [bus.subscribe(heard.put_nowait) for bus in buses]
        for bus in buses:
            await bus.publish(ResourceUpdated(uri="notes://1"))
        self.daemon.kill()
        self.daemon.start()
        await buses[0].publish(ToolsListChanged())
        told: list[object] = []
        while told.count(ToolsListChanged()) < 2:
            told.append(await heard.get())
        # The second bus may have begun to listen after the first event.
        self.assertIn(told.count(ResourceUpdated(uri="notes://1")), (3, 4))
        stops[0]()
        stops[0]()

    async def test_a_bus_that_could_not_begin_hears_later(self) -> None:
        from mcp.server.subscriptions import ToolsListChanged

        self.daemon.kill()
        self.daemon.start("limits.sessions_per_service=1")
        await Sessions("web", self.options).create()
        buses = [DurableBus("web", self.options) for _ in range(2)]
        heard: list[asyncio.Queue[object]] = [asyncio.Queue(), asyncio.Queue()]
        for bus, queue in zip(buses, heard, strict=True):
            bus.subscribe(queue.put_nowait)
        with self.assertLogs("mcp_sessiond", "WARNING") as log:
            await buses[0].publish(ToolsListChanged())
        self.assertIn("number of sessions", log.output[0])
        self.assertEqual((heard[0].qsize(), heard[1].qsize()), (1, 0))
        self.daemon.kill()
        self.daemon.start()

        async def told() -> None:
            while heard[1].empty():
                await buses[0].publish(ToolsListChanged())

        await asyncio.wait_for(told(), 20)

    async def test_who_only_publishes_begins_anew_where_the_events_have_ended(self) -> None:
        from mcp.server.subscriptions import ToolsListChanged

        self.daemon.kill()
        self.daemon.start("sessions.tombstone_ms=1")
        sessions, bus = Sessions("web", self.options), DurableBus("web", self.options)
        await bus.publish(ToolsListChanged())
        await (await sessions.open("mcp.events")).terminate()
        while await self.exists(sessions, "mcp.events"):
            pass
        await bus.publish(ToolsListChanged())
        self.assertEqual((await (await sessions.open("mcp.events")).view()).last_number, 1)

    async def exists(self, sessions: Sessions, id: str) -> bool:
        try:
            await sessions.get(id)
        except UnknownSession:
            return False
        return True

    async def test_what_is_no_event_is_passed_over(self) -> None:
        from mcp.server.subscriptions import ResourceUpdated, ToolsListChanged

        bus, heard = DurableBus("web", self.options), asyncio.Queue[object]()
        bus.subscribe(heard.put_nowait)
        await bus.publish(ToolsListChanged())
        events = (await Sessions("web", self.options).open("mcp.events")).standalone()
        for other in ("text", None, ["kind"], {"kind": ["a"]}, {"kind": "resource_updated"}, {"kind": "none"}):
            await events.append(other)
        await events.append({"kind": "resource_updated", "uri": 7})
        await bus.publish(ResourceUpdated(uri="notes://1"))
        told = [await asyncio.wait_for(heard.get(), 20) for _ in range(2)]
        self.assertEqual(told, [ToolsListChanged(), ResourceUpdated(uri="notes://1")])


if __name__ == "__main__":
    unittest.main()
