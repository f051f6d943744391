"""The client of FastMCP: fastmcp_client.py URL SECONDS"""

import asyncio

from driving import SECONDS, URL, make_all, told
from fastmcp import Client
from mcp import MCPError
from mcp_types import REQUEST_TIMEOUT


async def main():
    async with Client(URL, message_handler=told) as client:
        # Else it asks for them after its first call.
        await client.list_tools()

        async def call(arguments, progress):
            try:
                result = await client.call_tool("count", arguments, timeout=SECONDS, progress_handler=progress)
                return {"result": result.content[0].text}
            except MCPError as error:
                late = error.code == REQUEST_TIMEOUT
                said = {"error": error.message, "code": error.code, "data": error.data, "late": late}
                # It does not come back from that.
                return said | {"ended": error.message == "Connection closed"}

        await make_all(call)


asyncio.run(main())
