"""The experimental tasks of `mcp` 1.30, in the session of the client that has begun them."""

from __future__ import annotations

import json
import time
import unittest
from typing import Any

import support
from processes import Server
from raw import Raw

from mcp_sessiond import Options
from mcp_sessiond.blocking import Sessions


class Experimental(unittest.TestCase):
    def setUp(self) -> None:
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.server = self.serve()
        self.client = self.begun(self.server)

    def serve(self, listening: Any = None) -> Server:
        server = Server(self.daemon, "mcp1", listening, script="task_store_server.py")
        self.addCleanup(server.kill)
        return server

    def begun(self, server: Server) -> Raw:
        client = Raw(server.port)
        info, capabilities = {"name": "raw", "version": "1"}, {"elicitation": {}, "tasks": {}}
        begun = client.request(
            0, "initialize", protocolVersion=client.version, capabilities=capabilities, clientInfo=info
        )
        client.session = begun.header("mcp-session-id")
        client.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return client

    def task(self, tool: str, **arguments: Any) -> str:
        called = self.client.request(1, "tools/call", name=tool, arguments=arguments, task={"ttl": 60_000})
        task = called.answer()["result"]["task"]
        self.assertEqual((task["status"], task["ttl"]), ("working", 60_000))
        return str(task["taskId"])

    def get(self, task: str, client: Raw | None = None) -> Any:
        return (client or self.client).request(2, "tasks/get", taskId=task).answer()

    def until(self, task: str, **is_so: str) -> Any:
        until = time.monotonic() + 20
        while not is_so.items() <= (now := self.get(task)["result"]).items():
            self.assertLess(time.monotonic(), until, f"the task is not {is_so}")
        return now

    def text(self, task: str) -> str:
        answer = self.client.request(3, "tasks/result", taskId=task).answer()
        return str(answer["result"]["content"][0]["text"])

    def until_written(self, file: str, line: str) -> None:
        path = self.daemon.directory / file
        until = time.monotonic() + 20
        while not path.exists() or line not in path.read_text():
            self.assertLess(time.monotonic(), until, f"`{line}` is not in {file}")

    def test_a_task_is_told_by_the_next_server_to_its_session_alone(self) -> None:
        task = self.task("work", gate="open")
        self.until(task, statusMessage="half of it is done")
        (self.daemon.directory / "open").touch()
        self.until(task, status="completed")
        self.server.kill()
        self.server = self.serve(self.server.listening)
        self.until(task, status="completed")
        result = self.client.request(3, "tasks/result", taskId=task).answer()["result"]
        self.assertEqual(result["content"][0]["text"], "worked")
        self.assertEqual(result["_meta"]["io.modelcontextprotocol/related-task"], {"taskId": task})
        stranger = self.begun(self.server)
        self.assertEqual(self.get(task, stranger)["error"]["code"], -32602)
        self.assertEqual(self.get("none", stranger)["error"]["code"], -32602)

    def test_a_task_of_a_killed_server_has_failed(self) -> None:
        task = self.task("work", gate="never")
        self.until(task, statusMessage="half of it is done")
        self.server.kill()
        self.server = self.serve(self.server.listening)
        self.assertIn("unknown", self.until(task, status="failed")["statusMessage"])
        result = self.client.request(3, "tasks/result", taskId=task).answer()["result"]
        self.assertTrue(result["isError"])

    def test_a_task_that_is_cancelled_stays_so_and_the_session_goes_on(self) -> None:
        task = self.task("work", gate="late")
        self.until(task, statusMessage="half of it is done")
        cancelled = self.client.request(3, "tasks/cancel", taskId=task).answer()["result"]
        self.assertEqual(cancelled["status"], "cancelled")
        (self.daemon.directory / "late").touch()
        again = self.task("work", gate="late")
        self.until(again, status="completed")
        self.until(task, status="cancelled")

    def test_a_task_that_ends_when_the_daemon_is_killed_has_its_result(self) -> None:
        task, hold = self.task("work", gate="open"), self.daemon.directory / "hold"
        self.until(task, statusMessage="half of it is done")
        hold.touch()
        (self.daemon.directory / "open").touch()
        self.until_written("journal", "completing")
        # Nobody else may start a daemon meanwhile.
        self.daemon.directory.chmod(0o777)
        self.daemon.kill()
        hold.unlink()
        self.until_written("task_store_server.py.log", "A change of a task waits")
        self.daemon.directory.chmod(0o700)
        self.daemon.start()
        self.until(task, status="completed")
        self.assertEqual(self.text(task), "worked")

    def test_an_error_of_any_length_ends_its_task_and_not_the_session(self) -> None:
        for size in (5, 5_000, 20 << 20):
            task = self.task("fail", size=size)
            self.assertEqual(self.until(task, status="failed")["statusMessage"], "x" * min(size, 4_096))
            self.assertEqual(self.text(task), "x" * min(size, 4_096))

    def test_the_end_of_a_task_whose_session_has_ended_is_no_error_of_the_servers(self) -> None:
        self.task("fail", size=1, gate="open")
        Sessions("test", Options(directory=self.daemon.directory)).open(self.client.session or "").terminate()
        (self.daemon.directory / "open").touch()
        self.until_written("task_store_server.py.log", "The end of a task is not kept")
        self.client = self.begun(self.server)
        self.until(self.task("fail", size=1), status="failed")
        self.assertNotIn("Traceback", (self.daemon.directory / "task_store_server.py.log").read_text())

    def test_the_store_lists_the_tasks_of_the_session(self) -> None:
        stranger = self.begun(self.server)
        first, second = self.task("work", gate="never"), self.task("fail", size=1)
        self.until(second, status="failed")

        def listed(client: Raw) -> Any:
            result = client.request(4, "tools/call", name="tasks", arguments={}).answer()["result"]
            return sorted(json.loads(result["content"][0]["text"]))

        self.assertEqual(listed(self.client), sorted([[first, "working"], [second, "failed"]]))
        self.assertEqual(listed(stranger), [])

    def test_what_a_task_asks_comes_with_its_result(self) -> None:
        task = self.task("ask")
        self.until(task, status="input_required")
        messages = self.client.request(3, "tasks/result", taskId=task).messages()
        asked = next(message for _, message in messages if message.get("method") == "elicitation/create")
        result = {"action": "accept", "content": {"name": "Ann"}}
        self.client.send("POST", {"jsonrpc": "2.0", "id": asked["id"], "result": result})
        answer = next(message for _, message in messages if "method" not in message)
        self.assertEqual(answer["result"]["content"][0]["text"], "Hello, Ann!")
        self.until(task, status="completed")


if __name__ == "__main__":
    unittest.main()
