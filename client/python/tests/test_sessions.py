"""Sessions of a service, on a real daemon that is killed."""

from __future__ import annotations

import asyncio
import os
import sys
import unittest

import support

from mcp_sessiond import (
    STANDALONE,
    AfterEvent,
    AfterNumber,
    BindingMismatch,
    ConnectError,
    Credential,
    Json,
    Lifetimes,
    Options,
    Sessions,
    SessionTerminated,
    StreamClosed,
    TaskEnded,
    UnknownCursor,
    UnknownSession,
    UnknownTask,
    Untrusted,
    VersionConflict,
    Write,
)


@unittest.skipUnless(sys.platform == "linux", "a filter of system calls")
class BeforeLinux65(unittest.IsolatedAsyncioTestCase):
    async def test_who_connects_says_who_it_is_where_the_kernel_does_not(self) -> None:
        daemon = support.Daemon().start(prefix=support.BEFORE_LINUX_6_5)
        self.addCleanup(daemon.remove)
        options = Options(directory=daemon.directory)
        session = await Sessions("web", options).create()
        await session.set("cart", ["apples"])
        self.assertEqual(await session.get("cart"), ["apples"])


class OfAService(unittest.IsolatedAsyncioTestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.options = Options(directory=self.daemon.directory, binary=support.BINARY)
        self.sessions = Sessions("web", self.options)

    async def test_a_session_is_made_opened_listed_updated_and_ended(self) -> None:
        made = await self.sessions.create(metadata={"client": "x"}, lifetimes=Lifetimes(idle_ms=3_600_000))
        view = await self.sessions.get(made.id)
        self.assertEqual((view.status, view.service, view.bound), ("initializing", "web", False))
        assert view.metadata and view.expires_ms
        self.assertEqual(view.metadata.text, '{"client":"x"}')
        self.assertEqual((await made.update(status="ready")).status, "ready")
        await made.touch()
        self.assertIn(made.id, [one.id for one in await self.sessions.list()])
        again = await self.sessions.open(made.id)
        handle = await again.mint_handle()
        self.assertEqual((await self.sessions.open_handle(handle.handle)).id, made.id)
        await made.terminate()
        with self.assertRaises(SessionTerminated) as raised:
            await self.sessions.open(made.id)
        self.assertEqual((raised.exception.code, raised.exception.http_status), ("session_terminated", 404))
        with self.assertRaises(UnknownSession):
            await Sessions("other", self.options).get(made.id)

    async def test_a_value_goes_by_itself_and_a_secret_is_shared(self) -> None:
        made = await self.sessions.create()
        await made.set("lasting", 1)
        await made.set("short", 2, expires_ms=3_600_000)
        lasting, short = await made.keys()
        assert short.expires_ms and lasting.expires_ms is None
        await made.set("gone", 3, expires_ms=1)
        while await made.get("gone") is not None:
            pass
        secret = await self.sessions.secret()
        self.assertEqual((len(secret.current), secret.former), (32, []))
        rotated = await Sessions("web", self.options).rotate_secret()
        self.assertEqual(rotated.former, [secret.current])
        self.assertEqual(await self.sessions.secret(), rotated)
        self.assertNotIn(repr(secret.current), repr(secret))

    async def test_a_task_survives_the_daemon_asks_and_ends(self) -> None:
        made = await self.sessions.create()
        task, created = await made.create_task(ttl_ms=3_600_000, poll_ms=500, message="begun")
        self.assertEqual((created.status, created.ttl_ms, created.poll_ms), ("working", 3_600_000, 500))
        self.daemon.kill()
        self.daemon.start()
        self.assertEqual(await task.view(), created)
        waiting = asyncio.create_task(task.changed(created.version))
        asked = await task.update(ask={"name": {"method": "elicitation/create"}})
        self.assertEqual((asked.status, (await waiting).version), ("input_required", asked.version))
        answered = await made.task(task.id).update(answer={"name": "Ann", "never asked": 1})
        response = answered.inputs[0].response
        assert response
        self.assertEqual((answered.status, response.value()), ("working", "Ann"))
        ended = await task.complete({"content": []})
        assert ended.result
        self.assertEqual((ended.is_final, ended.result.value()), (True, {"content": []}))
        again = await task.complete({"content": []})
        self.assertEqual(again.version, ended.version, "repeating it has no further effect")
        with self.assertRaises(TaskEnded):
            await task.cancel()
        with self.assertRaises(UnknownTask):
            await made.task("none").view()
        self.assertEqual([one.status for one in await made.tasks()], ["completed"])
        again = await Sessions("web", self.options).open(made.id)
        failed, _ = await again.create_task(request="r")
        self.assertEqual((await made.create_task(request="r"))[1].id, failed.id)
        self.assertEqual((await failed.fail({"code": 1})).status, "failed")

    async def test_a_binding_admits_its_caller_alone_until_it_is_rotated(self) -> None:
        alice, bob = Credential.of("alice"), Credential.of(b"bob")
        made = await self.sessions.create(binding=alice)
        with self.assertRaises(BindingMismatch):
            await self.sessions.on_behalf_of(bob).open(made.id)
        self.assertEqual((await self.sessions.on_behalf_of(alice).open(made.id)).id, made.id)
        await made.rotate_credential(b"bob")
        self.assertTrue((await self.sessions.on_behalf_of(bob).get(made.id)).bound)
        self.assertNotIn(alice.hash, repr(alice))

    async def test_state_is_written_read_removed_and_compared(self) -> None:
        session = await self.sessions.create()
        self.assertEqual(await session.get("cart", "empty"), "empty")
        version = await session.set("cart", ["äpfel", 1])
        self.assertEqual(await session.get("cart"), ["äpfel", 1])
        with self.assertRaises(VersionConflict) as raised:
            await session.compare_and_set("cart", 0, None)
        self.assertEqual((raised.exception.key, raised.exception.current), ("cart", version))
        await session.compare_and_set("cart", version, {"now": None})
        await session.write([Write("b", Json('{ "spaced": 1 }')), Write("cart", remove=True)])
        entry = await session.entry("b")
        assert entry.json
        self.assertEqual(entry.json.text, '{ "spaced": 1 }')
        self.assertEqual([key.key for key in await session.keys()], ["b"])
        self.assertNotIn("spaced", repr(entry))

    async def test_more_keys_than_a_page_has(self) -> None:
        session = await self.sessions.create()
        names = [f"k{number:03}" for number in range(230)]
        for begin in range(0, len(names), 50):
            await session.write([Write(name, begin) for name in names[begin : begin + 50]])
        self.assertEqual([key.key for key in await session.keys()], names)

    async def test_streams_are_appended_to_replayed_waited_for_and_closed(self) -> None:
        session = await self.sessions.create()
        stream = await session.open_stream("post-1", opened_by=7)
        first = await stream.prime()
        waiting = asyncio.create_task(session.wait([AfterEvent(first.id)]))
        told = await stream.append_all([{"n": 1}, {"n": 2}])
        self.assertEqual((await waiting).events[0].message, {"n": 1})
        found = await session.find_event(told[0].id)
        self.assertEqual((found.stream.id, found.ended), ("post-1", False))
        await stream.orphan()
        redirected = await stream.append({"method": "m"})
        self.assertEqual(redirected.stream, STANDALONE)
        await stream.unorphan()
        await stream.close()
        said = await session.replay(AfterEvent(first.id))
        self.assertEqual([event.message["n"] for event in said.events], [1, 2])
        self.assertEqual(list(said.ended), ["post-1"])
        self.assertEqual((await session.replay(AfterNumber(3))).events[0].message, {"method": "m"})
        with self.assertRaises(StreamClosed):
            await stream.append({})
        with self.assertRaises(UnknownCursor) as raised:
            await session.replay(AfterEvent("made-up"))
        self.assertEqual(raised.exception.http_status, 400)
        self.assertEqual(await session.prune(1), 3)

    async def test_an_append_with_the_same_request_is_done_once(self) -> None:
        session = await self.sessions.create()
        stream = session.standalone()
        first = await stream.append_all([{"n": 1}], request="r1")
        self.assertEqual(await stream.append_all([{"n": 1}], request="r1"), first)
        self.assertEqual(len((await stream.replay()).events), 1)

    async def test_calls_go_on_while_the_daemon_is_killed(self) -> None:
        session = await self.sessions.create()
        stream = session.standalone()
        attachment = await session.attach()

        async def write(number: int) -> None:
            await stream.append({"n": number})

        begun = [asyncio.create_task(write(number)) for number in range(200)]
        await asyncio.sleep(0)
        self.daemon.kill()
        self.daemon.start()
        await asyncio.gather(*begun)
        said = (await session.replay(AfterNumber(0))).events
        self.assertEqual(sorted(event.message["n"] for event in said), list(range(200)))
        while not (await session.view()).attached:
            pass
        await attachment.detach()
        self.assertEqual((await session.view()).attached, 0)

    async def test_a_daemon_is_started_where_none_runs_and_only_if_that_is_allowed(self) -> None:
        self.daemon.kill()
        with self.assertRaises(ConnectError) as raised:
            await Sessions("web", Options(directory=self.daemon.directory, start=False)).list()
        self.assertEqual(raised.exception.code, "not_running")
        with self.assertRaises(ConnectError) as raised:
            await Sessions("web", Options(directory=self.daemon.directory, binary="/nowhere")).list()
        self.assertEqual(raised.exception.code, "not_started")
        self.assertEqual(await self.sessions.list(), [])
        self.assertIsNotNone(self.daemon.pid())

    async def test_nothing_is_said_in_a_directory_that_is_open_to_others(self) -> None:
        self.daemon.directory.chmod(0o755)
        with self.assertRaises(Untrusted):
            await self.sessions.list()
        self.daemon.directory.chmod(0o700)

    async def test_connections_are_closed_and_made_again(self) -> None:
        session = await self.sessions.create()
        await self.sessions.close()
        await session.set("n", 1)
        await self.sessions.close()

    async def test_a_wait_of_many_keeps_no_other_call_waiting(self) -> None:
        session = await self.sessions.create()
        waits = [asyncio.create_task(session.wait([AfterNumber(0)])) for _ in range(100)]
        await asyncio.sleep(0)
        await session.standalone().append({"n": 1})
        for said in await asyncio.gather(*waits):
            self.assertEqual(len(said.events), 1)

    async def test_a_stream_is_followed_to_its_end(self) -> None:
        session = await self.sessions.create()
        stream = await session.open_stream("post-1", will={"lost": True})
        await stream.append({"n": 1})
        async with await session.attach():
            self.assertEqual((await session.view()).attached, 1)
        await stream.close()
        followed = [page.events[0].message async for page in session.follow(stream.start)]
        self.assertEqual(followed, [{"n": 1}])

    async def test_a_daemon_that_was_killed_between_calls_is_started_again(self) -> None:
        session = await self.sessions.create()
        await session.set("n", 1)
        self.daemon.kill()
        self.assertEqual(await session.get("n"), 1)

    async def test_a_child_after_fork_has_connections_of_its_own(self) -> None:
        session = await self.sessions.create()
        await session.set("of", "parent")
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(session.set("of", "child"))
                os._exit(0)
            finally:
                os._exit(1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(await session.get("of"), "child")

    async def test_a_will_is_carried_out_when_its_author_was_killed(self) -> None:
        session = await self.sessions.create()
        child = os.fork()
        if child == 0:
            try:
                asyncio.run(session.open_stream("post-1", will={"lost": True}))
                os.kill(os.getpid(), 9)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        told = await session.wait([session.stream("post-1").start])
        self.assertEqual([event.message for event in told.events], [{"lost": True}])


if __name__ == "__main__":
    unittest.main()
