"""Servers on the SDKs with one line of ours added, behind random cuts: the tests of each library, with more rounds than usual."""

import json
import os
import subprocess
import time
from pathlib import Path

import harness

# What cuts.test.mjs and test_cuts.py count: how calls ended, and what was cut.
OUTCOMES = ["ok", "outcome unknown", "no event id", "client ended"]
CUTS = ["connection cut", "server cut", "daemon cut"]


def run(rounds, seed, may_install):
    """Runs the rounds, prints a table, and tells whether all went well."""
    results = harness.TARGET / "clients" / "sdks.jsonl"
    results.parent.mkdir(parents=True, exist_ok=True)
    results.unlink(missing_ok=True)
    binary = os.environ.get("MCP_SESSIOND_BIN") or harness.TARGET / "debug" / "mcp-sessiond"
    environment = {
        **os.environ,
        "MCP_SESSIOND_BIN": str(Path(binary).resolve()),
        "MCP_SESSIOND_CUTS": str(rounds),
        "MCP_SESSIOND_SEED": str(seed),
        "MCP_SESSIOND_RESULTS": str(results),
        # A minute a round is more than any takes.
        "MCP_SESSIOND_TEST_MS": str(300_000 + rounds * 60_000 * 8),
    }
    install = [] if may_install else ["--no-install"]
    libraries = harness.ROOT / "client"
    commands = [
        [libraries / "typescript" / "test" / "run", *install, "test/cuts.test.mjs"],
        [libraries / "python" / "test", *install, "test_random_cuts"],
    ]
    began = time.monotonic()
    print(f"seed {seed}", flush=True)
    codes = [subprocess.run(command, env=environment).returncode for command in commands]
    print(table(results, rounds, seed, time.monotonic() - began), end="")
    return not any(codes)


def table(results, rounds, seed, seconds):
    """The results, in Markdown."""
    commit = subprocess.run(["git", "-C", harness.ROOT, "log", "-1", "--format=%h %as"], capture_output=True, text=True)
    names = OUTCOMES + CUTS
    lines = [f"`tests/campaign sdks --seed {seed} --rounds {rounds}`, {commit.stdout.strip()}, {seconds:.0f} s.", "",
             f"| SDK | calls | {' | '.join(names)} |", "| --- |" + " --- |" * (len(names) + 1)]
    found = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    for one in sorted(found, key=lambda one: one["sdk"]):
        counts = " | ".join(str(one["counts"].get(name, 0)) for name in names)
        lines.append(f"| {one['sdk']} | {one['rounds']} | {counts} |")
    return "\n".join(lines) + "\n"
