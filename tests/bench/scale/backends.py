"""Servers that are kept: what the daemon and each process hold, how long `status` takes, and how often the daemon wakes."""

import json, os, pathlib, statistics, subprocess, sys, time

import installed, processes
from figures import KIB, MIB, head, row
from idle import settled, wakings
from sides import Daemon, running

SIZES = [1, 10, 100, 300, 1_000]
TINY = [sys.executable, "-I", "-S", str(installed.ROOT / "tests/python/tiny.py")]
# How often `status` is asked for, if all of that takes no longer than this, in s.
STATUS, STATUS_ENOUGH = 5, 10
# How long its wakings are counted, in s.
IDLE = 10
# What the machine must have left before there are more of them.
LEFT = 3 << 30


class Host:
    """A front, whose server is initialised."""

    def __init__(self, environment, number):
        command = [installed.BINARY, "wrap", "--instance", f"backend {number}", "--", *TINY]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        self.front = subprocess.Popen(command, env=environment, text=True, **pipes)
        info = {"name": "measuring", "version": "1"}
        self.say(id=1, method="initialize", params={"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": info})
        self.say(method="notifications/initialized")

    def say(self, **message):
        self.front.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        self.front.stdin.flush()

    def is_answered(self):
        assert "result" in json.loads(self.front.stdout.readline())


def available():
    """Bytes of memory that processes can still have."""
    return int(pathlib.Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()[0]) * KIB


def kind_of(pid):
    """What it is to the measurement."""
    words = processes.arguments_of(pid)
    is_ours = bool(words) and pathlib.Path(words[0]).name in (installed.BINARY.name, "mcp-sessiond")
    return {"wrap": "front", "keep": "keeper", "run": "daemon"}.get(words[1] if is_ours else "", "server")


class Backends:
    def __init__(self, quick, _most):
        self.sizes = SIZES[:2] if quick else SIZES
        self.idle = 2 if quick else IDLE

    def run(self):
        names = ["daemon, MiB (PSS)", "keeper", "front", "server", "`status`, ms", "wakings of the idle daemon a second"]
        head("servers", *names)
        with running(Daemon) as (daemon,):
            hosts = []
            try:
                for size in self.sizes:
                    if hosts and available() - (size - len(hosts)) * self.each < LEFT:
                        print(f"Not {size}: a server takes {self.each / MIB:.0f} MiB, and {available() / MIB:,.0f} are left.")
                        break
                    yield self.look(size, hosts, daemon)
            finally:
                self.end(hosts, daemon)

    def look(self, size, hosts, daemon):
        before, had = available(), len(hosts)
        while len(hosts) < size:
            # As many at once as a host that begins has.
            some = [Host(daemon.environment, number) for number in range(len(hosts), min(len(hosts) + 8, size))]
            hosts += some
            for host in some:
                host.is_answered()
        self.each = max((before - available()) / (size - had), 8 * MIB)
        settled(daemon.process.pid)
        began = wakings(daemon.process.pid)
        time.sleep(self.idle)
        ended = wakings(daemon.process.pid)
        woken = sum(count - began.get(thread, 0) for thread, count in ended.items()) / self.idle
        held = {}
        for pid in processes.marked(f"MCP_SESSIOND_DIR={daemon.of['daemon']}"):
            held.setdefault(kind_of(pid), []).append(processes.held(pid)[1])
        if len(held.get("keeper", [])) != size or None in held["keeper"]:
            sys.exit(f"{sys.argv[0]}: of {size} keepers {len(held.get('keeper', []))} can be looked into; run this as root")
        asked = []
        while len(asked) < STATUS and sum(asked) < STATUS_ENOUGH * 1000:
            asked.append(self.status(size, daemon))
        found = {f"{kind}_mib": statistics.median(held[kind]) for kind in ("daemon", "keeper", "front", "server")}
        found |= {"status_ms": statistics.median(asked), "wakings": woken}
        row(f"{size:,}", *(f"{value:,.1f}" for value in found.values()))
        return {"size": size, "of": daemon.name, **found}

    @staticmethod
    def status(size, daemon):
        command = [installed.BINARY, "status", "--json"]
        began = time.perf_counter()
        said = subprocess.run(command, env=daemon.environment, stdout=subprocess.PIPE, check=True).stdout
        took = (time.perf_counter() - began) * 1000
        assert len(json.loads(said)["servers"]) == size
        return took

    @staticmethod
    def end(hosts, daemon):
        """Ends all of it: a server that was stopped, and whose host has gone, does not come back."""
        subprocess.run([installed.BINARY, "stop", "--all"], env=daemon.environment, capture_output=True)
        for host in hosts:
            host.front.kill()
            host.front.wait()
        daemon.kill()
        for pid in processes.marked(f"MCP_SESSIOND_DIR={daemon.of['daemon']}"):
            processes.end(pid)
