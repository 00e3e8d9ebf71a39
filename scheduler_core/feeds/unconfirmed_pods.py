"""Settles what the scheduler wrote and no watch shows, by reading it: binds of pods, and created resource claims.

A timer alone never decides: guessing "not bound" overcommits the node, guessing "bound" leaks it. The members of a gang
are read together, so that a gang of which no bind took effect is requeued as a whole.

A claim is in the index from its creation on. If it is deleted while the watch is late, and the watch cannot be
continued, the next list does not contain it, and no event reports its deletion: its devices would stay in use.
"""

from __future__ import annotations

import logging
import math
from dataclasses import dataclass

from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ClaimWriter, Clock, ClusterWriter
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.indexes.device_index import DeviceIndex
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnconfirmedPods:
    """Settles assumed pods whose confirmation is late."""

    cache: ClusterCache
    gangs: Gangs
    writer: ClusterWriter
    clock: Clock
    suspension: Suspension
    freed: FreedCapacity

    async def settle(self, feed: PodAndNodeFeed, after_seconds: float) -> None:
        """Read every pod that was bound more than ``after_seconds`` ago and is not confirmed.

        The unconfirmed members of its gang are read too, however long ago they were bound. If one of them cannot be
        read, none of them is settled.

        Raises:
            ExceptionGroup: The exceptions of pods that stay assumed; all other pods were settled.
        """
        overdue = self.cache.overdue(self.clock.now() - after_seconds)
        settled: set[str] = set()
        failures: list[Exception] = []
        for info in overdue:
            try:
                if info.uid not in settled:
                    together = self._together(info)
                    settled.update(each.uid for each in together)
                    failures += await self._settle_together(feed, together)
            except Exception as failure:
                # Raised with all others at the end, so that it delays no other pod.
                failures.append(failure)
        if failures:
            raise ExceptionGroup("unconfirmed pods could not be settled", failures)

    def _together(self, info: PodInfo) -> list[PodInfo]:
        """Return the unconfirmed members of a pod's gang, or the pod itself."""
        gang = self.gangs.of_uid(info.uid)
        if gang is None:
            return [info]
        return [each for each in self.cache.overdue(math.inf) if self.gangs.of_uid(each.uid) is gang]

    async def _settle_together(self, feed: PodAndNodeFeed, pods: list[PodInfo]) -> list[Exception]:
        """Read and settle pods; return the exceptions of those that stay assumed."""
        found = await _read(self.writer, pods)
        if not found:
            return []
        await self.suspension.over()
        failures: list[Exception] = []
        for info, pod in found:
            placed = self.cache.placed.get(info.uid)
            if placed is None or placed.info is not info or placed.state is not PodState.BOUND:
                continue
            try:
                self._settle(feed, info, pod)
            except Exception:
                # Repeated at once, because the other members of its gang would be scheduled without it meanwhile.
                log.exception("pod %s could not be settled; it is repeated", info.key, extra={"pod": info.key})
                try:
                    self._settle(feed, info, pod)
                except Exception as failure:
                    # The next pass reads the pod again.
                    failures.append(failure)
        return failures

    def _settle(self, feed: PodAndNodeFeed, info: PodInfo, pod: Pod | None) -> None:
        node_name = info.node_name
        fields = {"pod": info.key, "node": node_name}
        try:
            if pod is None:
                log.warning("pod %s is gone; its place on node %s is free", info.key, node_name, extra=fields)
                feed.pod_deleted(info.pod)
            elif pod.spec.node_name:
                feed.pod_updated(info.pod, pod)
            else:
                text = "pod %s was never bound to node %s; it is scheduled again"
                log.warning(text, info.key, node_name, extra=fields)
                self._schedule_again(feed, info, pod)
        finally:
            # Whatever raised, the watch must not restore an older state.
            feed.reads.record(info.uid, pod)

    def _schedule_again(self, feed: PodAndNodeFeed, info: PodInfo, pod: Pod) -> None:
        """Release and requeue a pod that was never bound; if that raises, it is assumed again and settled later."""
        placed, node_name = self.cache.get(info.uid), info.node_name
        if placed is None:
            # An exception interrupted this before, but the pod has been requeued.
            return
        bound_at = placed.bound_at
        try:
            self.cache.forget(info)
            self.gangs.released(info.uid)
            self.freed.report(info.pod, node_name)
            feed.pod_added(pod)
        except Exception:
            # Whatever raised is raised again; the pod must be in the cache or in the queue meanwhile.
            try_twice(self._assume_again, feed, info, node_name, bound_at)
            raise

    def _assume_again(self, feed: PodAndNodeFeed, info: PodInfo, node_name: str, bound_at: float) -> None:
        """Undo a release after which the pod is not in the queue: no watch event would add it."""
        if feed.has_queued(info.uid):
            return
        if self.cache.get(info.uid) is None:
            self.cache.assume(info, node_name)
        self.cache.finish_binding(info.uid, bound_at)
        self.gangs.assumed(info.uid)


async def _read(writer: ClusterWriter, pods: list[PodInfo]) -> list[tuple[PodInfo, Pod | None]]:
    """Return what the API server has of some pods, None for one that is gone; nothing if one cannot be read."""
    found: list[tuple[PodInfo, Pod | None]] = []
    for info in pods:
        meta = info.pod.metadata
        try:
            pod = await writer.read_pod(meta.namespace, meta.name)
        except ClusterWriteError as error:
            text = "pod %s is not confirmed on node %s and cannot be read: %s"
            log.warning(text, info.key, info.node_name, error, extra={"pod": info.key, "node": info.node_name})
            return []
        found.append((info, pod if pod is not None and pod.metadata.uid == info.uid else None))
    return found


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
