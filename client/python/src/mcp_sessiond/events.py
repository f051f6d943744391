"""Streams and events: what calls about them take and give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from .values import Json, Raw

STANDALONE = "_GET_stream"
"""The stream of a session that is always open: for what belongs to no request."""


@dataclass(frozen=True)
class AfterEvent:
    """A place: after the event of this id, in its stream."""

    event: str

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        return {"event": self.event}


@dataclass(frozen=True)
class StreamStart:
    """A place: the beginning of this stream."""

    stream: str

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        return {"stream": self.stream}


@dataclass(frozen=True)
class AfterNumber:
    """A place: in the whole session, after the event of this number. 0: the beginning."""

    number: int

    def wire(self) -> dict[str, str]:
        """As the daemon reads it."""
        return {"number": str(self.number)}


Cursor = AfterEvent | StreamStart | AfterNumber


def _cursor(raw: Raw) -> Cursor:
    if "event" in raw:
        return AfterEvent(raw["event"])
    return StreamStart(raw["stream"]) if "stream" in raw else AfterNumber(int(raw["number"]))


@dataclass(frozen=True)
class Appended:
    """What was appended: the id for the wire, the stream, the position in it and the number in the session,
    from 1.
    """

    id: str
    stream: str
    position: int
    number: int

    @classmethod
    def read(cls, raw: Raw) -> Appended:
        """Out of the daemon's answer."""
        return cls(raw["id"], raw["stream"], int(raw["position"]), int(raw["number"]))


@dataclass(frozen=True)
class Event(Appended):
    """An event, with its message."""

    json: Json

    @property
    def message(self) -> Any:
        """The message."""
        return self.json.value()

    @classmethod
    def read(cls, raw: Raw) -> Event:
        """Out of the daemon's answer."""
        return cls(raw["id"], raw["stream"], int(raw["position"]), int(raw["number"]), Json(raw["message"]))


@dataclass(frozen=True)
class Gap:
    """Events that were pruned: the first and the last. Positions in `stream`, or numbers of the session
    without one.
    """

    stream: str | None
    first: int
    last: int


@dataclass(frozen=True)
class Replayed:
    """Events in order of their numbers, what is missing, and where to go on."""

    events: Sequence[Event]
    gaps: Sequence[Gap]
    next: Sequence[Cursor]
    more: bool
    """Whether there is more already."""
    ended: Sequence[str]
    """Those of the cursors' streams that are closed and said to their ends."""

    @classmethod
    def read(cls, raw: Raw) -> Replayed:
        """Out of the daemon's answer."""
        gaps = [Gap(gap.get("stream"), int(gap["first"]), int(gap["last"])) for gap in raw["gaps"]]
        events = [Event.read(event) for event in raw["events"]]
        return cls(events, gaps, [_cursor(one) for one in raw["next"]], raw["more"], raw.get("ended", ()))


@dataclass(frozen=True)
class StreamView:
    """A stream as it is now. `cursor` is the id of its last event."""

    id: str
    opened_by: Json | None
    closed: bool
    orphaned: bool
    last_position: int
    cursor: str | None
    events: int
    bytes: int

    @classmethod
    def read(cls, raw: Raw) -> StreamView:
        """Out of the daemon's answer."""
        by = raw.get("opened_by")
        return cls(
            id=raw["stream"],
            opened_by=None if by is None else Json(by),
            closed=raw["closed"],
            orphaned=raw["orphaned"],
            last_position=int(raw["last_position"]),
            cursor=raw.get("cursor"),
            events=int(raw["events"]),
            bytes=int(raw["bytes"]),
        )


@dataclass(frozen=True)
class FoundEvent:
    """Where an event id stands. `ended`: its stream is closed, and this was its last event."""

    stream: StreamView
    position: int
    number: int
    ended: bool
