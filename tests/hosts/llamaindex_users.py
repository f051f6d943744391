"""LlamaIndex's `BasicMCPClient` in a web backend with two users: `llamaindex_client.py`."""

import users

NAME, PACKAGE = "LlamaIndex BasicMCPClient", ("pip", "llama-index-tools-mcp", "0.6.0")
SCENARIOS = users.scenarios("llamaindex")
OBSERVED = []
