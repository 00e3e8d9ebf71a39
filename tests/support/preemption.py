"""A scheduler in memory whose preemption a test calls directly, with the arguments of a scheduling cycle."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from scheduler_core.config.profile_config import PreemptionSettings, ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PostFilterPreview, PostFilterResult
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.plugins.default_preemption.candidate_nodes import RowOutcome, StoredOutcomes
from scheduler_core.ports import PodDeletion
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

_FIRST_START = datetime(2025, 12, 1, tzinfo=UTC)


def started(minutes: int) -> datetime:
    """Return a start time; a higher ``minutes`` is later."""
    return _FIRST_START + timedelta(minutes=minutes)


def budget(
    name: str, labels: dict[str, str] | None, allowed: int, *, namespace: str = "default", disrupted: Iterable[str] = ()
) -> PodDisruptionBudget:
    """Return a PodDisruptionBudget for pods with ``labels``; None for no selector."""
    selector = None if labels is None else LabelSelector(match_labels=labels)
    return PodDisruptionBudget(
        ObjectMeta(name=name, namespace=namespace),
        PodDisruptionBudgetSpec(selector),
        PodDisruptionBudgetStatus(allowed, dict.fromkeys(disrupted, "2026-01-01T00:00:00Z")),
    )


@dataclass
class DeferringWriter(RecordingWriter):
    """Writer whose deletions complete when the test calls their callback.

    Attributes:
        pending_deletions: Callback of each deletion by pod name.
    """

    pending_deletions: dict[str, Callable[[Exception | None], None]] = field(default_factory=dict)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Record the deletion."""
        self.deletions.append(deletion)
        self.pending_deletions[deletion.name] = done


class PreemptionWorld:
    """Scheduler with the default profile.

    Attributes:
        writer: Writer with the recorded changes.
    """

    def __init__(
        self,
        nodes: Iterable[Node],
        pods: Iterable[Pod],
        budgets: Iterable[PodDisruptionBudget] = (),
        settings: PreemptionSettings | None = None,
    ) -> None:
        self.writer = DeferringWriter()
        self.scheduler = Scheduler(VirtualClock(), self.writer)
        self.instance = self.scheduler.build(
            ProfileConfig(scheduler_name="default-scheduler", preemption=settings or PreemptionSettings())
        )
        self.scheduler.activate([self.instance])
        self.plugin = next(each for each in self.instance.post_filter if isinstance(each, DefaultPreemption))
        for node in nodes:
            self.scheduler.feed.node_added(node)
        for pod in pods:
            self.scheduler.feed.pod_added(pod)
        for each in budgets:
            self.columns.disruption_budgets.assign(each)

    @property
    def columns(self) -> NodeColumns:
        """Node columns of the cache."""
        return self.scheduler.context.cache.columns

    @property
    def handle(self) -> Handle:
        """Handle of the plugin."""
        return self.plugin.handle

    def failed_attempt(self, pod: Pod) -> tuple[Attempt, Diagnosis] | None:
        """Run the filters for a pod; return the attempt and the diagnosis, None if a node is feasible."""
        info = self.columns.compile_pod(pod)
        attempt = Attempt(QueuedPod(info, 0.0, 0), info, self.instance, 0.0)
        feasible = self.scheduler.cycles.selection.find_feasible(attempt)
        return None if len(feasible.rows) else (attempt, feasible.diagnosis)

    def post_filter(self, pod: Pod) -> PostFilterResult:
        """Run PostFilter for an infeasible pod."""
        failed = present(self.failed_attempt(pod))
        attempt, diagnosis = failed
        return self.plugin.post_filter(attempt.state, attempt.info, self.columns, diagnosis)

    def preview(self, pod: Pod, plugin: DefaultPreemption | None = None) -> PostFilterPreview | None:
        """Return the dry run of PostFilter for a pod; None if a node is feasible."""
        failed = self.failed_attempt(pod)
        if failed is None:
            return None
        attempt, diagnosis = failed
        return (plugin or self.plugin).preview(attempt.state, attempt.info, self.columns, diagnosis)


def count_reads(monkeypatch: pytest.MonkeyPatch, *, of_devices: bool = False) -> dict[bool, int]:
    """Count how often a stored outcome is read, by whether it is used again.

    Args:
        of_devices: Whether only outcomes of preemption for devices count.
    """
    found = {True: 0, False: 0}
    get = StoredOutcomes.get

    def counted(self: StoredOutcomes, rows: Sequence[int]) -> list[RowOutcome | None]:
        outcomes = get(self, rows)
        for row, outcome in zip(rows, outcomes, strict=True):
            if row in self.by_row and (self.held is not None or not of_devices):
                found[outcome is not None] += 1
        return outcomes

    monkeypatch.setattr(StoredOutcomes, "get", counted)
    return found
