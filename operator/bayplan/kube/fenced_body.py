"""The body of a write that is sent only while this process may write.

Owns the last look before bytes leave the process. It must not know what gives the right to write.

Why here and not where the request is made: between the two lie the wait for a free connection of the pool, a TLS
handshake, and at least one turn of the event loop; and a process that was stopped for longer than its lease may go on
at any of these. What follows this look is one stretch of code to the socket, so that at most the one request that was
being written at that moment can still leave.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload

from scheduler_core.errors import ClusterWriteError


class FencedBody(BytesPayload):
    """A body that asks before it is written; its headers wait for it and are not sent either.

    Args:
        body: Bytes to send.
        fence: Raises when this process must not write.
        content_type: Of the body.

    Attributes:
        refused: What the fence raised; None while it let everything pass.
    """

    def __init__(self, body: bytes, fence: Callable[[], None], content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._fence = fence
        self.refused: ClusterWriteError | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write, if that is still allowed."""
        try:
            self._fence()
        except ClusterWriteError as error:
            self.refused = error
            raise
        await super().write_with_length(writer, content_length)
