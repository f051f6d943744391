"""A server that says of itself what a file says: python3 -I -S scripted_lists.py DIRECTORY

`told.json` has its result of `initialize` and its answers to what asks for lists: {"initialize": {…}, "tools/list": [page, …], …}, where
a page is the result, and a page that is a number the code of an error. Each line that it gets is appended to `heard`, the first one
being its pid. Before anything else it waits until it can open `gate`, if that is there. A call is answered with its pid.
"""
import json
import os
import sys

directory = sys.argv[1]


def path(name):
    return os.path.join(directory, name)


with open(path("heard"), "a") as heard:
    heard.write(json.dumps({"pid": os.getpid()}) + "\n")
if os.path.exists(path("gate")):
    open(path("gate")).read()
with open(path("told.json")) as told:
    told = json.load(told)


def page(pages, params):
    at = int(params.get("cursor") or 0)
    if pages is None or isinstance(pages[at], int):
        return {"error": {"code": -32601 if pages is None else pages[at], "message": "no such thing here"}}
    more = {"nextCursor": str(at + 1)} if at + 1 < len(pages) else {}
    return {"result": {**pages[at], **more}}


def answer(method, params):
    if method == "initialize":
        if "initialize" not in told:
            return {"error": {"code": -32000, "message": "not today"}}
        return {"result": {"protocolVersion": params["protocolVersion"], **told["initialize"]}}
    if method.endswith("/list"):
        return page(told.get(method), params)
    if method == "tools/call":
        return {"result": {"content": [{"type": "text", "text": str(os.getpid())}]}}
    if method in ("ping", "logging/setLevel", "resources/subscribe"):
        return {"result": {}}
    return {"error": {"code": -32601, "message": "Method not found"}}


for line in sys.stdin:
    with open(path("heard"), "a") as heard:
        heard.write(line)
    message = json.loads(line)
    if "id" in message and "method" in message:
        said = answer(message["method"], message.get("params") or {})
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **said}), flush=True)
