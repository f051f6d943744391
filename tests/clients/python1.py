"""Calls what it reads, and writes what it gets, with the official Python client, first version: python1.py URL SECONDS"""

import asyncio
import json
import sys
from datetime import timedelta

from mcp import ClientSession, McpError
from mcp.client.streamable_http import streamable_http_client

URL, SECONDS = sys.argv[1], float(sys.argv[2])


def say(**what):
    print(json.dumps(what), flush=True)


async def told(message):
    if isinstance(message, Exception):
        say(trouble=repr(message))


async def call(session, line):
    arguments = json.loads(line)
    key = arguments["key"]

    async def progress(number, _total, _message):
        say(key=key, progress=number)

    try:
        result = await session.call_tool("count", arguments, timedelta(seconds=SECONDS), progress_callback=progress)
        say(key=key, result=result.content[0].text)
    except McpError as error:
        say(key=key, error=error.error.message, code=error.error.code, data=error.error.data, late=error.error.code == 408)


async def main():
    async with streamable_http_client(URL) as (read, write, _), ClientSession(read, write, message_handler=told) as session:
        await session.initialize()
        # Else it asks for them after its first call.
        await session.list_tools()
        say(ready=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await call(session, line)


asyncio.run(main())
