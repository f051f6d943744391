"""What the middleware does with what is in a session. What a request and its response are is in tests/conformance/http."""

from __future__ import annotations

import concurrent.futures
import contextlib
import http.client
import os
import queue
import threading
import unittest
from typing import Any

from processes import Served
from raw import Raw, Response

from mcp_sessiond import Sessions, StreamStart


class Transport(Served):
    def setUp(self: Any) -> None:
        self.gate = str(self.daemon.directory / self.id())
        self.raw = Raw(self.server.port)
        self.raw.initialize()

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
