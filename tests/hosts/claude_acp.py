"""Claude Code in an editor: `@agentclientprotocol/claude-agent-acp`, whose sessions are a process of Claude Code each."""

import json

import claude
import conversations
from entry_points import OWNERS, command, ended
from harness import INSTALLED

NAME, PACKAGE = "claude-agent-acp", ("npm", "@agentclientprotocol/claude-agent-acp", "0.101.0")
ADAPTER = INSTALLED / "claude_acp" / "node_modules" / ".bin" / "claude-agent-acp"


class Acp(conversations.Acp):
    """One adapter."""

    is_steady, closes = False, True

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        env = claude.environment(world)
        settings = json.loads((world.home / ".claude.json").read_text())
        server = {"type": "stdio", "command": self.command[0], "args": self.command[1:]}
        (self.home / ".claude.json").write_text(json.dumps({**settings, "mcpServers": {"counter": server}}))
        # Its default asks a model of its own about each call.
        (self.home / ".claude").mkdir()
        allowed = {"permissions": {"allow": ["mcp__counter__count"], "defaultMode": "default"}}
        (self.home / ".claude" / "settings.json").write_text(json.dumps(allowed))
        self.speak([ADAPTER], env)

    def wait_until_ready(self, session, name):
        for number in range(20):
            prompt = f"ready-{name}-{number}"
            self.prompt(session, prompt, "")
            if "mcp__counter__count" in claude.offered(self.world, prompt):
                return


def two_windows(entry):
    """Two sessions of an editor at the same time, and one after them."""
    def scenario(world):
        host = Acp(world, "wrapped", command(world, entry))
        left, right, after = conversations.at_once(host)
        if OWNERS[entry] == "all":
            world.check(f"{entry}: two sessions have one server", sorted(left + right) == [1, 2, 3, 4], (left, right))
            world.check(f"{entry}: so has the session after them", after == [5], after)
        else:
            world.check(f"{entry}: each of two sessions has a server, and counts as directly", left == right == [1, 2], (left, right))
            world.check(f"{entry}: the session after them has one of its own{', or that of the name' if entry == 'name' else ''}",
                        after in ([1], [3]) if entry == "name" else after == [1], after)
        host.end()
        ended(world, entry)
    scenario.__name__ = f"two_windows_{entry}"
    return scenario


SCENARIOS = [*conversations.scenarios(Acp, [conversations.one_after_the_other, conversations.at_once, conversations.daemon_killed]), *map(two_windows, OWNERS)]
OBSERVED = []
