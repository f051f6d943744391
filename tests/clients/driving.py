"""What the Python clients have in common: they read calls, a line each, and write what they get."""

import asyncio
import json
import sys

URL, SECONDS = sys.argv[1], float(sys.argv[2])


def say(**what):
    print(json.dumps(what), flush=True)


async def told(message):
    """What a client says of its own accord."""
    if isinstance(message, Exception):
        say(trouble=repr(message))


async def make_all(call):
    """Makes each call that is read, at once: `await call(arguments, progress)`."""
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    say(ready=True)
    async with asyncio.TaskGroup() as calls:
        while line := await lines.readline():
            calls.create_task(_make(call, json.loads(line)))


async def _make(call, arguments):
    key = arguments["key"]

    async def progress(number, _total, _message):
        say(key=key, progress=number)

    say(key=key, **await call(arguments, progress))
