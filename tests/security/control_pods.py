"""A scheduler with a control node, and control pods that must be bound whatever hostile objects it receives.

The scheduling loop is ended after each pod, because a fault in it would only reach code that awaits the task.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from scheduler_core.scheduler import Scheduler
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


class Controls:
    """A scheduler with a control node that has room for all control pods."""

    def __init__(self, scheduler_name: str) -> None:
        self.clock, self.writer = VirtualClock(), RecordingWriter()
        self.scheduler = Scheduler(self.clock, self.writer)
        self.scheduler.feed.node_added(node("control", allocatable={"cpu": "1000", "memory": "1Ti", "pods": "100000"}))
        self._scheduler_name = scheduler_name
        self._bound = 0

    async def bind_a_pod(self) -> None:
        """Create a plain pod and check that it is bound."""
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
