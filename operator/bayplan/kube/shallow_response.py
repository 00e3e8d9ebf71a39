"""HTTP response for kopf with a bound on the nesting depth of its JSON.

kopf 1.45.2 parses each line of a watch with the standard library's decoder, whose RecursionError ends the watch, and
copies each object recursively, which fails at a few hundred levels. So depth is cut before kopf reads the response.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from bayplan.kube.deep_json import shallow
from bayplan.kube.watch_stream import LineSplitter


class ShallowResponse(aiohttp.ClientResponse):
    """Response whose JSON, as a whole or line by line, has a bounded depth."""

    async def start(self, connection: Any) -> ShallowResponse:
        """Start, and deliver the body by lines."""
        await super().start(connection)
        self.content: Any = _ShallowLines(self.content)
        return self

    async def json(self, **_: Any) -> Any:
        """Return the body."""
        return json.loads(shallow(await self.read()))


class _ShallowLines:
    """Body whose :meth:`iter_chunked` yields whole lines; other attributes are those of the wrapped body."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Yield each complete line."""
        splitter = LineSplitter()
        async for chunk in self._content.iter_chunked(size):
            for line in splitter.feed(chunk):
                yield shallow(line) + b"\n"
