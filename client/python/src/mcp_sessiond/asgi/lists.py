"""The lists of the app that a client knows, as digests: what another version of the app lists otherwise, the client is told."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Awaitable, Callable
from typing import Any

from ..session import Session

STATE = "mcp.lists"
"""The key of the session's state that has the digests, by the method that asks for the list. The adapters of other languages have
the same.
"""
_PAGES_MAX = 100
_LISTS = {
    "tools/list": ("tools", "tools"),
    "prompts/list": ("prompts", "prompts"),
    "resources/list": ("resources", "resources"),
    "resources/templates/list": ("resourceTemplates", "resources"),
}
"""By the method that asks for a list: its member of the result, and whose `list_changed` tells of it."""

_KINDS = {kind for _, kind in _LISTS.values()}


def declaring(result: Any) -> Any:
    """The app's answer to `initialize`, which says of each list that the app has that changes are told: a restored
    session's are, whatever the app declares.
    """
    capabilities = result.get("capabilities") if isinstance(result, dict) else None
    if not isinstance(capabilities, dict):
        return result
    told = {
        kind: {**has, "listChanged": True} if kind in _KINDS and isinstance(has, dict) else has
        for kind, has in capabilities.items()
    }
    return {**result, "capabilities": told}


Page = Callable[[str, dict[str, Any]], Awaitable["dict[str, Any] | None"]]
"""Asks for a page of a list: the method and its parameters. None: the app has answered with an error."""


class Lists:
    """The lists of one session whose changes its client was promised. `result`: the answer to `initialize`."""

    def __init__(self, result: Any) -> None:
        capabilities = result.get("capabilities") if isinstance(result, dict) else None
        self._capabilities: dict[str, Any] = capabilities if isinstance(capabilities, dict) else {}
        self._digests: dict[str, str] = {}
        # By the keys of the requests that are open: which list, what was read of it on earlier pages, and the digest of the list
        # if the client is to be told that it has changed: it need not be once it has read it.
        self._asked: dict[str, tuple[str, list[str], str | None]] = {}
        # The same of a list whose next page the client may ask for, with the cursor of that page instead of the list.
        self._pages: dict[str, tuple[str, list[str], str | None]] = {}
        # By the methods of the lists that have changed: their digests now.
        self._changed: dict[str, str] = {}
        self.is_stored = True
        """Whether what the client knows is recorded."""

    def asked(self, key: str, message: dict[str, Any]) -> None:
        """The client sends a request, which the app knows under this key."""
        method, params = message.get("method"), message.get("params")
        if not isinstance(method, str) or not self._is_declared(method):
            return
        cursor = params.get("cursor") if isinstance(params, dict) else None
        page = self._pages.pop(method, None)
        untold = self._changed.pop(method, None) or (page[2] if page else None)
        if cursor is None:
            self._asked[key] = (method, [], untold)
        elif page and page[0] == cursor:
            self._asked[key] = (method, page[1], untold)
        elif untold is not None:
            self._changed[method] = untold

    def answered(self, key: str, result: Any) -> None:
        """The app answers a request. `result`: None where that is an error."""
        asked = self._asked.pop(key, None)
        if asked is None:
            return
        method, items, untold = asked
        if not isinstance(result, dict):
            if untold is not None:
                self._changed.setdefault(method, untold)
            return
        items = items + _items(method, result)
        if isinstance(cursor := result.get("nextCursor"), str):
            self._pages[method] = (cursor, items, untold)
        else:
            self._note(method, _digest(items))

    async def store(self, session: Session) -> None:
        """Records what the client knows. Raises `SessiondError`."""
        self.is_stored = True
        await session.set(STATE, self._digests)

    async def compare(self, session: Session, page: Page) -> None:
        """Compares what the client knows with what the app lists now. Raises `SessiondError`."""
        recorded = await session.get(STATE)
        if isinstance(recorded, dict):
            self._digests = {**recorded, **self._digests}
        for method, known in list(self._digests.items()):
            if not self._is_declared(method):
                continue
            now = await _listed(method, page)
            # The client may have asked itself in the meantime.
            if now not in (None, known) and self._digests[method] == known:
                self._changed[method] = now or ""

    def changes(self) -> list[dict[str, Any]]:
        """What the client is to be told of changed lists. Counts as told; `store` follows."""
        kinds = dict.fromkeys(_LISTS[method][1] for method in self._changed)
        for method, digest in self._changed.items():
            self._note(method, digest)
        self._changed.clear()
        return [{"jsonrpc": "2.0", "method": f"notifications/{kind}/list_changed"} for kind in kinds]

    def _note(self, method: str, digest: str) -> None:
        self.is_stored = self.is_stored and self._digests.get(method) == digest
        self._digests[method] = digest

    def _is_declared(self, method: str) -> bool:
        of = _LISTS.get(method)
        declared = self._capabilities.get(of[1]) if of else None
        return isinstance(declared, dict) and declared.get("listChanged") is True


async def _listed(method: str, page: Page) -> str | None:
    """The digest of a whole list. None: the app does not say."""
    items: list[str] = []
    params: dict[str, Any] = {}
    for _ in range(_PAGES_MAX):
        result = await page(method, params)
        if result is None:
            return None
        items += _items(method, result)
        if not isinstance(cursor := result.get("nextCursor"), str):
            return _digest(items)
        params = {"cursor": cursor}
    return None


def _items(method: str, result: dict[str, Any]) -> list[str]:
    found = result.get(_LISTS[method][0])
    if not isinstance(found, list):
        return []
    return [json.dumps(one, sort_keys=True, separators=(",", ":"), ensure_ascii=False) for one in found]


def _digest(items: list[str]) -> str:
    """The same for every order of the items."""
    return hashlib.sha256("\n".join(sorted(items)).encode("utf-8", "surrogatepass")).hexdigest()
