"""A server on stdio that keeps a ledger of what it has executed: python3 -I -S server.py TOOL LEDGER TEMPER

Its NAME is TOOL and the conversation for which it was started, if its host names one in KILLS_CONVERSATION.

LEDGER gets a line for each thing, at once and whole:

  start NAME PID           the process has begun
  ready NAME PID           it has answered `initialize`
  call NAME PID COUNT KEY  it has begun to execute the call KEY, as its COUNT-th one

Its tool `work_TOOL` answers `KEY NAME PID COUNT`, once the file `gate` is there, if it is given one. TEMPER is what it does with
`server/discover` before `initialize`: it `refuses` it, `answers` it, or `exits`.
"""

import json
import os
import sys
import threading
import time

TOOL, LEDGER, TEMPER = sys.argv[1:4]
NAME = TOOL + os.environ.get("KILLS_CONVERSATION", "")
PID = os.getpid()
ledger = os.open(LEDGER, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
writing = threading.Lock()
count, is_ready = 0, False


def note(*words):
    os.write(ledger, (" ".join(map(str, words)) + "\n").encode())


def say(message):
    with writing:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def work(request, mine, key, gate):
    while gate and not os.path.exists(gate):
        time.sleep(0.005)
    say({"id": request, "result": {"content": [{"type": "text", "text": f"{key} {NAME} {PID} {mine}"}]}})


def answer(method, params):
    global is_ready
    if method == "initialize":
        is_ready = True
        note("ready", NAME, PID)
        capabilities = {"tools": {"listChanged": True}, "logging": {}}
        return {"protocolVersion": params["protocolVersion"], "capabilities": capabilities, "serverInfo": {"name": NAME, "version": "1"}}
    if method == "server/discover" and TEMPER == "answers" and not is_ready:
        return {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": {"name": NAME, "version": "1"}}
    if method == "tools/list":
        return {"tools": [{"name": f"work_{TOOL}", "inputSchema": {"type": "object"}}]}
    return {} if method in ("ping", "logging/setLevel") else None


note("start", NAME, PID)
for line in sys.stdin.buffer:
    message = json.loads(line)
    # Notifications want no answer.
    if "id" not in message or "method" not in message:
        continue
    method, params = message["method"], message.get("params") or {}
    if method == "tools/call":
        count += 1
        arguments = params["arguments"]
        note("call", NAME, PID, count, arguments["key"])
        threading.Thread(target=work, args=(message["id"], count, arguments["key"], arguments.get("gate")), daemon=True).start()
        continue
    if method == "server/discover" and TEMPER == "exits" and not is_ready:
        sys.exit("Error: ExpectedInitializeRequest")
    result = answer(method, params)
    error = {"code": -32601, "message": "Method not found"}
    say({"id": message["id"], **({"error": error} if result is None else {"result": result})})
