"""The binding cycle: wait on Permit, PreBind, Bind, PostBind, run as a task of its own.

It ends with the pod bound, or with everything released in reverse order and the pod requeued, unless another scheduler
has bound the pod (``lost_binds``). Follows kube-scheduler v1.37.1 (``bindingCycle``).

A pod that is rejected before Permit has passed is unschedulable and is requeued by the events that occurred meanwhile;
any later failure is retried after backoff. If the outcome of a bind is unknown, the pod is read until it is known.
"""

from __future__ import annotations

import logging
from functools import partial

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.binding_outcomes import BoundPods, FailedBinds
from scheduler_core.cycle.bound_elsewhere import node_of_rival
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.failure_handler import Failure, of_status, too_late
from scheduler_core.cycle.idle_binds import IdleBinds
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import (
    BoundElsewhereError,
    ClusterWriteError,
    ExtenderError,
    WriteTimeoutError,
    error_message,
)
from scheduler_core.framework.cycle_stages import CycleStage
from scheduler_core.framework.cycle_state import bind_annotations
from scheduler_core.framework.status import SUCCESS, Code, Status, error
from scheduler_core.ports import Binding, Clock, ClusterWriter, PodStatusPatch
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.binding import UnclearBindError, run_binds, run_pre_bind_pre_flights
from scheduler_core.runtime.extenders import binder_of
from scheduler_core.runtime.pre_binding import PodsInPreBind, run_pre_binds
from scheduler_core.runtime.reserve_and_permit import WaitingPodMap
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement

log = logging.getLogger(__name__)
_PRE_BIND_PRE_FLIGHT, _PRE_BIND = CycleStage.PRE_BIND_PRE_FLIGHT, CycleStage.PRE_BIND
_BIND = CycleStage.BIND

_FIRST_PAUSE_SECONDS = 1.0
_LONGEST_PAUSE_SECONDS = 16.0


class BindingCycle:
    """Binding cycles.

    Args:
        preparation: Permit and PreBind.
        requests: Sends the binds.
        bound: Records bound pods.
        failed: Handles binding cycles that end without a bind.
        suspension: Whether a scheduling cycle awaits an extender.
        cache: Shows which pods other schedulers have bound.
    """

    def __init__(
        self,
        *,
        preparation: BindPreparation,
        requests: BindRequests,
        bound: BoundPods,
        failed: FailedBinds,
        suspension: Suspension,
        cache: ClusterCache,
    ) -> None:
        self._preparation = preparation
        self._requests = requests
        self._bound = bound
        self._failed = failed
        self._suspension = suspension
        self._cache = cache

    async def bind(self, attempt: Attempt) -> bool:
        """Run one binding cycle.

        Returns:
            Whether the pod was bound. Raises only if its task is cancelled, after it has released the pod.
        """
        together = attempt.gang
        try:
            return await self._run(attempt)
        finally:
            if together is not None:
                try_twice(together.ended)

    async def _run(self, attempt: Attempt) -> bool:
        try:
            failure = await self._try_to_bind(attempt)
            # The steps below change state that a cycle suspended for an extender still reads.
            await self._suspension.over()
        except BaseException:
            if attempt.gang is not None:
                stopped = "the scheduler stops"
                try_twice(attempt.gang.failed, attempt.info.uid, attempt.info.key, stopped, is_error=True)
            try_twice(self._failed.cancelled, attempt)
            raise
        try:
            return self._end(attempt, failure)
        except Exception as fault:
            self._failed.interrupted(attempt, failure, fault)
            return failure is None

    def interrupted(self, attempt: Attempt, fault: Exception) -> None:
        """End a binding cycle that could not be started."""
        failure = Failure(error_message(fault), is_error=True)
        if attempt.gang is not None:
            try_twice(attempt.gang.failed, attempt.info.uid, attempt.info.key, failure.message, is_error=True)
        self._failed.interrupted(attempt, failure, fault)
        if attempt.gang is not None:
            try_twice(attempt.gang.ended)

    def _end(self, attempt: Attempt, failure: Failure | None) -> bool:
        """Record the bound pod or the failure; return whether the pod was bound."""
        rival_node_name = node_of_rival(self._cache, attempt)
        if failure is None and rival_node_name:
            # The answer was processed late, and a watch is more recent than a bind that never took effect.
            failure = Failure(f"the pod is bound to node {rival_node_name}", is_error=True)
        if failure is not None:
            if attempt.gang is not None:
                uid, key = attempt.info.uid, attempt.info.key
                attempt.gang.failed(uid, key, failure.message, is_error=failure.is_error)
            self._failed.record(attempt, failure, failure.bound_to or rival_node_name)
            return False
        self._bound.record(attempt)
        return True

    async def _try_to_bind(self, attempt: Attempt) -> Failure | None:
        try:
            failure = await self._preparation.prepare(attempt)
            return failure or await self._bind(attempt)
        except Exception as fault:
            attempt.state.recorder.interrupt()
            log.exception("binding pod %s failed in the scheduler itself", attempt.info.key, extra=attempt.log_fields())
            return Failure(error_message(fault), is_error=True)

    async def _bind(self, attempt: Attempt) -> Failure | None:
        if node_of_rival(self._cache, attempt):
            return Failure("another scheduler has bound the pod", is_error=True)
        recorder = attempt.state.recorder
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

    async def _send(self, attempt: Attempt) -> Status:
        """Send the bind; whatever raises, the outcome is that on the API server."""
        try:
            return await self._requests.send(attempt)
        except BoundElsewhereError:
            raise
        except Exception as fault:
            text = "the bind of pod %s raised; the pod is read to find out whether it is bound"
            log.log(
                logging.WARNING if isinstance(fault, UnclearBindError) else logging.ERROR,
                text,
                attempt.info.key,
                exc_info=fault,
                extra=attempt.log_fields(),
            )
            return await self._requests.outcome_of(attempt, fault)

    def _is_seen_bound(self, attempt: Attempt) -> bool:
        """Return whether a watch has shown the pod on the node; the bind then took effect even without a response."""
        placed = self._cache.get(attempt.info.uid)
        if placed is None or placed.placement is not Placement.ADDED:
            return False
        return placed.info.node_name == attempt.node_name


class BindPreparation:
    """The steps before a bind: the wait on Permit, PreBind, and the wait for the other members of a gang.

    Args:
        waiting: Pods that wait at Permit.
        in_pre_bind: Pods whose PreBind runs.
        idle: Counts binding cycles that wait.
        queue: Records events for attempts that may still be rejected.
        suspension: Whether a scheduling cycle awaits an extender.
        writer: Writer of nominations.
        report: Report of cycles.
    """

    def __init__(
        self,
        *,
        waiting: WaitingPodMap,
        in_pre_bind: PodsInPreBind,
        idle: IdleBinds,
        queue: SchedulingQueue,
        suspension: Suspension,
        writer: ClusterWriter,
        report: CycleReport,
    ) -> None:
        self._waiting = waiting
        self._in_pre_bind = in_pre_bind
        self._idle = idle
        self._queue = queue
        self._suspension = suspension
        self._writer = writer
        self._report = report

    async def prepare(self, attempt: Attempt) -> Failure | None:
        """Run all steps; return why the pod must not be bound, None if it may be."""
        instance, state, info, node_name = attempt.instance, attempt.state, attempt.info, attempt.node_name
        waits = self._waiting.get(info.uid) is not None
        has_to_prepare, recorder = False, state.recorder
        if instance.pre_bind:
            recorder.enter(_PRE_BIND_PRE_FLIGHT)
            status = run_pre_bind_pre_flights(instance, state, info, node_name)
            recorder.leave(_PRE_BIND_PRE_FLIGHT, status.code)
            if status.code is Code.ERROR:
                return of_status(status)
            has_to_prepare = status.is_success
        if has_to_prepare or waits:
            self._write_expected_node(attempt)
            if attempt.gang is not None:
                attempt.gang.delayed()
        if waits:
            recorder.enter(CycleStage.WAIT_ON_PERMIT)
            if attempt.gang is not None and (waiting := self._waiting.get(info.uid)) is not None:
                attempt.gang.waits(info, f"Permit ({', '.join(sorted(waiting.pending_plugins()))})")
            status = await self._waiting.wait(info.uid)
            if attempt.gang is not None:
                attempt.gang.waits(info, "")
            recorder.leave(CycleStage.WAIT_ON_PERMIT, status.code)
            self._report.permit_waited(attempt, status)
            if not status.is_success:
                return of_status(status)
        # A failure from here on always backs off, so its events need not be recorded.
        self._queue.end_recording(info.uid)
        if has_to_prepare:
            await self._suspension.over()
            recorder.enter(_PRE_BIND)
            if attempt.gang is not None:
                attempt.gang.waits(info, "PreBind")
            with self._in_pre_bind.hold(info, node_name) as held, self._idle.waits_after_writes():
                status = await run_pre_binds(instance, state, held)
            recorder.leave(_PRE_BIND, status.code)
            if attempt.gang is not None:
                attempt.gang.waits(info, "")
            if not status.is_success:
                return too_late(status)
        if attempt.gang is not None:
            is_nominated = has_to_prepare or waits
            nominate = None if is_nominated else partial(self._write_expected_node, attempt)
            with self._idle.waits():
                status = await attempt.gang.ready(info.uid, nominate)
            if not status.is_success:
                return too_late(status)
        return None

    def _write_expected_node(self, attempt: Attempt) -> None:
        """Write the chosen node as the pod's nomination, so that it is visible while Permit or PreBind take time.

        As kube-scheduler v1.37.1 does (NominatedNodeNameForExpectation). It has no barrier at which members wait.

        It need not be cleared after the bind: the API server clears the nomination of a pod that it binds.
        """
        pod = attempt.info.pod
        if pod.status.nominated_node_name == attempt.node_name:
            return
        meta = pod.metadata
        self._queue.nominator.written(meta.uid, attempt.node_name)
        self._writer.patch_pod_status(
            PodStatusPatch(meta.namespace, meta.name, meta.uid, nominated_node_name=attempt.node_name)
        )


class BindRequests:
    """Sends binds, and finds out the outcome of those whose response was lost.

    Args:
        writer: Reads pods.
        clock: Time.
    """

    def __init__(self, writer: ClusterWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock

    async def send(self, attempt: Attempt) -> Status:
        """Bind the pod with the extender that binds such pods, or else with the Bind plugins.

        If an extender with ``ignorable`` fails, the Bind plugins bind the pod, but only after a read has shown that the
        extender did not: two binds of one pod could otherwise race.

        Raises:
            BoundElsewhereError: Another scheduler has bound the pod to another node.
        """
        instance, info, node_name = attempt.instance, attempt.info, attempt.node_name
        binder = binder_of(instance.extenders, info.pod) if instance.extenders else None
        if binder is not None:
            if bind_annotations(attempt.state):
                return error(
                    "a plugin annotates the pod by its bind, and the extender that binds the pod cannot; "
                    "remove the extender's bindVerb, or disable the plugin"
                )
            meta = info.pod.metadata
            try:
                await binder.client.bind(Binding(meta.namespace, meta.name, meta.uid, node_name))
            except ExtenderError as fault:
                status = await self._read_outcome(attempt, fault)
                if status.is_success or not binder.config.ignorable:
                    return status
                text = "pod %s is bound without an extender that may be ignored: %s"
                log.warning(text, info.key, fault, extra=attempt.log_fields())
            else:
                return SUCCESS
        try:
            return await run_binds(instance, attempt.state, info, node_name)
        except WriteTimeoutError as lost:
            return await self._read_outcome(attempt, lost)

    async def outcome_of(self, attempt: Attempt, fault: Exception) -> Status:
        """Return the outcome of a bind during which something raised, possibly after the pod was bound.

        Raises:
            BoundElsewhereError: Another scheduler has bound the pod to another node.
        """
        failed = fault.status if isinstance(fault, UnclearBindError) else error(error_message(fault))
        return await self._read_outcome(attempt, fault, failed)

    async def _read_outcome(self, attempt: Attempt, lost: Exception, failed: Status | None = None) -> Status:
        """Return the outcome of a bind whose response was lost or unclear, by reading the pod until that succeeds.

        The pod stays assumed meanwhile: releasing the node on a wrong guess would overcommit it.

        Args:
            attempt: The attempt.
            lost: Why the outcome is not known.
            failed: The outcome if the pod is not bound; None for a general error.

        Raises:
            BoundElsewhereError: Another scheduler has bound the pod to another node.
        """
        meta, node_name, pause = attempt.info.pod.metadata, attempt.node_name, _FIRST_PAUSE_SECONDS
        while True:
            try:
                pod = await self._writer.read_pod(meta.namespace, meta.name)
                break
            except ClusterWriteError as unread:
                text = "whether pod %s is bound to node %s cannot be read: %s"
                log.warning(text, attempt.info.key, node_name, unread, extra=attempt.log_fields())
            await self._clock.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
        if pod is not None and pod.metadata.uid == meta.uid and pod.spec.node_name:
            if pod.spec.node_name == node_name:
                return SUCCESS
            raise BoundElsewhereError(f"the pod was read and is bound to node {pod.spec.node_name}", pod.spec.node_name)
        if failed is not None:
            return failed
        how = "failed" if isinstance(lost, ExtenderError) else "was not answered"
        return error(f"the pod was read and is not bound to node {node_name}, after its bind {how}: {lost}")
