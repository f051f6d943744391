"""Codex: `codex app-server`, one process with many threads, and `codex exec`. The API that is faked is OpenAI's Responses."""

import os
import signal

from drivers import Peer
import entry_points
import over_http
from harness import INSTALLED, number, until

NAME, PACKAGE = "Codex", ("npm", "@openai/codex", "0.171.0")
CODEX = INSTALLED / "codex" / "node_modules" / ".bin" / "codex"


def environment(world):
    """With the fake API as its provider."""
    (world.home / ".codex").mkdir()
    (world.home / ".codex" / "config.toml").write_text(f"""
model = "fake"
model_provider = "fake"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false
[model_providers.fake]
name = "fake"
base_url = "{world.api.url}/v1"
wire_api = "responses"
env_key = "FAKE_KEY"
[analytics]
enabled = false
[projects."{world.project}"]
trust_level = "trusted"
""")
    return world.environment(FAKE_KEY="a-key", CODEX_HOME=str(world.home / ".codex"))


def added(world, *server):
    """After `codex mcp add`."""
    env = environment(world)
    code, said = world.finish([CODEX, "mcp", "add", "counter", "--", *(server or world.wrapped())], env=env)
    world.check("`codex mcp add NAME -- CMD` takes the wrapped command", code == 0, said)
    return env


def added_url(world, url, token=None):
    """After `codex mcp add --url`. A token comes from a variable."""
    env = {**environment(world), **({"COUNTER_TOKEN": token} if token else {})}
    options = ["--bearer-token-env-var", "COUNTER_TOKEN"] if token else []
    code, said = world.finish([CODEX, "mcp", "add", "counter", "--url", url, *options], env=env)
    world.check("`codex mcp add NAME --url URL` takes the address", code == 0, said)
    return env


class AppServer(Peer):
    """One `codex app-server`."""

    def __init__(self, world, env):
        super().__init__(world, [CODEX, "app-server"], env)
        # The threads whose servers were not waited for yet.
        self.world, self.starting = world, set()
        self.on_request = lambda method, params: {"action": "accept", "decision": "approved", "content": {}}
        self.call("initialize", {"clientInfo": {"name": "tests", "title": "tests", "version": "1.0.0"}})
        self.write({"method": "initialized"})

    def begin(self, how="thread/start", **params):
        """A thread, new or resumed."""
        result = self.call(how, params or {"cwd": str(self.world.project)})
        self.world.check(f"{how} answers", result, result)
        self.starting.add(result["thread"]["id"])
        return result["thread"]["id"]

    def wait(self, thread):
        """Until a thread's server has started. On a busy machine a turn ends before that, and its model is offered no tool."""
        if thread in self.starting:
            self.starting.remove(thread)
            said = self.hears("mcpServer/startupStatus/updated", lambda params: params["threadId"] == thread and params["status"] != "starting")
            self.world.check("the thread's server has started", said and said["status"] == "ready", said)

    def ask(self, thread, name, steps="count"):
        """A turn, until it has ended."""
        self.wait(thread)
        text = {"type": "text", "text": f"STEPS: {name} {steps}", "text_elements": []}
        begun = self.call("turn/start", {"threadId": thread, "input": [text]})
        ended = self.hears("turn/completed", lambda params: params["threadId"] == thread)
        self.world.check(f"turn {name} ends", begun and ended, (begun, ended))


class Thread:
    """An app-server with one thread."""

    def __init__(self, world, env):
        self.app = AppServer(world, env)
        self.id = self.app.begin()

    def ask(self, name, steps="count"):
        self.app.ask(self.id, name, steps)

    def end(self):
        self.app.process.stdin.close()
        self.app.process.wait()


def threads_overlap(world):
    app = AppServer(world, added(world))
    a, b, c = (app.begin() for _ in range(3))
    for thread, name, steps in [(a, "a1", "count"), (b, "b1", "count count"), (c, "c1", "count"), (a, "a2", "count"), (b, "b2", "count")]:
        app.ask(thread, name, steps)
    for name, counts in {"a1": [1], "b1": [1, 2], "c1": [1], "a2": [2], "b2": [3]}.items():
        world.counts(counts, name, "each thread has its own count")
    world.lives(3, "three threads")
    app.call("thread/archive", {"threadId": b})
    world.lives(2, "an archived thread leaves no server behind")
    d = app.begin()
    app.ask(d, "d1")
    world.counts([1], "d1", "a new thread gets no archived one's count")
    app.call("thread/unarchive", {"threadId": b})
    app.begin("thread/resume", threadId=b)
    app.ask(b, "b3")
    world.counts([1], "b3", "a thread that is taken up again gets nobody's count")
    app.ask(a, "a3")
    app.ask(c, "c2")
    world.counts([3], "a3", "the others go on")
    world.counts([2], "c2", "the others go on")
    world.lives(4, "A, B, C and D")
    for thread in (a, b, c, d):
        app.call("thread/archive", {"threadId": thread})
    world.lives(0, "all threads are archived")


class Window:
    """A thread among others."""

    def __init__(self, app):
        self.app, self.id = app, app.begin()

    def ask(self, name, steps):
        self.app.ask(self.id, name, steps)

    def end(self):
        self.app.call("thread/archive", {"threadId": self.id})


def windows(world, command):
    """As many threads as it takes, with this server. Nothing brings back one that was cut: it never starts a killed server again."""
    app = AppServer(world, added(world, *command))
    return lambda: Window(app), lambda *windows: None


def threads_in_turn(world):
    """One after the other: the one free session of the key is another thread's."""
    app = AppServer(world, added(world))
    for name in ("a", "b", "c"):
        thread = app.begin()
        app.ask(thread, name, "count count")
        world.counts([1, 2], name, "a thread after another gets nobody's count")
        app.call("thread/archive", {"threadId": thread})
        world.lives(0, "the archived thread leaves no server behind")


def threads_begun_at_once(world):
    app = AppServer(world, added(world))
    archived = app.begin()
    app.ask(archived, "zero", "count count count")
    app.call("thread/archive", {"threadId": archived})
    a, b = app.begin(), app.begin()
    app.ask(a, "a")
    app.ask(b, "b")
    world.counts([1], "a", "two threads begun at once, after one was archived: the first is fresh")
    world.counts([1], "b", "so is the second")
    world.lives(2, "two threads")


def fork(world):
    app = AppServer(world, added(world))
    a = app.begin()
    app.ask(a, "a1", "count count")
    b = app.begin("thread/fork", threadId=a)
    app.ask(b, "b1")
    app.ask(a, "a2")
    world.counts([1], "b1", "a fork gets no count of the thread it was forked from")
    world.counts([3], "a2", "which goes on")
    world.lives(2, "a thread and its fork")


def reload(world):
    app = AppServer(world, added(world))
    a, b = app.begin(), app.begin()
    app.ask(a, "a1")
    app.ask(b, "b1", "count count")
    world.check("config/mcpServer/reload answers", app.call("config/mcpServer/reload") is not None)
    app.ask(a, "a2")
    app.ask(b, "b2")
    world.check("after a reload no thread gets another's count", [number(text) for name in ("a2", "b2") for text in world.api.results(name)]
                in ([2, 3], [1, 1]), world.api.told)
    world.lives(2, "after a reload")


def killed(*what):
    """It never starts a killed server again: the thread's calls fail, and nobody else's do."""
    def scenario(world):
        app = AppServer(world, added(world))
        a, b = app.begin(), app.begin()
        app.ask(a, "a1")
        app.ask(b, "b1", "count count")
        world.kill(*what)
        app.ask(a, "a2")
        app.ask(b, "b2")
        told = [[number(text) for text in world.api.results(name)] for name in ("a1", "b1", "a2", "b2")]
        world.check("no thread gets another's count", told[2] in ([2], [None]) and told[3] in ([3], [None]), world.api.told)
        if what == ("daemon",):
            world.check("SIGKILL of the daemon is not noticed", told == [[1], [1, 2], [2], [3]], world.api.told)
            world.lives(2, "the threads' servers go on")
        else:
            world.lives(0, "it starts no killed server again, so nobody can reach what is left: it is ended")
        c = app.begin()
        app.ask(c, "c1")
        world.counts([1], "c1", "a new thread gets nobody's count")
        app.process.send_signal(signal.SIGKILL)
        world.lives(0, "after SIGKILL of the host")
    scenario.__name__ = "SIGKILL_of_" + "_and_".join(what)
    return scenario


def exec_mode(world):
    env = added(world)
    code, said = world.finish([CODEX, "exec", "--skip-git-repo-check", "STEPS: one count count"], env=env)
    world.check("`codex exec` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "two calls meet one server")
    world.lives(0, "after the end of the host")


def helps_itself(world):
    """A server hangs. The model has it restarted by a tool call, and the conversation goes on."""
    env = added(world)
    code, said = world.finish([CODEX, "mcp", "add", "mcp-sessiond", "--", *world.program("mcp")], env=env)
    world.check("`codex mcp add mcp-sessiond -- mcp-sessiond mcp` takes the control server", code == 0, said)
    words = [CODEX, "exec", "--skip-git-repo-check", "-c", "mcp_servers.counter.tool_timeout_sec=5"]
    world.restarts_itself(lambda: world.finish([*words, "STEPS: one count hang count list logs restart count"], env=env))


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    app = AppServer(world, added(world, *world.server("--stubborn")))
    a = app.begin()
    app.ask(a, "a1")
    world.describe()
    world.watch("thread/archive", lambda: app.call("thread/archive", {"threadId": a}))
    b = app.begin()
    app.ask(b, "b1")
    world.watch("config/mcpServer/reload", lambda: app.call("config/mcpServer/reload"), 5)
    world.watch("the next call after it", lambda: app.ask(b, "b2"), 5)
    world.watch("thread/unsubscribe", lambda: app.call("thread/unsubscribe", {"threadId": b}), 90)
    app.begin("thread/resume", threadId=b)
    app.ask(b, "b3")
    os.kill(world.servers()[-1], signal.SIGKILL)
    world.watch("the next call after SIGKILL of the server", lambda: app.ask(b, "b4"), 5)
    print(f"  it was answered: {world.api.results('b4')}, with {world.servers()}")
    c = app.begin()
    app.ask(c, "c1")
    world.watch("thread/delete", lambda: app.call("thread/delete", {"threadId": c}))
    app.begin()
    until(world.servers)
    world.watch("end of input of app-server", lambda: app.process.stdin.close())
    app = AppServer(world, world.environment(FAKE_KEY="a-key", CODEX_HOME=str(world.home / ".codex")))
    app.begin()
    until(world.servers)
    world.watch("SIGKILL of app-server", app.process.kill, 10)


OVER_HTTP = over_http.Host(added_url, Thread, deletes=True)
SCENARIOS = [threads_overlap, *entry_points.windows(windows), threads_in_turn, threads_begun_at_once, fork, reload, killed("front"), killed("daemon"),
             killed("front", "daemon"), exec_mode, helps_itself, *over_http.scenarios(OVER_HTTP)]
OBSERVED = [observed, over_http.observed(OVER_HTTP)]
