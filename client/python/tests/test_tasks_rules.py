"""The rules of the Tasks extension (SEP-2663) about who is given a task, and what it tells: each a case with the rule as its text,
at a server process of each SDK and in both storages of one machine."""

from __future__ import annotations

import unittest
from datetime import datetime
from typing import Any

from modern import TASKS, Modern
from raw import Raw
from rules import INVALID, NAME, NO_METHOD, Rules


class Told(Rules):
    # Capability negotiation

    def test_the_server_declares_the_extension_in_its_answer_to_discover(self: Any) -> None:
        """The client and server declare support for the tasks extension in their respective capabilities objects.
        No extension-specific settings are currently defined; an empty object indicates support."""
        capabilities = self.client.said("server/discover")["result"]["capabilities"]
        self.assertEqual(capabilities["extensions"][TASKS], {})

    def test_no_legacy_capability_is_advertised(self: Any) -> None:
        """Servers MUST NOT continue to advertise the legacy capabilities."""
        self.assertNotIn("tasks", self.client.said("server/discover")["result"]["capabilities"])

    def test_a_client_that_has_not_declared_is_given_no_task(self: Any) -> None:
        """A server MUST NOT return CreateTaskResult to a client that did not include the extension capability on its
        request, regardless of prior declarations."""
        for tool in ("whole", "wrong", "big"):
            self.assertEqual(self.client.call(tool, **({"bytes": 1} if tool == "big" else {}))["result"]["resultType"], "task")
            result = self.plain.call(tool, **({"bytes": 1} if tool == "big" else {}))["result"]
            self.assertEqual(result["resultType"], "complete")
        self.assertEqual(self.plain.call("whole")["result"]["content"][0]["text"], "whole")

    def test_a_tool_that_needs_a_task_refuses_a_client_that_has_not_declared(self: Any) -> None:
        """If a server is unable to service a request to a client that does not declare this extension capability
        without returning CreateTaskResult, the server MUST return an error with the code -32021, indicating the
        required extension."""
        self.assert_missing(self.plain.call("must"))
        if self.kind == "fastmcp":
            self.assert_missing(self.plain.call("required"))
            self.client.until(self.client.task("required"), "completed")

    def test_the_server_alone_decides(self: Any) -> None:
        """A server that has negotiated this extension MAY return CreateTaskResult at its own discretion; the client
        declaring the capability does not suggest that it requires one."""
        self.assertEqual(self.client.call("plain")["result"]["resultType"], "complete")

    def test_the_legacy_parameter_is_ignored(self: Any) -> None:
        """The `task` parameter on CallToolRequest is removed; servers MUST ignore it."""
        said = self.plain.said("tools/call", name="whole", arguments={}, task={"ttl": 1})
        self.assertEqual(said["result"]["resultType"], "complete")
        said = self.client.said("tools/call", name="plain", arguments={}, task={"ttl": 1})
        self.assertEqual(said["result"]["resultType"], "complete")

    def test_a_client_with_the_legacy_capability_alone_has_not_declared(self: Any) -> None:
        """Servers MUST treat clients declaring only the legacy capability as non-declaring."""
        legacy = Modern(self.server.port, extensions=())
        legacy.capabilities["tasks"] = {"requests": {"tools": {"call": {}}}}
        self.assertEqual(legacy.call("whole")["result"]["resultType"], "complete")
        self.assert_missing(legacy.said("tasks/get", taskId="any"))

    def test_the_extension_is_not_defined_before_2026(self: Any) -> None:
        """Servers MUST NOT treat this capability as enabling tasks under 2025-11-25."""
        old = Raw(self.server.port)
        info, capabilities = {"name": "old", "version": "1"}, {"extensions": {TASKS: {}}}
        begun = old.request(0, "initialize", protocolVersion=old.version, capabilities=capabilities, clientInfo=info)
        old.session = begun.header("mcp-session-id")
        old.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        result = old.tool(1, "whole").answer()["result"]
        self.assertEqual(result["content"][0]["text"], "whole")
        self.assertNotIn("taskId", result)
        self.assert_error(old.request(2, "tasks/get", taskId="any").answer(), NO_METHOD)

    # Polymorphic results, and creation

    def test_the_result_says_that_it_is_a_task(self: Any) -> None:
        """Servers MUST set resultType to "task" when returning a CreateTaskResult. The embedded task is the seed
        state, typically with status "working"."""
        task = self.client.call("whole")["result"]
        self.assertEqual((task["resultType"], task["status"]), ("task", "working"))
        self.assertEqual((task["ttlMs"], task["pollIntervalMs"]), (3_600_000, 50))
        for name in ("createdAt", "lastUpdatedAt"):
            self.assertIsNotNone(datetime.fromisoformat(task[name].replace("Z", "+00:00")).tzinfo)

    def test_nothing_else_says_so(self: Any) -> None:
        """Servers MUST NOT set resultType to "task" on result types other than CreateTaskResult. It MUST be set to
        "complete" on the answers to tasks/get, tasks/update and tasks/cancel."""
        task = self.client.task("work", gate="never")
        self.assertEqual(self.client.get(task)["resultType"], "complete")
        updated = self.client.said("tasks/update", taskId=task, inputResponses={"any": NAME})
        self.assertEqual(updated["result"]["resultType"], "complete")
        cancelled = self.client.said("tasks/cancel", taskId=task)
        self.assertEqual(cancelled["result"]["resultType"], "complete")

    def test_a_task_is_there_before_its_id_is_told(self: Any) -> None:
        """A server MUST NOT return CreateTaskResult until the task is durably created - that is, until a tasks/get for
        the returned taskId would resolve."""
        for _ in range(20):
            self.assertIn("result", self.client.said("tasks/get", taskId=self.client.task("whole")))

    def test_ids_can_not_be_guessed(self: Any) -> None:
        """Servers MUST generate task IDs with sufficient entropy that a third party cannot enumerate or guess them."""
        first, second = self.client.task("whole"), self.client.task("whole")
        self.assertNotEqual(first, second)
        # Unpadded base64: six bits each.
        self.assertGreaterEqual(len(first.partition(".")[2]) * 6, 256)
        session, _, secret = first.partition(".")
        self.assert_error(self.client.said("tasks/get", taskId=f"{session}.{second.partition('.')[2]}"), INVALID)
        self.assert_error(self.client.said("tasks/get", taskId=f"{session}.{secret[:-1]}"), INVALID)
        self.assert_error(self.client.said("tasks/get", taskId=session), INVALID)

    def test_multi_round_trips_come_first(self: Any) -> None:
        """Server implementations that use multi round-trip requests in conjunction with task creation SHOULD resolve
        all MRTR exchanges synchronously before responding with a CreateTaskResult."""
        asked = self.client.call("guarded")["result"]
        self.assertEqual((asked["resultType"], list(asked["inputRequests"])), ("input_required", ["name"]))
        answers = {"inputResponses": {"name": NAME}}
        if "requestState" in asked:
            answers["requestState"] = asked["requestState"]
        result = self.client.said("tools/call", name="guarded", arguments={}, **answers)["result"]
        self.assertEqual(result["resultType"], "task")
        ended = self.client.until(result["taskId"], "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], "Hello, Ann!")

    # Polling

    def test_working(self: Any) -> None:
        """If the status is working, the server MUST return a Task object with status working."""
        task = self.client.task("work", gate="working")
        while (now := self.client.get(task)).get("statusMessage") != "half of it is done":
            self.assertEqual(now["statusMessage"], "begun")
        self.assertEqual((now["taskId"], now["status"]), (task, "working"))
        for name in ("result", "error", "inputRequests"):
            self.assertNotIn(name, now)
        self.open("working")
        self.client.until(task, "completed")

    def test_input_required(self: Any) -> None:
        """If the status is input_required, the server MUST return inputRequests, which MUST contain all outstanding
        requests."""
        task = self.client.task("pair", gate="input")
        while len((now := self.client.until(task, "input_required"))["inputRequests"]) < 2:
            pass
        self.assertEqual(set(now["inputRequests"]), {"first", "second"})
        self.assertEqual(now["inputRequests"]["first"]["method"], "elicitation/create")
        self.assertEqual(now["inputRequests"]["first"]["params"]["message"], "first")
        self.assertEqual(self.client.get(task)["inputRequests"], now["inputRequests"])

    def test_completed(self: Any) -> None:
        """If the status is completed, the server MUST return a result field containing the final result: exactly what
        the underlying request would have returned."""
        told = self.client.until(self.client.task("whole"), "completed")["result"]
        direct = self.plain.call("whole")["result"]
        direct["_meta"].pop("io.modelcontextprotocol/serverInfo")
        told.setdefault("_meta", {})
        self.assertEqual(told, direct)

    def test_an_error_of_the_tool_is_a_result(self: Any) -> None:
        """If the request completed with a result (even if isError: true), the task uses completed status and the
        result field MUST contain that result. The failed status MUST NOT be used for non-JSON-RPC errors."""
        told = self.client.until(self.client.task("wrong"), "completed")["result"]
        self.assertTrue(told["isError"])
        self.assertEqual(told["content"], self.plain.call("wrong")["result"]["content"])

    def test_failed(self: Any) -> None:
        """If the underlying request resulted in a JSON-RPC error, the task uses failed status and the error field MUST
        contain that JSON-RPC error. tasks/get SHOULD include a statusMessage with diagnostic information."""
        if self.kind == "fastmcp":
            # FastMCP answers with a result where a tool raises `MCPError`, so the task has that result.
            told = self.client.until(self.client.task("fail"), "completed")["result"]
            self.assertEqual(told["content"], self.plain.call("fail")["result"]["content"])
            return
        failed = self.client.until(self.client.task("fail"), "failed")
        self.assertEqual(failed["error"], self.plain.call("fail")["error"])
        self.assertEqual(failed["statusMessage"], "API rate limit exceeded")

    def test_a_result_that_can_not_be_kept_is_an_error(self: Any) -> None:
        """Of a result that is too large the client learns that it is: never an empty success."""
        failed = self.client.until(self.client.task("big", bytes=4_000_000), "failed")
        self.assertTrue(failed["error"]["message"])
        whole = self.client.until(self.client.task("big", bytes=500_000), "completed")
        self.assertEqual(len(whole["result"]["content"][0]["text"]), 500_000)

    def test_polling_changes_nothing(self: Any) -> None:
        """tasks/get is a pure, idempotent read."""
        task = self.client.task("greet")
        now = self.client.until(task, "input_required")
        self.assertEqual([self.client.get(task) for _ in range(5)], [now] * 5)


class OfTheSdkInMemory(Told, unittest.TestCase):
    kind, storage = "mcp2", "memory:"


class OfTheSdkInSqlite(Told, unittest.TestCase):
    kind, storage = "mcp2", "sqlite:"


class OfFastmcpInSqlite(Told, unittest.TestCase):
    kind, storage = "fastmcp", "sqlite:"


if __name__ == "__main__":
    unittest.main()
