"""Request body of a write that checks the write fence at the last moment.

Between the making of a request and its sending lie the wait for a free connection, a TLS handshake, and at least one
turn of the event loop; a process that was paused for longer than its Lease may resume at any of these. After this check
the bytes go to the socket without another wait, so that at most the one request being written can still leave.
"""

from __future__ import annotations

from collections.abc import Callable

from aiohttp.abc import AbstractStreamWriter
from aiohttp.payload import BytesPayload

from scheduler_core.errors import ClusterWriteError


class FencedBody(BytesPayload):
    """Body that calls the fence before it is written; the headers wait for the body and are not sent either.

    Args:
        body: Bytes to send.
        fence: Raises if this process must not write.
        content_type: Content type of the body.

    Attributes:
        refused: The error that the fence raised, or None.
    """

    def __init__(self, body: bytes, fence: Callable[[], None], content_type: str) -> None:
        super().__init__(body, content_type=content_type)
        self._fence = fence
        self.refused: ClusterWriteError | None = None

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write if the fence allows it."""
        try:
            self._fence()
        except ClusterWriteError as error:
            self.refused = error
            raise
        await super().write_with_length(writer, content_length)
