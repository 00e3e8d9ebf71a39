"""Settles resource claims that the scheduler created and that no watch shows, by reading them.

A claim is in the index from its creation on. If it is deleted while the watch is late, and the watch cannot be
continued, the next list does not contain it, and no event reports its deletion: its devices would stay in use.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.ports import ClaimWriter, Clock
from scheduler_core.snapshot.indexes.device_index import DeviceIndex

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class UnshownClaims:
    """Settles created claims that no watch shows."""

    devices: DeviceIndex
    writer: ClaimWriter | None
    clock: Clock

    async def settle(self, feed: DeviceFeed, after_seconds: float) -> None:
        """Read every claim that was created, or read before, more than ``after_seconds`` ago and was not shown since.

        One that does not exist is handled as deleted. One that exists, or cannot be read, is read again later.
        """
        if self.writer is None:
            return
        for created in self.devices.unshown_claims(self.clock.now() - after_seconds):
            claim, created.seconds = created.claim, self.clock.now()
            try:
                is_gone = (await self.writer.read(claim)).metadata.uid != claim.metadata.uid
            except NotFoundError:
                is_gone = True
            except ClusterWriteError as error:
                log.warning("resource claim %s was not shown by a watch and cannot be read: %s", claim.key, error)
                continue
            if is_gone:
                log.warning("resource claim %s is gone; its devices are free", claim.key)
                feed.deleted(claim)
