"""Claude Code with servers on rmcp 1.x, which exit when `server/discover` is their first message: `posit-mcp-repl`, `cnb-rs-mcp` and
`grok-search-rs`. Each door of ours has to work as the server itself does."""

import json
import re

import claude
from harness import INSTALLED, PROGRAM

NAME, PACKAGE = f"Claude Code {claude.PACKAGE[2]} and posit-mcp-repl", ("pip", "posit-mcp-repl", "0.3.0", "cnb-rs-mcp", "1.3.0", "grok-search-rs", "0.4.0")
NEEDS = {"claude": claude.PACKAGE}
BIN = INSTALLED / "rmcp" / "bin"
SERVERS = {
    "repl": [str(BIN / "posit-mcp-repl"), "--interpreter", "python", "--sandbox", "danger-full-access"],
    "cnb": [str(BIN / "cnb-rs-mcp")],
    "grok": [str(BIN / "grok-search-rs"), "mcp"],
}
# It doesn't start without a key. Nobody is called with it.
GROK = {"GROK_SEARCH_API_KEY": "a-key-that-nobody-knows"}
DOORS = ("direct", "wrap", "lazy", "name", "entry", "shared", "all")


def own(world, *arguments):
    """Our executable, with this scenario's runtime directory: hosts pass few variables."""
    return ["env", f"MCP_SESSIOND_DIR={world.run}", f"MCP_SESSIOND_CONFIG={world.config_path}", str(PROGRAM), *arguments]


def entries(world, door, servers=SERVERS):
    """What Claude Code is given: name and command of each server. Entries of servers.json are written where they are needed."""
    if door in ("entry", "shared", "all"):
        more = {"shared": True} if door == "shared" else {}
        listed = {name: {"command": command, "args": rest, "env": GROK, **more} for name, (command, *rest) in servers.items()}
        world.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": listed}))
    if door == "all":
        return {"all": own(world, "wrap", "--all")}
    ways = {
        "direct": lambda name, command: command,
        "wrap": lambda name, command: own(world, "wrap", "--", *command),
        "lazy": lambda name, command: own(world, "wrap", "--lazy", "--", *command),
        "name": lambda name, command: own(world, "wrap", "--name", name, "--", *command),
        "entry": lambda name, command: own(world, "wrap", f"@{name}"),
        "shared": lambda name, command: own(world, "wrap", f"@{name}"),
    }
    return {name: ways[door](name, command) for name, command in servers.items()}


def added(world, door, servers=SERVERS):
    """After `claude mcp add` of each."""
    env = {**claude.environment(world), **GROK}
    world.api.calls |= {"set": ("repl", {"input": "kept = 40\n"}), "add": ("repl", {"input": "kept += 1; print('kept', kept)\n"})}
    for name, command in entries(world, door, servers).items():
        code, said = world.finish([claude.CLAUDE, "mcp", "add", name, "--", *command], env=env)
        world.check(f"`claude mcp add {name}` takes the command", code == 0, said)
    return env


def asked(world, env, steps):
    """One `claude -p`, and what the tools told the model."""
    code, said = world.finish([claude.CLAUDE, "-p", f"STEPS: {steps}", "--allowedTools", "mcp__repl__repl,mcp__all__repl_repl,mcp__all__repl"], env=env)
    world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done" in said, (code, said))


def values(world, name):
    """The values of the variable that the REPL printed under this prompt."""
    return [int(found[1]) if (found := re.search(r"^.*kept (\d+)", text, re.MULTILINE)) else text for text in world.api.results(name)]


def listed(door):
    """A scenario: `claude mcp list`, twice, since what a command does with the probe is remembered; then a call."""
    def scenario(world):
        env = added(world, door)
        for time_ in ("first", "second"):
            code, said = world.finish([claude.CLAUDE, "mcp", "list"], env=env)
            for name in entries(world, door):
                line = next((line for line in said.splitlines() if line.startswith(f"{name}:")), said)
                world.check(f"the {time_} `claude mcp list` says that {name} is connected", "Connected" in line, line.rsplit(" - ", 1)[-1])
        asked(world, env, "one set add add")
        world.check("a variable of the REPL is what it was set to", values(world, "one")[1:] == [41, 42], world.api.results("one"))
        tools = claude.offered(world, "one")
        found = {name: sum(name in tool for tool in tools) for name in ("repl", "cnb", "grok" if door != "all" else "web_")}
        world.check("the model is offered the tools of all three", all(found.values()), tools)
    scenario.__name__ = f"listed_{door}"
    return scenario


class Session(claude.Session):
    """A session with the REPL."""

    def __init__(self, world, env):
        super().__init__(world, env, "repl", "mcp__repl__repl")

    def wait(self):
        self.wait_for_offer()

    def adds(self, name, expected, why):
        """A turn that adds one to the variable."""
        self.ask(name, "add")
        self.world.check(f"{why}: the variable goes on, {expected}", values(self.world, name) == [expected], self.world.api.results(name))


def kept(door):
    """A scenario: the variable survives a reconnect, SIGKILL of the front, and of front and daemon."""
    def scenario(world):
        session = Session(world, added(world, door, {"repl": SERVERS["repl"]}))
        session.ask("one", "set add")
        world.check("a variable is set", values(world, "one")[1:] == [41], world.api.results("one"))
        session.reconnect()
        session.adds("two", 42, "after `/mcp reconnect`")
        for number, what in enumerate((("front",), ("front", "daemon")), 43):
            world.kill(*what)
            session.reconnect()
            session.adds(f"killed-{number}", number, f"after SIGKILL of {' and '.join(what)}")
    scenario.__name__ = f"kept_{door}"
    return scenario


SCENARIOS = [*map(listed, DOORS), *map(kept, [door for door in DOORS if door not in ("direct", "all")])]
OBSERVED = []
