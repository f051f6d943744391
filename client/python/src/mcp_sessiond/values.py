"""What calls take and give. Messages, values and tokens are never shown by `repr`."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from .errors import NotJson

Raw = Mapping[str, Any]
"""An answer, as the daemon has written it: 64-bit numbers are text."""


class Json:
    """JSON as text, which is stored and comes back byte for byte. Where a call takes any value, it takes
    this too.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return f"Json({len(self.text)} characters)"

    def value(self) -> Any:
        """What it stands for."""
        return json.loads(self.text)


def as_json(value: object) -> str:
    """A value as JSON text. Raises `NotJson`."""
    if isinstance(value, Json):
        return value.text
    try:
        return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise NotJson(f"a value of type {type(value).__name__} can't be written as JSON") from None


def request_id() -> str:
    """A new idempotency key: by it the daemon knows a call that is repeated."""
    return secrets.token_hex(16)


@dataclass(frozen=True)
class Identity:
    """A caller that is known by the `iss` and `sub` of its token (RFC 9068)."""

    iss: str
    sub: str

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        return {"kind": "identity", "iss": self.iss, "sub": self.sub}


@dataclass(frozen=True)
class Credential:
    """A caller that is known by the hash of its credential. The credential itself never leaves this
    process.
    """

    hash: str = field(repr=False)

    @classmethod
    def of(cls, credential: bytes | str) -> Credential:
        """The caller that has this credential."""
        given = credential.encode() if isinstance(credential, str) else credential
        return cls(hashlib.sha256(given).hexdigest())

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        return {"kind": "credential", "hash": self.hash}


Caller = Identity | Credential


@dataclass(frozen=True)
class Lifetimes:
    """How long a session lives, in ms: after the last activity, after it was made, after its last client
    has gone.

    None: as configured, or as it was. 0: without an end.
    """

    idle_ms: int | None = None
    absolute_ms: int | None = None
    grace_ms: int | None = None

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        given = {"idle_ms": self.idle_ms, "absolute_ms": self.absolute_ms, "grace_ms": self.grace_ms}
        return {name: str(value) for name, value in given.items() if value is not None}


Settable = Literal["initializing", "ready"]
"""A status that a session may be given without more to say."""


@dataclass(frozen=True)
class Part:
    """A part of a session, such as one of several backends.

    ``code`` and ``message`` say why one has failed: the first in a word, the second for people. ``since_ms``, in
    ms since the Unix epoch: since when it is so; of one that is ready, when it was initialised.
    """

    part: str
    status: Literal["initializing", "ready", "failed", "not_tried"]
    code: str | None = None
    message: str | None = None
    since_ms: int | None = None


@dataclass(frozen=True)
class Ready:
    """The status of a session that can be worked with, though perhaps not with all of its parts."""

    parts: Sequence[Part]


@dataclass(frozen=True)
class Failed:
    """The status of a session that can't be worked with, and how its parts are."""

    parts: Sequence[Part]


def status_wire(status: Settable | Ready | Failed) -> dict[str, Any]:
    """A status, as the daemon reads it."""
    if isinstance(status, str):
        return {"is": status}
    return {
        "is": "ready" if isinstance(status, Ready) else "failed",
        "parts": [_part_wire(part) for part in status.parts],
    }


def _part_wire(part: Part) -> dict[str, Any]:
    since = None if part.since_ms is None else str(part.since_ms)
    fields = {"part": part.part, "is": part.status, "since_ms": since, "code": part.code, "message": part.message}
    return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class SessionView:
    """A session as it is now. Times are in ms since the Unix epoch, sizes in bytes."""

    id: str
    service: str | None
    label: str | None
    status: str
    """`initializing`, `ready`, `failed` or `terminated`."""
    metadata: Json | None
    """Absent from lists."""
    bound: bool
    created_ms: int
    active_ms: int
    expires_ms: int | None
    attached: int
    last_number: int
    state_keys: int
    state_bytes: int
    streams: int
    events: int
    event_bytes: int

    @classmethod
    def read(cls, raw: Raw) -> SessionView:
        """Out of the daemon's answer."""
        metadata, expires = raw.get("metadata"), raw.get("expires_ms")
        numbers = {name: int(raw[name]) for name in _NUMBERS}
        return cls(
            id=raw["session"],
            service=raw.get("service"),
            label=raw.get("label"),
            status=raw["status"]["is"],
            metadata=None if metadata is None else Json(metadata),
            bound=raw["bound"],
            expires_ms=None if expires is None else int(expires),
            **numbers,
        )


_NUMBERS = (
    "created_ms",
    "active_ms",
    "attached",
    "last_number",
    "state_keys",
    "state_bytes",
    "streams",
    "events",
    "event_bytes",
)


@dataclass(frozen=True)
class Minted:
    """A handle, which is told this once, and when it expires in ms since the Unix epoch."""

    handle: str = field(repr=False)
    expires_ms: int


@dataclass(frozen=True)
class Secret:
    """A secret of a service's: 256 random bits each. What is made now is made with `current`; what was made
    with one of `former` still counts.
    """

    current: bytes = field(repr=False)
    former: Sequence[bytes] = field(repr=False)


@dataclass(frozen=True)
class StateEntry:
    """A key of a session's state. Version 0: it has no value."""

    key: str
    version: int
    json: Json | None

    @property
    def value(self) -> Any:
        """The value; None where there is none."""
        return None if self.json is None else self.json.value()

    @classmethod
    def read(cls, raw: Raw) -> StateEntry:
        """Out of the daemon's answer."""
        value = raw.get("value")
        return cls(raw["key"], int(raw["version"]), None if value is None else Json(value))


@dataclass(frozen=True)
class StateKey:
    """A key that has a value, of so many bytes."""

    key: str
    version: int
    bytes: int
    expires_ms: int | None = None
    """When the value goes by itself, in ms since the Unix epoch; None: it does not."""

    @classmethod
    def read(cls, raw: Raw) -> StateKey:
        """Out of the daemon's answer."""
        expires = raw.get("expires_ms")
        return cls(
            raw["key"], int(raw["version"]), int(raw["bytes"]), None if expires is None else int(expires)
        )


@dataclass(frozen=True)
class Write:
    """One of several writes. Without `value` the key is removed; with `expected` only at that version, 0:
    only if it has none; with `expires_ms` the value goes by itself after so many ms, at least 1.
    """

    key: str
    value: object = field(default=None, repr=False)
    expected: int | None = None
    remove: bool = False
    expires_ms: int | None = None

    def wire(self) -> dict[str, Any]:
        """As the daemon reads it."""
        told: dict[str, Any] = {"key": self.key}
        if not self.remove:
            told["value"] = as_json(self.value)
        if self.expected is not None:
            told["expected"] = str(self.expected)
        if self.expires_ms is not None:
            told["expires_ms"] = str(self.expires_ms)
        return told
