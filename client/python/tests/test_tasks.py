"""Tasks of the libraries for Python: what tests/conformance/tasks, which has the rules of SEP-2663, does not ask of every language; and the
official client."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import os
import signal
import socket
import tempfile
import unittest
from typing import Any

import support
from balancer import Balancer
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client
from modern import Modern
from processes import PYTHONS, Server
from tasks_client import Polling, finish

from mcp_sessiond import Options, Sessions
from mcp_sessiond.request_state import request_state_security

NAME = {"action": "accept", "content": {"name": "Ann"}}


class Workers:
    kind: str

    def setUp(self: Any) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.first, self.second = self.server(), self.server()
        self.at_first, self.at_second = Modern(self.first.port), Modern(self.second.port)

    def server(self: Any, listening: socket.socket | None = None) -> Server:
        server = Server(self.daemon, self.kind, listening, script="task_server.py")
        self.addCleanup(server.kill)
        self.addCleanup(server.listening.close)
        return server

    def open(self: Any, gate: str) -> None:
        (self.daemon.directory / gate).touch()

    def until_begun(self: Any, name: str) -> None:
        """The journal of the first server has this line."""
        line = f"{name} {self.first.process.pid}"
        while line not in (self.daemon.directory / "journal").read_text():
            pass

    def test_the_request_state_of_a_killed_worker_is_taken_by_another(self: Any) -> None:
        asked = self.at_first.call("twice")["result"]
        sealed, pid = asked["requestState"], self.first.process.pid
        self.assertNotIn(str(pid), sealed)
        self.first.kill()

        def answered(at: Modern, state: str) -> Any:
            answers = {"inputResponses": {"name": NAME}, "requestState": state}
            return at.said("tools/call", name="twice", arguments={}, **answers)

        result = answered(self.at_second, sealed)["result"]
        self.assertEqual(result["content"][0]["text"], f"Ann by {pid}")
        # One that was started since, after the secret has changed.
        rotated = self.daemon.ask(Sessions.rotate_secret)
        self.assertEqual(len(rotated.former), 1)
        again = Modern(self.server(self.first.listening).port)
        self.assertEqual(answered(again, sealed)["result"]["content"], result["content"])
        forged = sealed[:-4] + ("AAAA" if sealed[-4:] != "AAAA" else "BBBB")
        self.assertEqual(answered(again, forged)["error"]["code"], -32602)


class OfFastmcp(Workers, unittest.TestCase):
    kind = "fastmcp"


class OfTheSdk(Workers, unittest.TestCase):
    kind = "mcp2"

    def test_a_client_that_hangs_up_before_it_knows_the_id_leaves_no_work(self: Any) -> None:
        """Closing the response of a call cancels it, in 2026-07-28."""
        self.at_first.hang_up(lambda: self.until_begun("slow"), "tools/call", name="slow", arguments={})
        self.until_begun("dropped")

    def test_a_task_that_is_being_made_when_its_client_hangs_up_is_cancelled(self: Any) -> None:
        self.daemon.process.send_signal(signal.SIGSTOP)
        self.at_first.hang_up(lambda: self.until_begun("early"), "tools/call", name="early", arguments={})
        self.until_begun("dropped")
        self.daemon.process.send_signal(signal.SIGCONT)

        async def until_cancelled(sessions: Sessions) -> None:
            statuses: list[str] = []
            while statuses != ["cancelled"]:
                self.assertIn(statuses, ([], ["working"]))
                opened = [await sessions.open(one.id) for one in await sessions.list()]
                statuses = [task.status for session in opened for task in await session.tasks()]

        self.daemon.ask(until_cancelled)

    def test_what_was_answered_becomes_no_task(self: Any) -> None:
        self.assertEqual(self.at_first.call("late")["result"]["resultType"], "complete")
        self.open("late")
        self.until_begun("the call was answered before it could go on as a task")

    def test_a_task_whose_beginning_was_given_up_is_the_calls(self: Any) -> None:
        self.daemon.process.send_signal(signal.SIGSTOP)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            called = pool.submit(self.at_first.task, "patient")
            self.until_begun("beginning")
            self.open("patience")
            self.daemon.process.send_signal(signal.SIGCONT)
            task = called.result()
        self.open("patient")
        ended = self.at_first.until(task, "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], task)

    def test_a_task_that_can_never_be_kept_leaves_nothing_behind(self: Any) -> None:
        error = self.at_first.call("never")["error"]
        self.assertEqual(error["code"], -32603)
        self.assertIn("`ttl_ms` is a whole number", error["message"])
        self.assertEqual(self.daemon.ask(Sessions.list), [])

    def test_a_name_that_a_tool_has_given_is_not_given_again(self: Any) -> None:
        task = self.at_first.task("names")
        while len(asked := self.at_first.until(task, "input_required")["inputRequests"]) < 2:
            pass
        self.assertEqual(set(asked), {"request-1", "request-2"})
        self.at_first.said("tasks/update", taskId=task, inputResponses=dict.fromkeys(asked, NAME))
        ended = self.at_first.until(task, "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], "Ann and Ann")

    def test_a_message_that_is_too_long_is_cut(self: Any) -> None:
        task = self.at_first.task("long")
        self.assertEqual(self.at_first.get(task)["statusMessage"], "\u00e4" * 2_048)
        self.open("long")
        while (now := self.at_first.get(task)["statusMessage"])[0] != "x":
            self.assertEqual(now, "\u00e4" * 2_048)
        self.assertEqual(now, "x" * 4_096)
        self.open("longer")
        self.at_first.until(task, "completed")

    def test_an_error_that_is_too_large_ends_its_task(self: Any) -> None:
        """FastMCP answers such a call by a result."""
        long = self.at_first.until(self.at_first.task("huge", bytes=5_000), "failed")
        self.assertEqual((long["error"]["code"], long["error"]["message"]), (-32050, "x" * 5_000))
        failed = self.at_first.until(self.at_first.task("huge", bytes=5 << 20), "failed")["error"]
        self.assertEqual(failed["code"], -32603)
        self.assertIn("the daemon takes", failed["message"])


class OfficialClient(unittest.IsolatedAsyncioTestCase):
    """At a balancer, which sends each request to another worker."""

    async def test_it_gets_the_result_and_answers_what_a_task_asks(self) -> None:
        async def answer(key: str, request: dict[str, Any]) -> dict[str, Any]:
            return {"action": "accept", "content": {"name": request["params"]["message"]}}

        for kind in ("mcp2", "fastmcp"):
            with self.subTest(kind=kind), contextlib.ExitStack() as stack:
                daemon = support.Daemon().start()
                stack.callback(daemon.remove)
                workers = [Server(daemon, kind, script="task_server.py") for _ in range(2)]
                for worker in workers:
                    stack.callback(worker.listening.close)
                    stack.callback(worker.kill)
                balancer = Balancer(*(worker.port for worker in workers))
                stack.callback(balancer.close)
                polling, greeting = Polling(answer), "Hello, Who are you? in Which colour?!"
                async with Client(balancer.url, extensions=[polling]) as client:
                    self.assertEqual((await client.call_tool("greet", {})).content[0].text, greeting)
                    many = [client.call_tool("work", {"gate": "many"}) for _ in range(80)]
                    working = asyncio.gather(*many)
                    while len(polling.ids) < 81:
                        await asyncio.sleep(0.01)
                    (daemon.directory / "many").touch()
                    for said in await working:
                        self.assertEqual(said.content[0].text, "worked")
                # Another client, which has nothing but the id.
                async with Client(balancer.url, extensions=[Polling()]) as client:
                    said = await finish(client.session, polling.ids[0])
                    self.assertEqual(said.content[0].text, greeting)
                # One that takes no tasks.
                async with Client(balancer.url) as client:
                    self.assertEqual((await client.call_tool("whole", {})).content[0].text, "whole")


class OnStdio(unittest.IsolatedAsyncioTestCase):
    async def test_a_task_on_stdio_is_told_by_the_next_server(self) -> None:
        daemon = support.Daemon().start()
        self.addCleanup(daemon.remove)
        for kind in ("mcp2", "fastmcp"):
            with self.subTest(kind=kind):
                script, journal = str(support.HERE / "task_server.py"), str(daemon.directory / "journal")
                arguments = [script, kind, "stdio", journal]
                environment = {**daemon.environment, "FASTMCP_CHECK_FOR_UPDATES": "off"}
                command = str(PYTHONS[kind])
                server = StdioServerParameters(command=command, args=arguments, env=environment)
                log = (daemon.directory / "log").open("a")
                self.addCleanup(log.close)
                polling = Polling()
                async with Client(stdio_client(server, errlog=log), extensions=[polling]) as client:
                    self.assertEqual((await client.call_tool("whole", {})).content[0].text, "whole")
                async with Client(stdio_client(server, errlog=log), extensions=[Polling()]) as client:
                    said = await finish(client.session, polling.ids[0])
                    self.assertEqual(said.content[0].text, "whole")


class WithoutADaemon(unittest.IsolatedAsyncioTestCase):
    async def test_a_server_seals_request_state_by_a_key_of_its_own(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            os.chmod(directory, 0o777)
            with self.assertLogs("mcp_sessiond", "WARNING") as log:
                security = request_state_security("test", options=Options(directory=directory))
            self.assertEqual(security.codec.unseal(security.codec.seal(b"said")), b"said")
            self.assertEqual(len(log.output), 1)


if __name__ == "__main__":
    unittest.main()
