"""The rules of the Tasks extension (SEP-2663), each a case with the rule as its text, at a server process of each SDK and in both
storages of one machine."""

from __future__ import annotations

import time
import unittest
from datetime import datetime
from typing import Any

import support
from modern import TASKS, Modern
from processes import Server
from raw import Raw

NAME = {"action": "accept", "content": {"name": "Ann"}}
MISSING, INVALID, NO_METHOD = -32021, -32602, -32601


class Rules:
    kind: str
    storage: str

    daemon: support.Daemon
    server: Server
    client: Modern

    @classmethod
    def setUpClass(cls) -> None:
        cls.daemon = support.Daemon().start(f'storage.url="{cls.storage}"')
        cls.server = Server(cls.daemon, cls.kind, None, script="task_server.py")
        cls.client = Modern(cls.server.port)
        cls.plain = Modern(cls.server.port, extensions=())

    @classmethod
    def tearDownClass(cls) -> None:
        cls.server.kill()
        cls.server.listening.close()
        cls.daemon.remove()

    def open(self: Any, gate: str) -> None:
        (self.daemon.directory / gate).touch()

    def journal(self: Any) -> str:
        return (self.daemon.directory / "journal").read_text()

    def assert_error(self: Any, answer: Any, code: int) -> None:
        self.assertEqual(answer.get("error", {}).get("code"), code, answer)
        self.assertTrue(answer["error"]["message"])

    def assert_missing(self: Any, answer: Any) -> None:
        self.assert_error(answer, MISSING)
        self.assertEqual(answer["error"]["data"], {"requiredCapabilities": {"extensions": {TASKS: {}}}})

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

    # Updates

    def test_answers_reach_the_tool(self: Any) -> None:
        """On success, the server MUST acknowledge the request with an empty result."""
        task = self.client.task("greet")
        (key,) = self.client.until(task, "input_required")["inputRequests"]
        acknowledged = self.client.said("tasks/update", taskId=task, inputResponses={key: NAME})["result"]
        self.assertEqual(set(acknowledged) - {"_meta"}, {"resultType"})
        while "colour" not in (now := self.client.get(task)).get("inputRequests", {}):
            self.assertIn(now["status"], ("working", "input_required"))
        # Neither what was never asked nor what is answered has any effect.
        red = {"action": "accept", "content": {"name": "red"}}
        self.client.said("tasks/update", taskId=task, inputResponses={"never": red, key: red, "colour": red})
        ended = self.client.until(task, "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], "Hello, Ann in red!")
        self.assertNotIn("inputRequests", ended)

    def test_a_key_names_one_request(self: Any) -> None:
        """Each request key in inputRequests MUST be unique over the lifetime of a single task."""
        task = self.client.task("greet")
        (first,) = self.client.until(task, "input_required")["inputRequests"]
        self.client.said("tasks/update", taskId=task, inputResponses={first: NAME})
        while "colour" not in (now := self.client.get(task)).get("inputRequests", {}):
            self.assertIn(now["status"], ("working", "input_required"))
        self.assertNotIn(first, now["inputRequests"])

    def test_a_part_of_the_answers_may_come_alone(self: Any) -> None:
        """A server MAY accept a partial set of responses."""
        task = self.client.task("pair", gate="pair")
        while len(self.client.until(task, "input_required")["inputRequests"]) < 2:
            pass
        self.client.said("tasks/update", taskId=task, inputResponses={"second": NAME})
        self.assertEqual(list(self.client.until(task, "input_required")["inputRequests"]), ["first"])
        self.client.said("tasks/update", taskId=task, inputResponses={"first": NAME})
        self.client.until(task, "working")
        self.open("pair")
        ended = self.client.until(task, "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], "Ann and Ann")

    def test_answers_to_what_is_not_open_are_ignored(self: Any) -> None:
        """A server SHOULD ignore any inputResponses mapped to a key that is not currently outstanding for the task."""
        task = self.client.task("whole")
        self.client.until(task, "completed")
        self.assertIn("result", self.client.said("tasks/update", taskId=task, inputResponses={"any": NAME}))
        self.assertIn("result", self.client.said("tasks/update", taskId=task, inputResponses={}))

    # Cancellation

    def test_cancelling_ends_the_work(self: Any) -> None:
        """The server MUST acknowledge the request with an empty result. If the status is cancelled, the server MUST
        return a Task object with status cancelled."""
        before = self.journal().count("cancelled")
        task = self.client.task("work", gate="never")
        acknowledged = self.client.said("tasks/cancel", taskId=task)["result"]
        self.assertEqual(set(acknowledged) - {"_meta"}, {"resultType"})
        self.assertEqual(self.client.until(task, "cancelled")["status"], "cancelled")
        while self.journal().count("cancelled") == before:
            pass
        again = self.client.said("tasks/cancel", taskId=task)
        self.assertIn("result", again)

    def test_cancelling_what_has_ended_changes_nothing(self: Any) -> None:
        """Cancellation MAY ultimately reach a terminal status other than cancelled if the work finished before."""
        task = self.client.task("whole")
        ended = self.client.until(task, "completed")
        self.assertIn("result", self.client.said("tasks/cancel", taskId=task))
        self.assertEqual(self.client.get(task), ended)

    def test_a_request_for_input_goes_with_its_task(self: Any) -> None:
        """A task that was cancelled while it was input_required is cancelled."""
        task = self.client.task("greet")
        self.client.until(task, "input_required")
        self.client.said("tasks/cancel", taskId=task)
        self.assertNotIn("inputRequests", self.client.until(task, "cancelled"))

    # Notifications

    def test_no_progress_and_no_messages_for_tasks(self: Any) -> None:
        """notifications/progress and notifications/message are not supported on tasks in general. The tool tells
        progress after its call was answered, and goes on."""
        task = self.client.task("work", gate="progress")
        self.open("progress")
        self.assertEqual(self.client.until(task, "completed")["result"]["content"][0]["text"], "worked")

    # Errors

    def test_an_unknown_task(self: Any) -> None:
        """Invalid or nonexistent taskId: -32602. Servers MUST return this error for tasks/get, and SHOULD for
        tasks/update and tasks/cancel."""
        session = self.client.task("whole").partition(".")[0]
        for id in ("none", "", "a.b", f"{session}.none", f"{session}.", "x" * 5_000, "ü.ö"):
            for method, more in (("get", {}), ("update", {"inputResponses": {}}), ("cancel", {})):
                with self.subTest(id=id[:9], method=method):
                    name = id if id.isascii() else "none"
                    said = self.client.said(f"tasks/{method}", taskId=id, header=name, **more)
                    self.assert_error(said, INVALID)

    def test_an_id_that_is_none(self: Any) -> None:
        """Invalid taskId: -32602."""
        for id in (None, 7, ["a"], {}):
            self.assert_error(self.client.said("tasks/get", taskId=id, header="none"), INVALID)
        self.assert_error(self.client.said("tasks/update", taskId="none", inputResponses=7), INVALID)

    def test_a_task_whose_time_is_over(self: Any) -> None:
        """Servers are not required to retain tasks indefinitely: an error states that the task cannot be found."""
        task = self.client.task("short")
        until = time.monotonic() + 20
        while "result" in (said := self.client.said("tasks/get", taskId=task)):
            self.assertLess(time.monotonic(), until)
        self.assert_error(said, INVALID)

    def test_a_client_that_has_not_declared_asks_for_a_task(self: Any) -> None:
        """Servers MUST return -32021 for non-declaring clients issuing tasks/get, tasks/update, and tasks/cancel
        requests."""
        task = self.client.task("work", gate="never")
        self.assert_missing(self.plain.said("tasks/get", taskId=task))
        self.assert_missing(self.plain.said("tasks/update", taskId=task, inputResponses={}))
        self.assert_missing(self.plain.said("tasks/cancel", taskId=task))
        self.assertEqual(self.client.get(task)["status"], "working")

    def test_legacy_methods_are_gone(self: Any) -> None:
        """tasks/result is removed; clients calling it MUST receive -32601. There is no tasks/list."""
        task = self.client.task("whole")
        self.assert_error(self.client.said("tasks/result", taskId=task), NO_METHOD)
        self.assert_error(self.client.said("tasks/list"), NO_METHOD)

    # Security

    def test_a_task_is_its_callers(self: Any) -> None:
        """Servers MUST perform authentication and authorization checks on each task-related request. Another caller
        gets the same error as for a task that is not there."""
        alice, bob = Modern(self.server.port, "alice"), Modern(self.server.port, "bob")
        hers, nobodys = alice.task("work", gate="never"), self.client.task("work", gate="never")
        none = bob.said("tasks/get", taskId="none")
        for other in (bob, self.client):
            self.assertEqual(other.said("tasks/get", taskId=hers), none)
            self.assertEqual(other.said("tasks/cancel", taskId=hers), none)
            self.assertEqual(other.said("tasks/update", taskId=hers, inputResponses={}), none)
        self.assertEqual(alice.said("tasks/get", taskId=nobodys), none)
        self.assertEqual(alice.get(hers)["status"], "working")


class Listening(Rules):
    """Rules of notifications, which FastMCP's public interface gives no way to send."""

    def test_only_a_client_that_has_declared_listens(self: Any) -> None:
        """Servers MUST return -32021 for non-declaring clients requesting task notifications on
        subscriptions/listen."""
        task = self.client.task("work", gate="never")
        self.assert_missing(self.plain.said("subscriptions/listen", notifications={"taskIds": [task]}))

    def test_what_is_agreed_is_acknowledged(self: Any) -> None:
        """In its acknowledgement notification, the server includes the list of task IDs it has agreed to send task
        status notifications for."""
        alice = Modern(self.server.port, "alice")
        hers, task = alice.task("work", gate="never"), self.client.task("work", gate="never")
        filter = {"taskIds": [hers, task, "none"], "toolsListChanged": True}
        with self.client.listening(filter) as messages:
            acknowledged = next(messages)
        self.assertEqual(acknowledged["method"], "notifications/subscriptions/acknowledged")
        agreed = {"taskIds": [task], "toolsListChanged": True}
        self.assertEqual(acknowledged["params"]["notifications"], agreed)

    def test_each_notification_is_the_whole_task(self: Any) -> None:
        """Each notification carries a complete DetailedTask for the current status, identical to what tasks/get would
        have returned at that moment."""
        task = self.client.task("greet")
        asked = self.client.until(task, "input_required")
        with self.client.listening({"taskIds": [task]}) as messages:
            meta = next(messages)["params"]["_meta"]
            told = next(messages)
            self.assertEqual(told["method"], "notifications/tasks")
            self.assertEqual(told["params"].pop("_meta"), meta)
            for name in ("_meta", "resultType"):
                asked.pop(name)
            self.assertEqual(told["params"], asked)
            self.client.said("tasks/update", taskId=task, inputResponses={"request-1": NAME})
            while "colour" not in (told := next(messages))["params"].get("inputRequests", {}):
                self.assertEqual(told["method"], "notifications/tasks")
            self.client.said("tasks/update", taskId=task, inputResponses={"colour": NAME})
            while (told := next(messages))["params"]["status"] != "completed":
                pass
            self.assertEqual(told["params"]["result"]["content"][0]["text"], "Hello, Ann in Ann!")

    def test_other_notifications_are_as_they_were(self: Any) -> None:
        """A subscription without tasks is the SDK's own."""
        with self.client.listening({"toolsListChanged": True}) as messages:
            self.assertEqual(next(messages)["params"]["notifications"], {"toolsListChanged": True})
        said = self.client.said("subscriptions/listen", notifications={"taskIds": ["a"] * 65})
        self.assert_error(said, INVALID)


class OfTheSdkInMemory(Listening, unittest.TestCase):
    kind, storage = "mcp2", "memory:"


class OfTheSdkInSqlite(Listening, unittest.TestCase):
    kind, storage = "mcp2", "sqlite:"


class OfFastmcpInSqlite(Rules, unittest.TestCase):
    kind, storage = "fastmcp", "sqlite:"


if __name__ == "__main__":
    unittest.main()
