"""FastMCP's client, which hears what comes before an answer, and can be asked."""

import json

import bundle_view
from harness import HERE

NAME, PACKAGE = "FastMCP", bundle_view.FASTMCP_PACKAGE
NEEDS = bundle_view.NEEDS


def ask(world, target, asks, is_direct):
    # A server itself would speak MCP 2026-07-28, which has neither sampling nor elicitation in this form.
    plan = {"mode": "legacy" if is_direct else "auto", "asks": [{"method": one.method, "params": one.params} for one in asks]}
    plan |= {"url": target.url} if target.url else {"command": target.command}
    path = world.root / "plan.json"
    path.write_text(json.dumps(plan))
    with open(path, "rb") as stdin:
        code, said = world.finish([bundle_view.FASTMCP_PYTHON, HERE / "fast_mcp_client.py"], stdin=stdin)
    if code:
        raise RuntimeError(f"the client has ended with {code}: {(world.root / 'host.log').read_text()[-3000:]}")
    return [answer.get("result", {}) if one.method in bundle_view.FIRST else answer for answer, one in zip(json.loads(said), asks)]


SCENARIOS = bundle_view.scenarios(ask, is_rich=True)
OBSERVED = []
