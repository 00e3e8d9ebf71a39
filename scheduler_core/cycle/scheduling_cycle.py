"""The scheduling cycle of one pod: from the pop to assumed, reserved and permitted, without awaiting.

A long search continues in a copy of the process (:mod:`scheduler_core.cycle.background_search`). In the copy, each
``send_*`` ends the copy and does not return. The cycle then ends here with the result: a node is checked before
Reserve, and what PostFilter planned is done.

Follows kube-scheduler v1.37.1 (``schedulingCycle``).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.background_search import MovedSearch, SearchMovedError
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.decided_pods import DecidedPods
from scheduler_core.cycle.failure_handler import FailedAttempts, Failure, delay_of, failed_scheduling, no_fit
from scheduler_core.cycle.filter_and_score import NoNodesError
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.internal_errors import InternalErrors, try_twice
from scheduler_core.cycle.moved_pods import MovedPods, SeatedPod
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError, error_message
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.scheduler_metrics import ERROR, UNSCHEDULABLE
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ClusterWriter
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.post_filtering import carry_out, plan_post_filters
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache

log = logging.getLogger(__name__)
_POST_FILTER = CycleStage.POST_FILTER


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingCycle:
    """Scheduling cycles of profiles without extenders; their beginning and end serve the other cycles, too."""

    profiles: ProfileTable
    queue: SchedulingQueue
    cache: ClusterCache
    domains: MemberDomains
    writer: ClusterWriter
    report: CycleReport
    choice: NodeChoice
    assumed: AssumedPods
    failed: FailedAttempts
    decided: DecidedPods
    errors: InternalErrors
    moved: MovedPods

    def schedule(self, queued: QueuedPod, ended: MovedSearch | None = None) -> Attempt | None:
        """Run one scheduling cycle.

        Args:
            queued: The popped pod; if its profile is not live, it is parked.
            ended: The search of the cycle, which was made in another process; None to search now.

        Returns:
            The attempt, whose pod is assumed and must be bound; None if it failed, the pod was skipped, or its search
            continues in another process.
        """
        attempt, background, start = None, self.moved.background, self.moved.order.next_start
        try:
            attempt = self.begin(queued)
            if attempt is not None and ended is not None:
                is_used, failure = self._use(attempt, ended)
                if is_used:
                    return self.conclude(attempt, failure)
                self._drop(attempt)
                attempt = self.begin(queued)
            if attempt is None:
                background.forget(queued, ended)
                return None
            if background.is_enabled:
                self.moved.attempt = attempt
                background.begin(queued, self.moved)
            failure = self._search_and_reserve(attempt)
            if background.searched:
                background.forget(queued)
            return self.conclude(attempt, failure)
        except SearchMovedError as moved:
            assert attempt is not None, "only an attempt has a search"
            try:
                self._leave(attempt, moved, start)
            except Exception as error:
                try_twice(background.withdraw, queued)
                self.errors.interrupted(queued, attempt, error)
            return None
        except Exception as error:
            try_twice(background.forget, queued, ended)
            self.errors.interrupted(queued, attempt, error)
            return None
        except BaseException:
            try_twice(background.forget, queued, ended)
            if attempt is not None:
                self.cancel(attempt)
            raise

    def _search_and_reserve(self, attempt: Attempt) -> Failure | None:
        """Choose a node and assume the pod, or run PostFilter: kube-scheduler's ``schedulingCycle``.

        Returns:
            Why the attempt failed; None if the pod is assumed.
        """
        diagnosis: Diagnosis | None = None
        failure: Failure | None
        try:
            node_name = self.choice.reuse(attempt)
            if not node_name:
                node_name, diagnosis = self.choice.search(attempt)
            if diagnosis is not None and not node_name:
                failure = self._post_filter(attempt, diagnosis)
            else:
                # Reserve and Permit run in this process.
                self.moved.steps.on_long_search = None
                if self.moved.background.is_copy:
                    self.moved.send_node(attempt, node_name)
                failure = self.assumed.reserve_and_permit(attempt, node_name)
        except Exception as error:
            failure = failure_of(attempt, error)
        self.moved.steps.on_long_search = None
        if self.moved.background.is_copy and failure is not None:
            self.moved.send_rejection(attempt, failure)
        return failure

    def _leave(self, attempt: Attempt, moved: SearchMovedError, start: int) -> None:
        self.moved.order.next_start = start
        if moved.search is None:
            self.moved.background.wait(attempt.queued, moved)
        else:
            moved.search.hold(self.moved.basis(attempt, start))
        self._drop(attempt)

    def _drop(self, attempt: Attempt) -> None:
        self.moved.attempt = None
        self.assumed.undo()
        self.report.release_recorder(attempt)
        attempt.end()

    def _use(self, attempt: Attempt, ended: MovedSearch) -> tuple[bool, Failure | None]:
        """Reserve the node that another process has found, or do what it has planned for a rejected pod.

        Returns:
            Whether the result is used, and why the pod failed, None if it is assumed and permitted. If the result does
            not hold any more, nothing is assumed.
        """
        background = self.moved.background
        try:
            found = self.moved.check(attempt, ended)
        except Exception as fault:
            # The pod is searched again, where the error is reported if it persists.
            text = "the result for pod %s cannot be used"
            try_twice(log.error, text, attempt.info.key, exc_info=fault, extra=attempt.log_fields())
            found = None
        finally:
            try_twice(ended.close)
        if found is None:
            background.counts.outdated += ended.result is not None
            self.moved.steps.begin_attempt()
            return False, None
        # From here on the result is used: an error in Reserve or PostFilter is that of this attempt.
        background.counts.used += 1
        background.forget(attempt.queued)
        attempt.is_of_earlier_state = True
        try:
            if isinstance(found, SeatedPod):
                return True, self.assumed.reserve_and_permit(attempt, found.node_name)
            carry_out(attempt.instance, attempt.info, found.planned)
        except Exception as error:
            return True, failure_of(attempt, error)
        return True, found.result.failure

    def begin(self, queued: QueuedPod) -> Attempt | None:
        """Begin an attempt; None if the pod is parked or skipped instead."""
        instance, pod = self.profiles.live.get(queued.profile), queued.info.pod
        if instance is None:
            self.queue.failed(queued)
            return None
        if pod.metadata.deletion_timestamp is not None:
            self._skip_deleted(pod)
            return None
        if queued.uid in self.cache.placed and not pod.has_deferred_resize:
            # Assumed or bound already. A running pod whose resize is deferred is tried.
            self.queue.done(queued.uid)
            return None
        attempt = self.report.begin_attempt(queued, instance)
        if queued.group is not None:
            restrict_to_domain(self.domains, attempt)
        # Attempt.begin(), without the call.
        instance.in_flight += 1
        attempt.is_counted = True
        return attempt

    def conclude(self, attempt: Attempt, failure: Failure | None) -> Attempt | None:
        """End the cycle: return the attempt for its binding cycle, or release the pod and report the failure."""
        if self.decided.profiles:
            self.decided.decided(attempt, failure)
        if failure is None:
            self.report.scheduling_ended(attempt)
            if attempt.state.to_activate is not None:
                self.queue.activate(attempt.state.to_activate.take())
            # Last: until then an exception releases the pod.
            self.assumed.hand_over(attempt)
            return attempt
        self.assumed.release(attempt)
        # A plugin's dry run may have raised, and left hypothetical changes.
        self.assumed.undo()
        self.report.scheduling_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        self.failed.handle(attempt, failure)
        return None

    def cancel(self, attempt: Attempt) -> None:
        """Release and requeue the pod of a cycle that is cancelled between two slices, or while it awaits."""
        self.assumed.release(attempt)
        self.queue.failed(attempt.queued)
        attempt.end()

    def _post_filter(self, attempt: Attempt, diagnosis: Diagnosis) -> Failure:
        attempt.state.recorder.enter(_POST_FILTER)
        instance, info, delay = attempt.instance, attempt.info, delay_of(attempt)
        planned = plan_post_filters(instance, attempt.state, info, self.cache.columns, diagnosis, delay=delay)
        outcome = planned.outcome
        if not self.moved.background.is_copy:
            # What was planned is done in this process.
            self.moved.steps.on_long_search = None
            outcome = carry_out(instance, info, planned)
        attempt.state.recorder.leave(_POST_FILTER, outcome.status.code)
        diagnosis.post_filter_message = outcome.status.message
        failure = no_fit(diagnosis, outcome.nominated_node, is_delayed=outcome.is_delayed)
        if self.moved.background.is_copy:
            self.moved.send_rejection(attempt, failure, diagnosis, planned)
        return failure

    def _skip_deleted(self, pod: Pod) -> None:
        """End the attempt of a pod that is being deleted; its nomination stays, without its requests and priority."""
        note = f"skip schedule deleting pod: {pod.key}"
        self.writer.record(failed_scheduling(pod, note, pod.spec.scheduler_name))
        meta, nominator = pod.metadata, self.queue.nominator
        nominated = nominator.node_of(meta.uid)
        # Nominated again afterwards, because the end of an attempt withdraws the nomination.
        self.queue.done(meta.uid)
        if nominated:
            # A finalizer may delay the deletion for long, and the pod never needs the room. kube-scheduler v1.37.1
            # looks nominated pods up in its queues (``PriorityQueue.nominatedPodToInfo``); one that is in none of them
            # counts as a pod of priority 0 without requests.
            bare = Pod(ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid))
            nominator.nominate(self.cache.columns.compile_pod(bare), nominated)


def failure_of(attempt: Attempt, error: Exception) -> Failure:
    attempt.state.recorder.interrupt()
    if isinstance(error, NoNodesError):
        return Failure(str(error))
    if isinstance(error, AttemptLimitError):
        plugins = frozenset((error.plugin,)) if error.plugin else frozenset()
        return Failure(str(error), plugins, given_up_steps=error.steps)
    if not isinstance(error, SchedulerCoreError):
        text = "scheduling pod %s failed in the scheduler itself"
        log.error(text, attempt.info.key, exc_info=error, extra=attempt.log_fields())
    return Failure(error_message(error), is_error=True)


def restrict_to_domain(domains: MemberDomains, attempt: Attempt) -> None:
    """Restrict a member that is scheduled alone to the domain of its gang, if the gang requires one."""
    domain = domains.of_member(attempt.info.uid)
    if domain is not None:
        attempt.among, attempt.among_reason = domain.mask, domain.reason
