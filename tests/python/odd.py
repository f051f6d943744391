"""A counter that behaves oddly where tests ask it to: python3 -I -S odd.py [--deaf] [--gate FILE] WORD...

With --deaf it answers no ping; with --gate it makes the file FILE.begun, and reads nothing before FILE is there. It does one thing at a time. Tools:

  increment, get           answer the count
  block {begun, gate}      makes the file `begun`, does nothing else until the file `gate` is there, and answers as `increment`
  half                     writes half an answer, and exits
  spawn {how, file, told}  starts a process that writes its pid to `file`, and `SIGTERM` to `told` when it gets that: as a
                           `child` in its group, `detached` in a session of its own, or as an `orphan`, in a session of its
                           own and no longer its child
  ignore {told}            is not ended by the end of its input any more, and by SIGTERM only when it has written that to `told`
"""
import json
import os
import signal
import subprocess
import sys
import time

STEP = 1
TOOLS = ["increment", "get", "block", "half", "spawn", "ignore"]
SPAWNED = """
import os, signal, sys, time
def end(*_):
    open(sys.argv[2], "a").write("SIGTERM")
    os._exit(0)
signal.signal(signal.SIGTERM, end)
open(sys.argv[1] + ".new", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".new", sys.argv[1])
while True:
    time.sleep(0.05)
"""
count = 0
ignoring = False


def until(path):
    while not os.path.exists(path):
        time.sleep(0.005)


def told(path):
    open(path, "a").write("SIGTERM")
    os._exit(0)


def call(name, given):
    global count, ignoring
    if name == "half":
        sys.stdout.write('{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"te' % json.dumps(given["id"]))
        sys.stdout.flush()
        os._exit(7)
    if name == "block":
        open(given["begun"], "w").close()
        until(given["gate"])
    if name in ("increment", "block"):
        count += STEP
    if name == "ignore":
        ignoring = True
        signal.signal(signal.SIGTERM, lambda *_: told(given["told"]))
    if name == "spawn":
        words = [sys.executable, "-I", "-S", "-c", SPAWNED, given["file"], given["told"]]
        if given["how"] == "orphan":
            words = ["setsid", "--fork", *words]
        apart = given["how"] == "detached"
        quiet = subprocess.DEVNULL
        child = subprocess.Popen(words, start_new_session=apart, stdin=quiet, stdout=quiet, stderr=quiet)
        if given["how"] == "orphan":
            child.wait()
        until(given["file"])
    return count


def answer(identity, method, params):
    if method == "initialize":
        info = {"name": "odd", "version": "1.0.0"}
        return {"protocolVersion": params["protocolVersion"], "capabilities": {"tools": {}}, "serverInfo": info}
    if method == "tools/list":
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in TOOLS]}
    if method == "tools/call":
        given = {**(params.get("arguments") or {}), "id": identity}
        return {"content": [{"type": "text", "text": str(call(params["name"], given))}]}
    return {} if method == "ping" else None


if "--gate" in sys.argv:
    gate = sys.argv[sys.argv.index("--gate") + 1]
    open(gate + ".begun", "w").close()
    until(gate)
for line in sys.stdin.buffer:
    message = json.loads(line)
    deaf = message.get("method") == "ping" and "--deaf" in sys.argv
    # Notifications want no answer, nor do answers.
    if "id" not in message or "method" not in message or deaf:
        continue
    result = answer(message["id"], message["method"], message.get("params"))
    said = {"result": result} if result is not None else {"error": {"code": -32601, "message": "Method not found"}}
    print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
while ignoring:
    # Not signal.pause(), which would miss a signal that comes just before it.
    time.sleep(0.05)
