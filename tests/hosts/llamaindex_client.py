"""A web backend on LlamaIndex: a `BasicMCPClient` for each user. llamaindex_client.py COMMAND ARGUMENT…"""

import sys

from llama_index.tools.mcp import BasicMCPClient

from users_client import serve

COMMAND, *ARGUMENTS = sys.argv[1:]
clients = {}


async def count(user):
    """Each call has a server of its own."""
    client = clients.setdefault(user, BasicMCPClient(COMMAND, args=ARGUMENTS, timeout=60))
    return str(await client.call_tool("count", {}))


serve(count)
