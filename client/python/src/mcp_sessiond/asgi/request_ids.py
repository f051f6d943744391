"""Ids of requests between client and app.

A client may use an id again while a former call of that id is open: the app gets another one for it. And an
app that was started again counts its own requests from 0 again: the client gets them with a prefix that
names this process's app, so that a late answer to a former app's request is dropped.
"""

from __future__ import annotations

import json
import secrets
from typing import Any


class RequestIds:
    """The ids of one session, as long as one app inside serves it."""

    def __init__(self) -> None:
        self._prefix = secrets.token_hex(4)
        # By the id that the app has: the client's own.
        self._open: dict[str, Any] = {}
        # Of these, those that the app has answered: it may not have done with them yet.
        self._answered: set[str] = set()

    def begin(self, message: dict[str, Any], stream: str) -> str:
        """Gives a request of the client's the id that the app gets. Returns the latter as JSON."""
        own = message["id"]
        if _key(own) in self._taken():
            message["id"] = f"{stream}/{json.dumps(own)}"
        key = json.dumps(message["id"])
        self._open[key] = own
        return key

    def answered(self, key: str) -> None:
        """The app has answered the request of this id: it can't be cancelled any more. Its id stays taken
        until `end`.
        """
        self._answered.add(key)

    def end(self, key: str) -> None:
        """The app has done with the request of this id."""
        self._open.pop(key, None)
        self._answered.discard(key)

    @property
    def is_busy(self) -> bool:
        """Whether a call is open."""
        return len(self._open) > len(self._answered)

    def to_client(self, message: dict[str, Any]) -> bool:
        """Changes a message of the app's into what the client gets. Whether anything was changed."""
        params, id = message.get("params"), message.get("id")
        if "method" in message:
            if "id" in message:
                message["id"] = self._tagged(id)
                meta = params.get("_meta") if isinstance(params, dict) else None
                if isinstance(meta, dict) and "progressToken" in meta:
                    meta["progressToken"] = self._tagged(meta["progressToken"])
                return True
            if (
                message["method"] == "notifications/cancelled"
                and isinstance(params, dict)
                and "requestId" in params
            ):
                params["requestId"] = self._tagged(params["requestId"])
                return True
            return False
        own = self._open.get(json.dumps(id), id)
        message["id"] = own
        return _key(own) != _key(id)

    def to_app(self, message: dict[str, Any]) -> bool:
        """Changes an answer or a notification of the client's into what the app gets. False: it is for a
        former app, or cancels one of several calls or none that is open. Two pages may share a session, and
        neither may cancel what the other has asked.
        """
        params = message.get("params")
        if "method" not in message:
            message["id"], is_ours = self._untagged(message.get("id"))
            return is_ours
        if not isinstance(params, dict):
            return True
        if message["method"] == "notifications/progress" and "progressToken" in params:
            params["progressToken"], is_ours = self._untagged(params["progressToken"])
            return is_ours
        if message["method"] == "notifications/cancelled" and "requestId" in params:
            asked = _key(params["requestId"])
            meant = [key for key in self._open.keys() - self._answered if _key(self._open[key]) == asked]
            if len(meant) != 1:
                # Nor does it cancel another one that the app knows by this id.
                return asked not in self._taken()
            params["requestId"] = json.loads(meant[0])
        return True

    def _taken(self) -> set[str]:
        return {_key(one) for one in (*self._open.values(), *map(json.loads, self._open))}

    def _tagged(self, id: object) -> str:
        return f"{self._prefix}/{json.dumps(id)}"

    def _untagged(self, id: object) -> tuple[object, bool]:
        prefix, slash, own = id.partition("/") if isinstance(id, str) else ("", "", "")
        if slash and prefix == self._prefix:
            try:
                return json.loads(own), True
            except ValueError:
                pass
        return id, False


def _key(id: object) -> str:
    # The SDK makes texts of ids: 1 and "1" meet there.
    return str(id)
