"""The official client for Python, of either version: sizes.py URL HEADERS SIZES. A line for each answer: its bytes, and `whole` or what came instead."""

import asyncio
import json
import sys
from contextlib import asynccontextmanager

url, headers, sizes = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
SECONDS = 120

try:
    import httpx2
    from mcp import Client
    from mcp.client.streamable_http import streamable_http_client

    @asynccontextmanager
    async def connected():
        async with httpx2.AsyncClient(headers=headers, timeout=SECONDS) as http:
            # The era that has sessions.
            async with Client(streamable_http_client(url, http_client=http), mode="legacy") as client:
                yield client
except ImportError:
    from mcp import ClientSession
    from mcp.client.streamable_http import streamablehttp_client

    @asynccontextmanager
    async def connected():
        async with streamablehttp_client(url, headers=headers) as (read, write, _), ClientSession(read, write) as client:
            await client.initialize()
            yield client


async def main():
    async with connected() as client:
        for size in sizes:
            try:
                result = await asyncio.wait_for(client.call_tool("big", {"bytes": size}), SECONDS)
                text = result.content[0].text
                print(size, "whole" if text == "x" * size else f"another answer: {text[:100]}", flush=True)
            except Exception as error:
                print(size, f"{type(error).__name__}: {error}"[:200].replace("\n", " "), flush=True)


asyncio.run(main())
