"""Coroutines that run in the background of a test, and polling of their effects."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any


class AwaitedState:
    """Base of fakes whose calls a test waits for; a call ends with ``_changed.set()``."""

    def __init__(self) -> None:
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; it is checked after each call."""
        async with asyncio.timeout(90):
            while not condition():
                self._changed.clear()
                await self._changed.wait()


@asynccontextmanager
async def running(*coroutines: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run coroutines inside the block."""
    tasks = [asyncio.ensure_future(each) for each in coroutines]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def connections_to(port: int) -> int:
    """Return how many TCP connections to a port of loopback this process has open."""
    own = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            own.add(str(descriptor.readlink()))
    # Columns: number, local address, remote address, state, ...; the tenth is the inode.
    rows = [row.split() for row in Path("/proc/self/net/tcp").read_text().splitlines()[1:]]
    return sum(row[2].endswith(f":{port:04X}") and f"socket:[{row[9]}]" in own for row in rows)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(60):
        while True:
            if condition():
                return
            await asyncio.sleep(0)
