"""A server that counts, and takes `server/discover` as it is told to: python3 -I -S tempers.py TEMPER DIRECTORY

  answers   it answers it until it is initialised
  sticks    the same, and then refuses `initialize`
  refuses   with -32602
  late      it refuses it when the next message has come
  exits     with what a Rust server of 2025 writes to its standard error
  mute      it does not answer it

Each start, and each line that is read, is appended to DIRECTORY/ledger. The tool `increment` counts.
"""
import json
import os
import sys

temper, directory = sys.argv[1:3]
ledger = open(os.path.join(directory, "ledger"), "a", buffering=1)
ledger.write(f"start {os.getpid()}\n")
count, initialized, discovered, owed = 0, False, False, None


def say(message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def refuse(request, code, message="Invalid request parameters"):
    say({"id": request["id"], "error": {"code": code, "message": message}})


for line in sys.stdin:
    request = json.loads(line)
    method = request.get("method")
    ledger.write(f"{method}\n")
    if owed:
        refuse(owed, -32602)
        owed = None
    if method == "server/discover":
        if initialized:
            refuse(request, -32601, "Method not found")
        elif temper in ("answers", "sticks"):
            discovered = True
            information = {"name": "tempers", "version": "1"}
            say({"id": request["id"], "result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "serverInfo": information}})
        elif temper == "refuses":
            refuse(request, -32602)
        elif temper == "late":
            owed = request
        elif temper == "exits":
            sys.stderr.write('Error: ExpectedInitializeRequest(Some(Request("server/discover")))\n')
            sys.exit(1)
    elif method == "initialize":
        if discovered and temper == "sticks":
            refuse(request, -32600)
            continue
        initialized = True
        version = request["params"]["protocolVersion"]
        say({"id": request["id"], "result": {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "tempers", "version": "1"}}})
    elif method == "tools/call":
        count += 1
        say({"id": request["id"], "result": {"content": [{"type": "text", "text": str(count)}]}})
    elif method == "tools/list":
        say({"id": request["id"], "result": {"tools": [{"name": "increment", "inputSchema": {"type": "object"}}]}})
    elif "id" in request and method:
        say({"id": request["id"], "result": {}})
