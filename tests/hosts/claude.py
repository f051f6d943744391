"""Claude Code: `claude -p`, and interactive under a pseudo-terminal. The API that is faked is Anthropic's Messages."""

import json

from harness import INSTALLED, Terminal, start_of, until

NAME, PACKAGE = "Claude Code", ("npm", "@anthropic-ai/claude-code", "2.1.330")
CLAUDE = INSTALLED / "claude" / "node_modules" / ".bin" / "claude"
KEY = "sk-ant-api03-a-key-that-only-the-fake-api-knows"


def environment(world):
    """Past the questions of a first start, and without any traffic but the model's."""
    (world.home / ".claude.json").write_text(json.dumps({
        "hasCompletedOnboarding": True, "lastOnboardingVersion": PACKAGE[2], "theme": "dark",
        "customApiKeyResponses": {"approved": [KEY[-20:]], "rejected": []},
        "projects": {str(world.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}}}))
    return world.environment(ANTHROPIC_BASE_URL=world.api.url, ANTHROPIC_API_KEY=KEY, DISABLE_AUTOUPDATER="1",
                             CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC="1", ENABLE_TOOL_SEARCH="false")


def added(world, *options):
    """After `claude mcp add`."""
    env = environment(world)
    code, said = world.finish([CLAUDE, "mcp", "add", "counter", *options, "--", *world.wrapped()], env=env)
    world.check("`claude mcp add NAME -- CMD` takes the wrapped command", code == 0, said)
    return env


def prompt(world, env, steps):
    """One `claude -p`."""
    return world.finish([CLAUDE, "-p", f"STEPS: {steps}", "--allowedTools", "mcp__counter__count"], env=env)


def print_mode(world):
    env = added(world)
    code, said = prompt(world, env, "one count count")
    world.check("`claude -p` exits 0 with the model's answer", code == 0 and "done one" in said, (code, said))
    world.counts([1, 2], "one", "two calls meet one server")
    world.lives(0, "after the end of the host")
    prompt(world, env, "two count")
    world.counts([1], "two", "another process is another host")
    world.lives(0, "after the end of the host")


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


def probe(world):
    env = added(world)
    t = Terminal(world, [CLAUDE, "--allowedTools", "mcp__counter__count"], env)
    print(t.shows("? for shortcuts", "nothere", seconds=8)); print(t.text())
    t.send("STEPS: a count"); print(t.shows("done a", seconds=8)); print(t.text())
    t.send("/mcp"); print(t.shows("nothere", seconds=2)); print(t.text())
    t.send(""); print(t.shows("nothere", seconds=2)); print(t.text())
    import os
    os.write(t.fd, b"\x1b"); t.shows("nothere", seconds=1); os.write(t.fd, b"\x1b"); t.shows("nothere", seconds=1)
    t.send("/mcp reconnect counter"); print(t.shows("nothere", seconds=3)); print(t.text())
    t.send("STEPS: b count"); print(t.shows("done b", seconds=8)); print(t.text())
    t.send("/clear"); print(t.shows("nothere", seconds=3)); print(t.text())
    t.send("STEPS: c count"); print(t.shows("done c", seconds=8)); print(t.text())
    t.send("/mcp reconnect counter"); print(t.shows("nothere", seconds=3)); print(t.text())
    t.send("STEPS: d count"); print(t.shows("done d", seconds=8)); print(t.text())
    print(world.api.told, world.started(), world.servers())
    t.send("/exit"); print(t.shows("nothere", seconds=3)); print(t.text())

SCENARIOS = [print_mode, killed("front"), killed("daemon"), killed("front", "daemon")]
OBSERVED = [probe]
