"""GitHub's Copilot CLI, offline: `copilot -p`, and `--acp`. The API that is faked is OpenAI's chat completions."""

import json

import conversations
import prompts
import subagents
from harness import INSTALLED

NAME, PACKAGE = "Copilot CLI", ("npm", "@github/copilot", "1.0.102")
COPILOT = INSTALLED / "copilot" / "node_modules" / ".bin" / "copilot"


def configured(world, home, command):
    """What it is started with. The file is its own."""
    (home / ".copilot").mkdir()
    (home / ".copilot" / "mcp-config.json").write_text(json.dumps({
        "mcpServers": {"counter": {"type": "local", "command": command[0], "args": command[1:], "tools": ["*"]}}}))
    return {**world.environment(COPILOT_OFFLINE="true", COPILOT_PROVIDER_BASE_URL=f"{world.api.url}/v1", COPILOT_PROVIDER_API_KEY="a-key",
                                COPILOT_MODEL="fake", COPILOT_AUTO_UPDATE="false"), "HOME": str(home)}


def run(world, steps):
    env = configured(world, world.home, world.wrapped())
    return world.finish([COPILOT, "--allow-all-tools", "-p", f"STEPS: {steps}"], env=env)


def helping(world, command):
    """With a subagent that brings the counter as its own server."""
    home = world.home / f"helping-{len(list(world.home.iterdir()))}"
    home.mkdir()
    env = configured(world, home, command)
    (home / ".copilot" / "mcp-config.json").write_text('{"mcpServers": {}}')
    (home / ".copilot" / "agents").mkdir()
    server = json.dumps({"type": "local", "command": command[0], "args": command[1:], "tools": ["*"]})
    (home / ".copilot" / "agents" / "helper.agent.md").write_text(
        f'---\nname: helper\ndescription: Counts.\ntools: ["*"]\nmcp-servers:\n  counter: {server}\n---\nYou count.\n')
    return lambda steps: world.finish([COPILOT, "--allow-all-tools", "-p", f"STEPS: {steps}"], env=env)


DELEGATING = ("task", lambda prompt: {"name": "count", "mode": "sync", "description": "count", "agent_type": "helper", "prompt": prompt})


class Acp(conversations.Acp):
    """One `copilot --acp`, which has a server for each session, and tells it the session's id."""

    is_steady, closes = False, False

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        self.speak([COPILOT, "--allow-all-tools", "--acp"], configured(world, self.home, self.command))


SCENARIOS = [*prompts.scenarios(run, restarts=False), *conversations.scenarios(Acp),
             *subagents.scenarios(helping, *DELEGATING, gaps=(1.5,), closes=False, at_once=False)]
OBSERVED = [subagents.observed(helping, *DELEGATING)]
