"""LangChain's `MultiServerMCPClient` in a web backend with two users: `langchain_client.py`."""

import users

NAME, PACKAGE = "LangChain MultiServerMCPClient", ("pip", "langchain-mcp-adapters", "0.3.2")
SCENARIOS = users.scenarios("langchain")
OBSERVED = []
