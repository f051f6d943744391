#!/usr/bin/env python3
"""tests/bench/shared.py: the memory of one shared server for many hosts, against a server for each.

  tests/bench/shared.py [--hosts 20] [-- COMMAND…]    by default the official server-everything, of tests/node

Each host is a `wrap @NAME` that has initialised its server and asked for its tools. Printed is the proportional share (PSS) of everything
that was started, in MiB: pages that processes have in common are counted once. Needs root, or keepers can't be looked into.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import processes  # noqa: E402

EVERYTHING = ["node", str(HERE.parent / "node/node_modules/@modelcontextprotocol/server-everything/dist/index.js")]
BINARY = os.environ.get("MCP_SESSIOND_BIN") or str(HERE.parents[1] / "target/release/mcp-sessiond")


class Host:
    """Somebody who has a server."""

    def __init__(self, environment):
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.front = subprocess.Popen([BINARY, "wrap", "@measured"], env=environment, text=True, **pipes)

    def say(self, **message):
        self.front.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.front.stdin.flush()

    def ask(self, number, method, **params):
        self.say(id=number, method=method, params=params)
        for line in self.front.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message["result"]
        raise SystemExit("the front has ended")

    def begin(self):
        info = {"name": "measuring", "version": "1"}
        self.ask(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
        self.say(method="notifications/initialized")
        self.ask(2, "tools/list")


def kind_of(pid):
    words = processes.arguments_of(pid)
    # A `wrap @NAME` calls itself by its usual name.
    ours = bool(words) and pathlib.Path(words[0]).name in (pathlib.Path(BINARY).name, "mcp-sessiond")
    return f"mcp-sessiond {words[1]}" if ours and len(words) > 1 else "servers"


def measured(command, hosts, is_shared):
    """MiB by kind of process."""
    with tempfile.TemporaryDirectory(dir="/tmp") as root:
        entry = {"command": command[0], "args": command[1:], "shared": is_shared}
        pathlib.Path(root, "servers.json").write_text(json.dumps({"mcpServers": {"measured": entry}}))
        environment = {**os.environ, "MCP_SESSIOND_DIR": f"{root}/d", "MCP_SESSIOND_CONFIG": f"{root}/config.toml"}
        daemon = subprocess.Popen([BINARY, "run"], env=environment, stderr=subprocess.DEVNULL)
        crowd = []
        try:
            while not pathlib.Path(root, "d/daemon.sock").exists():
                time.sleep(0.01)
            for _ in range(hosts):
                crowd.append(Host(environment))
                crowd[-1].begin()
            # Processes that have just started give memory back.
            time.sleep(5)
            found = {}
            for pid in processes.marked(f"MCP_SESSIOND_DIR={root}/d"):
                share = processes.held(pid)[1]
                if share is None:
                    raise SystemExit("a keeper can't be looked into: run this as root")
                kind = kind_of(pid)
                count, sum_of = found.get(kind, (0, 0))
                found[kind] = (count + 1, sum_of + share)
            return found
        finally:
            for host in crowd:
                host.front.stdin.close()
                host.front.wait()
            subprocess.run([BINARY, "stop", "--all"], env=environment, capture_output=True)
            daemon.terminate()
            daemon.wait()


def main():
    parser = argparse.ArgumentParser(prog="tests/bench/shared.py", description=__doc__.split("\n\n")[0])
    parser.add_argument("--hosts", type=int, default=20)
    parser.add_argument("command", nargs="*", default=EVERYTHING)
    arguments = parser.parse_args()
    for is_shared in (False, True):
        found = measured(arguments.command, arguments.hosts, is_shared)
        print(f"{'shared' if is_shared else 'a server each'}, {arguments.hosts} hosts:")
        for kind, (count, mib) in sorted(found.items()):
            print(f"  {count:3} {kind:20} {mib:8.1f} MiB")
        print(f"      {'all':20} {sum(mib for _, mib in found.values()):8.1f} MiB", flush=True)


main()
