"""The `requestState` of MCP 2026-07-28, for servers of `mcp` 2.3: what one process has given to a client,
every process of the service takes back, also after a restart.
"""

from __future__ import annotations

import logging

from mcp.server.request_state import RequestStateSecurity

from .blocking import Sessions
from .errors import SessiondError
from .options import Options

logger = logging.getLogger("mcp_sessiond")


def request_state_security(
    service: str, *, ttl: float = 600.0, audience: str | None = None, options: Options | None = None
) -> RequestStateSecurity:
    """`MCPServer("notes", request_state_security=request_state_security("notes"))`.

    The keys are the service's secret, which the daemon makes and keeps, as it is when this is called. `ttl`
    is for how many seconds a client may take; `audience` is by default the name of the server. Never raises:
    without the daemon the key is one of this process's, which the log says.
    """
    sessions = Sessions(service, options)
    try:
        secret = sessions.secret()
    except SessiondError as error:
        logger.warning("The request state of clients does not survive this process: %s", error)
        return RequestStateSecurity.ephemeral(ttl=ttl, audience=audience)
    finally:
        sessions.close()
    return RequestStateSecurity(keys=[secret.current, *secret.former], ttl=ttl, audience=audience)
