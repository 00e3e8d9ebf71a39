"""Ports of a replayed core: they answer as recorded, and what the core writes is compared with the record."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import Any

from scheduler_core.config.profile_config import Extender
from scheduler_core.cycle.failure_handler import FAILED_SCHEDULING
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch
from scheduler_core.recording.record_entries import Evicted
from scheduler_core.recording.recorded_ports import nomination_of, rejection, written
from scheduler_core.recording.replayed_input import RecordedInput


class ReplayedTiming:
    """Clock of durations: it consumes no readings, which are those of the scheduler's own clock.

    Args:
        recorded: The record.
    """

    def __init__(self, recorded: RecordedInput) -> None:
        self._recorded = recorded
        self.call_later = recorded.call_later
        self.sleep = recorded.sleep

    def now(self) -> float:
        """Return the last reading."""
        return self._recorded.last_seconds

    def wall(self) -> datetime:
        """Return the last reading of the date."""
        return self._recorded.last_wall


class ReplayedWriter:
    """Writer of the cluster that answers as recorded; implements :class:`scheduler_core.ports.ClusterWriter`.

    Args:
        recorded: The record.
    """

    def __init__(self, recorded: RecordedInput) -> None:
        self._recorded = recorded

    async def bind(self, binding: Binding) -> None:
        """Answer a bind."""
        del binding
        await self._recorded.answer()

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Answer a read."""
        del namespace, name
        found: Pod | None = await self._recorded.answer()
        return found

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Compare a nomination."""
        nomination = nomination_of(patch, self._recorded.objects)
        if nomination is not None:
            self._recorded.decided(nomination)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Compare a preemption."""
        self._recorded.next_deletion(done)
        self._recorded.decided(Evicted(f"{deletion.namespace}/{deletion.name}", deletion.uid))

    def record(self, event: Event) -> None:
        """Compare a rejection."""
        if event.reason == FAILED_SCHEDULING:
            self._recorded.decided(rejection(event))


class ReplayedPort:
    """Writer of volumes or claims, or client of an extender, that answers as recorded.

    Args:
        recorded: The record.
        extender: Name of the extender's port; "" for a writer, whose calls are decisions.
    """

    def __init__(self, recorded: RecordedInput, extender: str = "") -> None:
        self._recorded = recorded
        self._extender = extender

    async def close(self) -> None:
        """Do nothing."""

    def __getattr__(self, method: str) -> Callable[..., Coroutine[Any, Any, Any]]:
        recorded = self._recorded

        async def replayed(*args: Any) -> Any:
            if not self._extender:
                recorded.decided(written(recorded.objects, method, args))
                return await recorded.answer()
            return await recorded.answer(f"{self._extender}{method}")

        return replayed


def replayed_extenders(recorded: RecordedInput) -> Callable[[str, Extender], Any]:
    """Return a function that creates clients which answer as recorded."""
    return lambda _, __: ReplayedPort(recorded, recorded.ports.next_extender())
