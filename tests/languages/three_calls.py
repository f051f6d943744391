"""Version 1's three calls, and the lines that the libraries log: three_calls.json, played against a server in each language; see `run`.

This process is their host. A server is killed when its calls are made. `~` at the end of a line: it begins so.
"""

import json
import os
import re
import subprocess
import unittest
from pathlib import Path

import support

CASES = json.loads(Path(__file__).with_suffix(".json").read_text())
DEBUG = Path(os.environ.get("CARGO_TARGET_DIR") or support.ROOT / "target") / "debug"
BROKER = [str(support.ROOT / "client/typescript/test/broker.mjs"), '{"start": false, "timeoutMs": 1000}']
RUNTIMES = str(support.ROOT / "client/typescript/test/runtimes/node_modules/.bin") + "/"
SERVERS = {
    "Python": lambda daemon: [str(support.INSTALLED / "mcp2" / "bin" / "python"), str(support.HERE / "stdio_server.py"), *([] if daemon else ["/nowhere"])],
    "TypeScript": lambda _: ["node", *BROKER],
    "TypeScript on Bun": lambda _: [RUNTIMES + "bun", *BROKER],
    "TypeScript on Deno": lambda _: [RUNTIMES + "deno", "run", "-A", "--no-check", *BROKER],
    "Rust": lambda _: [str(DEBUG / "instance")],
}


class Server:
    def __init__(self, daemon, command):
        self.log = (daemon.directory / "lines").open("w+")
        self.process = subprocess.Popen(command, env=daemon.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log, text=True)
        self.read = 0

    def ask(self, order):
        """What a call comes to, and what was logged since the last one."""
        print(order, file=self.process.stdin, flush=True)
        said = json.loads(self.process.stdout.readline())
        logged = Path(self.log.name).read_text().splitlines()
        lines, self.read = logged[self.read :], len(logged)
        if isinstance(said, dict):
            # Python's answers have the lines; Rust's have a name for each result, and its lines a level before them.
            lines = said.get("lines", [re.sub(r"^ *(INFO|WARN) [\w:]+: ", "", line) for line in lines])
            said = said["result"] if "result" in said else said.get("done", said.get("token"))
        return said, lines

    def kill(self):
        self.process.kill()
        self.process.communicate()
        self.log.close()


class ThreeCalls(unittest.TestCase):
    def test_each_language_makes_them_alike(self):
        for language in SERVERS:
            for case in CASES:
                with self.subTest(language=language, case=case["name"]):
                    self.play(case, SERVERS[language](case.get("daemon", True)))

    def play(self, case, command):
        daemon = support.Daemon()
        self.addCleanup(daemon.remove)
        if case.get("daemon", True):
            daemon.start()
        for steps in case["servers"]:
            server = Server(daemon, command)
            try:
                for step in steps:
                    if isinstance(step, str):
                        self.do(step, daemon)
                        continue
                    order, result, lines = step
                    said, logged = server.ask(order.replace("@LARGE@", "x" * 65_537))
                    self.assertEqual(said, result, order)
                    self.assertEqual(len(logged), len(lines), logged)
                    for line, wanted in zip(logged, lines):
                        self.assertTrue(line.startswith(wanted[:-1]) if wanted.endswith("~") else line == wanted, f"{line}, and not {wanted}")
            finally:
                server.kill()

    def do(self, step, daemon):
        tokens = daemon.directory / "tokens"
        if step == "restart daemon":
            daemon.kill()
            daemon.start()
        elif step == "write over the token":
            (token,) = tokens.iterdir()
            token.write_text("other")
        else:
            tokens.chmod({"open the directory": 0o755, "close the directory": 0o700}[step])
