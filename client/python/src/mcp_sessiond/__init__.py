"""Keeps the sessions of MCP servers across their restarts, with the per-user daemon mcp-sessiond.

The classes here are for asyncio.
"""

# The modules, from the socket up: none imports one that is listed after it.
#
# - errors: every error and its code. values, events: what calls take and return.
# - options, deadline: what an author may say, and how long a call may take.
# - wire: the protocol, without I/O.
# - directory, start: the runtime directory and its checks; the command that starts a daemon.
# - connection: a connection, and the requests under way on it.
# - connections: the connections to the daemon. A call is repeated here and nowhere else.
# - attachment, state, streams, tasks: parts of a session. session: all of it. context: that of a handler. sessions: creates, opens and lists
#   the sessions of an owner.
# - log, lease, sessiond: the resume token of a server on stdio: log lines, claims, and the calls of version 1.
# - retry: repeats a change while the daemon is away.
# - asgi/: the middleware `durable` for servers over Streamable HTTP: app says where a request goes, get and post
#   answer it, pump stores what the app inside says, sessions and served_session have the sessions of this process.
# - event_store, bus, request_state: what `mcp`, the official SDK, can be given. durable_tasks/: its Tasks
#   extension, and FastMCP's. key_value: FastMCP's storage.

from .attachment import Attachment
from .context import session_of
from .errors import (
    AlreadyExists,
    BindingMismatch,
    ConnectError,
    InvalidArgument,
    LeaseLost,
    NoAnswer,
    NotJson,
    NotRunning,
    OutcomeUnknown,
    QuotaExceeded,
    Refused,
    SessiondError,
    SessionTerminated,
    StreamClosed,
    TaskEnded,
    Unavailable,
    Uncertain,
    UnknownCursor,
    UnknownSession,
    UnknownStream,
    UnknownTask,
    Untrusted,
    VersionConflict,
)
from .events import (
    STANDALONE,
    AfterEvent,
    AfterNumber,
    Appended,
    Cursor,
    Event,
    FoundEvent,
    Gap,
    Replayed,
    StreamStart,
    StreamView,
)
from .lease import Status
from .options import Options
from .session import Session
from .sessiond import Sessiond
from .sessions import Sessions
from .streams import Stream
from .tasks import Task, TaskInput, TaskStatus, TaskView
from .values import (
    Caller,
    Credential,
    Failed,
    Identity,
    Json,
    Lifetimes,
    Minted,
    Part,
    Ready,
    Secret,
    SessionView,
    StateEntry,
    StateKey,
    Write,
)

__all__ = [
    "STANDALONE",
    "AfterEvent",
    "AfterNumber",
    "AlreadyExists",
    "Appended",
    "Attachment",
    "BindingMismatch",
    "Caller",
    "ConnectError",
    "Credential",
    "Cursor",
    "Event",
    "Failed",
    "FoundEvent",
    "Gap",
    "Identity",
    "InvalidArgument",
    "Json",
    "LeaseLost",
    "Lifetimes",
    "Minted",
    "NoAnswer",
    "NotJson",
    "NotRunning",
    "Options",
    "OutcomeUnknown",
    "Part",
    "QuotaExceeded",
    "Ready",
    "Refused",
    "Replayed",
    "Secret",
    "Session",
    "SessionTerminated",
    "SessionView",
    "Sessiond",
    "SessiondError",
    "Sessions",
    "StateEntry",
    "StateKey",
    "Status",
    "Stream",
    "StreamClosed",
    "StreamStart",
    "StreamView",
    "Task",
    "TaskEnded",
    "TaskInput",
    "TaskStatus",
    "TaskView",
    "Unavailable",
    "Uncertain",
    "UnknownCursor",
    "UnknownSession",
    "UnknownStream",
    "UnknownTask",
    "Untrusted",
    "VersionConflict",
    "Write",
    "session_of",
]
