"""Calls what it reads, and writes what it gets, with the official Python client, second version: python2.py URL SECONDS"""

import asyncio
import json
import sys

from mcp import Client, MCPError

URL, SECONDS = sys.argv[1], float(sys.argv[2])


def say(**what):
    print(json.dumps(what), flush=True)


async def told(message):
    if isinstance(message, Exception):
        say(trouble=repr(message))


async def call(client, line):
    arguments = json.loads(line)
    key = arguments["key"]

    async def progress(number, _total, _message):
        say(key=key, progress=number)

    try:
        result = await client.call_tool("count", arguments, SECONDS, progress)
        say(key=key, result=result.content[0].text)
    except MCPError as error:
        # -32001: REQUEST_TIMEOUT
        say(key=key, error=error.message, code=error.code, data=error.data, late=error.code == -32001)


async def main():
    async with Client(URL, message_handler=told) as client:
        # Else it asks for them after its first call.
        await client.list_tools()
        say(ready=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            await call(client, line)


asyncio.run(main())
