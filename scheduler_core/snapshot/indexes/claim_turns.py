"""Turns of writes to resource claims: writes to one claim are sent one at a time, whatever profile they come from.

Concurrent writes with a resource version conflict, and each conflict costs a read and another write. A pod that gets
its turn reserves the claim for the pods that wait behind it as well, so that many pods with one claim need few writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

from msgspec import Struct, field

from scheduler_core.errors import ClusterWriteError
from scheduler_core.model.devices import AllocationResult, ClaimConsumer, ResourceClaim

log = logging.getLogger(__name__)


class WaitingConsumer(Struct, frozen=True, gc=False):
    """A pod or PodGroup whose reservation has not been written yet.

    Attributes:
        allocation: The allocation that it relies on.
    """

    consumer: ClaimConsumer
    allocation: AllocationResult | None


class _Writes(Struct):
    """Writes of one claim that wait or run."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    count: int = 0
    waiting: dict[str, WaitingConsumer] = field(default_factory=dict)


class ClaimTurns:
    """Turns by the UID of the claim, and the writes that no extension point awaits.

    Attributes:
        steps: Returns the coroutine of a background task, with its steps in order; the scheduler sets it.
    """

    def __init__(self) -> None:
        self.steps: Callable[[Coroutine[Any, Any, None]], Coroutine[Any, Any, None]] = _unordered
        self._writes: dict[str, _Writes] = {}
        self._background: dict[asyncio.Task[None], str] = {}

    @asynccontextmanager
    async def turn(
        self, claim: ResourceClaim, reserver: WaitingConsumer | None = None
    ) -> AsyncIterator[Sequence[WaitingConsumer]]:
        """Wait until no other write to a claim runs, and keep others waiting until the context ends.

        Args:
            reserver: The consumer for which the write reserves the claim; an earlier turn may reserve it.

        Yields:
            All consumers that wait for a reservation when the turn begins, the reserver first.
        """
        writes = self._writes.setdefault(claim.metadata.uid, _Writes())
        writes.count += 1
        if reserver is not None:
            writes.waiting[reserver.consumer.uid] = reserver
        try:
            async with writes.lock:
                others = [each for each in writes.waiting.values() if each is not reserver]
                yield others if reserver is None else (reserver, *others)
        finally:
            if reserver is not None and writes.waiting.get(reserver.consumer.uid) is reserver:
                del writes.waiting[reserver.consumer.uid]
            writes.count -= 1
            if not writes.count:
                del self._writes[claim.metadata.uid]

    def start(self, what: str, claim: ResourceClaim, write: Coroutine[Any, Any, None]) -> None:
        """Run a write in the background; PreBind of the same claim waits for it.

        Args:
            what: For the log, if it fails; the claim is added.
        """
        task = asyncio.get_running_loop().create_task(self.steps(self._logged(f"{what} {claim.key}", write)))
        self._background[task] = claim.metadata.uid
        # A task that is cancelled before it runs ends without its last step.
        task.add_done_callback(self._ended)

    async def finished(self, claims: Sequence[ResourceClaim]) -> bool:
        """Wait until no background write to one of the claims runs; return whether there was one."""
        uids = {claim.metadata.uid for claim in claims}
        running = [task for task, uid in self._background.items() if uid in uids]
        if running:
            await asyncio.wait(running)
        return bool(running)

    async def _logged(self, what: str, write: Coroutine[Any, Any, None]) -> None:
        try:
            await write
        except ClusterWriteError as problem:
            log.warning("%s: %s", what, problem)
        finally:
            # A step of the task, so that its order among the other steps is recorded.
            self._ended(asyncio.current_task())

    def _ended(self, task: asyncio.Task[None] | None) -> None:
        if task is not None:
            self._background.pop(task, None)


def _unordered(work: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    return work
