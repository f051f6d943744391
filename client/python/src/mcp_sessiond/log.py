"""Every line that the three calls log, under `mcp_sessiond`. The first six never change: people grep for
them.
"""

from __future__ import annotations

import logging
import time

from .errors import SessiondError

logger = logging.getLogger("mcp_sessiond")

ABSENT = "Token file not found (first run or clean slate)"
CORRUPTED = "Token file corrupted, treating as stale"
UNVERIFIED = "Could not verify parent process start time, session resume disabled for this instance"
REJECTED = "Broker rejected resume token, starting fresh session"
RESUMED = "Session resumed successfully"
WRITE_FAILED = "Failed to write token file"

_LOST = {
    "sibling": "another server that looks the same to this host is alive",
    "several": "several sessions of this server were free, and they can't be told apart",
    "crowd": "this host has run three or more servers at once that look the same",
    "exited": "the server had exited while nobody was attached",
    "killed": "the server was killed while nobody was attached",
    "hung": "the process that kept the server did not answer, and was ended with it",
    "lingered": "nobody came back to the server in time",
    "abandoned": "the host had closed the server, and did not come back to it in time",
    "records": "the records of an earlier daemon were lost; there may have been a session",
    "stopped": "the server was stopped",
    "conversation": "the host has left that conversation",
    "edited": "the command line or the environment is not that of the previous server",
    "quota": "the host had too many sessions",
    "closed": "the host closed the previous server, and as far as is known it does not close a server to reconnect",
    "conversations": "this host runs many conversations in one process",
    "unknown_host": "nothing is known of this host, so a reconnect can't be told from the end of a conversation",
    "closed_earlier": "the host had closed the previous server, and did not start the next one at once",
}
_NEVER = {
    "fresh_held": _LOST["sibling"],
    "fresh_plural": _LOST["sibling"],
    "fresh_never": "this host serves several clients from one process (`siblings` is `never`)",
    "fresh_doubtful": "what this process was started with can't be read; "
    "`mcp-sessiond doctor --for PID` says which part",
}


_HIDDEN_SECONDS = 60.0
_next_hidden = 0.0


def hidden(error: SessiondError) -> None:
    """Why the daemon can't be used, where a peer is told no more than that: a line a minute at most."""
    global _next_hidden
    now = time.monotonic()
    if error.passes and now >= _next_hidden:
        _next_hidden = now + _HIDDEN_SECONDS
        logger.warning("The daemon mcp-sessiond can't be used, so requests are refused: %s", error)


def absent(outcome: str, because: str | None) -> None:
    """A claim gave no token. Where there may have been one, the line says why it is not to be had."""
    if because is not None:
        logger.warning("Nothing is resumed: %s", _LOST.get(because, because))
    elif outcome in _NEVER:
        logger.warning("Nothing is resumed: %s", _NEVER[outcome])
    else:
        logger.info(ABSENT)


def write_failed(why: object) -> None:
    """The daemon could not write a token. A sentence of `write_failed` begins with the fixed words."""
    text = str(why)
    logger.warning("%s", text if text.startswith(WRITE_FAILED) else f"{WRITE_FAILED}: {text}")
