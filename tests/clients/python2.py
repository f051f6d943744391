"""The official Python client, second version: python2.py URL SECONDS"""

import asyncio

from driving import SECONDS, URL, make_all, told
from mcp import Client, MCPError
from mcp_types import REQUEST_TIMEOUT


async def main():
    async with Client(URL, message_handler=told) as client:
        # Else it asks for them after its first call.
        await client.list_tools()

        async def call(arguments, progress):
            try:
                result = await client.call_tool("count", arguments, SECONDS, progress)
                return {"result": result.content[0].text}
            except MCPError as error:
                late = error.code == REQUEST_TIMEOUT
                return {"error": error.message, "code": error.code, "data": error.data, "late": late}

        await make_all(call)


asyncio.run(main())
