"""The scripted server on stdio: python3 -I -S stdio.py JOURNAL GATES

Its tools, the same as of the other scripted servers. Each call that has a `key` is a line of JOURNAL.

  count                  how often this session has called it
  echo {value}           the value, as JSON
  log {times, text}      so many log messages, and then `logged`
  ask {bytes}            asks for the client's roots, with so many letters, and answers how many there are
  big {bytes}            so many letters
  nan {value}            NaN, Infinity or -Infinity as a number, which is not JSON
  slow {key, steps}      so many steps as progress, and `slow` once the file GATES/key is there
  die                    ends the process, without an answer
  greeted                how often this server of the session got `notifications/initialized`
  raw {text}             writes this text as it is, in which @ID@ stands for the id of the call
"""

import json
import os
import sys
import threading
import time

JOURNAL = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
GATES = sys.argv[2]
NAMES = ["count", "echo", "log", "ask", "big", "nan", "slow", "die", "greeted", "raw"]
writing = threading.Lock()
state = {"count": 0, "asked": 0, "greeted": 0}
waiting = {}


def write(text):
    with writing:
        sys.stdout.buffer.write(text.encode("utf-8", "surrogatepass") + b"\n")
        sys.stdout.buffer.flush()


def say(message):
    write(json.dumps({"jsonrpc": "2.0", **message}))


def answer(request, text):
    say({"id": request, "result": {"content": [{"type": "text", "text": text}]}})


def call(request, params):
    name, given = params.get("name"), params.get("arguments") or {}
    if "key" in given:
        os.write(JOURNAL, f"{given['key']}\n".encode())
    if name == "count":
        state["count"] += 1
        answer(request, str(state["count"]))
    elif name == "echo":
        answer(request, json.dumps(given.get("value"), ensure_ascii=False))
    elif name == "log":
        for number in range(1, given.get("times", 1) + 1):
            params = {"level": "info", "logger": "scripted", "data": f"{given.get('text', 'line')} {number}"}
            say({"method": "notifications/message", "params": params})
        answer(request, "logged")
    elif name == "ask":
        state["asked"] += 1
        own = f"ask-{state['asked']}"
        waiting[own] = request
        say({"id": own, "method": "roots/list", **({"params": {"_meta": {"text": "x" * given["bytes"]}}} if "bytes" in given else {})})
    elif name == "big":
        answer(request, "x" * given["bytes"])
    elif name == "nan":
        content = '{"content":[],"structuredContent":{"value":%s}}' % given.get("value", "NaN")
        write('{"jsonrpc":"2.0","id":%s,"result":%s}' % (json.dumps(request), content))
    elif name == "slow":
        token = (params.get("_meta") or {}).get("progressToken")
        for step in range(1, given.get("steps", 0) + 1):
            if token is not None:
                say({"method": "notifications/progress", "params": {"progressToken": token, "progress": step}})
        while not os.path.exists(os.path.join(GATES, given["key"])):
            time.sleep(0.01)
        answer(request, "slow")
    elif name == "die":
        os._exit(1)
    elif name == "greeted":
        answer(request, str(state["greeted"]))
    elif name == "raw":
        write(given["text"].replace("@ID@", json.dumps(request)))
    else:
        say({"id": request, "error": {"code": -32602, "message": "there is no such tool"}})


def main():
    for line in sys.stdin.buffer:
        message = json.loads(line)
        request, method, params = message.get("id"), message.get("method"), message.get("params") or {}
        if method is None:
            asked = waiting.pop(request, None)
            if asked is not None:
                answer(asked, str(len(message["result"]["roots"])) if "result" in message else "refused")
        elif request is None:
            state["greeted"] += method == "notifications/initialized"
        elif method == "initialize":
            capabilities = {"tools": {"listChanged": True}, "logging": {}}
            say({"id": request, "result": {"protocolVersion": params["protocolVersion"], "capabilities": capabilities,
                                           "serverInfo": {"name": "scripted", "version": "1"}}})
        elif method == "server/discover":
            say({"id": request, "result": {"supportedVersions": ["2026-07-28", "2025-11-25"], "capabilities": {"tools": {}, "logging": {}},
                                           "serverInfo": {"name": "scripted", "version": "1"}, "resultType": "complete", "ttlMs": 0,
                                           "cacheScope": "private"}})
        elif method == "tools/call":
            threading.Thread(target=call, args=(request, params), daemon=True).start()
        elif method == "tools/list":
            say({"id": request, "result": {"tools": [{"name": name, "inputSchema": {"type": "object"}} for name in NAMES]}})
        elif method in ("ping", "logging/setLevel"):
            say({"id": request, "result": {}})
        else:
            say({"id": request, "error": {"code": -32601, "message": "Method not found"}})


main()
