"""FastMCP's client: fast_mcp_client.py < PLAN, which is `{"command": [...]}` or `{"url": …}`, with `asks` and `mode`. Answers each ask, a JSON array on standard output.

An answer is the result or the error, with the progress, log messages and changes of resources that came before it, and what the client was asked.
"""

import asyncio
import json
import sys

import mcp_types
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from mcp.shared.exceptions import MCPError

heard = []


def dumped(model):
    return model.model_dump(mode="json", by_alias=True, exclude_none=True)


async def on_progress(progress, total, message):
    heard.append({"progress": progress, "total": total, "message": message})


async def on_log(message):
    # This is said when a server likes.
    if "Roots updated" not in str(message.data):
        heard.append({"log": dumped(message)})


async def on_sampling(messages, params, context):
    heard.append({"sampling": [dumped(one) for one in messages]})
    return "sampled"


async def on_elicitation(message, response_type, params, context):
    heard.append({"elicitation": message})
    return {"color": "blue"} if "color" in message else {"name": "somebody"}


async def on_message(message):
    # Progress and log messages come by their own ways.
    if type(message).__name__ in ("ResourceUpdatedNotification", "ElicitCompleteNotification"):
        heard.append({"told": dumped(message)})


async def answer(client, method, params):
    if method == "initialize":
        return {"instructions": client.instructions}
    if method.endswith("/list"):
        items = await getattr(client, {"tools/list": "list_tools", "prompts/list": "list_prompts", "resources/list": "list_resources",
                                       "resources/templates/list": "list_resource_templates"}[method])()
        key = {"resources/templates/list": "resourceTemplates"}.get(method, method.split("/")[0])
        return {key: [dumped(item) for item in items]}
    if method == "tools/call":
        return dumped(await client.call_tool_mcp(params["name"], params["arguments"], progress_handler=on_progress))
    if method == "prompts/get":
        return dumped(await client.get_prompt_mcp(params["name"], params["arguments"]))
    if method == "resources/read":
        return dumped(await client.read_resource_mcp(params["uri"]))
    if method == "completion/complete":
        of = params["ref"]
        ref = mcp_types.PromptReference(**of) if of["type"] == "ref/prompt" else mcp_types.ResourceTemplateReference(**of)
        argument = params["argument"]
        return dumped(await client.complete_mcp(ref, argument, params["context"]["arguments"]))
    if method == "resources/subscribe":
        return dumped(await client.session.subscribe_resource(params["uri"]))
    raise ValueError(method)


async def main():
    plan = json.load(sys.stdin)
    answers = []
    transport = plan.get("url") or StdioTransport(plan["command"][0], plan["command"][1:])
    client = Client(transport, mode=plan["mode"], roots=["file:///somewhere"], sampling_handler=on_sampling, elicitation_handler=on_elicitation,
                    log_handler=on_log, message_handler=on_message, timeout=60)
    async with client:
        if client.server_capabilities.logging:
            await client.set_logging_level("info")
        for ask in plan["asks"]:
            heard.clear()
            try:
                said = {"result": await answer(client, ask["method"], ask["params"])}
            except MCPError as error:
                said = {"error": dumped(error.error)}
            # What comes after an answer is awaited where it is the point.
            for _ in range(100 if ask["params"].get("name") == "toggle-subscriber-updates" else 0):
                if heard:
                    break
                await asyncio.sleep(0.05)
            answers.append({**said, "heard": list(heard)} if heard else said)
    json.dump(answers, sys.stdout)


asyncio.run(main())
