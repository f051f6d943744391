"""A client that speaks HTTP itself, so that a test sees every status, header and event."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

VERSION = "2025-11-25"


class Response:
    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response
        self.status = response.status

    def header(self, name: str) -> str | None:
        return self._response.getheader(name)

    def json(self) -> Any:
        return json.loads(self._response.read() or b"null")

    def events(self) -> Iterator[tuple[str | None, str]]:
        """Id and data of each event, until the stream ends."""
        id, data = None, None
        for line in self._response:
            text = line.decode().rstrip("\r\n")
            if text.startswith("id: "):
                id = text[4:]
            elif text.startswith("data:"):
                data = text[5:].strip()
            elif not text and data is not None:
                yield id, data
                id, data = None, None

    def messages(self) -> Iterator[tuple[str | None, Any]]:
        """Id and message of each event that has one."""
        return ((id, json.loads(data)) for id, data in self.events() if data)

    def answer(self) -> Any:
        """The answer in it."""
        return next(message for _, message in self.messages() if "method" not in message)

    def close(self) -> None:
        self._response.close()
        self._connection.close()


class Raw:
    def __init__(self, port: int, token: str | None = None, version: str = VERSION) -> None:
        self.port, self.token, self.version = port, token, version
        self.session: str | None = None

    def send(self, method: str, message: object = None, **headers: str) -> Response:
        told = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        if self.session:
            told |= {"Mcp-Session-Id": self.session, "MCP-Protocol-Version": self.version}
        if self.token:
            told["Authorization"] = f"Bearer {self.token}"
        told |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        connection.request(method, "/mcp", None if message is None else json.dumps(message), told)
        return Response(connection, connection.getresponse())

    def request(self, id: object, method: str, **params: Any) -> Response:
        return self.send("POST", {"jsonrpc": "2.0", "id": id, "method": method, "params": params})

    def tool(self, id: object, name: str, **arguments: Any) -> Response:
        meta = {"progressToken": f"p{id}"}
        return self.request(id, "tools/call", name=name, arguments=arguments, _meta=meta)

    def initialize(self) -> Response:
        info = {"name": "raw", "version": "1"}
        params = {"protocolVersion": self.version, "capabilities": {"roots": {}}, "clientInfo": info}
        response = self.request(0, "initialize", **params)
        if response.status == 200:
            self.session = response.header("mcp-session-id")
            self.send("POST", {"jsonrpc": "2.0", "method": "notifications/initialized"})
        return response
