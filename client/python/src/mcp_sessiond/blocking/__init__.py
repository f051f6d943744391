"""The same for programs that block: what `mcp_sessiond` has as coroutines are plain methods here.

Objects may be used by several threads at once. After `fork` they go on in the child, with connections of
its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Literal

from .. import attachment, session, sessiond, sessions, streams, tasks
from ..events import Cursor, Replayed
from ..lease import Status
from ..options import Options
from ..tasks import TaskView
from ..values import Caller, Failed, Lifetimes, Ready, SessionView, Settable
from .threads import ThreadIo, blocking, run

__all__ = ["Attachment", "Session", "Sessiond", "Sessions", "Stream", "Task"]


class Attachment:
    """A client that has come to a session. Call `detach` when it goes, or use `with`."""

    def __init__(self, inner: attachment.Attachment) -> None:
        self._inner = inner

    detach = blocking(attachment.Attachment.detach)

    def __enter__(self) -> Attachment:
        return self

    def __exit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        self.detach()


class Stream:
    """A stream of a session's."""

    def __init__(self, inner: streams.Stream) -> None:
        self._inner = inner
        self.id = inner.id
        """Its id."""
        self.start = inner.start
        """Its beginning."""

    append = blocking(streams.Stream.append)
    append_all = blocking(streams.Stream.append_all)
    prime = blocking(streams.Stream.prime)
    replay = blocking(streams.Stream.replay)
    close = blocking(streams.Stream.close)
    orphan = blocking(streams.Stream.orphan)
    unorphan = blocking(streams.Stream.unorphan)


class Task:
    """A task of a session's."""

    def __init__(self, inner: tasks.Task) -> None:
        self._inner = inner
        self.id = inner.id
        """Its id, for the client."""

    view = blocking(tasks.Task.view)
    update = blocking(tasks.Task.update)
    complete = blocking(tasks.Task.complete)
    fail = blocking(tasks.Task.fail)
    cancel = blocking(tasks.Task.cancel)
    changed = blocking(tasks.Task.changed)


class Session:
    """A session of a host's or of a service's."""

    def __init__(self, inner: session.Session) -> None:
        self._inner = inner
        self.id = inner.id
        """Its id, which is the `Mcp-Session-Id`."""

    def __repr__(self) -> str:
        return repr(self._inner)

    def on_behalf_of(self, caller: Caller | None) -> Session:
        """The same session, asked for by this caller of the server."""
        return Session(self._inner.on_behalf_of(caller))

    view = blocking(session.Session.view)
    update = blocking(session.Session.update)
    touch = blocking(session.Session.touch)
    reset = blocking(session.Session.reset)
    terminate = blocking(session.Session.terminate)
    rotate_credential = blocking(session.Session.rotate_credential)
    mint_handle = blocking(session.Session.mint_handle)

    get = blocking(session.Session.get)
    entry = blocking(session.Session.entry)
    read = blocking(session.Session.read)
    keys = blocking(session.Session.keys)
    set = blocking(session.Session.set)
    remove = blocking(session.Session.remove)
    compare_and_set = blocking(session.Session.compare_and_set)
    write = blocking(session.Session.write)

    streams = blocking(session.Session.streams)
    find_event = blocking(session.Session.find_event)
    prune = blocking(session.Session.prune)
    replay = blocking(session.Session.replay)
    wait = blocking(session.Session.wait)

    tasks = blocking(session.Session.tasks)

    def create_task(
        self,
        *,
        ttl_ms: int | None = None,
        poll_ms: int | None = None,
        message: str | None = None,
        request: str | None = None,
    ) -> tuple[Task, TaskView]:
        """Creates a task, whose writer is this process. It is kept when this returns."""
        made = self._inner.create_task(ttl_ms=ttl_ms, poll_ms=poll_ms, message=message, request=request)
        task, view = run(made)
        return Task(task), view

    def task(self, id: str) -> Task:
        """The task of this id. Nothing is sent."""
        return Task(self._inner.task(id))

    def attach(self) -> Attachment:
        """A client has come: the timer of the grace period stops. It starts when the last one has gone."""
        return Attachment(run(self._inner.attach()))

    def open_stream(self, id: str, *, opened_by: object = None, will: object = None) -> Stream:
        """Opens a stream, unless it is open, with the id of the request that it answers and a last will."""
        return Stream(run(self._inner.open_stream(id, opened_by=opened_by, will=will)))

    def stream(self, id: str) -> Stream:
        """A stream that is open already. Nothing is sent."""
        return Stream(self._inner.stream(id))

    def standalone(self) -> Stream:
        """The stream for what belongs to no request: it is always open."""
        return Stream(self._inner.standalone())

    def follow(self, after: Cursor, seconds: float = 25.0) -> Iterator[Replayed]:
        """All that was said after a place in one stream, then all that is said, until the stream has ended."""
        while True:
            said = self.wait([after], seconds)
            yield said
            if said.ended:
                return
            after = said.next[0]


class Sessions:
    """The sessions of a host or of a service. Nothing is sent before the first call."""

    def __init__(self, service: str | None, options: Options | None = None) -> None:
        """The sessions of a service, which every process of this user that says the name is; None: of this
        process's host.
        """
        self._inner = sessions.Sessions(service, options, io=ThreadIo())

    def on_behalf_of(self, caller: Caller | None) -> Sessions:
        """The same, asked for by this caller of the server."""
        same = Sessions.__new__(Sessions)
        same._inner = self._inner.on_behalf_of(caller)
        return same

    get = blocking(sessions.Sessions.get)
    close = blocking(sessions.Sessions.close)
    secret = blocking(sessions.Sessions.secret)
    rotate_secret = blocking(sessions.Sessions.rotate_secret)
    list = blocking(sessions.Sessions.list)

    def create(
        self,
        id: str | None = None,
        *,
        binding: Caller | None = None,
        on_mismatch: Literal["refuse", "terminate"] = "refuse",
        lifetimes: Lifetimes | None = None,
        status: Settable | Ready | Failed = "initializing",
        metadata: object = None,
    ) -> Session:
        """Makes a session. `metadata` is JSON of at most 65,536 bytes."""
        made = self._inner.create(
            id,
            binding=binding,
            on_mismatch=on_mismatch,
            lifetimes=lifetimes,
            status=status,
            metadata=metadata,
        )
        return Session(run(made))

    def open(self, id: str) -> Session:
        """Takes a session up by its id: one that lives."""
        return Session(run(self._inner.open(id)))

    def open_or_create(self, id: str, lifetimes: Lifetimes | None = None) -> Session:
        """Takes up the session of this id, which is made if there is none, `ready` and with these lifetimes."""
        return Session(run(self._inner.open_or_create(id, lifetimes)))

    def open_viewed(self, id: str) -> tuple[Session, SessionView]:
        """As `open`. Tells also how the session is now."""
        opened, view = run(self._inner.open_viewed(id))
        return Session(opened), view

    def open_handle(self, handle: str) -> Session:
        """Takes up the session of a handle."""
        return Session(run(self._inner.open_handle(handle)))


class Sessiond:
    """An MCP server's session with the daemon: version 1's three calls. None of them ever raises into the
    server.
    """

    def __init__(self, options: Options | None = None) -> None:
        self._inner = sessiond.Sessiond(options, io=ThreadIo())

    @classmethod
    def init(cls, options: Options | None = None) -> Sessiond:
        """Takes the options."""
        return cls(options)

    @property
    def status(self) -> Status:
        """Whether resume works for this instance, as of the last call."""
        return self._inner.status

    load = blocking(sessiond.Sessiond.load)
    store = blocking(sessiond.Sessiond.store)
    reject = blocking(sessiond.Sessiond.reject)
    release = blocking(sessiond.Sessiond.release)

    def session(self) -> Session | None:
        """The session of this instance with what it contains. None: resume does not work for this instance."""
        inner = run(self._inner.session())
        return Session(inner) if inner else None

    def begin_anew(self) -> Session | None:
        """Ends the session that this instance has or would resume, and gives a fresh one: for stdio's
        `initialize`.
        """
        inner = run(self._inner.begin_anew())
        return Session(inner) if inner else None
