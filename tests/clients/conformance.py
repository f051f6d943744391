"""The official conformance suite for servers, in front of `serve` and a server on stdio that has what the suite asks for.

Version 0.1.16 has the scenarios of the older era of MCP; all of them have to pass. Version 0.2.0-alpha.12 has those of
MCP 2026-07-28; what its server passes over its own HTTP, the baseline, has to pass behind `serve`.
"""

import asyncio
import collections
import functools
import json
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import harness
from gaps import Gaps
from world import Alone, World

SERVERS = Path(__file__).resolve().parent.parent / "node"
# A session that no client uses ends soon: the suite ends none of its own.
SETTINGS = "http.retry_ms = 100\nhttp.idle_ms = 5000"
# How long a pass may take, in seconds.
PATIENCE = 300


@dataclass(frozen=True)
class Suite:
    """A version of the suite, and the server that it is run against."""

    directory: str
    package: tuple
    # The server, and what it imports. They are copied to the packages that they need, if those are not in tests/node.
    server: tuple
    is_copied: bool = False
    # The version of MCP whose scenarios are run, if not all are.
    era: tuple = ()
    # Checks that need a server which closes its own stream, and have this status if it does not. A server on stdio has
    # no streams.
    exempt: dict = field(default_factory=dict, hash=False)

    @property
    def version(self):
        return self.package[2]

    @property
    def installed(self):
        return harness.TARGET / "clients" / self.directory

    @property
    def program(self):
        return self.installed / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"

    @property
    def command(self):
        return [node(), str((self.installed if self.is_copied else SERVERS) / self.server[0])]

    def install(self, is_allowed):
        if is_allowed:
            harness.install(self.installed, self.package)
        elif not self.program.exists():
            sys.exit(f"tests/campaign: the conformance suite {self.version} is not installed: run it without --no-install first")
        if self.is_copied:
            for module in self.server:
                shutil.copy(SERVERS / module, self.installed)

    @functools.cached_property
    def scenarios(self):
        """The names of all scenarios for servers."""
        command = [node(), self.program, "list", "--server", *self.era]
        listed = subprocess.run(command, capture_output=True, text=True, check=True)
        return [line.split()[1] for line in listed.stdout.splitlines() if line.startswith("  - ")]


OLDER = Suite(
    "conformance", ("npm", "@modelcontextprotocol/conformance", "0.1.16", "@modelcontextprotocol/sdk", "1.32.2"),
    ("everything.mjs",), exempt={("server-sse-polling", "server-sse-disconnect-resume"): "INFO"})
MODERN = Suite(
    "conformance-2026", ("npm", "@modelcontextprotocol/conformance", "0.2.0-alpha.12", "@modelcontextprotocol/sdk", "1.32.2",
                         "@modelcontextprotocol/server", "2.4.0", "@modelcontextprotocol/node", "2.1.2"),
    ("modern.mjs", "asked.mjs"), is_copied=True, era=("--spec-version", "2026-07-28"))


@functools.cache
def node():
    """A Node that is new enough for the suite: the system's, or else the one that is installed."""
    found = shutil.which("node")
    version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout if found else "v0"
    return found if int(version[1:].split(".")[0]) >= 22 else str(harness.NODE / "node")


def missing():
    """The lines of `tests/run --list`."""
    lines = [harness.missing(suite.installed, suite.package) for suite in (OLDER, MODERN)]
    if node() == str(harness.NODE / "node"):
        lines.append(harness.missing(harness.INSTALLED / "node", harness.NODE_PACKAGE))
    return lines


def install(is_allowed):
    for suite in (OLDER, MODERN):
        suite.install(is_allowed)
    if node() == str(harness.NODE / "node"):
        if is_allowed:
            harness.install(harness.INSTALLED / "node", harness.NODE_PACKAGE)
        elif not Path(node()).exists():
            sys.exit("tests/campaign: the conformance suite has no Node of version 22: run it without --no-install first")


class Pass:
    """All scenarios of a suite, once. `is_killed`: with a kill in every gap between two requests."""

    # In front of what.
    World = World

    def __init__(self, suite, name, kept, is_killed=False):
        self.suite, self.name, self.is_killed = suite, name, is_killed
        self.kept = kept / suite.version / name.replace(" ", "-")
        # What is wrong, and the checks of each scenario.
        self.wrong, self.found = [], {}

    async def run(self):
        shutil.rmtree(self.kept, ignore_errors=True)
        self.kept.mkdir(parents=True)
        with open(self.kept / "wire.log", "w") as log, open(self.kept / "suite.log", "w") as said:
            self.gaps = Gaps(log, self._kill if self.is_killed else None)
            await self.gaps.listen()
            self.world = self.World(self.gaps, self.suite.command, SETTINGS)
            try:
                await self.world.start()
                suite = await asyncio.create_subprocess_exec(
                    node(), str(self.suite.program), "server", "--suite", "all", *self.suite.era,
                    "--output-dir", str(self.kept / "results"),
                    "--url", f"http://127.0.0.1:{self.gaps.client_port}/mcp", stdout=said, stderr=said)
                try:
                    await asyncio.wait_for(suite.wait(), PATIENCE)
                except asyncio.TimeoutError:
                    suite.kill()
                    self.wrong.append("the suite has not come to its end")
            finally:
                await self.world.close(self.kept)
                await self.gaps.close()
        self._find()
        self.judge()
        if self.is_killed and not all(self.gaps.kills.values()):
            self.wrong.append(f"not all was killed: {self.gaps.kills}")

    async def _kill(self, what):
        if what == "serve":
            await self.world.kill_serve()
            await self.world.start()
        else:
            # No request of MCP 2026-07-28 needs it.
            await self.world.daemon_back()
            await self.world.kill_daemon()

    def _find(self):
        for path in self.kept.glob("results/*/checks.json"):
            # The directory is called server-SCENARIO-TIME.
            scenario = re.fullmatch(r"server-(.+?)-\d{4}-\d\d-\d\dT.*", path.parent.name)[1]
            self.found[scenario] = json.loads(path.read_text())

    def judge(self):
        """All checks have to pass."""
        for scenario in self.suite.scenarios:
            checks = self.found.get(scenario, [])
            self.wrong += [f"{scenario}: {said(check)}" for check in checks
                           if check["status"] not in ("SUCCESS", "INFO", self.suite.exempt.get((scenario, check["id"])))]
            if not any(check["status"] == "SUCCESS" for check in checks):
                self.wrong.append(f"{scenario}: no check has passed")
        for scenario, exempt in self.suite.exempt:
            if not any(check["id"] == exempt for check in self.found.get(scenario, [])):
                self.wrong.append(f"{scenario}: {exempt} was not made")

    def line(self):
        gaps, checks = self.gaps, [check for checks in self.found.values() for check in checks]
        passed = sum(check["status"] == "SUCCESS" for check in checks)
        line = (f"conformance {self.suite.version}, {self.name}: {len(self.suite.scenarios)} scenarios, {passed} checks passed, "
                f"{len(self.wrong)} failed; {gaps.requests} requests")
        if self.is_killed:
            kills = " and ".join(f"{count} kills of {what}" for what, count in gaps.kills.items())
            line += f", {gaps.resumes} because of a kill, {gaps.beside} beside others; {kills}"
        return line


def said(check):
    why = (check.get("errorMessage") or "").partition("\n")[0]
    return f"{check['id']} ({check['name']}): {check['status']} {why[:400]}"


class Baseline(Pass):
    """The server over its own HTTP. What does not pass here is printed, and no other pass has to pass it."""

    World = Alone

    def judge(self):
        for scenario in self.suite.scenarios:
            for check in self.found.get(scenario, []):
                if check["status"] not in ("SUCCESS", "INFO"):
                    print(f"{self.name}: {scenario}: {said(check)}")
        if not any(self.passed().values()):
            self.wrong.append("no check has passed")

    def passed(self):
        return counted(self.found)


class Behind(Pass):
    """The server behind `serve`: what has passed in the baseline has to pass."""

    def against(self, baseline):
        passed = counted(self.found)
        for key, count in baseline.passed().items():
            if passed[key] >= count:
                continue
            scenario, *names = key
            made = [check for check in self.found.get(scenario, []) if [check[name] for name in SAME] == names]
            why = [said(check) for check in made if check["status"] != "SUCCESS"]
            self.wrong += [f"{scenario}: {one}" for one in why or [f"{names[0]} ({names[1]}) was not made"]]

    def judge(self):
        """It is compared once the baseline is there."""


# A check is the same in two passes if these are: several have one id, and some of them one name.
SAME = ("id", "name", "description")


def counted(found):
    """How often each check has passed."""
    return collections.Counter((scenario, *(check[name] for name in SAME)) for scenario, checks in found.items()
                               for check in checks if check["status"] == "SUCCESS")


async def _all(kept):
    # At one time: most of it goes by while servers start.
    older = [Pass(OLDER, "plain", kept), Pass(OLDER, "a kill in every gap", kept, True)]
    baseline = Baseline(MODERN, "over its own HTTP", kept)
    modern = [Behind(MODERN, "plain", kept), Behind(MODERN, "a kill in every gap", kept, True)]
    await asyncio.gather(*(one.run() for one in older))
    await asyncio.gather(*(one.run() for one in [baseline, *modern]))
    for one in modern:
        one.against(baseline)
    return [*older, baseline, *modern]


def run(is_install_allowed, kept):
    """All passes. Returns whether all is well."""
    install(is_install_allowed)
    shutil.rmtree(kept, ignore_errors=True)
    passes = asyncio.run(_all(kept))
    for one in passes:
        for wrong in one.wrong:
            print(f"{one.suite.version}, {one.name}: {wrong}")
        print(one.line())
    for scenario, check in OLDER.exempt:
        print(f"exempt, for the server itself would have to close a stream: {scenario}, {check}")
    return not any(one.wrong for one in passes)
