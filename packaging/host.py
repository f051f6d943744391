"""host.py COMMAND is an MCP host, a process of its own: it starts the server by this command (JSON), and counts with it. For trial.py."""

import json
import os
import signal
import subprocess
import sys
import time

# What a step may take, in seconds. Only what hangs ever sees it.
PATIENCE = 120


def equal(what, seen, expected):
    if seen != expected:
        raise SystemExit(f"{what}: {seen!r} instead of {expected!r}")


class Client:
    """A session of MCP with a process on standard input and output."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
        self.ids = 0
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "trial", "version": "1"}}
        self.ask("initialize", client)
        self.say({"method": "notifications/initialized"})

    def say(self, message):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.process.stdin.flush()

    def ask(self, method, params):
        self.ids += 1
        self.say({"id": self.ids, "method": method, "params": params})
        for line in self.process.stdout:
            said = json.loads(line)
            if said.get("id") == self.ids:
                return said["result"]
        raise SystemExit(f"{method}: the server ended with {self.process.wait()}")

    def count(self):
        return self.ask("tools/call", {"name": "increment", "arguments": {}})["content"][0]["text"]

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.end()

    def end(self):
        self.process.stdin.close()
        self.process.wait(PATIENCE)
        self.process.stdout.close()


def main(command):
    """Counts, kills what it has started, starts it again and counts on. Prints what the user would see meanwhile."""
    begun = time.monotonic()
    client = Client(command)
    equal("the first count", client.count(), "1")
    first = time.monotonic()
    client.kill()
    client = Client(command)
    equal("the count after a SIGKILL", client.count(), "2")
    print(json.dumps({"first": first - begun, "after": time.monotonic() - first, "pid": os.getpid()}), flush=True)
    # Until whoever has started this has looked.
    sys.stdin.readline()
    client.end()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
