"""The handshake of a session, which is stored with it, so that a new app can be initialised like the former
one.

`mcp-sessiond serve` and the adapters of other languages store the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from ..session import Session
from ..values import SessionView, as_json

METADATA_MAX = 65_536
STATE = "mcp.handshake"
"""The key of the session's state that has a handshake which is too large for the metadata."""
ASSUMED = "2025-03-26"


@dataclass(frozen=True)
class Handshake:
    """The parameters of the client's `initialize`, the app's result, and the version of MCP that it has
    chosen.
    """

    initialize: Any
    result: Any
    version: str

    @classmethod
    def new(cls, initialize: Any, result: Any) -> Handshake:
        """Out of both."""
        chosen = result.get("protocolVersion") if isinstance(result, dict) else None
        return cls(initialize, result, chosen if isinstance(chosen, str) else ASSUMED)

    def text(self) -> str:
        """As JSON."""
        return as_json({"initialize": self.initialize, "result": self.result, "version": self.version})

    def is_of(self, params: Any) -> bool:
        """Whether an `initialize` with these parameters is by the same client, and asks for the same version."""

        def named(of: Any) -> tuple[Any, Any]:
            info = of.get("clientInfo") if isinstance(of, dict) else None
            name = info.get("name") if isinstance(info, dict) else None
            return (of.get("protocolVersion") if isinstance(of, dict) else None), name

        return named(params) == named(self.initialize)

    @property
    def fits(self) -> bool:
        """Whether the metadata of a session has room for it."""
        return len(self.text().encode()) <= METADATA_MAX

    @classmethod
    async def of(cls, session: Session, view: SessionView) -> Handshake | None:
        """The handshake that is stored with a session."""
        stored = view.metadata or (await session.entry(STATE)).json
        try:
            said = json.loads(stored.text) if stored else None
            return cls(said["initialize"], said["result"], said["version"]) if said else None
        except (ValueError, KeyError, TypeError):
            return None


def outcome_unknown(id: object) -> dict[str, Any]:
    """What a call gets that the server has not answered."""
    message = "the server ended before it had answered: the outcome of this call is unknown"
    return _lost(id, message, "unknown")


def not_kept(id: object, bytes: int, limit: str) -> dict[str, Any]:
    """What a call gets whose answer can't be stored."""
    message = f"the call was carried out, but its answer of {bytes} bytes could not be stored: {limit}"
    return _lost(id, message, "not_kept")


def unreadable(id: object, why: str) -> dict[str, Any]:
    """What a call gets whose answer can't be read."""
    return _lost(id, f"{why}; the outcome of this call is unknown", "unknown")


def _lost(id: object, message: str, outcome: str) -> dict[str, Any]:
    return {
        "jsonrpc": "2.0",
        "id": id,
        "error": {"code": -32000, "message": message, "data": {"outcome": outcome}},
    }


def gap_notice(count: int) -> str:
    """What a client gets in the place of so many messages that were pruned."""
    data = f"{count} earlier messages of this stream were pruned, and are lost"
    params = {"level": "error", "logger": "mcp-sessiond", "data": data}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": params})
