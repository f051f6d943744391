"""The inspector's command line: one process, one call. Of a command on stdio it swallows the first `--` of a command, so there is none."""

import json

import served
from harness import INSTALLED, number, until

NAME, PACKAGE = "MCP Inspector", ("npm", "@modelcontextprotocol/inspector", "2.12.0")
INSPECTOR = INSTALLED / "inspector" / "node_modules" / ".bin" / "mcp-inspector"


def call(world, command):
    return world.finish([INSPECTOR, "--cli", *command, "--method", "tools/call", "--tool-name", "count"])


def url_call(world, url, token=None, transport="http"):
    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    return call(world, ["--transport", transport, "--server-url", url, *header])


def one_call(world):
    for which in ("one", "another"):
        code, said = call(world, world.wrapped(bare=True))
        world.check(f"{which} process: the call is answered", code == 0 and number(said) == 1, (code, said))
        world.lives(0, f"after the end of {which}")


def with_dashes(world):
    code, said = call(world, world.wrapped())
    world.check("the command is wrapped, without the `--` that got lost", code == 0 and number(said) == 1, (code, said))
    world.lives(0, "after the end")


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    (world.project / "servers.json").write_text(json.dumps(
        {"mcpServers": {"counter": {"command": world.server()[0], "args": world.server("--stubborn")[1:]}}}))
    host = world.start([INSPECTOR, "--cli", "--config", "servers.json", "--server", "counter", "--method", "tools/call", "--tool-name", "count"])
    until(lambda: any(one["message"].get("method") == "tools/call" for one in world.journal("message")))
    world.watch("the end", host.wait)
    world.describe()


SCENARIOS = [one_call, with_dashes, *served.single_calls(url_call)]
OBSERVED = [observed]
