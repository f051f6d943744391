"""A web backend on LangChain: a `MultiServerMCPClient` for each user. langchain_client.py COMMAND ARGUMENT…"""

import sys

from langchain_mcp_adapters.client import MultiServerMCPClient

from users_client import serve

COMMAND, *ARGUMENTS = sys.argv[1:]
tools = {}


async def count(user):
    """Each call of such a tool has a server of its own. `get_tools` has one, too."""
    if user not in tools:
        client = MultiServerMCPClient({"counter": {"transport": "stdio", "command": COMMAND, "args": ARGUMENTS}})
        tools[user], = await client.get_tools()
    return str(await tools[user].ainvoke({}))


serve(count)
