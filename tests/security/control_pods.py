"""A scheduler that hostile objects come to, with a node and pods that must never notice anything.

Owns the control node and how a control pod is bound. It must not know what is hostile. Why the loop ends after each: a
fault in it would otherwise be seen only by code that awaits the task.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


class Controls:
    """A control node with room for all, and what is bound.

    Args:
        scheduler_name: That control pods ask for.
    """

    def __init__(self, scheduler_name: str) -> None:
        self.clock, self.writer = VirtualClock(), RecordingWriter()
        self.scheduler = Scheduler(self.clock, self.writer)
        self.scheduler.feed.node_added(node("control", allocatable={"cpu": "1000", "memory": "1Ti", "pods": "100000"}))
        self._scheduler_name = scheduler_name
        self._bound = 0

    async def bind_a_pod(self) -> None:
        """A plain pod is bound as if there were nothing else."""
        name = f"control-{self._bound}"
        self._bound += 1
        self.scheduler.feed.pod_added(pod(name, scheduler_name=self._scheduler_name, requests={"cpu": "10m"}))
        running = asyncio.create_task(self.scheduler.run())
        await self.scheduler.until_idle()
        assert not running.done(), "the loop has ended"
        running.cancel()
        with suppress(asyncio.CancelledError):
            await running
        assert name in {binding.name for binding in self.writer.bindings}
