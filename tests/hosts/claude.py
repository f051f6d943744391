"""Claude Code: `claude -p`, and interactive under a pseudo-terminal. The API that is faked is Anthropic's Messages."""

import json
import os
import signal
import threading
import time

from drivers import Terminal
import entry_points
from harness import INSTALLED, PROGRAM, number, start_of, until
import over_http
import subagents

NAME, PACKAGE = "Claude Code", ("npm", "@anthropic-ai/claude-code", os.environ.get("CLAUDE_VERSION", "2.1.332"))
CLAUDE = INSTALLED / "claude" / "node_modules" / ".bin" / "claude"
KEY = "sk-ant-api03-a-key-that-only-the-fake-api-knows"


def environment(world, *projects):
    """Past the questions of a first start, in these projects, too, and without any traffic but the model's."""
    trusted = {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}
    (world.home / ".claude.json").write_text(json.dumps({
        "hasCompletedOnboarding": True, "lastOnboardingVersion": PACKAGE[2], "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(project): trusted for project in (world.project, *projects)}}))
    return world.environment(ANTHROPIC_BASE_URL=world.api.url, ANTHROPIC_API_KEY=KEY, DISABLE_AUTOUPDATER="1",
                             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", ENABLE_TOOL_SEARCH="false")


def added(world, *options, wrap=(), by=None):
    """After `claude mcp add`. `wrap` are options of ours, and `by` is another command of ours."""
    env = environment(world)
    code, said = world.finish([CLAUDE, "mcp", "add", "counter", *options, "--", *(by or world.wrapped(options=wrap))], env=env)
    world.check("`claude mcp add NAME -- CMD` takes the wrapped command", code == 0, said)
    return env


def added_url(world, url, token=None):
    """After `claude mcp add --transport http`."""
    env = environment(world)
    options = ["--header", f"Authorization: Bearer {token}"] if token else []
    code, said = world.finish([CLAUDE, "mcp", "add", "--transport", "http", "counter", url, *options], env=env)
    world.check("`claude mcp add --transport http NAME URL` takes the address", code == 0, said)
    return env


def prompt(world, env, steps, *allowed):
    """One `claude -p`, which holds its prompt until its servers have started: by default it asks the model without those that take longer."""
    env = {**env, "MCP_CONNECTION_NONBLOCKING": "0"}
    return world.finish([CLAUDE, "-p", f"STEPS: {steps}", "--allowedTools", "mcp__counter__count", *allowed], env=env)


def print_mode(world):
    env = added(world)
    code, said = prompt(world, env, "one count count")
    world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "two calls meet one server")
    world.lives(0, "after the end of the host")
    prompt(world, env, "two count")
    world.counts([1], "two", "another process is another host")
    world.lives(0, "after the end of the host")


def helps_itself(world):
    """A server hangs. The model has it restarted by a tool call, and the conversation goes on."""
    env = {**added(world), "MCP_TOOL_TIMEOUT": "5000"}
    code, said = world.finish([CLAUDE, "mcp", "add", "mcp-sessiond", "--", *world.program("mcp")], env=env)
    world.check("`claude mcp add mcp-sessiond -- mcp-sessiond mcp` takes the control server", code == 0, said)
    world.restarts_itself(lambda: prompt(world, env, "one count hang count list logs restart count", "mcp__mcp-sessiond"))


def lazy(world):
    """With `--lazy` a second launch starts the server at the first call."""
    env = added(world, wrap=["--lazy"])
    prompt(world, env, "one count")
    world.counts([1], "one", "the first launch starts the server with the host")
    world.lives(0, "after the end of the host")
    code, said = prompt(world, env, "two")
    world.check("a launch without a call starts no server", code == 0 and len(world.started()) == 1, (code, said, world.started()))
    world.api.hooks["kill"] = lambda: world.kill("front")
    prompt(world, env, "three count kill count")
    world.counts([1, 2], "three", "the server is started at the first call, and goes on after SIGKILL of the front")
    said = [one["message"].get("method") for one in world.journal("message") if one["pid"] == world.started()[-1]]
    # What the command does with a probe may be remembered by now.
    asked = [method for method in said if method != "server/discover"]
    begun = ["initialize", "notifications/initialized", "tools/call", "tools/list"]
    world.check("the host had its list from memory", asked[:4] == begun and len(world.started()) == 2, (said, world.started()))
    world.lives(0, "after the end of the host")


def lazy_start(world):
    """With `--lazy=start` a second launch does not wait for the server, which starts all the same."""
    env = added(world, wrap=["--lazy=start"])
    prompt(world, env, "one count")
    world.counts([1], "one", "the first launch starts the server with the host")
    world.lives(0, "after the end of the host")
    prompt(world, env, "two count count")
    world.counts([1, 2], "two", "the second launch's calls meet one server")
    world.check("one start for each launch", len(world.started()) == 2, world.started())
    world.lives(0, "after the end of the host")
    code, said = prompt(world, env, "three")
    world.check("a launch without a call has started its server, too", code == 0 and len(world.started()) == 3, (code, said, world.started()))
    world.lives(0, "after the end of the host")


def alone(world):
    """A server that speaks MCP 2026-07-28 alone."""
    env = environment(world)
    code, said = world.finish([CLAUDE, "mcp", "add", "counter", "--", *world.wrapped("--temper", "alone")], env=env)
    world.check("`claude mcp add NAME -- CMD` takes the wrapped command", code == 0, said)
    world.api.hooks["kill"] = lambda: world.kill("front")
    code, said = prompt(world, env, "one count count kill count")
    world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2, 3], "one", "the same server goes on after SIGKILL of the front")
    world.check("no second server is started", len(world.started()) == 1, world.started())


def killed(*what):
    """A scenario: `claude -p` calls, then something is killed, then it calls again."""
    def scenario(world):
        env = added(world)
        world.api.hooks["kill"] = lambda: world.kill(*what)
        code, said = prompt(world, env, "one count count kill count count")
        world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
        world.counts([1, 2, 3, 4], "one", "the same server goes on")
        world.check("no second server is started", len(world.started()) == 1, world.started())
        world.lives(0, "after the end of the host")
    scenario.__name__ = "print_mode_SIGKILL_of_" + "_and_".join(what)
    return scenario


def offered(world, prompt):
    """The tools that a model was offered with this prompt."""
    lines = (world.root / "api").read_text().splitlines() if (world.root / "api").exists() else []
    bodies = [json.loads(line)["body"] or {} for line in lines if f"STEPS: {prompt}" in line]
    return next((names for body in reversed(bodies) if (names := [tool["name"] for tool in body.get("tools", [])])), [])


class Session(Terminal):
    """An interactive session. `entry` is the server that it is ready with."""

    def __init__(self, world, env, entry="counter", tools="mcp__counter__count", more=()):
        super().__init__(world, [CLAUDE, "--allowedTools", tools, *more], env)
        self.world, self.entry = world, entry
        # It shows its prompt before its servers are there.
        world.check("it shows its prompt", self.shows("shift+tab to cycle", "? for shortcuts", seconds=60), self.text()[-300:])
        self.wait()
        self.rests()

    def wait(self):
        """Until it has the server's tools."""
        self.world.check("it has listed the server's tools", until(lambda: self.listed() > 0))

    def wait_for_offer(self):
        """The same where another host's list would be mistaken for this one's: until it offers the model a tool of the server's."""
        prompts = [f"ready-{self.pid}-{number}" for number in range(20)]
        offers = lambda prompt: (self.ask(prompt, ""), any(f"mcp__{self.entry}__" in tool for tool in offered(self.world, prompt)))[1]
        self.world.check("it offers the model the server's tools", any(map(offers, prompts)), offered(self.world, prompts[-1]))

    def listed(self):
        return sum(entry["message"].get("method") == "tools/list" for entry in self.world.journal("message"))

    def ask(self, name, steps="count"):
        """A prompt, until the model has said its last word."""
        self.send(f"STEPS: {name} {steps}")
        self.world.check(f"prompt {name} is answered", self.shows(f"done {name}", seconds=60), self.text()[-300:])

    def reconnect(self):
        """`/mcp reconnect`, which is what the menu of `/mcp` does."""
        self.send(f"/mcp reconnect {self.entry}")
        self.world.check("`/mcp reconnect` reconnects", self.shows(f"Reconnected to {self.entry}", seconds=60), self.text()[-300:])

    def end(self):
        """As its user ends it."""
        self.send("/exit")
        until(lambda: start_of(self.pid) is None)

    def clear(self):
        """Another conversation in the same process."""
        self.send("/clear")
        self.rests()


def interactive_reconnect(world):
    session = Session(world, added(world))
    session.ask("one")
    session.reconnect()
    session.ask("two")
    world.counts([1], "one", "a first call")
    world.counts([2], "two", "after `/mcp reconnect` the same server goes on")
    world.lives(1, "after `/mcp reconnect`")
    session.reconnect()
    session.reconnect()
    session.ask("three")
    world.counts([3], "three", "a call that was answered well begins the count of reconnects again: the same server goes on")
    for _ in range(3):
        session.reconnect()
    session.ask("four")
    world.counts([1], "four", "after three reconnects within a minute without a call in between the server is a fresh one")
    world.lives(1, "after the third reconnect in a row")
    session.send("/exit")
    world.lives(0, "after `/exit`")


def interactive_kills(world):
    """In the middle of a turn it starts a killed server again at the next call; between turns only when told to."""
    session, count = Session(world, added(world)), 0
    for what in [("front",), ("front", "daemon"), ("daemon",)]:
        world.api.hooks["kill"] = lambda: world.kill(*what)
        session.ask("turn-" + "-".join(what), "count kill count")
        world.counts([count + 1, count + 2], "turn-" + "-".join(what), f"SIGKILL of {' and '.join(what)} within a turn")
        count += 2
        if "front" in what:
            world.kill(*what)
            session.reconnect()
            session.ask("pause-" + "-".join(what))
            count += 1
            world.counts([count], "pause-" + "-".join(what), f"SIGKILL of {' and '.join(what)} between turns, `/mcp reconnect`")
        world.lives(1, f"after SIGKILL of {' and '.join(what)}")


def clear(world):
    session = Session(world, added(world))
    session.ask("one")
    session.clear()
    session.ask("two")
    world.counts([1], "one", "a first call")
    world.counts([2], "two", "`/clear` alone does not restart a server")
    session.reconnect()
    session.ask("three")
    world.counts([1], "three", "a reconnect after `/clear` serves another conversation: a fresh server")
    world.lives(1, "nobody can reach the former conversation's server: it is ended")
    world.api.hooks["kill"] = lambda: world.kill("front")
    session.ask("four", "kill count")
    world.counts([2], "four", "the new conversation's server goes on after SIGKILL of its front")
    world.kill("front")
    session.clear()
    session.ask("five")
    world.counts([1], "five", "`/clear` starts a killed server again, for another conversation: a fresh server")
    world.lives(1, "nobody can reach that conversation's server either")


def keeper_lost(world):
    session = Session(world, added(world))
    session.ask("one")
    world.kill("keeper")
    session.ask("two")
    session.ask("three")
    world.counts([1], "one", "a first call")
    world.check("after SIGKILL of the keeper a fresh server counts from 1", 1 in map(number, results(world, "two", "three")),
                results(world, "two", "three"))
    world.lives(1, "after SIGKILL of the keeper")


def two_hosts(world):
    env = added(world)
    first, second = Session(world, env), Session(world, env)
    first.ask("one", "count count")
    second.ask("two")
    world.kill("front")
    first.reconnect()
    second.reconnect()
    first.ask("three")
    second.ask("four")
    world.counts([1, 2], "one", "the first host's server")
    world.counts([1], "two", "the second host's server")
    world.counts([3], "three", "after SIGKILL of both fronts the first finds its own")
    world.counts([2], "four", "and the second its own")
    world.lives(2, "two hosts")


class Sharing(Session):
    """A session whose server other sessions use, too."""

    def wait(self):
        self.wait_for_offer()


def shared(world):
    """Two hosts and one shared entry: one server. Then one of the hosts is killed, and comes back."""
    # With `--all` this writes a file, too, whose entry is not shared.
    own = world.wrapped()
    command, *rest = world.server()
    entry = {"command": command, "args": rest, "shared": True}
    world.config_path.with_name("servers.json").write_text(json.dumps({"mcpServers": {"counter": entry}}))
    wrapped = own if "--all" in own else [*own[:own.index("wrap") + 1], "@counter"]
    env = environment(world)
    code, said = world.finish([CLAUDE, "mcp", "add", "counter", "--", *wrapped], env=env)
    world.check("`claude mcp add NAME -- CMD` takes the wrapped command", code == 0, said)
    first, second = Sharing(world, env), Sharing(world, env)
    first.ask("one")
    second.ask("two")
    first.ask("three")
    seen = [number(text) for text in results(world, "one", "two", "three")]
    world.check("both hosts use the same server: it counts 1, 2, 3", seen == [1, 2, 3], seen)
    world.check("it was started once", len(world.started()) == 1, world.started())
    os.kill(first.pid, signal.SIGKILL)
    until(lambda: start_of(first.pid) is None)
    second.ask("four")
    third = Sharing(world, env)
    third.ask("five")
    seen = [number(text) for text in results(world, "four", "five")]
    world.check("one host is killed and comes back: the count goes on, 4, 5", seen == [4, 5], seen)
    world.check("still from one start", len(world.started()) == 1, world.started())


def windows(world, command):
    """As many sessions as it takes, with this server."""
    env = added(world, by=command)

    def cut(*sessions):
        world.kill("front")
        for session in sessions:
            session.reconnect()
    return lambda: Sharing(world, env), cut


def two_conversations(world):
    """`/clear`, while a subagent of the former conversation still works: two conversations at once in one process. A server that this subagent has
    started again gets the new conversation's id, and is nevertheless not that one's."""
    def story(way, command):
        env, fronts = environment(world), []
        code, said = world.finish([CLAUDE, "mcp", "add", "--scope", "user", "counter", "--", *command], env=env)
        world.check("`claude mcp add` takes the command", code == 0, said)
        write_helper(world, command, "other")
        agent, steps = f"{way}-agent", "other meet other"
        world.api.calls |= {"other": ("other__count", {}), agent: (DELEGATING[0], DELEGATING[1](f"STEPS: {agent} {steps}"))}
        meets = threading.Event()
        world.api.hooks["meet"] = lambda: meets.wait(60)
        more = ("--permission-mode", "default")
        session = Session(world, env, tools="mcp__counter__count,mcp__other__count,Agent", more=more)
        session.ask(f"{way}-one", f"count {agent}")
        until(lambda: world.api.results(agent))
        of = world.servers if way == "direct" else lambda: world.ours("wrap")
        former = set(of())
        # The subagent's spinner never rests.
        session.send("/clear")
        time.sleep(2)
        session.reconnect()
        session.ask(f"{way}-two")
        fronts = [pid for pid in of() if pid in former]
        world.check(f"{way}: the subagent's server is still there, and the conversation has another", len(fronts) == 1 and len(of()) == 2, (former, of()))
        for pid in fronts:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(pid in of() for pid in fronts))
        meets.set()
        until(lambda: agent in world.api.done, 60)
        session.ask(f"{way}-three")
        session.end()
        return [[number(text) for text in world.api.results(name)] for name in (agent, f"{way}-two", f"{way}-three")]
    direct = story("direct", world.server())
    world.check("directly the subagent counts 1, and 1 after SIGKILL of its server", direct == [[1, 1], [1], [2]], direct)
    wrapped = story("wrapped", world.wrapped())
    world.check(f"wrapped they count as directly, {direct}", wrapped == direct, wrapped)
    world.lives(0, "after the end of the host")


def six_in_a_row(world):
    """`claude -p` six times, each as soon as the last one is gone, with a server that holds a lock and ignores the end of its input."""
    for way, command in (("directly", world.server), ("wrapped", world.wrapped)):
        env = environment(world)
        code, said = world.finish([CLAUDE, "mcp", "add", "counter", "--", *command("--lock", str(world.root / f"{way}.lock"))], env=env)
        world.check("`claude mcp add` takes the command", code == 0, said)
        already = len(world.started())
        for turn in range(6):
            prompt(world, env, f"{way}-{turn} count")
        started = world.started()[already:]
        initialised = [one["pid"] for one in world.journal("message") if one["message"].get("method") == "initialize"]
        out = [one["pid"] for one in world.journal("locked out")]
        world.check(f"{way} 6 of 6 have a server, and none is locked out", len(started) == 6 and set(started) <= set(initialised) and not out,
                    (started, initialised, out))
        counted = [number(text) for turn in range(6) for text in world.api.results(f"{way}-{turn}")]
        world.check(f"{way} each of them is called, and counts 1", counted == [1] * 6, counted)


def project_scope(world):
    """Some releases started a server of `.mcp.json` a second time at launch, and dropped the first after 15 s."""
    (world.project / ".claude").mkdir()
    (world.project / ".claude" / "settings.local.json").write_text('{"enableAllProjectMcpServers": true}')
    session = Session(world, added(world, "--scope", "project"))
    session.ask("one")
    time.sleep(25)
    session.ask("two")
    world.counts([1], "one", "a first call")
    world.counts([2], "two", "25 s later")
    world.lives(1, "25 s after launch")
    world.api.hooks["kill"] = lambda: world.kill("front")
    session.ask("three", "kill count")
    world.counts([3], "three", "after SIGKILL of the front the same server goes on")


def set_up(world):
    """`claude mcp add` without us, then `mcp-sessiond setup`: a server of the user's in one project."""
    env = {**environment(world), "MCP_SESSIOND_DIR": str(world.run), "MCP_SESSIOND_CONFIG": str(world.config_path)}
    code, said = world.finish([CLAUDE, "mcp", "add", "counter", "--", *world.server()], env=env)
    file = world.home / ".claude.json"
    before = file.read_bytes()
    world.check("`claude mcp add` writes to the user's file", code == 0 and b"counter" in before, said)
    code, said = world.finish([PROGRAM, "setup", "claude", "--yes"], env=env)
    world.check("`setup` wraps the server", code == 0 and f"counter ({world.project})" in said, (code, said))
    world.api.hooks["kill"] = lambda: world.kill("front")
    code, said = prompt(world, env, "one count kill count")
    world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "after SIGKILL of the front the same server goes on")
    world.lives(0, "after the end of the host")
    # Claude Code has written to its file meanwhile.
    code, said = world.finish([PROGRAM, "setup", "--undo", "--yes"], env=env)
    entry = lambda text: json.loads(text)["projects"][str(world.project)]["mcpServers"]["counter"]
    world.check("`setup --undo` gives the entry back", code == 0 and entry(file.read_bytes()) == entry(before), (code, said))


def helping(world, command):
    """With a subagent that brings the counter as its own server."""
    env = environment(world)
    write_helper(world, command, "counter")
    return lambda steps: world.finish([CLAUDE, "-p", f"STEPS: {steps}", "--allowedTools", "mcp__counter__count", "Agent"], env=env)


def write_helper(world, command, name):
    agents = world.project / ".claude" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    server = json.dumps({"type": "stdio", "command": command[0], "args": command[1:]})
    (agents / "helper.md").write_text(f"---\nname: helper\ndescription: Counts.\nmcpServers:\n  - {name}: {server}\n---\nYou count.\n")


DELEGATING = ("Agent", lambda prompt: {"description": "count", "subagent_type": "helper", "prompt": prompt})


def results(world, *prompts):
    return [text for prompt in prompts for text in world.api.results(prompt)]


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    env = environment(world)
    world.finish([CLAUDE, "mcp", "add", "counter", "--", *world.server("--stubborn")], env=env)
    prompt(world, env, "one count")
    world.describe()
    host = world.start([CLAUDE, "-p", "STEPS: two count", "--allowedTools", "mcp__counter__count"], env=env)
    until(world.servers)
    world.watch("the end of `-p`", host.wait)
    session = Session(world, env)
    session.ask("two")
    world.watch("/mcp reconnect", session.reconnect)
    session.ask("three")
    world.watch("SIGKILL of the server", lambda: (os.kill(world.servers()[-1], signal.SIGKILL), time.sleep(60)))
    world.watch("the next call after it", lambda: session.ask("four"))
    print(f"  it was answered: {world.api.results('four')}, with {world.servers()}")
    world.watch("/clear", session.clear, 5)
    session.ask("five")
    world.watch("/exit", lambda: session.send("/exit"))
    session = Session(world, env)
    world.watch("SIGKILL of the host", lambda: os.kill(session.pid, signal.SIGKILL))


OVER_HTTP = over_http.Host(added_url, Session, deletes=False, is_modern=True)
SCENARIOS = [print_mode, helps_itself, lazy, lazy_start, alone, killed("front"), killed("daemon"), killed("front", "daemon"), interactive_reconnect, interactive_kills,
             clear, keeper_lost, two_hosts, *entry_points.windows(windows), two_conversations, shared, six_in_a_row, project_scope, set_up,
             *subagents.scenarios(helping, *DELEGATING, too_soon=0.3), *over_http.scenarios(OVER_HTTP)]
OBSERVED = [observed, subagents.observed(helping, *DELEGATING), over_http.observed(OVER_HTTP)]
