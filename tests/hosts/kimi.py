"""Kimi Code: one prompt, and `kimi acp`. The API that is faked is OpenAI's chat completions."""

import json
import os
import signal
import time

import conversations
import prompts
from harness import INSTALLED, until

NAME, PACKAGE = "Kimi Code", ("npm", "@moonshot-ai/kimi-code", "2.1.0")
KIMI = INSTALLED / "kimi" / "node_modules" / ".bin" / "kimi"


def configured(world, home, command):
    """What it is started with. The file is its own."""
    (home / ".kimi-code").mkdir()
    (home / ".kimi-code" / "mcp.json").write_text(json.dumps({"mcpServers": {"counter": {"command": command[0], "args": command[1:]}}}))
    return {**world.environment(KIMI_MODEL_NAME="fake", KIMI_MODEL_API_KEY="a-key", KIMI_MODEL_PROVIDER_TYPE="openai",
                                KIMI_MODEL_BASE_URL=f"{world.api.url}/v1", KIMI_DISABLE_TELEMETRY="1", KIMI_CODE_NO_AUTO_UPDATE="1"),
            "HOME": str(home)}


def run(world, steps):
    env = configured(world, world.home, world.wrapped())
    return world.finish([KIMI, "-p", f"STEPS: {steps}"], env=env)


class Acp(conversations.Acp):
    """One `kimi acp`, which has one server for all sessions of a directory."""

    is_steady, closes = False, False

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        self.speak([KIMI, "acp"], configured(world, self.home, self.command))


def observed(world):
    """What it does to a server that is not wrapped and ends by no signal but SIGKILL."""
    env = configured(world, world.home, world.server("--stubborn"))
    host = world.start([KIMI, "-p", "STEPS: one count kill count count"], env=env)
    world.api.hooks["kill"] = lambda: (os.kill(world.servers()[-1], signal.SIGKILL), time.sleep(1))
    until(lambda: len(world.api.results("one")) > 2 or host.poll() is not None, 60)
    world.describe()
    print(f"  it was answered: {world.api.results('one')}, with {world.servers()}")
    world.watch("the end of `-p`", host.wait, 10)


# It starts a killed server again within a turn, and that is resumed, so not every front has a server of its own.
STORIES = [conversations.one_after_the_other, conversations.without_pause, conversations.at_once, conversations.daemon_killed]
SCENARIOS = [*prompts.scenarios(run, restarts=True), *conversations.scenarios(Acp, STORIES)]
OBSERVED = [observed]
