"""The scheduling cycle of one pod: from the pop to assumed, reserved and permitted, without awaiting.

Follows kube-scheduler v1.37.1 (``schedulingCycle``).
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.assume_and_reserve import AssumedPods
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_report import CycleReport
from scheduler_core.cycle.decided_pods import DecidedPods
from scheduler_core.cycle.failure_handler import FailedAttempts, Failure, failed_scheduling, no_fit
from scheduler_core.cycle.filter_and_score import NoNodesError
from scheduler_core.cycle.gang_constraints import MemberDomains
from scheduler_core.cycle.internal_errors import InternalErrors
from scheduler_core.cycle.reuse_or_search import NodeChoice
from scheduler_core.errors import AttemptLimitError, SchedulerCoreError, error_message
from scheduler_core.framework.cycle_state import CycleStage
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.metrics.profile_metrics import ERROR, UNSCHEDULABLE
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod
from scheduler_core.ports import ClusterWriter
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.post_filtering import run_post_filters
from scheduler_core.runtime.profile_table import ProfileTable
from scheduler_core.snapshot.cluster_cache import ClusterCache

log = logging.getLogger(__name__)
_POST_FILTER = CycleStage.POST_FILTER


class SchedulingCycle:
    """Scheduling cycles of profiles without extenders; their beginning and end serve the other cycles, too."""

    def __init__(
        self,
        *,
        profiles: ProfileTable,
        queue: SchedulingQueue,
        cache: ClusterCache,
        domains: MemberDomains,
        writer: ClusterWriter,
        report: CycleReport,
        choice: NodeChoice,
        assumed: AssumedPods,
        failed: FailedAttempts,
        decided: DecidedPods,
        errors: InternalErrors,
    ) -> None:
        self._profiles = profiles
        self._queue = queue
        self._cache = cache
        self._domains = domains
        self._writer = writer
        self._report = report
        self._choice = choice
        self._assumed = assumed
        self._failed = failed
        self._decided = decided
        self._errors = errors

    def schedule(self, queued: QueuedPod) -> Attempt | None:
        """Run one scheduling cycle.

        Args:
            queued: The popped pod; if its profile is not live, it is parked.

        Returns:
            The attempt, whose pod is assumed and must be bound; None if it failed or the pod was skipped.
        """
        attempt = None
        try:
            attempt = self.begin(queued)
            if attempt is None:
                return None
            try:
                node_name = self._choice.reuse(attempt)
                failure = self._assumed.reserve_and_permit(attempt, node_name) if node_name else self._search(attempt)
            except Exception as error:
                failure = failure_of(attempt, error)
            return self.conclude(attempt, failure)
        except Exception as error:
            self._errors.interrupted(queued, attempt, error)
            return None
        except BaseException:
            if attempt is not None:
                self.cancel(attempt)
            raise

    def begin(self, queued: QueuedPod) -> Attempt | None:
        """Begin an attempt; None if the pod is parked or skipped instead.

        A pod is skipped if it is being deleted, or is assumed or bound already. A running pod is tried if its resize is
        deferred.
        """
        instance, pod = self._profiles.live.get(queued.profile), queued.info.pod
        if instance is None:
            self._queue.failed(queued)
            return None
        if pod.metadata.deletion_timestamp is not None:
            self._skip_deleted(pod)
            return None
        if queued.uid in self._cache.placed and not pod.has_deferred_resize:
            self._queue.done(queued.uid)
            return None
        attempt = self._report.begin_attempt(queued, instance)
        if queued.group is not None:
            restrict_to_domain(self._domains, attempt)
        instance.in_flight += 1
        attempt.is_counted = True
        return attempt

    def conclude(self, attempt: Attempt, failure: Failure | None) -> Attempt | None:
        """End the cycle: return the attempt for its binding cycle, or release the pod and report the failure."""
        if self._decided.profiles:
            self._decided.decided(attempt, failure)
        if failure is None:
            self._report.scheduling_ended(attempt)
            if attempt.state.to_activate is not None:
                self._queue.activate(attempt.state.to_activate.take())
            self._assumed.hand_over(attempt)
            return attempt
        self._assumed.release(attempt)
        self._assumed.undo()
        self._report.scheduling_ended(attempt, ERROR if failure.is_error else UNSCHEDULABLE)
        self._failed.handle(attempt, failure)
        return None

    def cancel(self, attempt: Attempt) -> None:
        """Release and requeue the pod of a cycle that is cancelled between two slices, or while it awaits."""
        self._assumed.release(attempt)
        self._queue.failed(attempt.queued)
        attempt.end()

    def _search(self, attempt: Attempt) -> Failure | None:
        """Choose a node by a full search, assume the pod and run Reserve and Permit; PostFilter if no node fits."""
        node_name, diagnosis = self._choice.search(attempt)
        if not node_name:
            return no_fit(diagnosis, self._run_post_filters(attempt, diagnosis))
        return self._assumed.reserve_and_permit(attempt, node_name)

    def _run_post_filters(self, attempt: Attempt, diagnosis: Diagnosis) -> str | None:
        """Run the PostFilter plugins.

        Returns:
            The node to nominate; "" clears the nomination, None keeps it.
        """
        attempt.state.recorder.enter(_POST_FILTER)
        outcome = run_post_filters(attempt.instance, attempt.state, attempt.info, self._cache.columns, diagnosis)
        attempt.state.recorder.leave(_POST_FILTER, outcome.status.code)
        diagnosis.post_filter_message = outcome.status.message
        return outcome.nominated_node

    def _skip_deleted(self, pod: Pod) -> None:
        """End the attempt of a pod that is being deleted; its nomination stays, without its requests and priority.

        A finalizer may delay its deletion for long, and the pod never needs the room. kube-scheduler v1.37.1 looks
        nominated pods up in its queues (``PriorityQueue.nominatedPodToInfo``); one that is in none of them counts as a
        pod of priority 0 without requests.
        """
        note = f"skip schedule deleting pod: {pod.key}"
        self._writer.record(failed_scheduling(pod, note, pod.spec.scheduler_name))
        meta, nominator = pod.metadata, self._queue.nominator
        nominated = nominator.node_of(meta.uid)
        # Nominated again afterwards, because the end of an attempt withdraws the nomination.
        self._queue.done(meta.uid)
        if nominated:
            bare = Pod(ObjectMeta(name=meta.name, namespace=meta.namespace, uid=meta.uid))
            nominator.nominate(self._cache.columns.compile_pod(bare), nominated)


def failure_of(attempt: Attempt, error: Exception) -> Failure:
    """Return the failure for an exception."""
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
