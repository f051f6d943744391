"""Mistral Vibe as `vibe-acp`, one process that serves every session of an editor. The API that is faked is OpenAI's chat completions."""

import json

import conversations
from harness import INSTALLED

# What it pins of certifi went from PyPI.
NAME, PACKAGE = "Mistral Vibe", ("uv3.12", "mistral-vibe", "3.0.3", "certifi", "2026.10.19.post1")
VIBE = INSTALLED / "vibe" / "bin" / "vibe-acp"


class Vibe(conversations.Acp):
    """One `vibe-acp`. It means to keep a server as long as a session uses it, and to share it among sessions that are open at the same
    time; now and then it keeps one for good, directly as well."""

    is_steady = False

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        (self.home / ".vibe").mkdir()
        # The model is offered no tool of a server's: it writes a program that calls them.
        program = "async function main() { return await tools.mcp_counter.count({}); }"
        world.api.calls["count"] = ("run_typescript", {"code": program})
        (self.home / ".vibe" / "config.toml").write_text(f"""
active_model = "fake"
enable_telemetry = false
enable_update_checks = false
[[providers]]
name = "fake"
api_base = "{world.api.url}/v1"
api_key_env_var = "FAKE_KEY"
[[models]]
name = "fake"
provider = "fake"
alias = "fake"
[[mcp_servers]]
name = "counter"
transport = "stdio"
command = "{self.command[0]}"
args = {json.dumps(self.command[1:])}
[tools.counter_count]
permission = "always"
""")
        self.speak([VIBE], world.environment(FAKE_KEY="a-key"))


SCENARIOS = conversations.scenarios(Vibe)
OBSERVED = []
