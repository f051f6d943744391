"""Counts its own starts, and shows what it has said before: python examples/counter.py

The count and the messages are in the daemon, which is started if none runs.
"""

import asyncio

from mcp_sessiond import Sessions


async def main() -> None:
    """One start."""
    session = await Sessions("example-counter").open_or_create("counter")
    count = await session.get("count", 0) + 1
    await session.set("count", count)

    said = session.standalone()
    for event in (await said.replay()).events:
        print("before:", event.message["text"])
    await said.append({"text": f"start number {count}"})
    print("now: start number", count)


asyncio.run(main())
