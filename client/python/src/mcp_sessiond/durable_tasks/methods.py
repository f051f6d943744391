"""`tasks/get`, `tasks/update` and `tasks/cancel`, for servers of both SDKs."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection
from typing import Any, Protocol, TypeVar

from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import principal_components
from mcp.server.session import ServerSession
from mcp.shared.inbound import MCP_NAME_HEADER, decode_header_value
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..asgi.settings import bearer
from ..errors import SessiondError, TaskEnded
from ..options import Options
from ..tasks import Task
from ..values import Caller, Credential
from .call import POLL_MS, TTL_MS, Call
from .task_store import TaskStore
from .wire import (
    IDENTIFIER,
    TaskParams,
    UpdateParams,
    detailed_task,
    not_declared,
    other_name,
    refusal,
)


class Context(Protocol):
    """What both SDKs hand to a handler."""

    @property
    def session(self) -> ServerSession:
        """The session of the SDK's."""
        ...

    @property
    def protocol_version(self) -> str:
        """The version of MCP that the request speaks."""
        ...

    @property
    def request(self) -> Any:
        """The request of HTTP; None on stdio."""
        ...


CallerOf = Callable[[Context], Caller | None]
Binding = TypeVar("Binding")

VERSIONS = frozenset(MODERN_PROTOCOL_VERSIONS)
"""The versions of MCP that have the extension."""

_ACKNOWLEDGED = {"resultType": "complete"}


def caller_of(ctx: Context) -> Caller | None:
    """Whom the SDK has authenticated, whatever token it shows, else the bearer token of the request, else
    nobody.
    """
    token = get_access_token()
    if token is not None:
        # Without a subject the rest names a client of OAuth's, and all of its users.
        principal = json.dumps(principal_components(token)) if token.subject else token.token
        return Credential.of(principal)
    scope = getattr(ctx.request, "scope", None)
    return None if scope is None else bearer(scope)


def has_declared(ctx: Context) -> bool:
    """Whether the client takes tasks in answer to this request."""
    capabilities = ctx.session.client_capabilities
    extensions = (capabilities.extensions if capabilities else None) or {}
    return ctx.protocol_version in VERSIONS and IDENTIFIER in extensions


class TasksExtension:
    """What the extensions for both SDKs have in common: their options, and the methods that they serve."""

    def __init__(
        self,
        service: str,
        *,
        tools: Collection[str] = (),
        caller: CallerOf = caller_of,
        ttl_ms: int = TTL_MS,
        poll_ms: int = POLL_MS,
        options: Options | None = None,
    ) -> None:
        self._store = TaskStore(service, options)
        self._tools = frozenset(tools)
        self._caller = caller
        self._ttl_ms = ttl_ms
        self._poll_ms = poll_ms

    def _bound(self, binding: Callable[..., Binding]) -> list[Binding]:
        does = TaskMethods(self._store, self._caller)
        return [
            binding("tasks/get", TaskParams, does.get, VERSIONS),
            binding("tasks/update", UpdateParams, does.update, VERSIONS),
            binding("tasks/cancel", TaskParams, does.cancel, VERSIONS),
        ]

    def _call(self, ctx: Context) -> Call:
        caller, declared = self._caller(ctx), has_declared(ctx)
        return Call(self._store, caller, declared, ttl_ms=self._ttl_ms, poll_ms=self._poll_ms)


class TaskMethods:
    """What a client does with its tasks."""

    def __init__(self, store: TaskStore, caller: CallerOf) -> None:
        self._store = store
        self._caller = caller

    async def get(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """The task as it is now."""
        try:
            task = await self._found(ctx, params)
            return detailed_task(params.task_id, await task.view())
        except SessiondError as error:
            raise refusal(error) from None

    async def update(self, ctx: Context, params: UpdateParams) -> dict[str, Any]:
        """The client's answers. Those to what was not asked, or is answered already, are ignored."""
        try:
            task = await self._found(ctx, params)
            open = [one.key for one in (await task.view()).inputs if one.response is None]
            given = params.input_responses
            answer = {key: given[key] for key in open if key in given}
            if answer:
                await task.update(answer=answer)
        except TaskEnded:
            pass
        except SessiondError as error:
            raise refusal(error) from None
        return _ACKNOWLEDGED

    async def cancel(self, ctx: Context, params: TaskParams) -> dict[str, Any]:
        """The client wants the task no more."""
        try:
            task = await self._found(ctx, params)
            await task.cancel()
        except TaskEnded:
            pass
        except SessiondError as error:
            raise refusal(error) from None
        return _ACKNOWLEDGED

    async def _found(self, ctx: Context, params: TaskParams) -> Task:
        # The SDK compares it for its own methods alone. Over stdio there is no header.
        if ctx.request is not None and decode_header_value(ctx.request.headers.get(MCP_NAME_HEADER)) != params.task_id:
            raise other_name()
        if not has_declared(ctx):
            raise not_declared()
        return await self._store.find(params.task_id, self._caller(ctx))
