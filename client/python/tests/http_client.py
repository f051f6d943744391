"""The official client of one of the SDKs: http_client.py mcp1|mcp2|fastmcp URL

It reads calls, a line of JSON each (`tool` and its arguments), makes each at once, and writes what it gets.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

kind, url = sys.argv[1], sys.argv[2]


def say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


async def make_all(client: Any) -> None:
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say(ready=True)
    calls = []
    while line := await lines.readline():
        calls.append(asyncio.create_task(make(client, json.loads(line))))
    await asyncio.gather(*calls)


async def make(client: Any, arguments: dict[str, Any]) -> None:
    tool, key = arguments.pop("tool"), arguments.get("key")

    async def progress(number: float, _total: Any, _message: Any) -> None:
        say(key=key, progress=int(number))

    named = "progress_handler" if kind == "fastmcp" else "progress_callback"
    try:
        result = await client.call_tool(tool, arguments, **{named: progress})
        say(key=key, result=result.content[0].text)
    except Exception as error:
        told = getattr(error, "error", error)
        say(key=key, error=getattr(told, "message", str(told)), code=getattr(told, "code", None))


async def main() -> None:
    if kind == "mcp1":
        from mcp import ClientSession
        from mcp.client.streamable_http import streamable_http_client

        async with streamable_http_client(url) as (read, write, _), ClientSession(read, write) as session:
            await session.initialize()
            await session.list_tools()
            await make_all(session)
    elif kind == "mcp2":
        from mcp import Client

        async with Client(url) as client:
            await client.list_tools()
            await make_all(client)
    else:
        from fastmcp import Client as FastClient

        async with FastClient(url) as client:
            await client.list_tools()
            await make_all(client)


asyncio.run(main())
