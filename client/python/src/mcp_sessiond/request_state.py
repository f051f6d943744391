"""The `requestState` of MCP 2026-07-28, for servers of `mcp` 2.3: what one process has given to a client,
every process of the service takes back, also after a restart.
"""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import ThreadPoolExecutor

from mcp.server.request_state import RequestStateSecurity

from .errors import SessiondError
from .options import Options
from .sessions import Sessions
from .values import Secret

logger = logging.getLogger("mcp_sessiond")


def request_state_security(
    service: str, *, ttl: float = 600.0, audience: str | None = None, options: Options | None = None
) -> RequestStateSecurity:
    """`MCPServer("notes", request_state_security=request_state_security("notes"))`.

    The keys are the service's secret, which the daemon makes and keeps, as it is when this is called. `ttl`
    is for how many seconds a client may take; `audience` is by default the name of the server. Never raises:
    without the daemon the key is one of this process's, which the log says.
    """
    try:
        # In a thread of its own: the caller may be in an event loop, and can't wait for another one there.
        with ThreadPoolExecutor(1) as thread:
            secret = thread.submit(asyncio.run, _secret(service, options)).result()
    except SessiondError as error:
        logger.warning("The request state of clients does not survive this process: %s", error)
        return RequestStateSecurity.ephemeral(ttl=ttl, audience=audience)
    return RequestStateSecurity(keys=[secret.current, *secret.former], ttl=ttl, audience=audience)


async def _secret(service: str, options: Options | None) -> Secret:
    sessions = Sessions(service, options)
    try:
        return await sessions.secret()
    finally:
        await sessions.close()
