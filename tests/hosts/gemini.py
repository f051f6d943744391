"""Gemini CLI: `gemini -p`, and interactive under a pseudo-terminal. The API that is faked is Google's Generative Language."""

import hashlib
import json
import os
import signal
import time

from drivers import Terminal
import over_http
import subagents
from harness import INSTALLED, number, start_of, until

NAME, PACKAGE = "Gemini CLI", ("npm", "@google/gemini-cli", "0.61.0")
GEMINI = INSTALLED / "gemini" / "node_modules" / ".bin" / "gemini"


def environment(world):
    """Past the questions of a first start, and without telemetry."""
    (world.home / ".gemini").mkdir()
    (world.home / ".gemini" / "settings.json").write_text(json.dumps({
        "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
        "privacy": {"usageStatisticsEnabled": False}, "telemetry": {"enabled": False},
        "general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False, "disableAutoUpdate": True}, "ui": {"hideTips": True}}))
    return world.environment(GEMINI_API_KEY="a-key", GOOGLE_GEMINI_BASE_URL=world.api.url)


def added(world, *server):
    """After `gemini mcp add`, which takes the command's own `--` for its own: so without one."""
    env = environment(world)
    code, said = world.finish([GEMINI, "mcp", "add", "--trust", "--scope", "user", "counter", *(server or world.wrapped(bare=True))], env=env)
    world.check("`gemini mcp add NAME CMD` takes the wrapped command", code == 0, said)
    return env


def added_url(world, url, token=None):
    """After `gemini mcp add --transport http`."""
    env = environment(world)
    options = ["--header", f"Authorization: Bearer {token}"] if token else []
    code, said = world.finish([GEMINI, "mcp", "add", "--trust", "--scope", "user", "--transport", "http", *options, "counter", url], env=env)
    world.check("`gemini mcp add --transport http NAME URL` takes the address", code == 0, said)
    return env


def prompt(world, env, steps):
    """One `gemini -p`."""
    return world.finish([GEMINI, "--yolo", "-m", "gemini-2.5-pro", "-p", f"STEPS: {steps}"], env=env)


class Session(Terminal):
    """An interactive session."""

    def __init__(self, world, env):
        super().__init__(world, [GEMINI, "--yolo", "-m", "gemini-2.5-pro"], env)
        self.world = world
        world.check("it shows its prompt and its server", self.shows("1 MCP server", seconds=60), self.text()[-300:])
        self.rests(2)

    def ask(self, name, steps="count"):
        self.send(f"STEPS: {name} {steps}")
        self.world.check(f"prompt {name} is answered", self.shows(f"done {name}", seconds=60), self.text()[-300:])
        self.rests()

    def end(self):
        """As its user ends it."""
        self.send("/quit")
        until(lambda: start_of(self.pid) is None)

    def refresh(self):
        """Restarts all servers."""
        self.send("/mcp refresh")
        self.world.check("`/mcp refresh` restarts the server", self.shows("counter - Ready"), self.text()[-300:])
        self.rests(2)


def print_mode(world):
    env = added(world)
    code, said = prompt(world, env, "one count count")
    world.check("`gemini -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "two calls meet one server")
    world.lives(0, "after the end of the host")
    code, _ = world.finish([GEMINI, "mcp", "list"], env=env, log="list")
    said = (world.root / "list.log").read_text()
    world.check("`gemini mcp list` finds the server", code == 0 and "Connected" in said, (code, said))
    world.lives(0, "after `gemini mcp list`")


def killed(*what):
    def scenario(world):
        world.api.hooks["kill"] = lambda: world.kill(*what)
        prompt(world, added(world), "one count kill count count")
        seen = [number(text) for text in world.api.results("one")]
        world.check("the same server goes on, or nobody answers", seen == [1, 2, 3] or what != ("daemon",) and seen == [1, None, None], world.api.told)
        world.check("no second server is started", len(world.started()) == 1, world.started())
        world.lives(0, "after the end of the host")
    scenario.__name__ = "print_mode_SIGKILL_of_" + "_and_".join(what)
    return scenario


def interactive(world):
    session = Session(world, added(world))
    session.ask("one")
    session.refresh()
    session.ask("two")
    world.counts([1], "one", "a first call")
    world.counts([2], "two", "after `/mcp refresh` the same server goes on")
    world.lives(1, "after `/mcp refresh`")
    for count, what in enumerate([("front",), ("front", "daemon"), ("daemon",)], 3):
        name = "-".join(what)
        world.kill(*what)
        if "front" in what:
            session.refresh()
        session.ask(name)
        world.counts([count], name, f"after SIGKILL of {' and '.join(what)}, and `/mcp refresh`, the same server goes on")
        world.lives(1, f"after SIGKILL of {' and '.join(what)}")
    session.send("/quit")
    world.lives(0, "after `/quit`")


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    env = added(world, *world.server())
    settings = world.home / ".gemini" / "settings.json"
    # Its own parser would take the option.
    settings.write_text(settings.read_text().replace(f'"{world.journal_path}"', f'"{world.journal_path}", "--stubborn"'))
    host = world.start([GEMINI, "--yolo", "-m", "gemini-2.5-pro", "-p", "STEPS: one count"], env=env)
    until(lambda: world.api.results("one"), 60)
    world.watch("the end of `-p`", host.wait, 5)
    world.describe()
    end(world)
    listing = world.start([GEMINI, "mcp", "list"], env=env)
    until(world.servers)
    world.watch("the end of `mcp list`", listing.wait, 5)
    end(world)
    session = Session(world, env)
    session.ask("two")
    world.watch("/mcp refresh", session.refresh, 10)
    os.kill(world.servers()[-1], signal.SIGKILL)
    time.sleep(1)
    world.watch("the next call after SIGKILL of the server", lambda: session.ask("three"), 5)
    print(f"  it was answered: {world.api.results('three')}, with {world.servers()}")
    session.refresh()
    world.watch("/quit", lambda: session.send("/quit"), 10)


def end(world):
    """Ends what the host has left behind."""
    for pid in world.servers():
        os.kill(pid, signal.SIGKILL)


def helping(world, command):
    """With a subagent that brings the counter as its own server, which this host has seen before: it asks about a new one."""
    env = environment(world)
    agents = world.project / ".gemini" / "agents"
    agents.mkdir(parents=True)
    server = json.dumps({"command": command[0], "args": command[1:], "trust": True})
    helper = agents / "helper.md"
    helper.write_text(f"---\nname: helper\ndescription: Counts.\nmcp_servers:\n  counter: {server}\n---\nYou count.\n")
    (world.home / ".gemini" / "acknowledgments").mkdir()
    known = {str(world.project): {"helper": hashlib.sha256(helper.read_bytes()).hexdigest()}}
    (world.home / ".gemini" / "acknowledgments" / "agents.json").write_text(json.dumps(known))
    return lambda steps: prompt(world, env, steps)


DELEGATING = ("agent", lambda asked: {"agent_name": "helper", "prompt": asked})
OVER_HTTP = over_http.Host(added_url, Session, deletes=False, renewed=(None, None))
SCENARIOS = [print_mode, killed("front"), killed("daemon"), killed("front", "daemon"), interactive, *over_http.scenarios(OVER_HTTP)]
OBSERVED = [observed, subagents.observed(helping, *DELEGATING, closes=False), over_http.observed(OVER_HTTP)]
