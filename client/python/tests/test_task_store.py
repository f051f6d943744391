"""The experimental tasks of `mcp` 1.30, in the session of the client that has begun them."""

from __future__ import annotations

import unittest
from typing import Any

import support
from processes import Server
from raw import Raw


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
        while not is_so.items() <= (now := self.get(task)["result"]).items():
            pass
        return now

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
