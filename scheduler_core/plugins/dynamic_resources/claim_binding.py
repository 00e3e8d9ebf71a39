"""Writes of DynamicResources: allocations and reservations before the bind, and their removal.

Writes of PreBind are awaited. Those of Unreserve and PostFilter run in the background, because these extension points
must not wait: a failure is logged, and the next attempt of the pod repeats what is still needed.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``PreBind``, ``bindClaim``,
``Unreserve``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from scheduler_core.errors import (
    ClusterWriteError,
    ConflictError,
    DeviceBindingFailedError,
    DeviceBindingTimeoutError,
    DeviceError,
    NotFoundError,
    SchedulerCoreError,
    ServerUnavailableError,
    WriteTimeoutError,
)
from scheduler_core.framework.handle import BindingOutcome, Handle
from scheduler_core.model.devices import (
    DELETE_PROTECTION,
    MAX_CONSUMERS,
    AllocationResult,
    ClaimConsumer,
    DeviceRequest,
    ResourceClaim,
)
from scheduler_core.model.node import Node
from scheduler_core.model.pod import ExtendedResourceClaimStatus, ExtendedResourceRequest, Pod
from scheduler_core.plugins.dynamic_resources.node_allocation import AllocationWrite, PodDevices
from scheduler_core.plugins.dynamic_resources.pod_claims import (
    NAME_IN_MEMORY,
    has_binding_conditions,
    is_in_memory,
    is_past_binding_timeout,
    is_ready_for_binding,
    is_reserved_for,
)
from scheduler_core.ports import ClaimWriter, Event, ObjectReference
from scheduler_core.snapshot.indexes.device_index import WaitingConsumer
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
    """Writes what a pod's attempt decided about its claims."""

    def __init__(self, handle: Handle, writer: ClaimWriter) -> None:
        self._handle = handle
        self._devices = handle.nodes.devices
        self._writer = writer

    async def bind(
        self, consumer: ClaimConsumer, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Write a claim's new allocation, if there is one, and its reservation for the pod or its PodGroup.

        Writes to one claim wait for each other, and a write reserves the claim for all that wait. A write whose outcome
        is unknown is settled by reading the claim: devices that are allocated must not be free for other pods until a
        watch shows the allocation. kube-scheduler does neither.

        Raises:
            DeviceError: The claim was deleted, allocated or deallocated meanwhile.
        """
        reserver = WaitingConsumer(consumer, allocation or claim.status.allocation)
        async with self._devices.turns.turn(claim, reserver) as waiting:
            stored, is_stale = self._devices.claims.get(claim.key), False
            if stored is not None and stored.metadata.uid == claim.metadata.uid:
                claim = stored
            for attempt in range(1, _TRIES + 1):
                try:
                    if is_stale:
                        claim = await self.read_again(claim)
                    claim = await self._write(waiting, claim, is_new=allocation is not None)
                except (ConflictError, *UNKNOWN_OUTCOMES):
                    if attempt == _TRIES:
                        raise
                    is_stale = True
                    await self._handle.clock.sleep(_RETRY_SECONDS * attempt)
                else:
                    self._devices.claim_written(claim)
                    return claim
        raise AssertionError("the last try returns or raises")

    async def read_again(self, claim: ResourceClaim) -> ResourceClaim:
        """Return the newest version of a claim. Raises DeviceError: the claim was deleted."""
        try:
            found = await self._writer.read(claim)
        except NotFoundError as problem:
            raise DeviceError(f"get updated claim {claim.key} after conflict: {problem}") from problem
        if found.metadata.uid != claim.metadata.uid:
            raise DeviceError(f"claim {claim.key} got deleted in the meantime")
        # Its devices are in use from now on, also if it is being deleted and the pod cannot use it.
        self._devices.claim_written(found)
        return found

    async def _write(self, waiting: Sequence[WaitingConsumer], claim: ResourceClaim, *, is_new: bool) -> ResourceClaim:
        """Write a claim for the first waiting consumer; the others are reserved with it if they use its allocation."""
        if claim.metadata.deletion_timestamp is not None:
            raise DeviceError(f"claim {claim.key} got deleted in the meantime")
        status, first = claim.status, waiting[0]
        chosen = status.allocation
        if chosen is None:
            if not is_new or first.allocation is None:
                raise DeviceError(f"claim {claim.key} got deallocated elsewhere in the meantime")
            chosen = first.allocation
        elif not is_same_allocation(chosen, first.allocation):
            raise DeviceError(f"claim {claim.key} got allocated elsewhere in the meantime")
        else:
            is_new = False
            if any(each.uid == first.consumer.uid for each in status.reserved_for):
                # An earlier turn wrote the reservation, or the answer to an earlier try was lost.
                return claim
        if is_new and DELETE_PROTECTION not in claim.metadata.finalizers:
            finalizers = (*claim.metadata.finalizers, DELETE_PROTECTION)
            protected = replace(claim, metadata=replace(claim.metadata, finalizers=finalizers))
            claim = await self._writer.write_finalizers(protected)
        if chosen.allocation_timestamp is None:
            chosen = replace(chosen, allocation_timestamp=self._handle.clock.wall().replace(microsecond=0))
        consumers = [each.consumer for each in waiting if is_same_allocation(chosen, each.allocation)]
        reserved_for = _with_consumers(claim.status.reserved_for, consumers)
        reserved = replace(claim, status=replace(claim.status, allocation=chosen, reserved_for=reserved_for))
        if is_new:
            return await self._writer.write_allocation(reserved)
        return await self._writer.write_reservation(reserved)

    async def create(self, claim: ResourceClaim) -> ResourceClaim:
        """Create the claim for extended resources, with the finalizer that kube-scheduler writes later."""
        metrics = self._handle.device_metrics
        protected = replace(claim, metadata=replace(claim.metadata, finalizers=(DELETE_PROTECTION,)))
        try:
            created = await self._writer.create(protected)
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
        """
        if not mappings:
            raise DeviceError(f"nil or empty request mappings, no update of pod {pod.key} ExtendedResourceClaimStatus")
        await self._writer.write_extended_claim(pod, ExtendedResourceClaimStatus(mappings, claim.metadata.name))

    def drop_reservation(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove a pod from ``reservedFor`` in the index, so that PreBind of the next attempt reserves the claim."""
        stored = self._devices.claims.get(claim.key)
        if stored is not None and stored.metadata.uid == claim.metadata.uid:
            self._devices.assign_claim(_without_consumer(stored, pod))

    async def end_reservation(self, claim: ResourceClaim, pod: Pod) -> None:
        """Remove a pod from ``reservedFor``, which the index does already; the allocation stays.

        A write that is rejected leaves the reservation in the index, too.
        """
        await self._remove(
            claim,
            lambda newest: self._writer.end_reservation(newest, pod.metadata.uid),
            is_left=lambda found: is_reserved_for(found, pod),
            removed=lambda found: _without_consumer(found, pod),
        )

    def end_writes(self, attempt: PodDevices) -> None:
        """End the writes of allocations that PreBind has begun and not ended; this can be repeated if it raises."""
        for uid, write in list(attempt.writes.items()):
            if write.task is None or _has_failed(write.task):
                self._devices.end_allocation(uid, writer_of(attempt.pod.pod))
            else:
                what = "settle the outcome of the allocation of resource claim"
                self._devices.turns.start(what, write.claim, self._settle(write, write.task, attempt.pod))
            del attempt.writes[uid]

    async def _settle(self, write: AllocationWrite, task: asyncio.Future[ResourceClaim], pod: PodInfo) -> None:
        """Await a write of an allocation that PreBind no longer awaits; until then, no other pod gets its devices.

        The pod's reservation is ended, and the pod is activated, since its next attempt needs the outcome.
        """
        writer = writer_of(pod.pod)
        try:
            written = await self._outcome(write.claim, task)
        finally:
            in_flight = self._devices.in_flight_of(writer)
            self._devices.end_allocation(write.held.metadata.uid, writer)
            self._devices.report_freed(in_flight)
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
        except Exception:
            # A bug may have raised after the write: only a read shows whether the devices are free.
            log.exception("the write of resource claim %s failed in the scheduler itself; it is read", claim.key)
        for seconds in _waits():
            await self._handle.clock.sleep(seconds)
            try:
                return await self.read_again(claim)
            except UNKNOWN_OUTCOMES:
                continue
            except SchedulerCoreError:
                return None
        return None

    async def deallocate(self, claim: ResourceClaim, pod: Pod, group_uid: str = "") -> None:
        """Remove the allocation of a claim, unless another version of it is used by others than the pod or its group.

        The index has the outcome when this returns, so that the next attempt does not rely on the allocation.
        """

        def is_left(found: ResourceClaim) -> bool:
            others = [each for each in found.status.reserved_for if each.uid not in (pod.metadata.uid, group_uid)]
            return found.status.allocation is not None and not others

        await self._remove(claim, self._writer.deallocate, is_left=is_left)

    async def _remove(
        self,
        claim: ResourceClaim,
        write: Callable[[ResourceClaim], Awaitable[ResourceClaim]],
        *,
        is_left: Callable[[ResourceClaim], bool],
        removed: Callable[[ResourceClaim], ResourceClaim] | None = None,
    ) -> None:
        """Remove something from a claim, with reads and repetitions after conflicts and unknown outcomes.

        A write with an unknown outcome is repeated until the API server answers: it could take effect later.

        Args:
            is_left: Returns whether a newer version still has what is removed.
            removed: Returns a version as the index has it meanwhile; without it, the index has what the server has.

        Raises:
            ClusterWriteError: The write was rejected; the index has what the server has.
        """
        conflicts = 0
        async with self._devices.turns.turn(claim):
            while True:
                try:
                    return self._devices.claim_written(await write(claim))
                except NotFoundError:
                    return None
                except UNKNOWN_OUTCOMES:
                    pass
                except ClusterWriteError as problem:
                    conflicts += 1
                    if not isinstance(problem, ConflictError) or conflicts == _TRIES:
                        self._devices.claim_written(claim)
                        raise
                found = await self._read_unless_gone(claim)
                if found is None:
                    return None
                if not is_left(found):
                    return self._devices.claim_written(found)
                self._devices.claim_written(found if removed is None else removed(found))
                claim = found

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
        """Return the newest version of a claim, as soon as it can be read; None if it was deleted or created again."""
        for seconds in _waits(_RETRY_SECONDS):
            await self._handle.clock.sleep(seconds)
            try:
                found = await self._writer.read(claim)
            except NotFoundError:
                return None
            except UNKNOWN_OUTCOMES:
                continue
            return found if found.metadata.uid == claim.metadata.uid else None
        return None


def _has_failed(write: asyncio.Future[ResourceClaim]) -> bool:
    """Return whether a write has failed for certain."""
    fault = write.exception() if write.done() and not write.cancelled() else None
    return isinstance(fault, SchedulerCoreError) and not isinstance(fault, UNKNOWN_OUTCOMES)


def writer_of(pod: Pod) -> str:
    """Return under which name the write of an allocation for a pod shares it, beside the pod's attempt."""
    return f"{pod.metadata.uid}/write"


def _waits(first: float = _FIRST_WAIT_SECONDS) -> Iterator[float]:
    """Yield seconds to wait between tries, without end."""
    seconds = first
    while True:
        yield seconds
        seconds = min(2 * seconds, _LONGEST_WAIT_SECONDS)


def _without_consumer(claim: ResourceClaim, pod: Pod) -> ResourceClaim:
    left = tuple(each for each in claim.status.reserved_for if each.uid != pod.metadata.uid)
    return replace(claim, status=replace(claim.status, reserved_for=left))


def is_same_allocation(stored: AllocationResult, allocation: AllocationResult | None) -> bool:
    return allocation is not None and stored.devices.results == allocation.devices.results


def _with_consumers(stored: Sequence[ClaimConsumer], consumers: Sequence[ClaimConsumer]) -> tuple[ClaimConsumer, ...]:
    """Add consumers that are not reserved yet: the first in any case, the others up to the limit."""
    known = {each.uid for each in stored}
    added = {each.uid: each for each in consumers if each.uid not in known}
    return (*stored, *list(added.values())[: max(1, MAX_CONSUMERS - len(stored))])


_POLL_SECONDS = 5.0
_PENDING = "BindingConditionsPending"


class PodBinding:
    """PreBind of one pod; the claims of its attempt are replaced by what was written."""

    def __init__(self, handle: Handle, binder: ClaimBinder, attempt: PodDevices, node_name: str) -> None:
        self._handle = handle
        self._devices = handle.nodes.devices
        self._binder = binder
        self._attempt = attempt
        self._pod = attempt.pod.pod
        self._node_name = node_name
        self._in_flight: dict[int, str] = {}

    async def read_claims(self) -> None:
        """Read the claims again, after writes of earlier attempts, so that the index has the newest versions."""
        for claim in self._attempt.claims:
            if claim is not self._attempt.extended_claim:
                await self._binder.read_again(claim)

    async def write_claims(self) -> None:
        """Write the allocation and the reservation of every claim that is not reserved for the pod yet."""
        for index, decided in enumerate(self._attempt.claims):
            if decided.status.allocation is None:
                await self._write(index, decided)
                continue
            claim = self._attempt.claims[index] = self._newest(decided)
            if not is_reserved_for(claim, self._pod, accepts_group=self._devices.group_claims):
                await self._write(index, claim)

    def _newest(self, decided: ResourceClaim) -> ResourceClaim:
        """Return the newest version of a claim that had an allocation at PreFilter.

        The deallocation by an earlier attempt, or another write, may have ended since PreFilter. kube-scheduler v1.37.1
        binds the pod if the claim was reserved for it at PreFilter.

        Raises:
            DeviceError: The claim was deleted, or has lost the allocation that the attempt relies on; another pod may
                have allocated it elsewhere since.
        """
        found = self._devices.claims.get(decided.key)
        if found is None or found.metadata.uid != decided.metadata.uid:
            raise DeviceError(f"claim {decided.key} got deleted in the meantime")
        stored = found.status.allocation
        if stored is None or not is_same_allocation(stored, decided.status.allocation):
            how = "deallocated" if stored is None else "allocated"
            raise DeviceError(f"claim {decided.key} got {how} elsewhere in the meantime")
        return found

    async def _write(self, index: int, claim: ResourceClaim) -> None:
        attempt, allocation, held = self._attempt, self._attempt.pending[index], claim
        is_extended = claim is attempt.extended_claim
        found = attempt.reserved_extended
        if is_extended and allocation is None and claim.spec.devices.request_list is None:
            return
        if allocation is not None:
            self._in_flight[index] = claim.metadata.uid
        if is_extended and is_in_memory(claim):
            if found is None:
                raise DeviceError(f"extended resource claim not found for node {self._node_name}")
            claim = attempt.claims[index] = await self._binder.create(found.claim)
            self._devices.claim_created(claim, self._handle.clock.now())
        is_bound = False
        try:
            claim = attempt.claims[index] = await self._bind(index, held, claim, allocation)
            is_bound = True
        finally:
            if allocation is not None:
                self._handle.device_metrics.allocation_written(self._handle.profile_name, has_failed=not is_bound)
        if is_extended:
            mappings = () if found is None else found.mappings
            await self._binder.write_mappings(self._pod, mappings, claim)

    async def _bind(
        self, index: int, held: ResourceClaim, claim: ResourceClaim, allocation: AllocationResult | None
    ) -> ResourceClaim:
        """Bind a claim; the devices of a new allocation stay in use until the outcome of its write is known.

        If PreBind is cancelled, or cannot determine the outcome, the write may still take effect when Unreserve has
        freed the devices. kube-scheduler v1.37.1 frees them. Unreserve ends every write that this method has not ended.

        Args:
            held: The claim as it is in flight; a claim for extended resources gets another UID when it is created.
        """
        bind = self._binder.bind(self._attempt.consumer(index), claim, allocation)
        if allocation is None:
            try:
                return await bind
            except SchedulerCoreError:
                raise
            except Exception:
                # A bug may have raised after the write: the reservation may be written, so Unreserve ends it.
                reserved_for = _with_consumers(claim.status.reserved_for, [self._attempt.consumer(index)])
                self._attempt.claims[index] = replace(claim, status=replace(claim.status, reserved_for=reserved_for))
                raise
        uid, name = held.metadata.uid, writer_of(self._pod)
        self._devices.begin_allocation(held, allocation, name)
        write = self._attempt.writes[uid] = AllocationWrite(held, claim)
        write.task = self._handle.spawn(bind)
        written = await asyncio.shield(write.task)
        self._devices.end_allocation(uid, name)
        del self._attempt.writes[uid]
        return written

    async def wait_for_drivers(self, timeout_seconds: float) -> None:
        """Wait until all binding conditions are true; raise DeviceError if a driver failed, or the timeout expired."""
        if not any(has_binding_conditions(claim) for claim in self._attempt.claims):
            return
        meta, clock = self._pod.metadata, self._handle.clock
        note = f"waiting for binding conditions for device on node {self._node_name}"
        regarding = ObjectReference("Pod", meta.name, meta.namespace, meta.uid)
        profile = self._handle.profile_name
        self._handle.writer.record(
            Event(regarding, "Normal", _PENDING, "Scheduling", note, reporting_controller=profile)
        )
        started, outcome = clock.now(), BindingOutcome.ERROR
        try:
            await self._until_ready(timeout_seconds)
            outcome = BindingOutcome.SUCCESS
        except DeviceBindingFailedError:
            outcome = BindingOutcome.FAILURE
            raise
        except DeviceBindingTimeoutError:
            outcome = BindingOutcome.TIMEOUT
            raise
        finally:
            seconds = clock.now() - started
            self._handle.device_metrics.binding_waited(profile, self._attempt.claims, outcome, seconds)

    async def _until_ready(self, timeout_seconds: float) -> None:
        clock = self._handle.clock
        deadline = clock.now() + timeout_seconds
        while not self._are_ready(timeout_seconds):
            left = deadline - clock.now()
            if left <= 0:
                raise DeviceBindingTimeoutError("device binding timeout: context deadline exceeded")
            await clock.sleep(min(_POLL_SECONDS, left))

    def _are_ready(self, timeout_seconds: float) -> bool:
        for index, known in enumerate(self._attempt.claims):
            claim = self._devices.claims.get(known.key)
            if claim is None or claim.metadata.uid != known.metadata.uid:
                raise DeviceError(f'could not find ResourceClaim "{known.key}"')
            if claim.status.allocation is None:
                # kube-scheduler waits until the timeout.
                raise DeviceError(f"claim {known.key} got deallocated elsewhere in the meantime")
            self._attempt.claims[index] = claim
            if not is_ready_for_binding(claim):
                if is_past_binding_timeout(claim, timeout_seconds, self._handle.clock.wall()):
                    raise DeviceBindingTimeoutError(f"device binding timeout: claim={claim.metadata.name}")
                return False
        return True

    def end_allocations(self) -> None:
        """End the allocations in flight, all of which are written, and report the devices that are free from now on.

        They are free if a watch showed the claim without the allocation, or its deletion, before the response to the
        write. The event of that requeued no pod that needs them, because they were in use until now.
        """
        lost = []
        for index, uid in self._in_flight.items():
            held = self._devices.in_flight(uid)
            self._devices.written(uid)
            if held is not None and not self._is_allocated(self._attempt.claims[index]):
                lost.append(held)
        self._devices.report_freed(lost)

    def _is_allocated(self, written: ResourceClaim) -> bool:
        claim = self._devices.claims.get(written.key)
        if claim is None or claim.metadata.uid != written.metadata.uid:
            return False
        return claim.status.allocation is not None


_ENCODER = msgspec.json.Encoder()


def planned_claims(attempt: PodDevices, node: Node) -> dict[str, dict[str, Any]]:
    """Return the claims by name, in plain JSON types, as they would be stored after a bind to a feasible node."""
    new = iter(attempt.allocations(node) or ())
    extended = attempt.extended_on(node)
    planned = {}
    for index, claim in enumerate(attempt.claims):
        consumer = attempt.consumer(index)
        if claim is attempt.extended_claim:
            if extended is None:
                continue
            requests = {
                "requests": [_request(each) for each in extended.claim.spec.devices.requests],
                "requestMappings": extended.mappings,
            }
            planned[NAME_IN_MEMORY] = _plain(_claim(attempt, extended.claim, new, consumer) | requests)
        else:
            planned[claim.metadata.name] = _plain(_claim(attempt, claim, new, consumer))
    return planned


def _claim(
    attempt: PodDevices, claim: ResourceClaim, new: Iterator[AllocationResult], consumer: ClaimConsumer
) -> dict[str, Any]:
    pod = attempt.pod.pod
    is_new = claim.status.allocation is None
    allocation = claim.status.allocation or next(new)
    consumers = claim.status.reserved_for
    if not is_reserved_for(claim, pod, accepts_group=attempt.nodes.devices.group_claims):
        consumers = (*consumers, consumer)
    return {
        "new": is_new,
        "devices": allocation.devices.results,
        "config": allocation.devices.config,
        "nodeSelector": allocation.node_selector,
        "reservedFor": consumers,
        "finalizers": sorted({*claim.metadata.finalizers, *((DELETE_PROTECTION,) if is_new else ())}),
    }


def _request(request: DeviceRequest) -> dict[str, Any]:
    """Return a request with the defaults that the API server sets."""
    exactly = request.exactly
    if exactly is None:
        return {"name": request.name}
    return {
        "name": request.name,
        "exactly": {
            "deviceClassName": exactly.device_class_name,
            "allocationMode": exactly.allocation_mode,
            "count": exactly.count,
        },
    }


def _plain(fields: dict[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.json.decode(_ENCODER.encode(fields))
    return plain
