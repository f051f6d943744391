"""FastMCP's client, which hears what comes before an answer, and can be asked."""

import json

import several
from harness import HERE

NAME, PACKAGE = "FastMCP", several.FASTMCP_PACKAGE
NEEDS = several.NEEDS


def ask(world, target, asks, is_direct):
    # A server itself would speak MCP 2026-07-28, which has neither sampling nor elicitation in this form.
    plan = {"mode": "legacy" if is_direct else "auto", "asks": [{"method": one.method, "params": one.params} for one in asks]}
    plan |= {"url": target.url} if target.url else {"command": target.command}
    path = world.root / "plan.json"
    path.write_text(json.dumps(plan))
    with open(path, "rb") as stdin:
        code, said = world.finish([several.FASTMCP_PYTHON, HERE / "fast_mcp_client.py"], stdin=stdin)
    if code:
        raise RuntimeError(f"the client has ended with {code}: {(world.root / 'host.log').read_text()[-3000:]}")
    return [answer.get("result", {}) if one.method in several.FIRST else answer for answer, one in zip(json.loads(said), asks)]


SCENARIOS = several.scenarios(ask, is_rich=True)
OBSERVED = []
