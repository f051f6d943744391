"""An `AsyncKeyValue` of py-key-value-aio: FastMCP keeps its state, its OAuth data and its cache in one.

A collection is a session of the service, and each key one of its state. The daemon deletes a value that has
expired, and no read returns it.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, SupportsFloat, TypeVar

from .errors import SessionTerminated, UnknownSession, VersionConflict
from .inner_ids import stable_key
from .options import Options
from .session import Session
from .sessions import Sessions
from .values import Lifetimes, StateEntry, Write

_KEY_MAX = 200
_AT_ONCE = 50
_DEFAULT = "default_collection"
_ENDED = (UnknownSession, SessionTerminated)

Found = tuple[dict[str, Any] | None, float | None]
T = TypeVar("T")


class KeyValue:
    """Values by collection and key, in the daemon: `FastMCP(session_state_store=KeyValue("notes"))`, as `durable` sets it.

    Every process that says the service's name has the same values. Calls raise `SessiondError`s:
    `QuotaExceeded` where a value is too large, `ConnectError` without the daemon, `SessionTerminated` for a
    while after somebody has terminated a collection's session.

    A key of `ctx.set_state` begins with the id that FastMCP gives the session, which is new after each restore: in an app
    inside `durable` the session's own id takes its place, so the value is there after a restart and in each worker.
    """

    def __init__(self, service: str, options: Options | None = None) -> None:
        self._sessions = Sessions(service, options)
        self._open: dict[str, Session] = {}

    async def get(self, key: str, *, collection: str | None = None) -> dict[str, Any] | None:
        """The value of a key; None where it has none."""
        return (await self.ttl_many([key], collection=collection))[0][0]

    async def ttl(self, key: str, *, collection: str | None = None) -> Found:
        """The value of a key, and for how many seconds more it has it; None: without an end."""
        return (await self.ttl_many([key], collection=collection))[0]

    async def get_many(
        self, keys: Sequence[str], *, collection: str | None = None
    ) -> list[dict[str, Any] | None]:
        """The values of keys, in their order."""
        return [value for value, _ in await self.ttl_many(keys, collection=collection)]

    async def ttl_many(self, keys: Sequence[str], *, collection: str | None = None) -> list[Found]:
        """The values of keys with the seconds that are left, in their order."""
        found: dict[str, Found] = {}

        async def read(session: Session) -> None:
            for part in _parts(list(dict.fromkeys(keys))):
                for key, entry in zip(part, await session.read([_state_key(key) for key in part]), strict=True):
                    found[key] = _read(entry)
                    if entry.version and found[key][0] is None:
                        await _delete(session, entry)

        await self._in(collection, read)
        return [found[key] for key in keys]

    async def put(
        self,
        key: str,
        value: Mapping[str, Any],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        """Writes a value, for `ttl` seconds or without an end."""
        await self.put_many([key], [value], collection=collection, ttl=ttl)

    async def put_many(
        self,
        keys: Sequence[str],
        values: Sequence[Mapping[str, Any]],
        *,
        collection: str | None = None,
        ttl: SupportsFloat | None = None,
    ) -> None:
        """Writes values, 50 at once: those all or none."""
        until = None if ttl is None else time.time() + float(ttl)
        expires = None if ttl is None else max(1, math.ceil(float(ttl) * 1000))
        written = dict(zip(keys, values, strict=True))

        async def write(session: Session) -> None:
            for part in _parts(list(written)):
                told = {key: {"key": stable_key(key), "value": dict(written[key]), "until": until} for key in part}
                writes = [Write(_state_key(key), value, expires_ms=expires) for key, value in told.items()]
                await session.write(writes)

        await self._in(collection, write)

    async def delete(self, key: str, *, collection: str | None = None) -> bool:
        """Deletes a value. Whether there was one."""
        return await self.delete_many([key], collection=collection) == 1

    async def delete_many(self, keys: Sequence[str], *, collection: str | None = None) -> int:
        """Deletes values. How many there were."""
        deleted = 0

        async def delete(session: Session) -> None:
            nonlocal deleted
            for key in dict.fromkeys(keys):
                entry = await session.entry(_state_key(key))
                if entry.version:
                    await session.remove(entry.key)
                    deleted += _read(entry)[0] is not None

        await self._in(collection, delete)
        return deleted

    async def keys(self, collection: str | None = None, *, limit: int | None = None) -> list[str]:
        """The keys of a collection that have a value."""

        async def read(session: Session) -> list[str]:
            found: list[str] = []
            for part in _parts([key.key for key in await session.keys()]):
                entries = await session.read(part)
                found += [entry.value["key"] for entry in entries if _read(entry)[0] is not None]
            return found

        return (await self._in(collection, read))[:limit]

    async def cull(self) -> None:
        """Deletes expired values of the collections that this process has used."""
        for name, session in list(self._open.items()):
            try:
                for part in _parts([key.key for key in await session.keys()]):
                    for entry in await session.read(part):
                        if entry.version and _read(entry)[0] is None:
                            await _delete(session, entry)
            except _ENDED:
                self._forget(name, session)

    async def destroy_collection(self, collection: str) -> bool:
        """Deletes all values of a collection."""
        await self._in(collection, Session.reset)
        return True

    async def _in(self, collection: str | None, work: Callable[[Session], Awaitable[T]]) -> T:
        """Works in a collection's session: in a new one where that has ended since it was opened."""
        name = collection or _DEFAULT
        if session := self._open.get(name):
            try:
                return await work(session)
            except _ENDED:
                self._forget(name, session)
        id = f"kv-{hashlib.sha256(name.encode()).hexdigest()[:32]}"
        session = self._open[name] = await self._sessions.open_or_create(id, Lifetimes(0, 0, 0))
        return await work(session)

    def _forget(self, name: str, session: Session) -> None:
        # Another call may have opened the next one already.
        if self._open.get(name) is session:
            del self._open[name]


def _state_key(key: str) -> str:
    key = stable_key(key)
    is_fit = key and len(key.encode()) <= _KEY_MAX and key.isprintable() and not key.startswith("#")
    return key if is_fit else f"#{hashlib.sha256(key.encode()).hexdigest()}"


def _read(entry: StateEntry) -> Found:
    told = entry.value
    if told is None:
        return None, None
    until = told["until"]
    left = None if until is None else until - time.time()
    return (None, None) if left is not None and left <= 0 else (told["value"], left)


async def _delete(session: Session, entry: StateEntry) -> None:
    try:
        await session.compare_and_set(entry.key, entry.version, None, remove=True)
    except VersionConflict:
        pass  # Somebody has written another value since.


def _parts(keys: list[str]) -> list[list[str]]:
    return [keys[place : place + _AT_ONCE] for place in range(0, len(keys), _AT_ONCE)]
