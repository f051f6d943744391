"""What the backends on Python libraries have in common. Lines of JSON-RPC on standard input tell them:

    count {users}   a call for each of these users, all at the same time: their texts, in order; an error's text where there was none
"""

import asyncio
import json
import sys


def serve(count):
    asyncio.run(answer_all(count))


async def answer_all(count):
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while line := await lines.readline():
        asked = json.loads(line)
        texts = await asyncio.gather(*(count(user) for user in asked["params"]["users"]), return_exceptions=True)
        said = [text if isinstance(text, str) else f"error: {text!r}" for text in texts]
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": said}), flush=True)
