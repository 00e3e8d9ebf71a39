"""PreBind of one pod: writes its claims, and waits until the drivers have prepared the devices.

Follows kube-scheduler v1.37.1, ``plugins/dynamicresources/dynamicresources.go`` (``PreBind``).
"""

from __future__ import annotations

import asyncio

from scheduler_core.errors import DeviceBindingFailedError, DeviceBindingTimeoutError, DeviceError
from scheduler_core.framework.handle import BindingOutcome, Handle
from scheduler_core.model.devices import AllocationResult, ResourceClaim
from scheduler_core.plugins.dynamic_resources.binding_conditions import (
    has_binding_conditions,
    is_past_binding_timeout,
    is_ready_for_binding,
)
from scheduler_core.plugins.dynamic_resources.claim_binding import (
    UNKNOWN_OUTCOMES,
    ClaimBinder,
    is_same_allocation,
    writer_of,
)
from scheduler_core.plugins.dynamic_resources.extended_resources import is_in_memory
from scheduler_core.plugins.dynamic_resources.node_allocation import PodDevices
from scheduler_core.plugins.dynamic_resources.pod_claims import is_reserved_for
from scheduler_core.ports import Event, ObjectReference

_POLL_SECONDS = 5.0
_PENDING = "BindingConditionsPending"


class PodBinding:
    """PreBind of one pod.

    Args:
        attempt: The pod's claims; each is replaced by what was written.
    """

    def __init__(self, handle: Handle, binder: ClaimBinder, attempt: PodDevices, node_name: str) -> None:
        self._handle = handle
        self._devices = handle.nodes.devices
        self._binder = binder
        self._attempt = attempt
        self._pod = attempt.pod.pod
        self._node_name = node_name
        self._in_flight: dict[int, str] = {}

    async def read_claims(self) -> None:
        """Read the claims again, after writes of earlier attempts, so that the index has the newest versions.

        Raises:
            SchedulerCoreError: A claim cannot be read, or was deleted.
        """
        for claim in self._attempt.claims:
            if claim is not self._attempt.extended_claim:
                await self._binder.read_again(claim)

    async def write_claims(self) -> None:
        """Write the allocation and the reservation of every claim that is not reserved for the pod yet.

        Raises:
            SchedulerCoreError: A claim cannot be bound.
        """
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
            self._devices.assign_claim(claim)
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
        freed the devices. kube-scheduler v1.37.1 frees them.

        Args:
            held: The claim as it is in flight; a claim for extended resources gets another UID when it is created.
        """
        bind = self._binder.bind(self._attempt.consumer(index), claim, allocation)
        if allocation is None:
            return await bind
        write, name = self._handle.spawn(bind), writer_of(self._pod)
        self._devices.begin_allocation(held, allocation, name)
        try:
            claim = await asyncio.shield(write)
        except (asyncio.CancelledError, *UNKNOWN_OUTCOMES):
            settling = self._binder.settle(held, claim, self._attempt.pod, write)
            self._devices.turns.start("settle the outcome of the allocation of resource claim", claim, settling)
            raise
        except BaseException:
            self._devices.end_allocation(held.metadata.uid, name)
            raise
        self._devices.end_allocation(held.metadata.uid, name)
        return claim

    async def wait_for_drivers(self, timeout_seconds: float) -> None:
        """Wait until all binding conditions are true.

        Raises:
            DeviceError: A driver failed, or the timeout expired.
        """
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
