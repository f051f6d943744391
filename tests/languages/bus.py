"""The bus of a service's processes, in Python's library: bus.py listen|publish"""

import asyncio
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "python" / "src"))
from mcp.server.subscriptions import PromptsListChanged, ResourceUpdated, ServerEvent, ToolsListChanged  # noqa: E402

from mcp_sessiond.bus import DurableBus  # noqa: E402


async def main() -> None:
    bus = DurableBus("languages")
    if sys.argv[1] == "publish":
        await bus.publish(ToolsListChanged())
        await bus.publish(ResourceUpdated(uri="file:///shared"))
        return
    done = asyncio.Event()

    def hear(event: ServerEvent) -> None:
        shown = {"kind": "tools_list_changed" if isinstance(event, ToolsListChanged) else "prompts_list_changed"}
        if isinstance(event, ResourceUpdated):
            shown = {"kind": "resource_updated", "uri": event.uri}
            done.set()
        print(json.dumps(shown), flush=True)

    bus.subscribe(hear)
    # Who hears this hears what comes after it.
    await bus.publish(PromptsListChanged())
    await done.wait()


asyncio.run(main())
