"""What travels on the daemon's socket: the hello, frames, JSON-RPC. Nothing here does I/O.

`proto/PROTOCOL.md` of the project describes every byte.
"""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass, field
from typing import Any

from .errors import HelloRefused, ProtocolError, SessiondError, refusal

HELLO_BYTES = 32
"""Bytes of a hello, in either direction."""
CHALLENGE_BYTES = 16
"""Bytes behind a hello that asks who this process is; they are to be written back."""

_HELLO = struct.Struct(">8sHHBBHIIQ")
_MAGIC = b"mcpsessd"
_VERSION = 2
_JSON_RPC = 2
_CHALLENGE = 6
_FRAME_MAX = 4 << 20
_LENGTH = struct.Struct(">I")


@dataclass(frozen=True)
class Hello:
    """What the daemon says of itself: its version, and the largest frame that it takes in bytes."""

    version: int
    frame_max: int


def hello() -> bytes:
    """The hello of a client that speaks JSON-RPC: 32 bytes."""
    return _HELLO.pack(_MAGIC, _VERSION, 0, _JSON_RPC, 0, 0, _FRAME_MAX, 0, 0)


class Greeting:
    """What the daemon says first, until it has welcomed the client."""

    def __init__(self) -> None:
        self.hello: Hello | None = None
        self.rest = b""
        """What came behind the welcome."""
        self._is_challenged = False

    def feed(self, data: bytes) -> bytes:
        """Takes what was received, and returns what is to be written back. Raises as `read_hello`."""
        self.rest += data
        end = HELLO_BYTES + CHALLENGE_BYTES
        if len(self.rest) < HELLO_BYTES:
            return b""
        # The kernel does not tell the daemon who this process is (Linux before 6.5), so it asks.
        if not self._is_challenged and _HELLO.unpack_from(self.rest)[4] == _CHALLENGE:
            if len(self.rest) < end:
                return b""
            self._is_challenged = True
            challenge, self.rest = self.rest[HELLO_BYTES:end], self.rest[end:]
            return challenge
        self.hello, self.rest = read_hello(self.rest[:HELLO_BYTES]), self.rest[HELLO_BYTES:]
        return b""


def read_hello(said: bytes) -> Hello:
    """Reads the daemon's 32 bytes.

    Raises `HelloRefused` where the daemon does not welcome the client, `ProtocolError` where it is no such
    daemon.
    """
    magic, version, _, _, answer, _, frame_max, _, _ = _HELLO.unpack(said)
    if magic != _MAGIC:
        raise ProtocolError("what listens at the daemon's socket is not mcp-sessiond")
    if answer:
        raise HelloRefused(answer, ours=_VERSION, theirs=version)
    return Hello(version, frame_max)


def frame(body: bytes, frame_max: int) -> bytes:
    """A message with its length before it. Raises `invalid_argument` where it is larger than the daemon
    takes.
    """
    if len(body) > frame_max:
        sentence = f"the request has {len(body)} bytes, and the daemon takes {frame_max}"
        raise refusal({"code": "invalid_argument", "sentence": sentence}, sentence)
    return _LENGTH.pack(len(body)) + body


@dataclass
class Frames:
    """Finds the frames in what was received."""

    _rest: bytearray = field(default_factory=bytearray)

    def feed(self, data: bytes) -> list[bytes]:
        """The frames that these bytes complete. Raises `ProtocolError` at one that is too long."""
        self._rest += data
        frames = []
        while len(self._rest) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._rest)
            if length > _FRAME_MAX:
                raise ProtocolError("the daemon has sent a frame that is too long")
            end = _LENGTH.size + length
            if len(self._rest) < end:
                break
            frames.append(bytes(self._rest[_LENGTH.size : end]))
            del self._rest[:end]
        return frames


def request(number: int, method: str, params: dict[str, Any]) -> bytes:
    """A request, as JSON-RPC. Parameters that are None are left out."""
    given = {name: value for name, value in params.items() if value is not None}
    message = {"jsonrpc": "2.0", "id": number, "method": method, "params": given}
    return json.dumps(message, separators=(",", ":")).encode()


def cancellation(number: int) -> bytes:
    """The notification that nobody waits for this request any more."""
    params = {"requestId": number}
    return json.dumps({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}).encode()


def answer(body: bytes) -> tuple[object, Any, SessiondError | None]:
    """The id of an answer, and its result or its error.

    Raises `ProtocolError` where it is not JSON-RPC. The error quotes nothing of what was said.
    """
    try:
        said = json.loads(body)
        if "error" not in said:
            return said["id"], said["result"], None
        error = said["error"]
        # Without `data` the request never reached the service: this client and the daemon don't fit.
        told = error.get("data") or {"code": "invalid_argument", "sentence": error["message"]}
        return said["id"], None, refusal(told, error["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise ProtocolError("the daemon has sent something that is not an answer") from None
