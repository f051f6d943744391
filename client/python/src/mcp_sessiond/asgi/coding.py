"""Codings of a body (RFC 9110, section 8.4.1). The app is asked for none; its middleware may compress all the same."""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator

from .http import CONNECTION, Refusal

_DECODED = ("gzip", "x-gzip", "deflate")
# zlib finds out which of the two it is.
_GZIP_OR_ZLIB = 32 + zlib.MAX_WBITS


class Unreadable(Refusal):
    """What the app has answered can't be read."""

    def __init__(self, why: str) -> None:
        super().__init__(502, CONNECTION, f"the answer of the server can't be read: {why}")


async def decoded(parts: AsyncIterator[bytes], codings: str) -> AsyncIterator[bytes]:
    """The parts of a body without its codings, which are named as in `Content-Encoding`. Raises `Unreadable`."""
    inflates = []
    for name in reversed([name.strip().lower() for name in codings.split(",")]):
        if name in _DECODED:
            inflates.append(zlib.decompressobj(_GZIP_OR_ZLIB))
        elif name not in ("", "identity"):
            why = f"it has the coding `{name}`, although `identity` was asked for"
            raise Unreadable(f"{why}; leave MCP out where the server compresses")
    async for part in parts:
        for inflate in inflates:
            try:
                part = inflate.decompress(part)
            except zlib.error:
                raise Unreadable(f"its coding `{codings}` is damaged") from None
        yield part
