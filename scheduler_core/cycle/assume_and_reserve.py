"""The end of a scheduling cycle: assume a pod on its node, run Reserve and Permit, and release the pod if one fails."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.failure_handler import Failure, of_status
from scheduler_core.cycle.freed_capacity_event import FreedCapacity
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.status import Code
from scheduler_core.framework.waiting_pods import WaitingPods
from scheduler_core.model.devices import ClaimConsumer
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.binding import run_permit, run_reserve, run_unreserve
from scheduler_core.snapshot.cluster_cache import ClusterCache

log = logging.getLogger(__name__)

_RESERVE, _PERMIT, _UNRESERVE = CycleStage.RESERVE, CycleStage.PERMIT, CycleStage.UNRESERVE


class AssumedPods:
    """Assumes and releases the pods of attempts."""

    def __init__(self, cache: ClusterCache, queue: SchedulingQueue, waiting: WaitingPods, freed: FreedCapacity) -> None:
        self._cache = cache
        self._gangs = queue.gangs
        self._nominator = queue.nominator
        self._waiting = waiting
        self._freed = freed
        self._open: dict[str, Attempt] = {}
        """By UID of the pod, attempts that are assumed and that no binding cycle has taken over, in this order."""

    def hand_over(self, attempt: Attempt) -> None:
        """Leave an assumed pod to its binding cycle: :meth:`undo` does not release it any more."""
        self._open.pop(attempt.info.uid, None)
        if self._cache.columns.overlays:
            # A plugin's dry run raised, and the plugin returned all the same.
            self._cache.columns.undo_overlays(0)

    def undo(self, begun: int = 0, overlays: int = 0) -> None:
        """Undo what was assumed after the first *begun* attempts and not handed over, the last first, and overlays."""
        for attempt in reversed(list(self._open.values())[begun:]):
            try:
                self.release(attempt)
            except Exception:
                # The pods that were assumed before it are released, too.
                log.exception("pod %s could not be released; it is tried once more", attempt.info.key)
                self.release(attempt)
        self._cache.columns.undo_overlays(overlays)

    def mark(self) -> tuple[int, int]:
        """Return the arguments with which :meth:`undo` undoes what is assumed and changed from now on."""
        return len(self._open), len(self._cache.columns.overlays)

    @contextmanager
    def undone(self) -> Iterator[None]:
        """Undo what the block assumes, whatever it raises."""
        begun = self.mark()
        try:
            yield
        finally:
            self.undo(*begun)

    def reserve_and_permit(self, attempt: Attempt, node_name: str) -> Failure | None:
        """Assume the pod, run Reserve and Permit; the caller releases the pod if that fails."""
        if attempt.info.pod.spec.node_name:
            # A running pod whose resize fits waits for the kubelet. No plugin rejects it, so it is tried again after
            # backoff, as in kube-scheduler v1.37.1, which fails to assume it.
            return Failure(f"the resize fits on node {node_name}; waiting for the kubelet")
        failure = self.reserve(attempt, node_name)
        if self._nominator.node_by_uid:
            self.end_nomination(attempt)
        return failure or self.permit(attempt)

    def reserve(self, attempt: Attempt, node_name: str) -> Failure | None:
        """Assume the pod and run Reserve; :meth:`release` undoes this completely."""
        if attempt.recorder is not None:
            attempt.search_ended = attempt.recorder.times[-1]
        self._cache.assume(attempt.info, node_name)
        # No call may come between: release() undoes an attempt that has a node.
        attempt.node_name = node_name
        self._open[attempt.info.uid] = attempt
        if attempt.queued.group is not None:
            self._gangs.assumed(attempt.info.uid)
        recorder = attempt.state.recorder
        recorder.enter(_RESERVE)
        status = run_reserve(attempt.instance, attempt.state, attempt.info, node_name)
        recorder.leave(_RESERVE, status.code)
        return None if status.is_success else of_status(status)

    def reserve_or_release(self, attempt: Attempt, node_name: str) -> Failure | None:
        """Assume the pod and run Reserve; if that fails, the pod is released."""
        try:
            failure = self.reserve(attempt, node_name)
        except BaseException:
            self.release(attempt)
            raise
        if failure is not None:
            self.release(attempt)
        return failure

    def end_nomination(self, attempt: Attempt) -> None:
        """Withdraw the nomination of an assumed pod, and report the room if that was another node."""
        uid = attempt.info.uid
        nominated = self._nominator.nomination_of(uid)
        if nominated is not None:
            node_name = self._nominator.node_of(uid)
            self._nominator.withdraw(uid)
            self._freed.nomination_unused(nominated, node_name, attempt.node_name)

    def permit(self, attempt: Attempt) -> Failure | None:
        recorder = attempt.state.recorder
        recorder.enter(_PERMIT)
        if not attempt.instance.permit:
            recorder.leave(_PERMIT, Code.SUCCESS)
            return None
        status, waits = run_permit(attempt.instance, attempt.state, attempt.info, attempt.node_name)
        recorder.leave(_PERMIT, status.code)
        if status.code is Code.WAIT:
            self._waiting.add(attempt.info, attempt.node_name, waits)
            return None
        return None if status.is_success else of_status(status)

    def move(self, attempt: Attempt, node_name: str) -> bool:
        """Release a pod and assume it on another node, as a replayed record has it; return whether that succeeded."""
        self.release(attempt)
        if self._cache.columns.row_of(node_name) < 0:
            return False
        try:
            failure = self.reserve(attempt, node_name) or self.permit(attempt)
        except Exception:
            log.exception("pod %s cannot be placed on node %s", attempt.info.key, node_name)
            return False
        return failure is None

    def release_unbound(self, attempt: Attempt) -> None:
        """Release a pod whose binding cycle has failed, and report devices that nothing else will report as free."""
        devices = self._cache.columns.devices
        held, full = devices.in_flight_of(attempt.info.uid), devices.full_claims_of(attempt.info.uid)
        self.release(attempt)
        devices.report_freed(held)
        devices.report_dropped(full, ClaimConsumer("pods", attempt.info.pod.metadata.name, attempt.info.uid))

    def release(self, attempt: Attempt) -> None:
        """Run Unreserve and drop the pod from the cache; no effect if it is not assumed."""
        if not attempt.node_name:
            return
        # Every step can be repeated: if one raises, the caller calls this again.
        self._waiting.discard(attempt.info.uid)
        recorder = attempt.state.recorder
        recorder.enter(_UNRESERVE)
        run_unreserve(attempt.instance, attempt.state, attempt.info, attempt.node_name)
        recorder.leave(_UNRESERVE, Code.SUCCESS)
        self._cache.forget(attempt.info)
        if attempt.queued.group is not None:
            self._gangs.released(attempt.info.uid)
        # Only now, because an attempt without a node counts as released.
        attempt.node_name = ""
        self._open.pop(attempt.info.uid, None)
