"""The ids that apps inside `durable` give their sessions. They are new after each restore, and differ between workers."""

from __future__ import annotations

_sessions: dict[str, str] = {}


def add(inner: str, session: str) -> None:
    """An app knows this session by its own id."""
    _sessions[inner] = session


def remove(inner: str) -> None:
    """The app has forgotten it."""
    _sessions.pop(inner, None)


def stable_key(key: str) -> str:
    """A key that begins with an app's id of a session and a colon, with the session's own id: FastMCP makes keys of
    `ctx.set_state` like that. Any other stays.
    """
    inner, colon, rest = key.partition(":")
    session = _sessions.get(inner)
    return f"{session}:{rest}" if colon and session else key
