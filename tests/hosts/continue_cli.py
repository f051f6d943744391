"""Continue's command line: `cn -p`. The API that is faked is OpenAI's chat completions."""

import json

import prompts
from harness import INSTALLED

NAME, PACKAGE = "Continue CLI", ("npm", "@continuedev/cli", "1.5.47")
CONTINUE = INSTALLED / "continue_cli" / "node_modules" / ".bin" / "cn"


def run(world, steps):
    command, *rest = world.wrapped()
    config = world.home / "config.yaml"
    # JSON is YAML, too.
    config.write_text(json.dumps({
        "name": "tests", "version": "1.0.0", "schema": "v1",
        "models": [{"name": "fake", "provider": "openai", "model": "fake", "apiKey": "a-key", "apiBase": f"{world.api.url}/v1",
                    "roles": ["chat"], "capabilities": ["tool_use"]}],
        "mcpServers": [{"name": "counter", "type": "stdio", "command": command, "args": rest}]}))
    env = world.environment(CONTINUE_TELEMETRY_ENABLED="0", CONTINUE_GLOBAL_DIR=str(world.home / ".continue"))
    return world.finish([CONTINUE, "--config", config, "--auto", "-p", f"STEPS: {steps}"], env=env)


SCENARIOS = prompts.scenarios(run, restarts=False)
OBSERVED = []
