"""The rules of the Tasks extension (SEP-2663) about answers, cancellation, errors, callers and notifications, as in
`test_tasks_rules.py`."""

from __future__ import annotations

import time
import unittest
from typing import Any

from modern import Modern
from rules import INVALID, NAME, NO_METHOD, Rules


class Changes(Rules):
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

    def test_a_name_that_a_tool_has_given_is_not_given_again(self: Any) -> None:
        task = self.client.task("names")
        while len(asked := self.client.until(task, "input_required")["inputRequests"]) < 2:
            pass
        self.assertEqual(set(asked), {"request-1", "request-2"})
        self.client.said("tasks/update", taskId=task, inputResponses=dict.fromkeys(asked, NAME))
        ended = self.client.until(task, "completed")
        self.assertEqual(ended["result"]["content"][0]["text"], "Ann and Ann")

    # Messages

    def test_a_message_that_is_too_long_is_cut(self: Any) -> None:
        task = self.client.task("long")
        self.assertEqual(self.client.get(task)["statusMessage"], "\u00e4" * 2_048)
        self.open("long")
        while (now := self.client.get(task)["statusMessage"])[0] != "x":
            self.assertEqual(now, "\u00e4" * 2_048)
        self.assertEqual(now, "x" * 4_096)
        self.open("longer")
        self.client.until(task, "completed")

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


class Listening(Changes):
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

    def test_an_error_that_is_too_large_ends_its_task(self: Any) -> None:
        """FastMCP answers such a call by a result."""
        long = self.client.until(self.client.task("huge", bytes=5_000), "failed")
        self.assertEqual((long["error"]["code"], long["error"]["message"]), (-32050, "x" * 5_000))
        failed = self.client.until(self.client.task("huge", bytes=5 << 20), "failed")["error"]
        self.assertEqual(failed["code"], -32603)
        self.assertIn("the daemon takes", failed["message"])

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


class OfFastmcpInSqlite(Changes, unittest.TestCase):
    kind, storage = "fastmcp", "sqlite:"


if __name__ == "__main__":
    unittest.main()
