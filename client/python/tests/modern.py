"""A client of MCP 2026-07-28 that speaks HTTP itself, so that a test sees every status, header and result."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from typing import Any

from raw import Raw

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
_META = "io.modelcontextprotocol/"
_NAMES = {"tools/call": "name", "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}


class Modern(Raw):
    def __init__(self, port: int, token: str | None = None) -> None:
        super().__init__(port, token, VERSION)
        self.capabilities: dict[str, Any] = {"elicitation": {"form": {}}, "extensions": {TASKS: {}}}

    def said(self, method: str, **params: Any) -> Any:
        """The answer to a request, with its status of HTTP."""
        message, headers = self.written(method, params)
        response = self.send("POST", message, **headers)
        try:
            kind = response.header("content-type") or ""
            answer = response.answer() if "event-stream" in kind else response.json() or {}
            return {**answer, "status": response.status}
        finally:
            response.close()

    def hang_up(self, begun: Callable[[], object], method: str, **params: Any) -> None:
        """Sends a request, waits for what it begins, and closes the connection."""
        message, headers = self.written(method, params)
        headers["Accept"] = "application/json, text/event-stream"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        connection.request("POST", "/mcp", json.dumps(message), {**named, "Content-Type": "application/json"})
        begun()
        connection.close()

    def written(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        """A request with its headers."""
        meta = {
            f"{_META}protocolVersion": VERSION,
            f"{_META}clientInfo": {"name": "modern", "version": "1"},
            f"{_META}clientCapabilities": self.capabilities,
        }
        headers = {"MCP_Protocol_Version": VERSION, "Mcp_Method": method}
        if method in _NAMES:
            headers["Mcp_Name"] = str(params[_NAMES[method]])
        return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}, headers

    def call(self, tool: str, **arguments: Any) -> Any:
        """What a tool answers."""
        return self.said("tools/call", name=tool, arguments=arguments)

    def task(self, tool: str, **arguments: Any) -> str:
        """The id of the task that a call goes on as."""
        result = self.call(tool, **arguments)["result"]
        assert result["resultType"] == "task", result
        return str(result["taskId"])

    def get(self, task: str) -> Any:
        """The task as it is now."""
        return self.said("tasks/get", taskId=task)["result"]

    def until(self, task: str, *statuses: str) -> Any:
        """The task once it has one of these statuses."""
        while (now := self.get(task))["status"] not in statuses:
            assert now["status"] in ("working", "input_required"), now
        return now
