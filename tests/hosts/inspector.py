"""The inspector's command line: one process, one call. Of a command on stdio it swallows the first `--` of a command, so there is none."""

import json

import over_http
import bundle_view
from harness import INSTALLED, number, until

NAME, PACKAGE = "MCP Inspector", ("npm", "@modelcontextprotocol/inspector", "2.12.0")
NEEDS = bundle_view.NEEDS
INSPECTOR = INSTALLED / "inspector" / "node_modules" / ".bin" / "mcp-inspector"


def call(world, command):
    return world.finish([INSPECTOR, "--cli", *command, "--method", "tools/call", "--tool-name", "count"])


def url_call(world, url, token=None):
    header = ["--header", f"Authorization: Bearer {token}"] if token else []
    return call(world, ["--transport", "http", "--server-url", url, *header])


def one_call(world):
    for which in ("one", "another"):
        code, said = call(world, world.wrapped(bare=True))
        world.check(f"{which} process: the call is answered", code == 0 and number(said) == 1, (code, said))
        world.lives(0, f"after the end of {which}")


def lazy(world):
    """Its processes are hosts of their own, and each is answered by what the first one has heard."""
    for expected in (1, 2):
        code, said = call(world, world.wrapped(options=["--lazy"], bare=True))
        world.check(f"process {expected}: the call is answered", code == 0 and number(said) == 1, (code, said))
        world.lives(0, f"after the end of process {expected}")
    said = [one["message"].get("method") for one in world.journal("message") if one["pid"] == world.started()[-1]]
    world.check("the second one's server is started by its call", "tools/call" in said and said.index("tools/call") < 3, said)


def with_dashes(world):
    code, said = call(world, world.wrapped())
    world.check("the command is wrapped, without the `--` that got lost", code == 0 and number(said) == 1, (code, said))
    world.lives(0, "after the end")


def ask(world, target, asks, is_direct):
    """A process for each ask."""
    to = ["--transport", "http", "--server-url", target.url] if target.url else target.command

    def one(number, asked):
        params = {"--tool-name": "name", "--prompt-name": "name", "--uri": "uri"}
        kind = {"tools/call": "--tool-name", "prompts/get": "--prompt-name", "resources/read": "--uri"}.get(asked.method)
        options = [kind, asked.params[params[kind]]] if kind else []
        arguments = asked.params.get("arguments", {})
        if asked.method == "tools/call":
            options += ["--tool-args-json", json.dumps(arguments)]
        for name, value in arguments.items() if asked.method == "prompts/get" else ():
            options += ["--prompt-args", f"{name}={value}"]
        log = f"asked-{number}"
        (world.root / f"{log}.log").unlink(missing_ok=True)
        # Its option for arguments takes all that follows: the command is first.
        code, out = world.finish([INSPECTOR, "--cli", *to, "--format", "json", "--connect-timeout", "60000", "--method", asked.method, *options], log=log)
        said = [line for line in (world.root / f"{log}.log").read_text().splitlines() if line.startswith('{"error"')]
        if asked.method in bundle_view.FIRST:
            return json.loads(out)["result"] if out else {}
        return {"code": code, "said": json.loads(out) if out else None, "error": said}
    return bundle_view.each(one, asks)


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    (world.project / "servers.json").write_text(json.dumps(
        {"mcpServers": {"counter": {"command": world.server()[0], "args": world.server("--stubborn")[1:]}}}))
    host = world.start([INSPECTOR, "--cli", "--config", "servers.json", "--server", "counter", "--method", "tools/call", "--tool-name", "count"])
    until(lambda: any(one["message"].get("method") == "tools/call" for one in world.journal("message")))
    world.watch("the end", host.wait)
    world.describe()


SCENARIOS = [
    one_call,
    lazy,
    with_dashes,
    *bundle_view.scenarios(ask, is_slow=True),
    *over_http.single_calls(url_call),
]
OBSERVED = [observed]
