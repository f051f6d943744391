"""How a server on stdio resumes with its broker: python examples/stdio.py

Run it twice from one shell: the second run gets the token that the first one has stored.
"""

import asyncio
import logging
import os

from mcp_sessiond import Sessiond

logging.basicConfig(level=logging.INFO, format="%(message)s")


async def main() -> None:
    """What a server does as it starts."""
    sessiond = Sessiond.init()
    token = await sessiond.load()
    print("offer to the broker:", token)
    # The broker takes it and issues another one, or refuses it: `await sessiond.reject()`.
    kept = await sessiond.store(f"token of process {os.getpid()}".encode())
    print("kept:", kept, sessiond.status.state)


asyncio.run(main())
