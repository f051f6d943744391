"""opencode: `run`, and `serve`, whose HTTP interface disconnects and connects servers. The API that is faked is OpenAI's chat."""

import copy
import json
import os
import signal
import urllib.error
import urllib.request

from drivers import free_port
import over_http
from harness import INSTALLED, until

NAME, PACKAGE = "opencode", ("npm", "opencode-ai", "1.18.33")
OPENCODE = INSTALLED / "opencode" / "node_modules" / ".bin" / "opencode"


def environment(world, server=None):
    """With the fake API as its provider, and the counter in its file: `opencode mcp add` asks."""
    (world.project / "opencode.json").write_text(json.dumps({
        "autoupdate": False, "share": "disabled", "model": "fake/fake", "small_model": "fake/fake", "permission": "allow",
        "provider": {"fake": {"npm": "@ai-sdk/openai-compatible", "name": "fake",
                              "options": {"baseURL": f"{world.api.url}/v1", "apiKey": "a-key"},
                              "models": {"fake": {"name": "fake", "tool_call": True}}}},
        "mcp": {"counter": {"type": "local", "command": server or world.wrapped(), "enabled": True}}}))
    return world.environment(OPENCODE_DISABLE_AUTOUPDATE="1", OPENCODE_DISABLE_MODELS_FETCH="1", OPENCODE_DISABLE_LSP_DOWNLOAD="1")


def added_url(world, url, token=None):
    """After `opencode mcp add --url`."""
    env = environment(world)
    config = world.project / "opencode.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "mcp": {}}))
    options = ["--header", f"Authorization=Bearer {token}"] if token else []
    code, said = world.finish([OPENCODE, "mcp", "add", "counter", "--url", url, *options], env=env)
    world.check("`opencode mcp add NAME --url URL` takes the address", code == 0, said)
    return env


class Serve:
    """One `opencode serve`."""

    directory = None

    def at(self, directory):
        """The same process, asked about a directory."""
        same = copy.copy(self)
        same.directory = directory
        return same

    def __init__(self, world, env):
        self.world, port = world, free_port()
        self.url, log = f"http://127.0.0.1:{port}", world.root / f"serve-{port}.log"
        self.process = world.start([OPENCODE, "serve", "--port", port], log=f"serve-{port}", env=env)
        world.check("it listens", until(lambda: b"listening on" in log.read_bytes()), log.read_text()[-300:])

    def call(self, path, body=None, method="POST"):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.url + path + (f"?directory={self.directory}" if self.directory else ""), data, {"content-type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.loads(answer.read() or b"null")
        except (urllib.error.URLError, OSError, ValueError) as error:
            return str(error)

    def begin(self):
        session = self.call("/session")["id"]
        # A prompt does not wait for the servers.
        self.world.check("the counter is connected", until(lambda: self.state() == "connected"), self.call("/mcp", method="GET"))
        return session

    def ask(self, session, name, steps="count"):
        said = self.call(f"/session/{session}/message", {"parts": [{"type": "text", "text": f"STEPS: {name} {steps}"}]})
        self.world.check(f"prompt {name} is answered", f"done {name}" in json.dumps(said), str(said)[-300:])

    def state(self):
        return self.call("/mcp", method="GET")["counter"]["status"]

    def connect(self):
        said = self.call("/mcp/counter/connect")
        self.world.check("the counter is connected", until(lambda: self.state() == "connected"), (said, self.call("/mcp", method="GET")))

    def reconnect(self):
        self.call("/mcp/counter/disconnect")
        self.connect()


class Session:
    """An `opencode serve` with one session."""

    def __init__(self, world, env):
        self.host = Serve(world, env)
        self.id = self.host.begin()

    def ask(self, name, steps="count"):
        self.host.ask(self.id, name, steps)

    def end(self):
        self.host.process.terminate()
        self.host.process.wait()


def run_mode(world):
    env = environment(world)
    code, said = world.finish([OPENCODE, "run", "STEPS: one count count"], env=env)
    world.check("`opencode run` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "two calls meet one server")
    world.lives(0, "after the end of the host")
    code, said = world.finish([OPENCODE, "mcp", "list"], env=env)
    world.check("`opencode mcp list` finds the server", code == 0 and "connected" in said, (code, said))
    world.lives(0, "after `opencode mcp list`")


def run_mode_killed(*what):
    """It never starts a killed server again."""
    def scenario(world):
        world.api.hooks["kill"] = lambda: world.kill(*what)
        world.finish([OPENCODE, "run", "STEPS: one count kill count"], env=environment(world))
        world.counts([1, 2] if what == ("daemon",) else [1, None], "one", "as far as the host goes")
        world.check("no second server is started", len(world.started()) == 1, world.started())
        world.lives(0, "after the end of the host")
    scenario.__name__ = "run_mode_SIGKILL_of_" + "_and_".join(what)
    return scenario


def serve(world):
    host = Serve(world, environment(world))
    first, second = host.begin(), host.begin()
    host.ask(first, "one")
    host.ask(second, "two")
    world.counts([2], "two", "all sessions of a directory have one server, as without us")
    host.reconnect()
    host.ask(first, "three")
    world.counts([3], "three", "after a disconnect and a connect the same server goes on")
    for count, what in enumerate([("front",), ("front", "daemon"), ("daemon",)], 4):
        world.kill(*what)
        if "front" in what:
            host.reconnect()
        name = "-".join(what)
        host.ask(first, name)
        world.counts([count], name, f"after SIGKILL of {' and '.join(what)}, and a connect, the same server goes on")
        world.lives(1, f"after SIGKILL of {' and '.join(what)}")
    host.process.send_signal(signal.SIGKILL)
    world.lives(0, "after SIGKILL of the host")


def two_directories(world):
    """One process, two projects: the same command, in two directories."""
    env = environment(world)
    host = Serve(world, env)
    other = world.root / "other"
    other.mkdir()
    (other / "opencode.json").write_text((world.project / "opencode.json").read_text())
    here, there = host.at(world.project), host.at(other)
    a, b = here.begin(), there.begin()
    here.ask(a, "a1")
    there.ask(b, "b1", "count count")
    world.counts([1], "a1", "each project has its own server")
    world.counts([1, 2], "b1", "each project has its own server")
    world.lives(2, "two projects")
    world.kill("front")
    there.reconnect()
    here.reconnect()
    here.ask(a, "a2")
    there.ask(b, "b2")
    world.counts([2], "a2", "after SIGKILL of both fronts each project finds its own")
    world.counts([3], "b2", "after SIGKILL of both fronts each project finds its own")
    world.lives(2, "two projects")


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    env = environment(world, world.server("--stubborn"))
    host = Serve(world, env)
    session = host.begin()
    host.ask(session, "one")
    world.describe()
    world.watch("disconnect", lambda: host.call("/mcp/counter/disconnect"))
    host.connect()
    host.ask(session, "two")
    os.kill(world.servers()[-1], signal.SIGKILL)
    world.watch("the next call after SIGKILL of the server", lambda: host.ask(session, "three"), 5)
    print(f"  it was answered: {world.api.results('three')}, with {world.servers()}, {host.state()}")
    host.connect()
    world.watch("SIGTERM of the host", lambda: host.process.send_signal(signal.SIGTERM))
    run = world.start([OPENCODE, "run", "STEPS: four count"], env=env)
    until(lambda: "four" in world.api.told and world.api.results("four"))
    world.watch("the end of `run`", run.wait)


OVER_HTTP = over_http.Host(added_url, Session, deletes=False)
SCENARIOS = [run_mode, run_mode_killed("front"), run_mode_killed("daemon"), run_mode_killed("front", "daemon"), serve, two_directories, *over_http.scenarios(OVER_HTTP)]
OBSERVED = [observed, over_http.observed(OVER_HTTP)]
