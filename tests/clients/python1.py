"""The official Python client, first version: python1.py URL SECONDS"""

import asyncio
from datetime import timedelta

from driving import SECONDS, URL, make_all, told
from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client


async def main():
    async with streamable_http_client(URL) as (read, write, _), ClientSession(read, write, message_handler=told) as session:
        await session.initialize()
        # Else it asks for them after its first call.
        await session.list_tools()

        async def call(arguments, progress):
            try:
                result = await session.call_tool("count", arguments, timedelta(seconds=SECONDS), progress_callback=progress)
                return {"result": result.content[0].text}
            except McpError as raised:
                error = raised.error
                return {"error": error.message, "code": error.code, "data": error.data, "late": error.code == 408}

        await make_all(call)


asyncio.run(main())
