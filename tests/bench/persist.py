#!/usr/bin/env python3
"""What keeps the events and sessions of servers in Python: ours, and PyPI's mcp-persist, on the same SDK, in turns in one run.

Usage: tests/bench/persist.py [--quick] [stores|calls|resumed|kills]…, after `cargo build --release -p mcp-sessiond`. Needs redis-server.

stores: event stores of the SDK, without HTTP. The rest is a whole server over HTTP.
--quick: few rounds with few calls, to see that all of it works.
"""

import json, os, pathlib, shutil, statistics, subprocess, sys, time

HERE = pathlib.Path(__file__)
sys.path[:0] = [str(HERE.with_suffix("")), str(HERE.with_name("serve"))]
import calls, figures, installed, keepers, killed, resumed, servers

ROUNDS = 9
STEPS = 1000
# The first two keep an event when its server is killed, the third all but the last 0.1 s; the others also when the power fails.
STORES = {
    "`DurableEventStore`": ("ours", keepers.Daemon),
    "mcp-persist, Redis": ("redis", keepers.Redis),
    "mcp-persist, SQLite, commit_interval=0.1": ("behind", keepers.Sqlite),
    "`DurableEventStore`, power": ("ours", keepers.Power),
    "mcp-persist, SQLite": ("sqlite", keepers.Sqlite),
}


class Store:
    """A process with an event store, which does a round for each line that it is sent."""

    def __init__(self, way, keeper):
        self.kept = keeper()
        self.kept.start()
        command = [installed.PERSIST, servers.HERE / "stores.py", way, *self.kept.where]
        environment = {**os.environ, **self.kept.environment, "PYTHONPATH": str(servers.SOURCE)}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        self.process = subprocess.Popen([str(part) for part in command], env=environment, text=True, bufsize=1, **pipes)

    def round(self):
        self.process.stdin.write("\n")
        return json.loads(self.process.stdout.readline())

    def stop(self):
        self.process.stdin.close()
        self.process.wait()
        self.kept.stop()


class Stores:
    """All event stores in turns."""

    def __init__(self, quick):
        self.rounds = 1 if quick else ROUNDS

    def run(self):
        stores = {name: Store(*of) for name, of in STORES.items()}
        seen = {name: [] for name in stores}
        try:
            for store in stores.values():
                # Its code is warm.
                store.round()
            for name in figures.in_turn(stores, self.rounds):
                seen[name].append(stores[name].round())
        finally:
            for store in stores.values():
                store.stop()
        figures.head("event store of the SDK", "an event stored, p50, µs", "fifty sessions, events/s", "100 events replayed, p50, ms")
        for name, rounds in seen.items():
            middle = lambda key: statistics.median(one[key] for one in rounds)
            figures.row(name, f"{middle('stored'):.0f}", f"{middle('rate'):.0f}", f"{middle('replayed'):.1f}")
        print()


class Calls:
    """All servers in turns, with fifty clients each."""

    def __init__(self, quick):
        self.rounds, self.fewer = (1, 8) if quick else (ROUNDS, 1)

    def run(self):
        every = [kind() for kind in servers.SERVERS]
        seen = {server.name: [] for server in every}
        try:
            for server in every:
                server.start()
                server.clients = [server.client().initialize() for _ in range(50)]
                for client in server.clients:
                    client.prepare("answer", {"bytes": 100}, 100)
                server.clients[0].look()
                calls.drive(server.clients, 100)
            for server in figures.in_turn(every, self.rounds):
                seen[server.name].append(self.round(server))
        finally:
            for server in every:
                server.stop()
        of = ["a call, p50, ms", "/ the SDK alone", "fifty clients, calls/s", "/ the SDK alone", "progress, events/s", "/ the SDK alone"]
        figures.head("over HTTP", *of)
        alone = list(zip(*seen[servers.Server.name]))
        for name, rounds in seen.items():
            cells = []
            for number, found in enumerate(zip(*rounds)):
                shown = f"{statistics.median(found):.2f}" if number == 0 else f"{statistics.median(found):.0f}"
                cells += [shown, f"{figures.ratio(found, alone[number]):.2f}"]
            figures.row(name, *cells)
        print()

    def round(self, server):
        """The ms of one client's call, the calls of fifty in a second, and the events of one call in a second."""
        one, _ = calls.drive(server.clients[:1], 200 // self.fewer)
        _, seconds = calls.drive(server.clients, 1000 // self.fewer)
        return figures.at(0.5, one) * 1000, 1000 // self.fewer / seconds, self.told(server.clients[0])

    @staticmethod
    def told(client):
        """Events a second of a call that tells progress."""
        began = time.perf_counter()
        reply = client.ask("tools/call", {"name": "tell", "arguments": {"steps": STEPS}, "_meta": {"progressToken": "p"}})
        took = time.perf_counter() - began
        assert len(reply.messages()) == STEPS + 1, f"{len(reply.messages())} of {STEPS + 1} messages came"
        return STEPS / took


# The rest of a call, whose server lives: the same measure, of other servers. mcp-persist-proxy replays the stream of a call once;
# it has nothing for a client that asks again, as here, while the session's own stream is open.
resumed.GATEWAYS = [kind for kind in servers.SERVERS if kind is not servers.PersistProxy]

def versions():
    """What is compared, by name."""
    packages = {"mcp": "mcp", "mcp-persist": "mcp-persist", "aiosqlite": "aiosqlite", "redis-py": "redis", "uvicorn": "uvicorn"}
    asked = f"from importlib.metadata import version; print(*map(version, {list(packages.values())}))"
    said = lambda *command: subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    found = dict(zip(packages, said(installed.PERSIST, "-c", asked)))
    server = said("redis-server", "--version")[2].removeprefix("v=")
    return {"mcp-sessiond": said(installed.BINARY, "--version")[-1], **found, "redis-server": server, "Python": sys.version.split()[0]}


PARTS = {"stores": Stores, "calls": Calls, "resumed": resumed.Resumed, "kills": killed.Kills}
parts = [part for part in sys.argv[1:] if not part.startswith("--")] or list(PARTS)
if unknown := [part for part in parts if part not in PARTS]:
    sys.exit(f"{sys.argv[0]}: no part {unknown[0]}: {', '.join(PARTS)}")
if not shutil.which("redis-server"):
    sys.exit(f"{sys.argv[0]}: install redis-server first")
installed.need(installed.BINARY, installed.PERSIST)
print(", ".join(f"{name} {version}" for name, version in versions().items()) + ".")
print(f"Load average before: {os.getloadavg()[0]:.1f}, of {os.cpu_count()} cores.\n")
for part in parts:
    PARTS[part]("--quick" in sys.argv).run()
print(f"Load average after: {os.getloadavg()[0]:.1f}.")
