"""An MCP server that works in the folders (roots) that its host gives it.

It asks for them once it is initialised, and again when it hears that they have changed. Calls wait
for the answer; lists do not.
"""

import json
import sys

TOOLS = [{"name": name, "inputSchema": {"type": "object"}} for name in ("increment", "where", "levels")]
roots, asked, count, open_ask = None, 0, 0, None
held, changes = [], []


def say(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def ask():
    global asked, open_ask
    asked += 1
    open_ask = f"roots-{asked}"
    say(id=open_ask, method="roots/list")


def call(message):
    global count
    name = message["params"]["name"]
    if name == "increment":
        count += 1
    text = {"increment": str(count), "where": " ".join(roots or ["nowhere"]), "levels": " ".join(changes)}[name]
    say(id=message["id"], result={"content": [{"type": "text", "text": text}]})


for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        capabilities = {"tools": {}, "logging": {}, "resources": {"subscribe": True}}
        version = message["params"]["protocolVersion"]
        info = {"name": "rooted", "version": "1"}
        say(id=message["id"], result={"protocolVersion": version, "capabilities": capabilities, "serverInfo": info})
    elif method in ("notifications/initialized", "notifications/roots/list_changed"):
        ask()
    elif method == "tools/list":
        say(id=message["id"], result={"tools": TOOLS})
    elif method == "tools/call":
        if open_ask is None:
            call(message)
        else:
            held.append(message)
    elif method is None and message.get("id") == open_ask:
        open_ask = None
        given = message.get("result", {}).get("roots")
        roots = given and [root["uri"] for root in given]
        for waiting in held:
            call(waiting)
        held.clear()
    elif "id" in message and method is not None:
        if method in ("logging/setLevel", "resources/subscribe", "resources/unsubscribe"):
            params = message["params"]
            changes.append(method.split("/")[1] + "=" + params.get("level", params.get("uri", "")))
        lists = {"resources/list": "resources", "prompts/list": "prompts", "resources/templates/list": "resourceTemplates"}
        say(id=message["id"], result={lists[method]: []} if method in lists else {})
