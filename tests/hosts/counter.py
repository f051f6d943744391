"""An MCP server on stdio that counts, and writes down all that its host does to it:

    counter.py JOURNAL [--stubborn] [--progress] [--2026] [--temper TEMPER] [--lock FILE] [--rival FILE] [--says WORD] [--roots]

Its tool `count` answers how often it was called in this process, and the pid: whoever meets the same server again sees the
count go on. The journal gets a line of JSON for the start, each message, the end of input and each signal. A stubborn one
outlives all of them but SIGKILL, so that the journal shows everything that a host tries. With `--progress` a call tells 1, 2 and
3 as progress, if it names a token. In the middle a call waits while there is a file JOURNAL.hold.
With `--says` the tool says that word, too. With `--roots` it asks for the roots behind `notifications/initialized`, and when they have changed, answers
no call before it has them, and says the first one.
With `--2026` it speaks MCP 2026-07-28, too. What it does with `server/discover` is its temper:

  refuses  answers -32601, as most servers do; without an option
  answers  answers it, and speaks both eras at any time; what `--2026` stands for
  sticks   answers it, and refuses whatever is not of the era of its first request
  alone    answers it, and refuses whatever is not of that era
  late     refuses, but only LATE seconds later; the next message is answered at once
  exits    ends, unless it has been initialised
  mute     never answers it

With `--lock` it holds a lock on that file as long as it lives, ends at once where another process has it, and ignores the end of its
input. With `--rival` it sends SIGTERM to the process that is named in that file, and writes its own pid there.
"""

import contextlib
import fcntl
import json
import os
import signal
import sys
import threading
import time

# Longer than the clients of these tests wait for the answer to a probe.
LATE = 4.0
journal = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
stubborn, tells_progress, is_2026 = (option in sys.argv for option in ("--stubborn", "--progress", "--2026"))
lock, rival = (sys.argv[sys.argv.index(option) + 1] if option in sys.argv else None for option in ("--lock", "--rival"))
temper = sys.argv[sys.argv.index("--temper") + 1] if "--temper" in sys.argv else "answers" if is_2026 else "refuses"
word = sys.argv[sys.argv.index("--says") + 1] if "--says" in sys.argv else ""
wants_roots = "--roots" in sys.argv
speaks_2026 = temper in ("answers", "sticks", "alone")


def note(what, **more):
    entry = {"what": what, "pid": os.getpid(), "at": time.monotonic(), **more}
    os.write(journal, (json.dumps(entry) + "\n").encode())


def on_signal(number, _):
    note("signal", name=signal.Signals(number).name)
    if not stubborn:
        os._exit(128 + number)


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(number, on_signal)

with open("/proc/self/stat") as stat:
    started = int(stat.read().rsplit(")", 1)[1].split()[19])
with open(f"/proc/{os.getppid()}/cmdline") as cmdline:
    parent = cmdline.read().split("\0")
note("start", started=started, parent=parent, group=os.getpgid(0), session=os.getsid(0), directory=os.getcwd(),
     environment=dict(os.environ))

if lock:
    held = os.open(lock, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        note("locked out")
        sys.exit(f"Error: another server holds {lock}")
if rival:
    with contextlib.suppress(OSError, ValueError), open(rival) as named:
        os.kill(int(named.read()), signal.SIGTERM)
    with open(rival, "w") as named:
        named.write(str(os.getpid()))

count = 0
# The answer to the last question for the roots, how often it was asked, and calls that wait for it.
root, asked, held_calls = "none", 0, []
# The era of the first request, and whether the server has been initialised.
era, initialized = None, False


def say(message):
    os.write(1, (json.dumps({"jsonrpc": "2.0", **message}) + "\n").encode())


def carry_out(token):
    """A call, in three steps."""
    for number in (1, 2, 3):
        if token is not None:
            say({"method": "notifications/progress", "params": {"progressToken": token, "progress": number, "total": 3}})
        if number == 1 and os.path.exists(f"{sys.argv[1]}.hold"):
            note("held")
            while os.path.exists(f"{sys.argv[1]}.hold"):
                time.sleep(0.01)


# What every result has in 2026-07-28. A client of an older version ignores it.
NEW = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if speaks_2026 else {}


def answer(method, params):
    global count
    if method == "server/discover" and speaks_2026:
        info = {"name": "counter", "version": "1.0.0"}
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "_meta": {"io.modelcontextprotocol/serverInfo": info}}
    if method == "initialize":
        return {"protocolVersion": params.get("protocolVersion"), "capabilities": {"tools": {}},
                "serverInfo": {"name": "counter", "version": "1.0.0"}}
    if method == "tools/list":
        # Hosts that ask their user before each call ask less for a tool that only reads.
        return {"tools": [{"name": "count", "description": "Counts its calls.",
                           "inputSchema": {"type": "object", "properties": {}},
                           "annotations": {"readOnlyHint": True, "destructiveHint": False, "openWorldHint": False}}]}
    if method == "tools/call":
        count += 1
        carry_out(params.get("_meta", {}).get("progressToken") if tells_progress else None)
        return {"content": [{"type": "text", "text": f"count={count} pid={os.getpid()}{f' says={word}' if word else ''}{f' root={root}' if wants_roots else ''}"}]}
    if method == "ping":
        return {}
    return None


def withholds(request):
    """Whether a `server/discover` gets no answer, or none yet. Under one temper the server ends here."""
    if temper == "exits" and not initialized:
        note("exit")
        sys.exit("ExpectedInitializeRequest: the first message is not initialize")
    if temper == "late":
        error = {"code": -32601, "message": "no server/discover here"}
        timer = threading.Timer(LATE, say, [{"id": request, "error": error}])
        timer.daemon = True
        timer.start()
    return temper in ("late", "mute")


def is_of_other_era(message):
    """Whether a server that sticks to one era refuses this request."""
    global era
    modern = "io.modelcontextprotocol/protocolVersion" in message.get("params", {}).get("_meta", {})
    era = era or ("2026" if modern or temper == "alone" else "2025")
    return temper in ("sticks", "alone") and era != ("2026" if modern else "2025")


def ask_for_roots(message):
    """Asks for the roots where it is time, and takes the answer. Whether that was all of this message."""
    global root, asked
    method = message.get("method")
    if method == "initialize":
        root = None if "roots" in message["params"]["capabilities"] else "none"
    if root != "none" and method in ("notifications/initialized", "notifications/roots/list_changed"):
        root, asked = None, asked + 1
        say({"id": f"roots-{asked}", "method": "roots/list"})
    if message.get("id") == f"roots-{asked}" and "method" not in message:
        roots = message.get("result", {}).get("roots", [])
        root = roots[0]["uri"] if roots else "empty"
        for held in held_calls:
            say({"id": held["id"], "result": {**NEW, **answer("tools/call", held["params"])}})
        held_calls.clear()
    if root is None and method == "tools/call":
        held_calls.append(message)
        return True
    return False


while line := sys.stdin.readline():
    message = json.loads(line)
    note("message", message=message)
    if wants_roots and ask_for_roots(message):
        continue
    if "id" in message and "method" in message:
        if message["method"] == "server/discover" and withholds(message["id"]):
            continue
        if is_of_other_era(message):
            say({"id": message["id"], "error": {"code": -32600, "message": "this connection speaks the other era"}})
            continue
        initialized = initialized or message["method"] == "initialize"
        result = answer(message["method"], message.get("params") or {})
        if result is None:
            said = {"error": {"code": -32601, "message": f"no {message['method']} here"}}
        else:
            said = {"result": {**NEW, **result}}
        say({"id": message["id"], **said})
note("end of input")
while stubborn or lock:
    time.sleep(1)
