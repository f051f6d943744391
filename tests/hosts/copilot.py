"""GitHub's Copilot CLI, offline: `copilot -p`, and `--acp`. The API that is faked is OpenAI's chat completions."""

import json

import conversations
import prompts
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


class Acp(conversations.Acp):
    """One `copilot --acp`, which has a server for each session, and tells it the session's id."""

    is_steady, closes = False, False

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        self.speak([COPILOT, "--allow-all-tools", "--acp"], configured(world, self.home, self.command))


SCENARIOS = [*prompts.scenarios(run, restarts=False), *conversations.scenarios(Acp)]
OBSERVED = []
