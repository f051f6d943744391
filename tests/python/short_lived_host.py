"""A host whose instances live for less than a clock tick: python3 -I -S short_lived_host.py, with MCP_SESSIOND_DIR set.

It forks them, because to execute a program takes longer. Each line of standard input is answered with one line of JSON:

  store TOKEN        an instance claims, stores that token, and ends
  call METHOD PARAMS an instance says that to the daemon; `error` is what it was refused with, else `result`
  pass DAEMON        when a tick has just begun, an instance claims. The process DAEMON is stopped, unless that is 0, so
                     that it sees nothing of what follows, and the instance is killed. The next process of this machine
                     gets its pid. Answered with `pid`, `start` (the start time, in clock ticks), and `claimed`
"""
import base64
import json
import os
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import sessiond

TICK_NS = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
JUST_NS = TICK_NS // 50


def call(method, params):
    body, file = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}, sessiond.connect(sessiond.directory())
    frame = json.dumps(body).encode()
    file.write(len(frame).to_bytes(4, "big") + frame), file.flush()
    reply = json.loads(file.read(int.from_bytes(file.read(4), "big")))
    return {"error": reply["error"]["data"]} if "error" in reply else {"result": reply["result"]}


def instance(work):
    """Starts one. Returns its pid, and what it said. It waits to be killed."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(write, json.dumps(work()).encode() + b"\n")
        while True:
            signal.pause()
    os.close(write)
    with os.fdopen(read) as said:
        return pid, json.loads(said.readline())


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


def store(token):
    claimed = call("claim", {})["result"]
    lease = {name: claimed[name] for name in ("session", "epoch")}
    return call("store_token", lease | {"token": base64.b64encode(token.encode()).decode()})


def start_time(pid):
    with open(f"/proc/{pid}/stat") as stat:
        return int(stat.read().rpartition(")")[2].split()[19])


def begin_of_tick():
    while time.clock_gettime_ns(time.CLOCK_BOOTTIME) % TICK_NS > JUST_NS:
        pass


def passes(daemon):
    if daemon:
        # The first claim at a daemon takes longer than a tick.
        end(instance(lambda: call("claim", {}))[0])
    begin_of_tick()
    pid, claimed = instance(lambda: call("claim", {}))
    if daemon:
        # To die takes it half a tick.
        os.kill(daemon, signal.SIGSTOP)
    os.kill(pid, signal.SIGKILL)
    # Its start time can still be read while nobody has waited for it.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    start = start_time(pid)
    os.waitpid(pid, 0)
    with open("/proc/sys/kernel/ns_last_pid", "w") as last:
        last.write(str(pid - 1))
    return {"pid": pid, "start": start, "claimed": claimed["result"]}


for line in sys.stdin:
    verb, _, argument = line.rstrip("\n").partition(" ")
    if verb == "pass":
        answer = passes(int(argument))
    elif verb == "store":
        pid, answer = instance(lambda: store(argument))
        end(pid)
    else:
        method, _, params = argument.partition(" ")
        pid, answer = instance(lambda: call(method, json.loads(params)))
        end(pid)
    print(json.dumps(answer), flush=True)
