"""What an author may say to the client. Every default is right for a server that its host starts once."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

Siblings = Literal["fresh", "successor", "oldest", "never"]
"""What an instance gets where its host has, or had, several servers that are alike."""


@dataclass(frozen=True)
class Options:
    """How the daemon is reached, and what a claim says."""

    directory: os.PathLike[str] | str | None = None
    """The runtime directory. By default `MCP_SESSIOND_DIR`, else the one that follows from the uid."""
    start: bool = True
    """Whether a daemon is started where none runs."""
    binary: os.PathLike[str] | str | None = None
    """The daemon's executable. By default `MCP_SESSIOND_BIN`, else beside Python's own, else in `PATH`."""
    timeout: float = 10.0
    """Seconds that one call may take in all, with connecting and starting a daemon."""
    label: str | None = None
    """Takes the place of directory and environment in what tells this instance from others of its host."""
    client: str | None = None
    """What the host calls itself: `clientInfo.name` of its first message."""
    entry: str | None = None
    """The name of this server's entry in the host's file."""
    siblings: Siblings | None = None
    """What to get where several servers are alike. By default as the daemon is configured."""
    instance: int | None = None
    """The pid of an ancestor that the claim is for. By default it is for the process itself."""
