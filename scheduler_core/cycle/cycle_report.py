"""Starts the recorder of a cycle; reports the finished cycle to metrics, the log of slow cycles and the tracer."""

from __future__ import annotations

from dataclasses import dataclass, replace

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.cycle_state import NOT_RECORDED
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import Status
from scheduler_core.metrics.attempt_reports import AttemptHistory, EndedAttempt, SlowCycles
from scheduler_core.metrics.cycle_recorder import CycleRecorder, RecorderPool
from scheduler_core.metrics.scheduler_metrics import (
    ERROR,
    SAMPLING_INTERVAL,
    SCHEDULED,
    UNSCHEDULABLE,
    LostBind,
    ProfileRecord,
    SchedulerMetrics,
)
from scheduler_core.ports import Clock, CycleTrace, Tracer
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import NodeColumns

_BEGUN = "begin_attempt() sets the recorder"


@dataclass(frozen=True, slots=True)
class CycleRecording:
    """Recording of cycles.

    Attributes:
        tracer: Receives every cycle; None for no tracing.
        attempts: Receives every ended attempt of a pod; None if they are not stored.
    """

    recorders: RecorderPool
    slow_cycles: SlowCycles
    tracer: Tracer | None = None
    attempts: AttemptHistory | None = None


@dataclass(slots=True, eq=False)
class CycleReport:
    """Starts recorders, and reports finished cycles."""

    _recording: CycleRecording
    _metrics: SchedulerMetrics
    _nodes: NodeColumns
    _clock: Clock

    def cut(self) -> None:
        """Send nothing to the tracer any more: this process is a copy, whose cycles the other process reports."""
        self._recording = replace(self._recording, tracer=None, attempts=None)

    def begin_attempt(self, queued: QueuedPod, instance: FrameworkInstance) -> Attempt:
        """Return a new attempt, whose scheduling cycle starts now."""
        recorder, metrics = self._recording.recorders.take(), self._metrics
        metrics.cycles += 1
        is_sampled = not metrics.cycles % SAMPLING_INTERVAL
        if is_sampled:
            metrics.settle_if_due()
        attempt = Attempt(queued, queued.info, instance, recorder.times[0], recorder, is_sampled=is_sampled)
        attempt.state.recorder, attempt.state.evaluations = recorder, instance.evaluations
        return attempt

    def scheduling_ended(self, attempt: Attempt, result: str = "") -> None:
        recorder, instance, metrics = attempt.recorder, attempt.instance, self._metrics
        assert recorder is not None, _BEGUN
        # The marks of the recorder, so that the clock is not read again.
        started, ended, slow = recorder.times[0], recorder.times[-1], self._recording.slow_cycles
        metrics.profiles[instance.name].stages.add(recorder)
        metrics.searches.observe((ended if attempt.search_ended is None else attempt.search_ended) - started)
        if ended - started >= slow.seconds:
            slow.report(recorder, attempt.info.key, instance.name, self._nodes.count, attempt.feasible_count)
        if self._recording.tracer is not None:
            attempt.trace = self._trace(attempt, recorder, "scheduling", result or SCHEDULED)
        if attempt.is_sampled:
            metrics.plugins_ran(recorder)
        if result:
            self.release_recorder(attempt)
        else:
            # The binding cycle starts now. It may wait long, and until then the times would fill the CPU's caches.
            recorder.start()

    def release_recorder(self, attempt: Attempt) -> None:
        """Return the recorder of an attempt to the pool; nothing more is recorded."""
        assert attempt.recorder is not None, _BEGUN
        self._recording.recorders.release(attempt.recorder)
        attempt.recorder, attempt.state.recorder = None, NOT_RECORDED

    def permit_waited(self, attempt: Attempt, status: Status) -> None:
        """Report a wait at Permit, the last stage of the recorder."""
        assert attempt.recorder is not None, _BEGUN
        entered, left = attempt.recorder.times[-2:]
        self._metrics.permit_waits[status.code].observe(left - entered)

    def binding_ended(self, attempt: Attempt, result: str) -> None:
        recorder = attempt.recorder
        assert recorder is not None, _BEGUN
        self._metrics.profiles[attempt.instance.name].stages.add(recorder)
        if self._recording.tracer is not None:
            self._trace(attempt, recorder, "binding", result)
        if attempt.is_sampled:
            self._metrics.plugins_ran(recorder)
        self._recording.recorders.release(recorder)
        attempt.recorder, attempt.state.recorder = None, NOT_RECORDED

    def pod_bound(self, attempt: Attempt) -> None:
        """Report an attempt that succeeded; the durations include its binding cycle."""
        metrics, queued = self._metrics, attempt.queued
        now = self._clock.now()
        metrics.profiles[attempt.instance.name].scheduled.observe(now - attempt.started)
        metrics.pod_bound(queued.attempts, now - queued.first_attempt)
        record = metrics.records[attempt.instance.name]
        record.scheduled += 1
        record.last_scheduled = self._clock.wall()
        if self._recording.attempts is not None:
            ended = EndedAttempt(now, attempt.instance.name, SCHEDULED, attempt.node_name, "")
            self._recording.attempts.scheduled(attempt.info.uid, ended)

    def attempt_failed(self, attempt: Attempt, message: str, *, is_error: bool, is_of_cluster: bool) -> None:
        """Report an attempt that failed in either cycle, by an error or because the pod was rejected."""
        record = self._count_failure(attempt, ERROR if is_error else UNSCHEDULABLE, message)
        if is_error:
            text = f"{attempt.info.key}: {message}"
            record.count_error(text, self._clock.wall(), is_of_cluster=is_of_cluster)
        else:
            record.unschedulable += 1

    def profile_failed(self, profile: str, message: str) -> None:
        self._metrics.records[profile].count_error(message, self._clock.wall())

    def bind_lost(self, attempt: Attempt, node_name: str, rival_node_name: str) -> None:
        """Report an attempt that chose a node while another scheduler bound the pod to the node of a rival."""
        message = f"another scheduler has bound the pod to node {rival_node_name}"
        record = self._count_failure(attempt, ERROR, message)
        record.errors += 1
        record.lost_binds += 1
        record.last_lost_bind = LostBind(attempt.info.key, node_name, rival_node_name, self._clock.wall())

    def _count_failure(self, attempt: Attempt, result: str, message: str) -> ProfileRecord:
        name, now = attempt.instance.name, self._clock.now()
        self._metrics.profiles[name].attempts[result].observe(now - attempt.started)
        if self._recording.attempts is not None:
            self._recording.attempts.add(attempt.info.uid, EndedAttempt(now, name, result, attempt.node_name, message))
        return self._metrics.records[name]

    def _trace(self, attempt: Attempt, recorder: CycleRecorder, kind: str, result: str) -> object:
        info = attempt.info
        assert self._recording.tracer is not None
        trace = CycleTrace(
            kind,
            info.pod.metadata.namespace,
            info.pod.metadata.name,
            attempt.instance.name,
            attempt.instance.revision,
            attempt.node_name,
            result,
            recorder.times[0],
            recorder.now(),
            recorder.stages(),
        )
        return self._recording.tracer.record(trace, attempt.trace)
