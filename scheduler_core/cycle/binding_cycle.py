"""The binding cycle: wait on Permit, PreBind, Bind, PostBind, run as a task of its own.

It ends with the pod bound, or with everything released in reverse order and the pod requeued, unless another scheduler
has bound the pod (the profile's count of lost binds). Follows kube-scheduler v1.37.1 (``bindingCycle``).

A pod that is rejected before Permit has passed is unschedulable and is requeued by the events that occurred meanwhile;
any later failure is retried after backoff. If the outcome of a bind is unknown, the pod is read until it is known.
While a node is contested, a bind may be held for a moment (:mod:`scheduler_core.cycle.contested_nodes`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.contested_nodes import HELD_SECONDS, ContestedNodes
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import FailedAttempts, Failure, of_status, too_late
from scheduler_core.cycle.freed_capacity_event import FreedCapacity, on_node
from scheduler_core.cycle.gang_bind_barrier import GangBindBarrier
from scheduler_core.cycle.internal_errors import InternalErrors, try_all, try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import (
    BoundElsewhereError,
    ClusterWriteError,
    ExtenderError,
    WriteTimeoutError,
    error_message,
)
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.status import GANG_SCHEDULING, SUCCESS, Code, Status, error, unschedulable
from scheduler_core.framework.waiting_pods import PodsInPreBind, WaitingPods
from scheduler_core.metrics.attempt_reports import DECISIONS, log_bound
from scheduler_core.metrics.scheduler_metrics import ERROR, SCHEDULED, UNSCHEDULABLE
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Binding, Clock, ClusterWriter, Event, ObjectReference, PodStatusPatch
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.binding import (
    UnclearBindError,
    run_binds,
    run_post_binds,
    run_pre_bind_pre_flights,
    run_pre_binds,
)
from scheduler_core.runtime.extenders import ExtenderRunner, binder_of
from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)
_PRE_BIND_PRE_FLIGHT, _PRE_BIND = CycleStage.PRE_BIND_PRE_FLIGHT, CycleStage.PRE_BIND
_BIND = CycleStage.BIND

_ALONE = unschedulable("the gang is placed together or not at all: its quorum was not bound").of(GANG_SCHEDULING)
_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 16.0


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingCycle:
    """Binding cycles."""

    cache: ClusterCache
    queue: SchedulingQueue
    waiting: WaitingPods
    in_pre_bind: PodsInPreBind
    idle: IdleBinds
    suspension: Suspension
    writer: ClusterWriter
    clock: Clock
    report: CycleReport
    outcomes: BindingOutcomes
    contested: ContestedNodes

    async def bind(self, attempt: Attempt) -> bool:
        """Run one binding cycle; return whether the pod was bound. If it is cancelled, the pod is released."""
        try:
            try:
                failure = await self._steps(attempt)
                if self.suspension.is_on:
                    # The steps below change state that the suspended cycle still reads.
                    await self.suspension.over()
            except BaseException:
                _report_to_gang(attempt, "the scheduler stops", is_error=True)
                try_twice(self.outcomes.cancelled, attempt)
                raise
            node_name = attempt.node_name
            try:
                failure = self._unless_lost(attempt, failure)
                return self._end(attempt, failure)
            except Exception as fault:
                if attempt.node_name:
                    # The pod is not released, so perhaps this raised: without it a lost pod would count as bound.
                    failure = self._unless_lost(attempt, failure)
                self.outcomes.interrupted(attempt, failure, fault, node_name)
                return failure is None
        finally:
            if attempt.gang is not None:
                try_twice(attempt.gang.ended)

    def join(self, attempt: Attempt, key: GroupKey) -> GangBindBarrier | None:
        """Let a further member wait for the quorum of its gang that is being bound; return where, None for none."""
        gang = self.queue.gangs.get(key)
        barrier = None if gang is None else gang.barrier or gang.unit.barrier
        if not isinstance(barrier, GangBindBarrier) or barrier.is_open:
            return None
        attempt.gang = barrier
        barrier.join(attempt.info.uid)
        return barrier

    def _is_alone(self, attempt: Attempt, key: GroupKey) -> bool:
        """Return whether a further member would be bound without the quorums of its gang and of the groups above.

        Members that have a node when it is scheduled may be gone before its bind.
        """
        gang = self.queue.gangs.get(key)
        if gang is None or gang.group is None or not attempt.instance.places_gangs:
            return False
        if gang.barrier is not None or gang.unit.barrier is not None:
            return False
        has_quorum = partial(self._has_bound_quorum, attempt.info.uid)
        return not (has_quorum(gang) if gang.tree is None else gang.tree.is_met_by(gang, has_quorum))

    def _has_bound_quorum(self, next_uid: str, gang: Gang) -> bool:
        """Return whether a gang has its quorum with its bound members, and the one that is bound next."""
        if gang.group is None:
            return False
        missing = gang.group.min_member - gang.succeeded
        if len(gang.placed) - self.cache.assumed_count >= missing:
            # Members that a watch has confirmed are bound, so that none of them has to be looked up.
            return True
        for uid in gang.placed:
            if missing <= 0:
                break
            placed = self.cache.get(uid)
            missing -= uid == next_uid or (placed is not None and placed.state is not PodState.ASSUMED)
        return missing <= 0

    def interrupted(self, attempt: Attempt, fault: Exception) -> None:
        """End a binding cycle that could not be started."""
        failure = Failure(error_message(fault), is_error=True)
        _report_to_gang(attempt, failure.message, is_error=True)
        self.outcomes.interrupted(attempt, failure, fault, attempt.node_name)
        if attempt.gang is not None:
            try_twice(attempt.gang.ended)

    async def _steps(self, attempt: Attempt) -> Failure | None:
        """Run the steps until one fails; return why the pod is not bound, None if it is.

        What fails until Permit has passed (``of_status``) waits for events, and what fails later (``too_late``) for its
        backoff.
        """
        instance, state, info, node_name = attempt.instance, attempt.state, attempt.info, attempt.node_name
        gang, recorder = attempt.gang, state.recorder
        try:
            # 1. PreBindPreFlight: does any plugin have work to do before the bind?
            has_to_prepare = False
            if instance.pre_bind:
                recorder.enter(_PRE_BIND_PRE_FLIGHT)
                status = run_pre_bind_pre_flights(instance, state, info, node_name)
                recorder.leave(_PRE_BIND_PRE_FLIGHT, status.code)
                if status.code is Code.ERROR:
                    return of_status(status)
                has_to_prepare = status.is_success
            waits = info.uid in self.waiting.entries
            if has_to_prepare or waits:
                # Permit and PreBind may take minutes, in which the nomination shows autoscalers that the node is used.
                self._write_expected_node(attempt)
                if gang is not None:
                    gang.delayed()
            # 2. WaitOnPermit.
            if waits and not (status := await self._wait_on_permit(attempt)).is_success:
                # Released with its gang: if others have become the quorum meanwhile, it is tried alone, and no event
                # would requeue it.
                is_released = gang is not None and status.plugin == GANG_SCHEDULING
                return too_late(status) if is_released else of_status(status)
            # A failure from here on always backs off, so its events need not be recorded.
            self.queue.end_recording(info.uid)
            # 3. PreBind.
            if has_to_prepare and not (status := await self._pre_bind(attempt)).is_success:
                return too_late(status)
            # 4. The barrier of the gang: no member is bound before all are ready. For others: is there still room?
            if gang is None and attempt.queued.group is not None:
                # The quorum may have been lost and scheduled again since this member was scheduled.
                gang = self.join(attempt, attempt.queued.group)
            if gang is not None:
                # kube-scheduler has no barrier: a member that waits only for other members writes its node there, too.
                nominate = None if has_to_prepare or waits else partial(self._write_expected_node, attempt)
                with self.idle.waits():
                    status = await gang.ready(info.uid, nominate)
                if not status.is_success:
                    return too_late(status)
            elif attempt.queued.group is not None and self._is_alone(attempt, attempt.queued.group):
                return too_late(_ALONE)
            elif self.contested.avoided and attempt.queued.group is None and await self._is_room_lost(attempt):
                text = f"another scheduler has taken the room on node {node_name}"
                return too_late(unschedulable(text))
            # 5. Bind.
            if node_of_rival(self.cache, attempt):
                return Failure("another scheduler has bound the pod", is_error=True)
            recorder.enter(_BIND)
            try:
                status = await self._send(attempt)
            except BoundElsewhereError as taken:
                try_twice(recorder.leave, _BIND, Code.ERROR)
                return Failure(str(taken), is_error=True, bound_to=taken.node_name)
            # The pod may be bound: nothing that raises from now on may release it.
            try_twice(recorder.leave, _BIND, status.code)
            if status.code is Code.SUCCESS or self._is_seen_bound(attempt):
                return None
            return too_late(status)
        except Exception as fault:
            # The caller releases the pod; raised to the task, the error would leave it assumed.
            recorder.interrupt()
            log.exception("binding pod %s failed in the scheduler itself", info.key, extra=attempt.log_fields())
            return Failure(error_message(fault), is_error=True)

    def _unless_lost(self, attempt: Attempt, failure: Failure | None) -> Failure | None:
        """Return the outcome of the bind, with the other node if a watch shows the pod there."""
        rival_node_name = node_of_rival(self.cache, attempt)
        if not rival_node_name:
            return failure
        if failure is None:
            # The answer was processed late, and a watch is more recent than a bind that never took effect.
            failure = Failure(f"the pod is bound to node {rival_node_name}", is_error=True)
        return replace(failure, bound_to=failure.bound_to or rival_node_name)

    def _end(self, attempt: Attempt, failure: Failure | None) -> bool:
        if failure is None:
            self.outcomes.bound(attempt)
            return True
        _report_to_gang(attempt, failure.message, is_error=failure.is_error)
        self.outcomes.failed(attempt, failure)
        return False

    async def _wait_on_permit(self, attempt: Attempt) -> Status:
        info, gang, recorder = attempt.info, attempt.gang, attempt.state.recorder
        recorder.enter(CycleStage.WAIT_ON_PERMIT)
        if gang is not None and (waiting := self.waiting.get(info.uid)) is not None:
            gang.waits(info, f"Permit ({', '.join(sorted(waiting.pending_plugins()))})")
        status = await self.waiting.wait(info.uid)
        if gang is not None:
            gang.waits(info, "")
        recorder.leave(CycleStage.WAIT_ON_PERMIT, status.code)
        self.report.permit_waited(attempt, status)
        return status

    async def _pre_bind(self, attempt: Attempt) -> Status:
        info, gang, recorder = attempt.info, attempt.gang, attempt.state.recorder
        await self.suspension.over()
        recorder.enter(_PRE_BIND)
        if gang is not None:
            gang.waits(info, "PreBind")
        writing = self.idle.begin_writes()
        try:
            with self.in_pre_bind.hold(info, attempt.node_name) as held:
                status = await run_pre_binds(attempt.instance, attempt.state, held)
        finally:
            self.idle.end_writes(writing)
        recorder.leave(_PRE_BIND, status.code)
        if gang is not None:
            gang.waits(info, "")
        return status

    async def _is_room_lost(self, attempt: Attempt) -> bool:
        """Hold the bind if it fills its node while nodes are contested; return whether a rival has taken the room."""
        placed = self.cache.get(attempt.info.uid)
        if placed is None:
            return False
        with self.contested.held_bind(placed.info) as held:
            if held is None:
                return False
            with self.idle.waits():
                await self.clock.sleep(HELD_SECONDS)
            return held.is_lost

    def _write_expected_node(self, attempt: Attempt) -> None:
        """Write the chosen node as the pod's nomination, as kube-scheduler does (NominatedNodeNameForExpectation)."""
        pod = attempt.info.pod
        if pod.status.nominated_node_name == attempt.node_name:
            return
        meta = pod.metadata
        # It need not be cleared after the bind: the API server clears the nomination of a pod that it binds.
        self.queue.nominator.written(meta.uid, attempt.node_name)
        self.writer.patch_pod_status(
            PodStatusPatch(meta.namespace, meta.name, meta.uid, nominated_node_name=attempt.node_name)
        )

    async def _send(self, attempt: Attempt) -> Status:
        """Bind the pod with the extender that binds such pods, or else with the Bind plugins.

        Raises:
            BoundElsewhereError: Another scheduler has bound the pod to another node.
        """
        instance = attempt.instance
        try:
            if instance.extenders and (binder := binder_of(instance.extenders, attempt.info.pod)) is not None:
                status = await self._send_by(binder, attempt)
                if status is not None:
                    return status
            try:
                return await run_binds(instance, attempt.state, attempt.info, attempt.node_name)
            except WriteTimeoutError as lost:
                return await self._read_outcome(attempt, lost)
        except BoundElsewhereError:
            raise
        except Exception as fault:
            # Whatever raised, the API server may have bound the pod.
            text = "the bind of pod %s raised; the pod is read to find out whether it is bound"
            log.log(
                logging.WARNING if isinstance(fault, UnclearBindError) else logging.ERROR,
                text,
                attempt.info.key,
                exc_info=fault,
                extra=attempt.log_fields(),
            )
            failed = fault.status if isinstance(fault, UnclearBindError) else error(error_message(fault))
            return await self._read_outcome(attempt, fault, failed)

    async def _send_by(self, binder: ExtenderRunner, attempt: Attempt) -> Status | None:
        """Bind the pod with an extender; return None if its failure is ignored, and the Bind plugins bind the pod."""
        if attempt.state.bind_annotations:
            return error(
                "a plugin annotates the pod by its bind, and the extender that binds the pod cannot; "
                "remove the extender's bindVerb, or disable the plugin"
            )
        meta = attempt.info.pod.metadata
        try:
            await binder.client.bind(Binding(meta.namespace, meta.name, meta.uid, attempt.node_name))
        except ExtenderError as fault:
            # The Bind plugins bind only after a read has shown that the extender did not: two binds of one pod would
            # race otherwise.
            status = await self._read_outcome(attempt, fault)
            if status.is_success or not binder.config.ignorable:
                return status
            text = "pod %s is bound without an extender that may be ignored: %s"
            log.warning(text, attempt.info.key, fault, extra=attempt.log_fields())
            return None
        return SUCCESS

    async def _read_outcome(self, attempt: Attempt, lost: Exception, failed: Status | None = None) -> Status:
        """Return the outcome of a bind whose response was lost or unclear, by reading the pod until that succeeds.

        Args:
            lost: Why the outcome is not known.
            failed: The outcome if the pod is not bound; None for a general error.

        Raises:
            BoundElsewhereError: Another scheduler has bound the pod to another node.
        """
        meta, node_name, pause = attempt.info.pod.metadata, attempt.node_name, _FIRST_PAUSE_SECONDS
        # The pod stays assumed meanwhile: to release the node on a wrong guess would overcommit it.
        while True:
            try:
                pod = await self.writer.read_pod(meta.namespace, meta.name)
                break
            except ClusterWriteError as unread:
                text = "whether pod %s is bound to node %s cannot be read: %s"
                log.warning(text, attempt.info.key, node_name, unread, extra=attempt.log_fields())
            await self.clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        if pod is not None and pod.metadata.uid == meta.uid and pod.spec.node_name:
            if pod.spec.node_name == node_name:
                return SUCCESS
            raise BoundElsewhereError(f"the pod was read and is bound to node {pod.spec.node_name}", pod.spec.node_name)
        if failed is not None:
            return failed
        how = "failed" if isinstance(lost, ExtenderError) else "was not answered"
        message = f"the pod was read and is not bound to node {node_name}, after its bind {how}: {lost}"
        return Status(Code.ERROR, (message,), is_of_cluster=isinstance(lost, ClusterWriteError))

    def _is_seen_bound(self, attempt: Attempt) -> bool:
        """Return whether a watch has shown the pod on the node; the bind then took effect even without a response."""
        placed = self.cache.get(attempt.info.uid)
        if placed is None or placed.state is not PodState.ADDED:
            return False
        return placed.info.node_name == attempt.node_name


def _report_to_gang(attempt: Attempt, message: str, *, is_error: bool) -> None:
    if attempt.gang is not None:
        try_twice(attempt.gang.failed, attempt.info.uid, attempt.info.key, message, is_error=is_error)


def node_of_rival(cache: ClusterCache, attempt: Attempt) -> str:
    """Return the other node on which a watch has shown the attempt's pod; "" for none."""
    placed = cache.placed.get(attempt.info.uid)
    if placed is None or placed.state is not PodState.ADDED or placed.info.node_name == attempt.node_name:
        return ""
    return placed.info.node_name


_ROUNDING_SECONDS = 1e-6
WRITING_SECONDS = 1.0
"""Time that the writes of PreBind take, roughly; a PreBind that takes longer waits for something else."""


class IdleBinds:
    """Number of binding cycles in PreBind, at the barrier of a gang, or whose bind is held, that send nothing.

    The scheduling loop stops while too many binds are in progress, so that pods are not assumed faster than their binds
    can be sent.

    Attributes:
        on_idle: Called when it has grown.
    """

    __slots__ = ("_clock", "_due", "count", "on_idle")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[object, float] = {}
        self.count = 0
        self.on_idle: Callable[[], None] = lambda: None

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Count a binding cycle for the block."""
        try:
            self.count += 1
            self.on_idle()
            yield
        finally:
            self.count -= 1

    def begin_writes(self) -> object:
        """Let :meth:`count_due` count a binding cycle :data:`WRITING_SECONDS` from now, until :meth:`end_writes`."""
        # A pod that waits minutes for a volume, a device or the other members of its gang sends nothing. If it counted
        # as a bind in progress, the pods of one user whose volumes are not provisioned would stop the scheduling of all
        # others. A timer for each pod costs a tenth of its binding cycle.
        cycle = object()
        self._due[cycle] = self._clock.now() + WRITING_SECONDS
        return cycle

    def end_writes(self, cycle: object) -> None:
        if self._due.pop(cycle, None) is None:
            self.count -= 1

    def count_due(self) -> float:
        """Count the binding cycles that are due; return the seconds until the next one is, or may be."""
        now = self._clock.now()
        while self._due:
            cycle, due = next(iter(self._due.items()))
            if due - now > _ROUNDING_SECONDS:
                return due - now
            del self._due[cycle]
            self.count += 1
        # Binding cycles that wait for the end of a suspension begin their writes later.
        return WRITING_SECONDS


# -- outcomes ---------------------------------------------------------------------------------------------------------

_POST_BIND = CycleStage.POST_BIND


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingOutcomes:
    """Ends binding cycles.

    Args:
        rival_bound: Receives a pod that another client bound, once it is counted on its node.
    """

    cache: ClusterCache
    queue: SchedulingQueue
    writer: ClusterWriter
    clock: Clock
    report: CycleReport
    assumed: AssumedPods
    failures: FailedAttempts
    freed: FreedCapacity
    errors: InternalErrors
    rival_bound: Callable[[PodInfo], None]

    def bound(self, attempt: Attempt) -> None:
        info, pod, instance = attempt.info, attempt.info.pod, attempt.instance
        note = f"Successfully assigned {info.key} to {attempt.node_name}"
        regarding = ObjectReference("Pod", pod.metadata.name, pod.metadata.namespace, info.uid)
        event = Event(regarding, "Normal", "Scheduled", "Binding", note, reporting_controller=instance.name)
        recorder = attempt.state.recorder
        logging_steps: tuple[tuple[Any, ...], ...] = ()
        post_binds: tuple[tuple[Any, ...], ...] = ()
        if DECISIONS.isEnabledFor(logging.DEBUG):
            counts = attempt.feasible_count, self.cache.columns.count
            logging_steps = ((log_bound, attempt.queued, attempt.log_fields, *counts),)
        if instance.post_bind:
            post_binds = ((run_post_binds, instance, attempt.state, info, attempt.node_name),)
        # The pod is bound, so an error in one of these steps must not keep the others from running.
        try_all(
            (self.cache.finish_binding, info.uid, self.clock.now()),
            (self.queue.scheduled, attempt.queued),
            (self.writer.record, event),
            (self.report.pod_bound, attempt),
            *logging_steps,
            (recorder.enter, _POST_BIND),
            *post_binds,
            (recorder.leave, _POST_BIND, Code.SUCCESS),
            (self.report.binding_ended, attempt, SCHEDULED),
            (attempt.end,),
        )
        if attempt.state.to_activate is not None:
            try_twice(self.queue.activate, attempt.state.to_activate.take())

    def interrupted(self, attempt: Attempt, failure: Failure | None, fault: Exception, node_name: str) -> None:
        """End a binding cycle whose end raised.

        Args:
            failure: Why the pod is not bound to its node; None for a bound pod, which stays on its node.
            node_name: Its node, from which it may be released already.
        """
        if failure is None:
            text = "the end of the bind of pod %s failed in the scheduler itself"
            try_twice(log.error, text, attempt.info.key, exc_info=fault, extra=attempt.log_fields())
            try_twice(self.bound, attempt)
            return
        if failure.bound_to and try_twice(self._bound_elsewhere, attempt, failure.bound_to):
            return
        # As a failure that nothing interrupts: the nomination that the attempt wrote ends, and its room is reported.
        self.errors.interrupted(attempt.queued, attempt, fault, failure.nominated_node)
        try_twice(self.freed.report, attempt.info.pod, node_name)

    def cancelled(self, attempt: Attempt) -> None:
        """Release the pod of a cancelled binding cycle, and drop it from the queue."""
        try_twice(self.assumed.release_unbound, attempt)
        try_twice(self.failures.drop, attempt)

    def failed(self, attempt: Attempt, failure: Failure) -> None:
        if failure.bound_to:
            self._bound_elsewhere(attempt, failure.bound_to)
            return
        pod, node_name = attempt.info.pod, attempt.node_name
        self.assumed.release_unbound(attempt)
        self.report.binding_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        if failure.is_error:
            self.freed.report(pod, node_name)
            self.failures.handle(attempt, failure)
        else:
            # Requeued before the room is reported, because its own release must not activate a rejected pod.
            self.failures.handle(attempt, failure)
            self.freed.report(pod, node_name, exclude=attempt.info.uid)

    def _bound_elsewhere(self, attempt: Attempt, rival_node_name: str) -> None:
        """Count a pod on the node to which another scheduler bound it, release it here and end its attempt."""
        info, node_name, nominator = attempt.info, attempt.node_name, self.queue.nominator
        nominated_node, nominated = nominator.node_of(info.uid), nominator.nomination_of(info.uid)
        text = (
            "another scheduler has bound pod %s of profile %s to node %s, while node %s was chosen here; make sure "
            "that only one scheduler serves each schedulerName"
        )
        # kube-scheduler v1.37.1 requeues such a pod until a watch shows it bound (``handleSchedulingFailure``). Here it
        # is not requeued, also if one of these steps raises: it is bound, so another bind would be rejected too, and
        # PodScheduled=False or FailedScheduling would be false.
        try_all(
            # First, so that its room is never free: the watch may be late.
            (self._count_there, attempt, rival_node_name),
            (self.assumed.release_unbound, attempt),
            (self.report.binding_ended, attempt, ERROR),
            (self.report.bind_lost, attempt, node_name, rival_node_name),
            (log.warning, text, info.key, attempt.instance.name, rival_node_name, node_name),
            (attempt.end,),
            (self._leave_queue, attempt),
            (self.freed.report, info.pod, node_name),
        )
        if nominated is not None:
            try_twice(self.freed.nomination_unused, nominated, nominated_node, rival_node_name)

    def _leave_queue(self, attempt: Attempt) -> None:
        uid = attempt.info.uid
        held = self.queue.find(uid)
        if held is attempt.queued:
            self.queue.remove(uid)
        if held is None or held is attempt.queued:
            # Otherwise it was removed and added again, and that entry does not belong to this attempt.
            self.queue.done(uid)

    def _count_there(self, attempt: Attempt, rival_node_name: str) -> None:
        placed = self.cache.get(attempt.info.uid)
        if placed is not None and placed.state is not PodState.ADDED:
            # An unknown pod was deleted meanwhile; no later event would remove it from the cache.
            self.rival_bound(self.cache.add_pod(on_node(rival_node_name, placed.info.pod)))
