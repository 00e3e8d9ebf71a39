"""Answers of the API server for a reader that is not ours: kopf's.

Owns how depth is cut out of what such a reader gets. Must not know what it reads. Why by the response and not behind
the reader: kopf 1.45.2 reads each line of a watch with the standard library's decoder, whose RecursionError ends the
watch, and copies each object recursively, which ends at a few hundred levels.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp

from bayplan.kube.deep_json import shallow
from bayplan.kube.watch_stream import LineSplitter


class ShallowResponse(aiohttp.ClientResponse):
    """An answer whose JSON, as a whole or line by line, is never too deep for those who read it."""

    async def start(self, connection: Any) -> ShallowResponse:
        """Begin, and give out the body by lines."""
        await super().start(connection)
        self.content: Any = _ShallowLines(self.content)
        return self

    async def json(self, **_: Any) -> Any:
        """The body."""
        return json.loads(shallow(await self.read()))


class _ShallowLines:
    """A body whose chunks, as :meth:`iter_chunked` gives them, are whole lines; anything else is the body's own."""

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self._content = content

    def __getattr__(self, name: str) -> Any:
        return getattr(self._content, name)

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Lines as they are complete."""
        splitter = LineSplitter()
        async for chunk in self._content.iter_chunked(size):
            for line in splitter.feed(chunk):
                yield shallow(line) + b"\n"
