"""What the middleware answers, status by status and event by event."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import json
import os
import queue
import threading
import unittest
from typing import Any

import support
from processes import Served, Server
from raw import Raw, Response

from mcp_sessiond import Sessions, StreamStart


class Transport(Served):
    def setUp(self: Any) -> None:
        self.gate = str(self.daemon.directory / self.id())
        self.raw = Raw(self.server.port)
        self.raw.initialize()

    def open_gate(self: Any) -> None:
        os.close(os.open(self.gate, os.O_CREAT))

    def test_every_event_of_a_call_is_replayed_once_after_each_of_its_ids(self: Any) -> None:
        told = list(self.raw.tool(1, "count", key="a", steps=3, hold=-1, gate="").events())
        self.assertEqual(told[0][1], "")
        self.assertEqual(len(told), 5)
        for place, (id, _) in enumerate(told[:-1]):
            again = self.raw.send("GET", Last_Event_ID=id)
            replayed = list(again.events())
            self.assertEqual(replayed[0], (id, ""))
            self.assertEqual(replayed[1:], told[place + 1 :])
        self.assertEqual(self.raw.send("GET", Last_Event_ID=told[-1][0]).status, 204)

    def test_a_call_goes_on_while_its_client_is_away(self: Any) -> None:
        response = self.raw.tool(1, "count", key="a", steps=3, hold=2, gate=self.gate)
        events = response.events()
        ids = [next(events)[0] for _ in range(3)]
        response.close()
        back = self.raw.send("GET", Last_Event_ID=ids[1]).messages()
        self.assertEqual(next(back)[1]["params"]["progress"], 2)
        self.open_gate()
        self.assertEqual(next(back)[1]["params"]["progress"], 3)
        self.assertEqual(next(back)[1]["result"]["content"][0]["text"], "a 3")
        self.assertRaises(StopIteration, next, back)

    def test_what_is_refused(self: Any) -> None:
        self.assertEqual(Raw(self.server.port).send("GET").status, 400)
        self.assertEqual(Raw(self.server.port).request(1, "tools/list").status, 400)
        stranger = Raw(self.server.port)
        stranger.session = "none"
        refused = stranger.request(1, "tools/list")
        self.assertEqual((refused.status, refused.json()["id"]), (404, 1))
        self.assertEqual(stranger.send("GET").status, 404)
        self.assertEqual(self.raw.send("GET", Last_Event_ID="made-up").status, 400)
        self.assertEqual(self.raw.send("GET", Accept="application/json").status, 406)
        self.assertEqual(self.raw.send("PUT").status, 405)
        discover = Raw(self.server.port).request("d", "server/discover")
        self.assertEqual((discover.status, discover.json()["error"]["code"]), (404, -32601))

    def test_a_session_that_was_ended_is_gone(self: Any) -> None:
        self.assertEqual(self.raw.send("DELETE").status, 204)
        self.assertEqual(self.raw.request(1, "tools/list").status, 404)
        self.assertEqual(self.raw.send("GET").status, 404)

    def test_a_session_belongs_to_the_bearer_token_that_made_it(self: Any) -> None:
        alice = Raw(self.server.port, "alice")
        alice.initialize()
        self.assertEqual(alice.tool(1, "visits").status, 200)
        for token in ("bob", None):
            other = Raw(self.server.port, token)
            other.session = alice.session
            for method in ("GET", "DELETE"):
                self.assertEqual(other.send(method).status, 404)
            self.assertEqual(other.tool(2, "visits").status, 404)
        self.restart()
        self.assertEqual(other.tool(2, "visits").status, 404)
        self.assertEqual(alice.tool(3, "visits").answer()["result"]["content"][0]["text"].split()[1], "2")

    def test_a_token_that_the_app_refuses_reads_and_ends_nothing(self: Any) -> None:
        alice = Raw(self.server.port, "alice")
        alice.initialize()
        alice.tool(1, "visits").answer()
        revoked = self.daemon.directory / "journal.alice"
        revoked.touch()
        for restart in (False, True):
            if restart:
                self.restart()
            for refused in (alice.send("GET"), alice.send("DELETE"), alice.tool(2, "visits")):
                self.assertEqual((refused.status, refused.header("www-authenticate")), (401, "Bearer"))
        revoked.unlink()
        self.assertEqual(alice.tool(3, "visits").answer()["result"]["content"][0]["text"].split()[1], "2")

    def test_every_handler_gets_the_session_of_its_request(self: Any) -> None:
        other = Raw(self.server.port)
        other.initialize()
        for id, client in enumerate((self.raw, other, self.raw), 1):
            read = client.request(id, "resources/read", uri="visits://me").answer()
            self.assertEqual(read["result"]["contents"][0]["text"], client.session)
            got = client.request(f"p{id}", "prompts/get", name="prompt").answer()
            self.assertEqual(got["result"]["messages"][0]["content"]["text"], client.session)
            ref, argument = {"type": "ref/prompt", "name": "prompt"}, {"name": "a", "value": ""}
            told = client.request(f"c{id}", "completion/complete", ref=ref, argument=argument).answer()
            self.assertEqual(told["result"]["completion"]["values"], [client.session])

    def test_fifty_calls_at_once_of_two_clients_each_get_their_own_session(self: Any) -> None:
        clients = [self.raw, Raw(self.server.port)]
        clients[1].initialize()
        calls = [(client, id) for id in range(50) for client in clients]
        with concurrent.futures.ThreadPoolExecutor(len(calls)) as pool:
            told = pool.map(lambda call: call[0].tool(call[1], "visits").answer(), calls)
        for (client, id), answer in zip(calls, told, strict=True):
            said = answer["result"]["content"][0]["text"].split()[0]
            self.assertEqual((answer["id"], said), (id, client.session))

    def test_two_workers_serve_one_session(self: Any) -> None:
        second = Raw(self.serve().port)
        second.session = self.raw.session
        numbers = []
        for id, worker in enumerate([self.raw, second, self.raw, second], 1):
            numbers.append(worker.tool(id, "visits").answer()["result"]["content"][0]["text"].split()[1])
        self.assertEqual(numbers, ["1", "2", "3", "4"])

    def test_a_call_of_one_worker_is_read_at_another(self: Any) -> None:
        second = Raw(self.serve().port)
        second.session = self.raw.session
        for id, is_killed in ((1, False), (2, True)):
            response = self.raw.tool(id, "count", key="a", steps=2, hold=1, gate=f"{self.gate}{id}")
            events = response.events()
            first, _ = next(events), next(events)
            response.close()
            back = second.send("GET", Last_Event_ID=first[0]).messages()
            self.assertEqual(next(back)[1]["params"]["progress"], 1)
            if is_killed:
                self.restart()
                self.assertEqual(next(back)[1]["error"]["data"], {"outcome": "unknown"})
            else:
                os.close(os.open(f"{self.gate}{id}", os.O_CREAT))
                self.assertEqual(next(back)[1]["params"]["progress"], 2)
                self.assertEqual(next(back)[1]["result"]["content"][0]["text"], "a 2")
            self.assertRaises(StopIteration, next, back)

    def test_what_the_server_says_of_its_own_accord_waits_for_a_reader(self: Any) -> None:
        self.raw.tool(1, "announce").answer()
        told = self.raw.send("GET").messages()
        self.assertEqual(next(told)[1]["method"], "notifications/tools/list_changed")

    def test_a_handshake_that_is_repeated_gets_the_recorded_answer(self: Any) -> None:
        session = self.raw.session
        first = self.raw.initialize()
        self.assertEqual((first.status, self.raw.session), (200, session))

    def test_an_id_that_is_used_twice_at_once(self: Any) -> None:
        first = self.raw.tool(7, "count", key="a", steps=2, hold=1, gate=self.gate)
        second = self.raw.tool(7, "count", key="b", steps=1, hold=-1, gate="")
        self.assertEqual(second.answer()["result"]["content"][0]["text"], "b 1")
        self.open_gate()
        answer = first.answer()
        self.assertEqual((answer["id"], answer["result"]["content"][0]["text"]), (7, "a 2"))

    def test_an_answer_to_a_request_of_a_former_process_is_dropped(self: Any) -> None:
        def ask(id: int) -> Any:
            """Where the SDK says what belongs to a call differs: on the call's stream, or on the standalone one."""
            told: queue.Queue[Any] = queue.Queue()

            def read(response: Response) -> None:
                with contextlib.suppress(OSError, http.client.HTTPException):
                    for _, message in response.messages():
                        told.put(message)

            for response in (self.raw.send("GET"), self.raw.tool(id, "ask")):
                threading.Thread(target=read, args=(response,), daemon=True).start()
            return told, until(told, "roots/list")

        def until(told: Any, method: str | None) -> Any:
            while (message := told.get(timeout=20)).get("method") != method:
                pass
            return message

        _, former = ask(1)
        self.restart()
        told, now = ask(2)
        while now["id"] == former["id"]:
            now = until(told, "roots/list")
        two = {"roots": [{"uri": "file:///a"}, {"uri": "file:///b"}]}
        late = {"jsonrpc": "2.0", "id": former["id"], "result": {"roots": []}}
        self.assertEqual(self.raw.send("POST", late).status, 202)
        self.assertEqual(
            self.raw.send("POST", {"jsonrpc": "2.0", "id": now["id"], "result": two}).status, 202
        )
        self.assertEqual(until(told, None)["result"]["content"][0]["text"], "2")

    def test_without_a_daemon_a_client_is_told_to_come_again(self: Any) -> None:
        daemon = support.Daemon()
        self.addCleanup(daemon.remove)
        daemon.environment["MCP_SESSIOND_BIN"] = "/nowhere"
        server = Server(daemon, self.kind)
        self.addCleanup(server.kill)
        refused = Raw(server.port).initialize()
        self.assertEqual((refused.status, refused.header("retry-after")), (503, "1"))
        self.assertNotIn("/nowhere", str(refused.json()))

    def test_a_reader_that_is_slow_gets_everything(self: Any) -> None:
        # 8 MB: more than the buffers between have room for.
        response = self.raw.tool(1, "flood", steps=1_800, size=4_000)
        messages = response.messages()
        next(messages)

        async def answered(sessions: Sessions) -> None:
            session = await sessions.open(self.raw.session)
            (stream,) = [one for one in await session.streams() if not one.closed and one.id.startswith("post-")]
            async for said in session.follow(StreamStart(stream.id)):
                if said.events and "method" not in said.events[-1].message:
                    break

        self.daemon.ask(answered)
        numbers = [message["params"]["progress"] for _, message in messages if "method" in message]
        self.assertEqual(numbers, list(range(1, 1_800)))

    def test_a_message_that_is_too_large_costs_no_other_event_and_a_full_session_makes_room(self: Any) -> None:
        daemon = support.Daemon().start("limits.message_bytes=65536", "limits.owner_bytes=8388608")
        self.addCleanup(daemon.remove)
        server = Server(daemon, self.kind)
        self.addCleanup(server.kill)
        raw = Raw(server.port)
        raw.initialize()
        told = list(raw.tool(1, "flood", steps=300, size=10).events())
        self.assertTrue(raw.tool(2, "flood", steps=2, size=70_000).answer())
        replayed = list(raw.send("GET", Last_Event_ID=told[1][0]).messages())
        self.assertEqual([message for _, message in replayed], [json.loads(data) for _, data in told[2:]])
        # More than there is memory for, 256 of them, too.
        messages = [message for _, message in raw.tool(3, "flood", steps=300, size=60_000).messages()]
        self.assertEqual((messages[-1]["id"], "result" in messages[-1]), (3, True))

    def test_a_handshake_that_is_too_large_for_the_metadata_survives(self: Any) -> None:
        raw = Raw(self.server.port)
        info = {"name": "x" * 70_000, "version": "1"}
        params = {"protocolVersion": raw.version, "capabilities": {}, "clientInfo": info}
        response = raw.request(0, "initialize", **params)
        raw.session = response.header("mcp-session-id")
        self.restart()
        name = raw.tool(1, "visits").answer()["result"]["content"][0]["text"].split()[2]
        self.assertEqual(name, info["name"])

        async def handshake(sessions: Sessions) -> Any:
            return await (await sessions.open(raw.session)).get("mcp.handshake")

        self.assertEqual(self.daemon.ask(handshake)["version"], raw.version)


class Mcp1(Transport, unittest.TestCase):
    kind = "mcp1"


class Mcp2(Transport, unittest.TestCase):
    kind = "mcp2"


class FastMcp(Transport, unittest.TestCase):
    kind = "fastmcp"


if __name__ == "__main__":
    unittest.main()
