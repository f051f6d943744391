"""Cline's command line and its hub, a background process that serves every conversation. The API that is faked is OpenAI's chat
completions."""

import json
import os
import signal

import conversations
from harness import INSTALLED, processes, until

NAME, PACKAGE = "Cline CLI", ("npm", "cline", "3.0.65")
CLINE = INSTALLED / "cline" / "node_modules" / ".bin" / "cline"


class Hub(conversations.Host):
    """A user's hub."""

    def __init__(self, world, way, command):
        super().__init__(world, way, command)
        self.env = {**world.environment(), "HOME": str(self.home)}
        options = ["-p", "openai", "-k", "a-key", "-b", f"{world.api.url}/v1", "-m", "fake"]
        code, said = world.finish([CLINE, "auth", *options], env=self.env)
        world.check("`cline auth` takes the fake API", code == 0, said)
        file = self.home / ".cline" / "data" / "settings" / "cline_mcp_settings.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        # The hub is started with the first prompt. A later one is handed to it within 5 s, or is not.
        code, said = world.finish([CLINE, "Say hello"], env=self.env)
        world.check("`cline` starts its hub", code == 0 and "ok" in said, (code, said))
        file.write_text(json.dumps({"mcpServers": {"counter": {"command": self.command[0], "args": self.command[1:]}}}))

    def converse(self, name, steps):
        """With `--zen` the command ends before the conversation, which goes on in the hub."""
        code, _ = self.world.finish([CLINE, "--zen", f"STEPS: {name} {steps}"], env=self.env, log=name)
        said = (self.world.root / f"{name}.log").read_text()[-300:]
        # A hub that is slow to say that it has the prompt has it all the same.
        late = "timed out waiting for hub to acknowledge" in said
        self.world.check("`cline --zen` hands the conversation to the hub", code == 0 or late, (code, said))
        until(lambda: name in self.world.api.done, 90)

    def end(self):
        mark = f"HOME={self.home}"
        for pid, arguments, environment in processes():
            if mark in environment and "--cline-hub-daemon" in arguments:
                os.kill(pid, signal.SIGKILL)
        until(lambda: not any(mark in environment for _, _, environment in processes()))


SCENARIOS = conversations.scenarios(Hub)
OBSERVED = []
