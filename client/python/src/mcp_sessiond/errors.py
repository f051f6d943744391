"""Why a call has failed. Every error has a `code`, which programs look at; its text is for people."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class SessiondError(Exception):
    """A call to the daemon has failed."""

    code: str = "unknown"
    """A word that stays the same from version to version."""
    http_status: int = 503
    """The HTTP status that a server may answer (RFC 9110, section 15)."""
    passes: bool = False
    """Whether the same call may succeed later although nobody changes anything: the daemon is away or busy.
    """


class ConnectError(SessiondError):
    """The daemon could not be reached or was not trusted. Nothing was sent to whatever listens there."""

    code = "not_connected"
    passes = True


class NotRunning(ConnectError):
    """No daemon listens, and none was started."""

    code = "not_running"


class Untrusted(ConnectError):
    """The runtime directory, or who listens in it, is not this user's."""

    code = "untrusted"


class NotStarted(ConnectError):
    """A daemon was to be started, and that failed."""

    code = "not_started"


class ProtocolError(ConnectError):
    """Whatever listens does not speak as a daemon does."""

    code = "protocol_error"


class Disconnected(ConnectError):
    """The connection broke. Whether a call was carried out is not known."""

    code = "disconnected"


HELLO_ANSWERS = {
    1: "its version of the protocol is {theirs}, and this client's is {ours}: upgrade the older one",
    2: "it does not know this codec",
    3: "it has too many connections",
    4: "it is about to exit",
    5: "it can't identify this process (it is in another pid namespace, another process opened the connection, "
    "or the system refuses pidfd_open)",
}
"""What the numbers in a daemon's hello mean."""


class HelloRefused(ConnectError):
    """The daemon did not welcome the client."""

    code = "hello_refused"

    def __init__(self, number: int, ours: int, theirs: int) -> None:
        why = HELLO_ANSWERS.get(number, f"for a reason that this client does not know ({number})")
        super().__init__("the daemon refuses the connection: " + why.format(ours=ours, theirs=theirs))
        self.number = number
        """The daemon's answer; `HELLO_ANSWERS` has what it means."""


class NoAnswer(SessiondError):
    """The daemon did not answer in time. Whether the call was carried out is not known."""

    code = "no_answer"
    passes = True

    def __init__(self, seconds: float) -> None:
        super().__init__(
            f"the daemon did not answer within {seconds * 1000:.0f} ms; see `mcp-sessiond doctor`"
        )


class NotJson(SessiondError):
    """A value can't be written as JSON, or is not JSON. The value is not shown."""

    code = "not_json"
    http_status = 500


class Refused(SessiondError):
    """The daemon has refused the call. `fields` has what the error says besides its code."""

    def __init__(self, sentence: str, code: str, http_status: int, fields: Mapping[str, Any]) -> None:
        super().__init__(sentence)
        self.code = code
        self.http_status = http_status
        self.fields = dict(fields)

    @property
    def retry_after(self) -> float | None:
        """After how many seconds the same call may succeed."""
        after = self.fields.get("retry_after_ms")
        return None if after is None else int(after) / 1000


class UnknownSession(Refused):
    """There is no such session, or it belongs to somebody else."""


class SessionTerminated(Refused):
    """The session was ended, and nothing brings it back."""


class AlreadyExists(Refused):
    """The service has a session of that id."""


class BindingMismatch(Refused):
    """The session is bound to another caller."""


class LeaseLost(Refused):
    """The lease is over, or another process has claimed the session since: `lease_ended`, `stale_epoch`."""


class VersionConflict(Refused):
    """The value is not at the version that was expected."""

    @property
    def key(self) -> str:
        """The key."""
        return str(self.fields.get("key", ""))

    @property
    def current(self) -> int:
        """Its version now; 0: it has no value."""
        return int(self.fields.get("current", 0))


class UnknownStream(Refused):
    """There is no such stream."""


class StreamClosed(Refused):
    """Nothing is appended to the stream any more."""


class UnknownTask(Refused):
    """There is no such task, or no longer: its time is over."""


class TaskEnded(Refused):
    """The task is `completed`, `failed` or `cancelled`, and stays so."""


class UnknownCursor(Refused):
    """The event id or the place is none of this session's."""


class InvalidArgument(Refused):
    """The request can't be meant as it is."""


class QuotaExceeded(Refused):
    """A bound was reached: `fields["what"]`, `fields["limit"]`."""

    @property
    def of_memory(self) -> bool:
        """Whether it is a quota of memory, so that it helps to delete something."""
        return str(self.fields.get("what")).startswith("the memory")


class Unavailable(Refused):
    """Not at the moment. Nothing was done, or to do it again has no further effect."""

    passes = True


class OutcomeUnknown(Refused):
    """The call was carried out, or will be, or not."""

    passes = True


class Uncertain(SessiondError):
    """The answer to a conditional write was lost. When the write was repeated, the condition did not access:
    by somebody else's doing, or by its own. Read the value, and decide again.
    """

    code = "uncertain"
    http_status = 409


REFUSALS: dict[str, tuple[type[Refused], int]] = {
    "no_verified_host": (Refused, 403),
    "not_an_ancestor": (Refused, 403),
    "names_host": (Refused, 403),
    "stale_epoch": (LeaseLost, 409),
    "lease_ended": (LeaseLost, 409),
    "unknown_session": (UnknownSession, 404),
    "already_exists": (AlreadyExists, 409),
    "session_terminated": (SessionTerminated, 404),
    "name_taken": (Refused, 409),
    "service_taken": (Refused, 409),
    "session_held": (Refused, 409),
    "version_conflict": (VersionConflict, 409),
    "binding_mismatch": (BindingMismatch, 403),
    "unknown_handle": (Refused, 404),
    "handle_expired": (Refused, 410),
    "unknown_stream": (UnknownStream, 400),
    "stream_closed": (StreamClosed, 409),
    "unknown_task": (UnknownTask, 400),
    "task_ended": (TaskEnded, 409),
    "unknown_cursor": (UnknownCursor, 400),
    "unknown_backend": (Refused, 400),
    "invalid_argument": (InvalidArgument, 400),
    "quota_exceeded": (QuotaExceeded, 429),
    "write_failed": (Refused, 507),
    "unavailable": (Unavailable, 503),
    "outcome_unknown": (OutcomeUnknown, 504),
}
"""The codes with which the daemon refuses (`proto/PROTOCOL.md`, "Errors"): the class of each, and its HTTP status."""

FINAL = frozenset({"no_verified_host", "not_an_ancestor", "names_host", "invalid_argument", "session_lost"})
"""Codes after which resume stays disabled for this process."""


def refusal(data: Mapping[str, Any], sentence: str) -> Refused:
    """The error of this `data`, which a refusal of the daemon has. A code that is not known is final."""
    code = str(data["code"])
    kind, status = REFUSALS.get(code, (Refused, 500))
    fields = {name: value for name, value in data.items() if name not in ("code", "http_status")}
    return kind(sentence, code, int(data.get("http_status", status)), fields)
