"""Fakes of the plugin handle and of the objects that it gives to a plugin."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.handle import DryRun, R
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.framework.waiting_pods import PodsInPreBind, WaitingPods
from scheduler_core.metrics.scheduler_metrics import DeviceMetrics, RecordedPluginMetrics
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup, group_key_of
from scheduler_core.ports import ClaimWriter, StorageWriter
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.node_columns import KindStore, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


@dataclass
class FakeGroup:
    """Pod group that the test sets; implements :class:`scheduler_core.framework.group_view.GroupView`.

    Attributes:
        pods: All existing members, by UID.
        placed: Assumed and bound members, by UID.
        queued: Pending members, by UID.
    """

    key: GroupKey
    group: PodGroup | None = None
    since: float = 1000.0
    succeeded: int = 0
    pods: dict[str, Pod] = field(default_factory=dict)
    placed: dict[str, PodInfo] = field(default_factory=dict)
    queued: dict[str, PodInfo] = field(default_factory=dict)

    @property
    def known(self) -> int:
        """Number of existing members."""
        return len(self.pods)

    def members(self) -> list[Pod]:
        """Return the members that are neither terminal nor being deleted."""
        return [pod for pod in self.pods.values() if not pod.is_terminal and pod.metadata.deletion_timestamp is None]

    def assigned(self) -> list[PodInfo]:
        """Return the assumed and bound members."""
        return list(self.placed.values())

    def waiting(self) -> list[PodInfo]:
        """Return the pending members."""
        return list(self.queued.values())


@dataclass
class FakeGroups:
    """Pod groups that the test sets."""

    by_key: dict[GroupKey, FakeGroup] = field(default_factory=dict)

    def group_of(self, pod: Pod) -> FakeGroup | None:
        """Return the group of a pod."""
        key = group_key_of(pod)
        return None if key is None else self.by_key.get(key)

    def get(self, key: GroupKey) -> FakeGroup | None:
        """Return the group with a key."""
        return self.by_key.get(key)

    def disrupted_whole(self) -> list[FakeGroup]:
        """Return the groups that are disrupted as a whole."""
        return [each for each in self.by_key.values() if each.group is not None and each.group.disrupts_whole]

    def ranked(self) -> list[FakeGroup]:
        """Return the groups with their own priority."""
        return [each for each in self.by_key.values() if each.group is not None and each.group.priority is not None]


@dataclass
class FakeDryRun:
    """Dry run with one filter function; implements :class:`scheduler_core.framework.handle.DryRun`.

    Attributes:
        fits: Function that returns whether a row is feasible for a pod with the current columns.
    """

    nodes: NodeColumns
    pod: PodInfo
    fits: Callable[[PodInfo, int], bool]
    is_row_local: bool = True
    removed: dict[str, tuple[PodInfo, int]] = field(default_factory=dict)

    def by_sums(self, rows: Sequence[int]) -> None:
        """Return None: there is no faster algorithm."""

    def results_by_row(self, owner: str, *versions: object) -> None:
        """Return None: no results are stored."""

    def remove(self, *running: PodInfo) -> None:
        """Remove pods from their rows."""
        for info in running:
            self.removed[info.uid] = (info, info.row)
            self.nodes.remove_pod(info)

    def restore(self, *running: PodInfo) -> None:
        """Add removed pods to their rows again."""
        for info in running:
            self.nodes.add_pod(*self.removed.pop(info.uid))

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        """Return 0 for feasible and 1 for infeasible rows."""
        return np.array([not self.fits(self.pod, row) for row in rows.tolist()], dtype=np.int32)


@dataclass
class FakeHandle:
    """Implements :class:`scheduler_core.framework.handle.Handle`.

    Attributes:
        activated: Activated pods, in order.
        filters: Function that :meth:`run_filters_on` and dry runs call.
    """

    profile_name: str = "default-scheduler"
    seed: int = 0
    nodes: NodeColumns = field(default_factory=NodeColumns)
    clock: VirtualClock = field(default_factory=VirtualClock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    storage_writer: StorageWriter | None = None
    claim_writer: ClaimWriter | None = None
    waiting_pods: WaitingPods = field(default_factory=lambda: WaitingPods(VirtualClock()))
    pods_in_pre_bind: PodsInPreBind = field(default_factory=PodsInPreBind)
    preemptions: PreemptionsUnderWay = field(default_factory=PreemptionsUnderWay)
    preemption_settings: PreemptionSettings = field(default_factory=PreemptionSettings)
    nominator: NominatedPods = field(default_factory=NominatedPods)
    groups: FakeGroups = field(default_factory=FakeGroups)
    activated: list[PodInfo] = field(default_factory=list)
    filters: Callable[[PodInfo, int], Status] = lambda _pod, _row: SUCCESS
    declared: defaultdict[str, KindStore[Any]] = field(default_factory=lambda: defaultdict(KindStore))
    metrics: RecordedPluginMetrics = field(default_factory=RecordedPluginMetrics)
    device_metrics: DeviceMetrics = field(default_factory=DeviceMetrics)

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        """Return the objects of a kind in :attr:`declared`."""
        return self.declared[kind.path]

    def new_uid(self) -> str:
        """Return a random UUID."""
        return str(uuid4())

    def spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run a coroutine in a task."""
        return asyncio.get_running_loop().create_task(work)

    def after_suspension(self, act: Callable[[], None]) -> None:
        """Call the function at once."""
        act()

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Record the pods."""
        self.activated.extend(pods)

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Return the status of :attr:`filters`."""
        return self.filters(pod, row)

    def dry_run(
        self, state: CycleState, pod: PodInfo, *, frees_shared_ports: bool = True, held: HeldClaims | None = None
    ) -> AbstractContextManager[DryRun]:
        """Return a dry run with :attr:`filters`; on exit, removed pods are restored."""
        return self._dry_run(pod)

    @contextmanager
    def _dry_run(self, pod: PodInfo) -> Iterator[DryRun]:
        dry_run = FakeDryRun(self.nodes, pod, lambda info, row: self.filters(info, row).is_success)
        try:
            yield dry_run
        finally:
            for running, row in dry_run.removed.values():
                self.nodes.add_pod(running, row)
