"""Qwen Code: one prompt, and `--acp`. The API that is faked is OpenAI's chat completions."""

import json

import conversations
import prompts
import subagents
from harness import INSTALLED

NAME, PACKAGE = "Qwen Code", ("npm", "@qwen-code/qwen-code", "0.24.4")
QWEN = INSTALLED / "qwen" / "node_modules" / ".bin" / "qwen"


def configured(world, home, command):
    """Past the questions of a first start. What it is started with."""
    # The model is offered no tool of a server's, and calls it by its name.
    world.api.calls["count"] = ("tool_call", {"name": "mcp__counter__count", "arguments": {}})
    (home / ".qwen").mkdir()
    (home / ".qwen" / "settings.json").write_text(json.dumps({
        "security": {"auth": {"selectedType": "openai"}, "folderTrust": {"enabled": False}}, "privacy": {"usageStatisticsEnabled": False},
        "telemetry": {"enabled": False}, "general": {"enableAutoUpdate": False, "disableAutoUpdate": True},
        "mcpServers": {"counter": {"command": command[0], "args": command[1:], "trust": True}}}))
    return {**world.environment(OPENAI_API_KEY="a-key", OPENAI_BASE_URL=f"{world.api.url}/v1", OPENAI_MODEL="fake"), "HOME": str(home)}


def run(world, steps):
    env = configured(world, world.home, world.wrapped())
    return world.finish([QWEN, "--yolo", "-p", f"STEPS: {steps}"], env=env)


def helping(world, command):
    """With a subagent that brings the counter as its own server."""
    home = world.home / f"helping-{len(list(world.home.iterdir()))}"
    home.mkdir()
    env = configured(world, home, command)
    world.api.calls["count"] = ("count", {})
    settings = home / ".qwen" / "settings.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "mcpServers": {}}))
    agents = world.project / ".qwen" / "agents"
    agents.mkdir(parents=True, exist_ok=True)
    server = json.dumps({"command": command[0], "args": command[1:], "trust": True})
    (agents / "helper.md").write_text(f"---\nname: helper\ndescription: Counts.\nmcpServers:\n  counter: {server}\n---\nYou count.\n")
    return lambda steps: world.finish([QWEN, "--yolo", "-p", f"STEPS: {steps}"], env=env)


# In the background, which is the default, it closes them at its own end.
DELEGATING = ("agent", lambda prompt: {"description": "count", "subagent_type": "helper", "prompt": prompt, "run_in_background": False})


class Acp(conversations.Acp):
    """One `qwen --acp`, which has one server for all its sessions."""

    is_steady, closes = False, False

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        self.speak([QWEN, "--yolo", "--acp"], configured(world, self.home, self.command))


# It starts a killed server again within a turn, and that is resumed, so not every front has a server of its own.
STORIES = [conversations.one_after_the_other, conversations.without_pause, conversations.at_once, conversations.daemon_killed]
SCENARIOS = [*prompts.scenarios(run, restarts=True), *conversations.scenarios(Acp, STORIES), *subagents.scenarios(helping, *DELEGATING, gaps=(1.5,), at_once=False)]
OBSERVED = [subagents.observed(helping, *DELEGATING)]
