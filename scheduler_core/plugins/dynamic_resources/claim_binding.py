"""Writes of DynamicResources: allocations and reservations before the bind, and their removal.

Writes of PreBind are awaited. Those of Unreserve and PostFilter run in the background, because these extension points
must not wait: a failure is logged, and the next attempt of the pod repeats what is still needed.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``bindClaim``, ``Unreserve``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    DeviceError,
    NotFoundError,
    SchedulerCoreError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.model.device_claims import DELETE_PROTECTION, AllocationResult, ClaimConsumer, ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, ExtendedResourceRequest, Pod
from scheduler_core.plugins.dynamic_resources.pod_claims import is_reserved_for
from scheduler_core.ports import ClaimWriter
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

UNKNOWN_OUTCOMES = (WriteTimeoutError, ServerUnavailableError)
"""Errors after which a write may have taken effect, or may still do so."""

_TRIES = 5
_LAST_TRY = (*(False,) * (_TRIES - 1), True)
"""For each try of a write, whether it is the last one."""
_RETRY_SECONDS = 0.01
_FIRST_WAIT_SECONDS, _LONGEST_WAIT_SECONDS = 0.1, 30.0


class ClaimBinder:
    """Writes what a pod's attempt decided about its claims.

    Args:
        handle: Access to the scheduler.
        writer: Writes claims.
    """

    def __init__(self, handle: Handle, writer: ClaimWriter) -> None:
        self._handle = handle
        self._writer = writer

    async def bind(
        self, consumer: ClaimConsumer, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Write a claim's new allocation, if there is one, and its reservation for the pod or its PodGroup.

        A write whose outcome is unknown is settled by reading the claim: devices that are allocated must not be free
        for other pods until a watch shows the allocation. kube-scheduler does not read here.

        Returns:
            The claim as written.

        Raises:
            DeviceError: The claim was deleted, allocated or deallocated meanwhile.
            ClusterWriteError: A write failed.
        """
        is_stale = False
        for attempt in range(1, _TRIES + 1):
            try:
                if is_stale:
                    claim = await self.read_again(claim)
                return await self._write(consumer, claim, allocation)
            except (ConflictError, *UNKNOWN_OUTCOMES):
                if attempt == _TRIES:
                    raise
                is_stale = True
                await self._handle.clock.sleep(_RETRY_SECONDS * attempt)
        raise AssertionError("the last try returns or raises")

    async def read_again(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the newest version of a claim.

        Raises:
            DeviceError: The claim was deleted.
            ClusterWriteError: It cannot be read.
        """
        try:
            found = await self._writer.read(claim)
        except NotFoundError as problem:
            raise DeviceError(f"get updated claim {claim.key} after conflict: {problem}") from problem
        if found.metadata.uid != claim.metadata.uid:
            raise DeviceError(f"claim {claim.key} got deleted in the meantime")
        return found

    async def _write(
        self, consumer: ClaimConsumer, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> ResourceClaim:
        if claim.metadata.deletion_timestamp is not None:
            raise DeviceError(f"claim {claim.key} got deleted in the meantime")
        status = claim.status
        is_new = allocation is not None and not _is_written(status.allocation, allocation, claim)
        if (
            not is_new
            and status.allocation is not None
            and any(each.uid == consumer.uid for each in status.reserved_for)
        ):
            # Another member wrote the reservation for their PodGroup, or the answer to an earlier try was lost.
            return claim
        if is_new and DELETE_PROTECTION not in claim.metadata.finalizers:
            finalizers = (*claim.metadata.finalizers, DELETE_PROTECTION)
            protected = replace(claim, metadata=replace(claim.metadata, finalizers=finalizers))
            claim = await self._writer.write_finalizers(protected)
            status = claim.status
        chosen = allocation if is_new else status.allocation
        if chosen is None:
            raise DeviceError(f"claim {claim.key} got deallocated elsewhere in the meantime")
        if chosen.allocation_timestamp is None:
            chosen = replace(chosen, allocation_timestamp=self._handle.clock.wall().replace(microsecond=0))
        reserved_for = (*status.reserved_for, consumer)
        reserved = replace(claim, status=replace(status, allocation=chosen, reserved_for=reserved_for))
        if is_new:
            return await self._writer.write_allocation(reserved)
        return await self._writer.write_reservation(reserved)

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create the claim for a pod's extended resources.

        Raises:
            DeviceError: The write failed.
        """
        metrics = self._handle.device_metrics
        try:
            created = await self._writer.create(claim)
        except ClusterWriteError as problem:
            metrics.claim_created(has_failed=True)
            raise DeviceError(
                f"create claim for extended resources {claim.metadata.namespace}/{claim.metadata.name}: {problem}"
            ) from problem
        metrics.claim_created(has_failed=False)
        return created

    async def write_mappings(
        self, pod: Pod, mappings: tuple[ExtendedResourceRequest, ...], claim: ResourceClaim
    ) -> None:
        """Write to the pod which request of its claim provides each extended resource.

        Raises:
            DeviceError: There are no mappings, because a device plugin provides the resources.
            ClusterWriteError: The write failed.
        """
        if not mappings:
            raise DeviceError(f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus")
        await self._writer.write_extended_claim(pod, ExtendedResourceClaimStatus(mappings, claim.metadata.name))

    def drop_reservation(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove a pod from ``reservedFor`` in the index, so that PreBind of the next attempt reserves the claim."""
        devices = self._handle.nodes.devices
        stored = devices.claims.get(claim.key)
        if stored is not None and stored.metadata.uid == claim.metadata.uid:
            left = tuple(each for each in stored.status.reserved_for if each.uid != pod.metadata.uid)
            devices.assign_claim(replace(stored, status=replace(stored.status, reserved_for=left)))

    async def end_reservation(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove a pod from ``reservedFor``, as soon as the API server answers; the allocation stays.

        Raises:
            ClusterWriteError: The write was rejected.
        """
        for seconds in _waits():
            try:
                return await self._writer.end_reservation(claim, pod.metadata.uid)
            except UNKNOWN_OUTCOMES:
                await self._handle.clock.sleep(seconds)
        return None

    async def settle(
        self, held: ResourceClaim, claim: ResourceClaim, pod: PodInfo, write: asyncio.Future[ResourceClaim]
    ) -> None:
        """Await a write of an allocation that PreBind no longer awaits; until then, no other pod gets its devices.

        The pod's reservation is ended, and the pod is activated, since its next attempt needs the outcome.

        Args:
            held: The claim as it is in flight.
            claim: The claim that is written.
            pod: The pod.
            write: The write, which returns the claim.
        """
        devices = self._handle.nodes.devices
        try:
            written = await self._outcome(claim, write)
            if written is not None:
                devices.claim_written(written)
        finally:
            devices.end_allocation(held.metadata.uid, writer_of(pod.pod))
        if written is not None and is_reserved_for(written, pod.pod):
            self.drop_reservation(written, pod.pod)
            await self.end_reservation(written, pod.pod)
        self._handle.activate([pod])

    async def _outcome(self, claim: ResourceClaim, write: asyncio.Future[ResourceClaim]) -> ResourceClaim | None:
        """Return the claim after a write; None if the write failed for certain, or the claim was deleted."""
        try:
            return await write
        except UNKNOWN_OUTCOMES:
            pass
        except SchedulerCoreError:
            return None
        for seconds in _waits():
            await self._handle.clock.sleep(seconds)
            try:
                return await self.read_again(claim)
            except UNKNOWN_OUTCOMES:
                continue
            except SchedulerCoreError:
                return None
        return None

    async def deallocate(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove the allocation of a claim, unless another version of it is used by others than the pod."""
        for is_last in _LAST_TRY:
            try:
                return await self._writer.deallocate(claim)
            except NotFoundError:
                return None
            except ConflictError:
                if is_last:
                    raise
            found = await self._read_unless_gone(claim)
            if found is None or found.status.allocation is None:
                return None
            if any(consumer.uid != pod.metadata.uid for consumer in found.status.reserved_for):
                return None
            claim = found
        return None

    async def delete(self, claim: ResourceClaim) -> None:
        """Delete a claim that was created for extended resources, its finalizer first."""
        for is_last in _LAST_TRY:
            finalizers = tuple(each for each in claim.metadata.finalizers if each != DELETE_PROTECTION)
            try:
                if finalizers != claim.metadata.finalizers:
                    metadata = replace(claim.metadata, finalizers=finalizers)
                    claim = await self._writer.write_finalizers(replace(claim, metadata=metadata))
                return await self._writer.delete(claim)
            except NotFoundError:
                return None
            except ConflictError:
                if is_last:
                    raise
            found = await self._read_unless_gone(claim)
            if found is None:
                return None
            claim = found
        return None

    async def _read_unless_gone(self, claim: ResourceClaim) -> ResourceClaim | None:
        """Return the newest version of a claim after a conflict; None if it was deleted, or created again."""
        await self._handle.clock.sleep(_RETRY_SECONDS)
        try:
            found = await self._writer.read(claim)
        except NotFoundError:
            return None
        return found if found.metadata.uid == claim.metadata.uid else None


def writer_of(pod: Pod) -> str:
    """Return under which name the write of an allocation for a pod shares it, beside the pod's attempt."""
    return f"{pod.metadata.uid}/write"


def _waits() -> Iterator[float]:
    """Yield seconds to wait between tries, without end."""
    seconds = _FIRST_WAIT_SECONDS
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)


def _is_written(stored: AllocationResult | None, allocation: AllocationResult, claim: ResourceClaim) -> bool:
    """Return whether a claim has the allocation already, because a member of the same gang wrote it.

    Raises:
        DeviceError: The claim has another allocation.
    """
    if stored is None:
        return False
    if stored.devices.results != allocation.devices.results:
        raise DeviceError(f"claim {claim.key} got allocated elsewhere in the meantime")
    return True


class BackgroundWrites:
    """Runs writes that no extension point awaits; PreBind of the same claim waits for them."""

    def __init__(self) -> None:
        self._tasks: dict[asyncio.Task[None], str] = {}

    def start(self, what: str, claim: ResourceClaim, write: Coroutine[Any, Any, None]) -> None:
        """Run a write.

        Args:
            what: For the log, if it fails; the claim is added.
            claim: The claim that is written.
            write: The write.
        """
        task = asyncio.get_running_loop().create_task(_logged(f"{what} {claim.key}", write))
        self._tasks[task] = claim.metadata.uid
        task.add_done_callback(self._tasks.pop)

    async def finished(self, claims: Sequence[ResourceClaim]) -> bool:
        """Wait until no write to one of the claims runs; return whether there was one."""
        uids = {claim.metadata.uid for claim in claims}
        running = [task for task, uid in self._tasks.items() if uid in uids]
        if running:
            await asyncio.wait(running)
        return bool(running)


async def _logged(what: str, write: Coroutine[Any, Any, None]) -> None:
    try:
        await write
    except ClusterWriteError as problem:
        log.warning("%s: %s", what, problem)
