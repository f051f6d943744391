"""What `ctx.set_state` of FastMCP has set is kept, too: its default store is a dictionary of the process."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..key_value import KeyValue
from .settings import Settings

_STORE = "_state_storage"
"""FastMCP 4.2 takes a store when a server is made, and has no public way to name one later. None: its default, unless it
was used. Other versions have no such name, and keep what they have.
"""


class FastMcpState:
    """The state of the FastMCP servers of an app whose authors have named no store."""

    def __init__(self, app: Any, settings: Settings) -> None:
        self._servers = [one for one in _servers(app) if getattr(one, _STORE, one) is None]
        for server in self._servers:
            setattr(server, _STORE, KeyValue(settings.service, settings.options))

    def give_up(self) -> None:
        """The servers have their default again."""
        for server in self._servers:
            setattr(server, _STORE, None)


def _servers(app: Any) -> Iterator[Any]:
    """The FastMCP servers of an app on Starlette: of itself, of what is mounted there, and of what its middleware is around."""
    server = getattr(getattr(app, "state", None), "fastmcp_server", None)
    if server is not None:
        yield server
    for inner in (app, *getattr(app, "routes", ())):
        if (around := getattr(inner, "app", None)) is not None:
            yield from _servers(around)
