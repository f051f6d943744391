"""A server on stdio that a test starts: each line that it reads is a call, and it answers with a line of JSON."""

import asyncio
import json
import logging
import sys

import support  # noqa: F401

from mcp_sessiond import Options, Sessiond

LINES: list[str] = []


class Kept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LINES.append(record.getMessage())


logging.getLogger("mcp_sessiond").addHandler(Kept())
logging.getLogger("mcp_sessiond").setLevel(logging.INFO)


def say(result: object, state: str) -> None:
    print(json.dumps({"result": result, "state": state, "lines": LINES}), flush=True)
    LINES.clear()


async def main() -> None:
    sessiond = Sessiond.init(Options(binary=sys.argv[1] if len(sys.argv) > 1 else None))
    for line in sys.stdin:
        method, *arguments = line.split()
        result = await getattr(sessiond, method)(*(argument.encode() for argument in arguments))
        if hasattr(result, "set"):
            result = await result.set("n", 1)
        say(result.decode() if isinstance(result, bytes) else result, sessiond.status.state)


asyncio.run(main())
