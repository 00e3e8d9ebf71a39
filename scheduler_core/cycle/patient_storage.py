"""Storage writes whose answers wait for the end of a suspended cycle.

Owns the delay. Why here: a PreBind plugin acts on the answer at once, by changing what is assumed of volumes, and a
plugin cannot know of cycles.
"""

from __future__ import annotations

from scheduler_core.cycle.suspension import Suspension
from scheduler_core.model.storage import PersistentVolume, PersistentVolumeClaim
from scheduler_core.ports import StorageWriter


class PatientStorageWriter:
    """Hands writes over at once, and their answers and errors when no cycle is suspended.

    Args:
        writer: Who writes.
        suspension: Says when.
    """

    def __init__(self, writer: StorageWriter, suspension: Suspension) -> None:
        self._writer = writer
        self._suspension = suspension

    async def bind_volume(self, volume: PersistentVolume) -> PersistentVolume:
        """See :meth:`scheduler_core.ports.StorageWriter.bind_volume`."""
        try:
            return await self._writer.bind_volume(volume)
        finally:
            await self._suspension.over()

    async def select_node(self, claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
        """See :meth:`scheduler_core.ports.StorageWriter.select_node`."""
        try:
            return await self._writer.select_node(claim)
        finally:
            await self._suspension.over()
