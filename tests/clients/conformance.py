"""The official conformance suite for servers, in front of `serve` and the suite's everything-server.

The latter is tests/node/everything.mjs, on stdio.
"""

import asyncio
import functools
import json
import shutil
import subprocess
import sys
from pathlib import Path

import harness
from gaps import Gaps
from world import World

PACKAGE = ("npm", "@modelcontextprotocol/conformance", "0.1.16", "@modelcontextprotocol/sdk", "1.32.2")
INSTALLED = harness.TARGET / "clients" / "conformance"
SUITE = INSTALLED / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
SERVER = ["node", str(Path(__file__).resolve().parent.parent / "node" / "everything.mjs")]
# A session that no client uses ends soon: the suite ends none of its own.
SETTINGS = "http.retry_ms = 100\nhttp.idle_ms = 5000"
# Checks that need a server which closes its own stream, and have this status if it does not. A server on stdio has
# no streams.
EXEMPT = {("server-sse-polling", "server-sse-disconnect-resume"): "INFO"}
# How long a pass may take, in seconds.
PATIENCE = 300


def node():
    """A Node that is new enough for the suite: the system's, or else the one that is installed."""
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else "v0"
    return found if int(version[1:].split(".")[0]) >= 22 else str(harness.NODE / "node")


def install(is_allowed):
    if is_allowed:
        harness.install(INSTALLED, PACKAGE)
        if node() == str(harness.NODE / "node"):
            harness.install(harness.INSTALLED / "node", harness.NODE_PACKAGE)
    elif not (SUITE.exists() and Path(node()).exists()):
        sys.exit("tests/campaign: the conformance suite is not installed: run it without --no-install first")


@functools.cache
def scenarios():
    """The names of all scenarios for servers."""
    listed = subprocess.run([node(), SUITE, "list", "--server"], capture_output=True, text=True, check=True)
    return [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("  - ")]


def verdict(scenario, checks):
    """What is wrong with a scenario's checks; nothing if all is well."""
    wrong = [f"{check['id']}: {check['status']} {check.get('errorMessage', '')}" for check in checks
             if check["status"] not in ("SUCCESS", "INFO", EXEMPT.get((scenario, check["id"])))]
    if not any(check["status"] == "SUCCESS" for check in checks):
        wrong.append("no check has passed")
    return wrong


class Pass:
    """All scenarios, once. `is_killed`: with a kill in every gap between two requests."""

    def __init__(self, name, is_killed, kept):
        self.name, self.is_killed, self.kept = name, is_killed, kept
        self.wrong, self.counts = [], {}

    async def run(self):
        results = self.kept / "results"
        with open(self.kept / "wire.log", "w") as log, open(self.kept / "suite.log", "w") as said:
            self.gaps = Gaps(log, self._kill if self.is_killed else None)
            await self.gaps.listen()
            self.world = World(self.gaps, SERVER, SETTINGS)
            try:
                await self.world.start()
                suite = await asyncio.create_subprocess_exec(
                    node(), str(SUITE), "server", "--suite", "all", "--output-dir", str(results),
                    "--url", f"http://127.0.0.1:{self.gaps.client_port}/mcp", stdout=said, stderr=said)
                try:
                    await asyncio.wait_for(suite.wait(), PATIENCE)
                except asyncio.TimeoutError:
                    suite.kill()
                    self.wrong.append("the suite has not come to its end")
            finally:
                await self.world.close(self.kept)
                await self.gaps.close()
        self._judge(results)

    async def _kill(self, what):
        if what == "serve":
            await self.world.kill_serve()
            await self.world.start()
        elif not await self.world.kill_daemon():
            raise RuntimeError("there is no daemon to kill")

    def _judge(self, results):
        found = {}
        for path in results.glob("*/checks.json"):
            # The directory is called server-SCENARIO-TIME.
            names = [one for one in scenarios() if path.parent.name.startswith(f"server-{one}-")]
            found[max(names, key=len)] = json.loads(path.read_text())
        for scenario in scenarios():
            checks = found.get(scenario, [])
            self.wrong += [f"{scenario}: {why}" for why in verdict(scenario, checks)]
            for check in checks:
                self.counts[check["status"]] = self.counts.get(check["status"], 0) + 1
        for scenario, exempt in EXEMPT:
            if not any(check["id"] == exempt for check in found.get(scenario, [])):
                self.wrong.append(f"{scenario}: {exempt} was not made")

    def line(self):
        passed, gaps = self.counts.get("SUCCESS", 0), self.gaps
        line = (f"conformance {PACKAGE[2]}, {self.name}: {len(scenarios())} scenarios, {passed} checks passed, "
                f"{len(self.wrong)} failed; {gaps.requests} requests")
        if self.is_killed:
            kills = " and ".join(f"{count} kills of {what}" for what, count in gaps.kills.items())
            line += f", {gaps.resumes} because of a kill, {gaps.beside} beside others; {kills}"
        return line


async def _both(kept):
    passes = []
    for name, is_killed in [("plain", False), ("a kill in every gap", True)]:
        logs = kept / name.replace(" ", "-")
        shutil.rmtree(logs, ignore_errors=True)
        logs.mkdir(parents=True)
        passes.append(Pass(name, is_killed, logs))
    # At one time: most of it goes by while servers start.
    await asyncio.gather(*(one.run() for one in passes))
    return passes


def run(is_install_allowed, kept):
    """Both passes. Returns whether all is well."""
    install(is_install_allowed)
    passes = asyncio.run(_both(kept))
    for one in passes:
        for wrong in one.wrong:
            print(f"{one.name}: {wrong}")
        print(one.line())
    for scenario, check in EXEMPT:
        print(f"exempt, for the server itself would have to close a stream: {scenario}, {check}")
    return not any(one.wrong for one in passes)
