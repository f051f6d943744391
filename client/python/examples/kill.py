"""A client of notes.py, which is killed between two calls and started again: python examples/kill.py"""

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

from mcp import Client
from mcp_types import CallToolResult, TextContent

SERVER = Path(__file__).with_name("notes.py")


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


def start(script: Path, port: int) -> subprocess.Popen[bytes]:
    """Starts a server, and returns once it listens."""
    server = subprocess.Popen([sys.executable, str(script), str(port)])
    while server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server
    raise SystemExit("the server has ended")


def text(result: CallToolResult) -> str:
    """What the tool has said."""
    return "".join(part.text for part in result.content if isinstance(part, TextContent))


async def main() -> None:
    """The story."""
    port = free_port()
    server = start(SERVER, port)
    async with Client(f"http://127.0.0.1:{port}/mcp") as client:
        first = await client.call_tool("note", {"text": "buy apples"})
        print("notes:", text(first))
        server.kill()
        server.wait()
        print("the server was killed")
        server = start(SERVER, port)
        second = await client.call_tool("note", {"text": "sell pears"})
        print("notes:", text(second))
    server.terminate()
    server.wait()


if __name__ == "__main__":
    asyncio.run(main())
