"""The state of a session: JSON values by key, each with a version that grows with every write."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .connection import Connection
from .connections import Connections, Params
from .deadline import Deadline
from .errors import Uncertain, VersionConflict
from .values import StateEntry, StateKey, Write, request_id

_PAGE = 100


class State:
    """What a `Session` does with its state. A key has 1 to 240 bytes of UTF-8 without control characters."""

    if TYPE_CHECKING:
        _connections: Connections

        async def _of(self, deadline: Deadline) -> Params: ...

        async def _change(self, method: str, params: Params) -> Any: ...

    async def get(self, key: str, default: Any = None) -> Any:
        """The value of a key, or the default where it has none."""
        entry = await self.entry(key)
        return entry.value if entry.version else default

    async def entry(self, key: str) -> StateEntry:
        """A key with its value and its version."""
        return (await self.read([key]))[0]

    async def read(self, keys: Sequence[str]) -> list[StateEntry]:
        """Up to 50 keys at once, in their order. Raises `InvalidArgument`, also where they have more than 3
        MiB together.
        """
        return [StateEntry.read(raw) for raw in await self._change("read_state", {"keys": list(keys)})]

    async def keys(self) -> list[StateKey]:
        """All keys that have a value, in their order."""
        found: list[StateKey] = []
        while True:
            page = await self._change("list_state", {"after": found[-1].key if found else None})
            found += [StateKey.read(raw) for raw in page]
            if len(page) < _PAGE:
                return found

    async def set(self, key: str, value: object, *, expires_ms: int | None = None) -> int:
        """Writes a value, whatever was there. Returns its version. Raises `QuotaExceeded`.

        With `expires_ms` it goes by itself after so many ms, at least 1.
        """
        return (await self.write([Write(key, value, expires_ms=expires_ms)]))[0].version

    async def remove(self, key: str) -> None:
        """Removes a value, if there is one."""
        await self.write([Write(key, remove=True)])

    async def compare_and_set(self, key: str, expected: int, value: object, *, remove: bool = False) -> int:
        """Writes (or removes) a value only if the key is at this version; 0: only if it has no value.

        Returns the new version. Raises `VersionConflict`; `Uncertain` where the value may have been written.
        """
        return (await self.write([Write(key, value, expected, remove)]))[0].version

    async def write(self, writes: Sequence[Write]) -> list[StateEntry]:
        """Writes and removes up to 50 values, all or none. Returns their versions, in the order of the
        writes.

        Raises as `compare_and_set`.
        """
        deadline, tries = self._connections.deadline(), 0
        params = {
            "of": await self._of(deadline),
            "writes": [write.wire() for write in writes],
            "request": request_id(),
        }

        def counted(_: Connection) -> Params:
            nonlocal tries
            tries += 1
            return params

        try:
            return [
                StateEntry.read(raw) for raw in await self._connections.call("write_state", counted, deadline)
            ]
        except VersionConflict as error:
            if tries > 1:
                raise Uncertain(f"the answer to a write was lost, and then: {error}") from error
            raise
