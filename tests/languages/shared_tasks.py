"""Tasks that workers of several languages share; see `run`."""

import os
import re
import socket
import subprocess
import unittest
from pathlib import Path

import support
from modern import Modern

HERE = Path(__file__).resolve().parent
WORKERS = {
    "TypeScript": ["node", str(support.ROOT / "client" / "typescript" / "test" / "sdks" / "tasks.mjs"), "{port}"],
    "Python": [str(support.INSTALLED / "mcp2" / "bin" / "python"), str(support.HERE / "task_server.py"), "mcp2", ":{port}", "{directory}/journal"],
    "Rust": [str(Path(os.environ.get("CARGO_TARGET_DIR") or support.ROOT / "target") / "debug" / "tasks-server"), "127.0.0.1:{port}"],
}


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def named(name):
    return {"action": "accept", "content": {"name": name}}


class Tasks(unittest.TestCase):
    """A task that a worker of one language has begun, those of every language get, answer, cancel, and know as failed."""

    def setUp(self):
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)
        self.gate = str(self.daemon.directory / "gate")
        self.ports, self.processes = {}, {}
        for language in WORKERS:
            self.start(language)

    def start(self, language):
        port = self.ports.setdefault(language, free_port())
        command = [part.format(port=port, directory=self.daemon.directory) for part in WORKERS[language]]
        environment = {**self.daemon.environment, "SERVICE": "languages"}
        log = self.daemon.directory / "log"
        with log.open("a") as errors:
            process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=errors, text=True)
        self.processes[language] = process
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.assertIn("http://127.0.0.1", process.stdout.readline(), log.read_text())

    def clients(self, first=None, token=None):
        """A client of each worker, beginning with this one's."""
        order = sorted(WORKERS, key=lambda language: language != first)
        return [Modern(self.ports[language], token) for language in order]

    def seen(self, task, status):
        """The task as every worker tells it, which is the same while nothing changes it."""
        first, *others = self.clients()

        def of(client):
            now = client.get(task)
            now.pop("_meta", None)
            return now

        first.until(task, status)
        now, told, after = None, [], ()
        while now != after:
            now, told, after = of(first), [of(other) for other in others], of(first)
        for other in told:
            self.assertEqual(other, now)
        self.assertEqual(now["status"], status)
        return now

    def test_each_gets_and_answers_the_tasks_of_each(self):
        for language in WORKERS:
            with self.subTest(begun_by=language):
                begun, second, third = self.clients(language)
                task = begun.task("greet")
                self.assertRegex(task, r"\A[\w-]{22}\.t[\w-]{43}\Z")
                asked = self.seen(task, "input_required")
                self.assertEqual(asked["statusMessage"], "begun")
                for moment in ("createdAt", "lastUpdatedAt"):
                    self.assertRegex(asked[moment], re.compile(r"\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z", re.ASCII))
                [(name, request)] = asked["inputRequests"].items()
                self.assertEqual((request["method"], request["params"]["message"]), ("elicitation/create", "Who are you?"))
                # What no worker has asked is nobody's answer.
                second.said("tasks/update", taskId=task, inputResponses={"never": named("Eve"), name: named("Ann")})
                while name in (now := third.get(task).get("inputRequests", {name: None})):
                    pass
                third.said("tasks/update", taskId=task, inputResponses={key: named("red") for key in [name, *now]})
                ended = self.seen(task, "completed")
                self.assertEqual(ended["result"]["content"], [{"type": "text", "text": "Hello, Ann in red!"}])
                self.assertEqual(self.seen(begun.task("fail"), "failed")["error"],
                                 {"code": -32050, "message": "API rate limit exceeded", "data": {"after": 5}})

    def test_each_cancels_the_tasks_of_each(self):
        for language in WORKERS:
            for nth, by in enumerate(self.clients(language)):
                with self.subTest(begun_by=language, cancelled_by=nth):
                    task = self.clients(language)[0].task("work", gate=self.gate)
                    self.seen(task, "working")
                    self.assertIn("result", by.said("tasks/cancel", taskId=task))
                    self.seen(task, "cancelled")

    def test_each_tells_that_a_killed_worker_of_each_has_failed(self):
        for language in WORKERS:
            with self.subTest(killed=language):
                begun, second, third = self.clients(language)
                task = begun.task("work", gate=self.gate)
                self.processes[language].kill()
                self.processes[language].wait()
                for other in (second, third):
                    failed = other.until(task, "failed")
                    self.assertEqual((failed["error"]["code"], failed["error"]["data"]), (-32603, {"outcome": "unknown"}))
                self.start(language)
                self.seen(task, "failed")

    def test_a_task_is_its_callers_wherever_he_asks(self):
        for language in WORKERS:
            with self.subTest(begun_by=language):
                task = self.clients(language, "alice")[0].task("greet")
                for alice, bob, nobody in zip(self.clients(language, "alice"), self.clients(language, "bob"), self.clients(language)):
                    self.assertEqual(alice.until(task, "input_required")["taskId"], task)
                    for other in (bob, nobody):
                        none = other.said("tasks/get", taskId="none")
                        self.assertEqual(none["error"]["code"], -32602)
                        self.assertEqual(other.said("tasks/get", taskId=task), none)
                        self.assertEqual(other.said("tasks/cancel", taskId=task), none)
                self.assertIn("result", self.clients(language, "alice")[-1].said("tasks/cancel", taskId=task))
