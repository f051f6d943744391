"""A server on stdio, on each SDK, whose handlers find the session of its instance. This test is its host."""

import json
import subprocess
import sys
import unittest

import support

VISITS = support.HERE / "visits_server.py"
NO_SESSION = """
import asyncio
from mcp_sessiond import Options, Sessiond, session_of

async def main():
    def none():
        try:
            session_of(object())
        except LookupError:
            return True
    one, two = (Sessiond.init(Options(start=False, label=label)) for label in ("one", "two"))
    assert none(), "nothing is claimed yet"
    own = await one.session()
    assert session_of(object()).id == own.id
    try:
        session_of()
        raise AssertionError("it could be a handler over HTTP")
    except LookupError:
        pass
    await two.session()
    assert none(), "which of them is not known"
    await two.release()
    assert session_of(object()).id == own.id
    await one.release()
    assert none()
    await one.session()
    from mcp_sessiond.asgi import durable
    durable(lambda *_: None, service="web")
    assert none(), "over HTTP nobody works for the session of the process"

asyncio.run(main())
print("fine")
"""


class Stdio(unittest.TestCase):
    def setUp(self):
        self.daemon = support.Daemon().start()
        self.addCleanup(self.daemon.remove)

    def visit(self, kind):
        """Starts the server, calls its tool, and closes it."""
        command = [str(support.INSTALLED / kind / "bin" / "python"), str(VISITS), kind]
        pipe = subprocess.PIPE
        with subprocess.Popen(command, env=self.daemon.environment, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True) as server:

            def ask(message):
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
                server.stdin.flush()
                while "id" in message and json.loads(line := server.stdout.readline()).get("id") != message["id"]:
                    pass
                return json.loads(line)["result"] if "id" in message else None

            info = {"name": "host", "version": "1"}
            ask({"id": 0, "method": "initialize", "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info}})
            ask({"method": "notifications/initialized"})
            said = ask({"id": 1, "method": "tools/call", "params": {"name": "visit", "arguments": {}}})
            server.stdin.close()
        return said["content"][0]["text"]

    def test_the_next_instance_goes_on(self):
        for kind in ("mcp1", "mcp2", "fastmcp"):
            with self.subTest(kind=kind):
                self.assertEqual([self.visit(kind), self.visit(kind)], ["1", "2"])

    def test_without_one_session_of_the_process_there_is_none(self):
        environment = {**self.daemon.environment, "PYTHONPATH": str(support.HERE.parent / "src")}
        done = subprocess.run([sys.executable, "-c", NO_SESSION], env=environment, capture_output=True, text=True)
        self.assertEqual(done.stdout, "fine\n", done.stderr)


if __name__ == "__main__":
    unittest.main()
