"""The rest of the scheduler, as small as a plugin's test needs it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.handle import DryRun, PodInPreBind, R, WaitingPod
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.metrics.device_metrics import DeviceMetrics
from scheduler_core.metrics.plugin_metrics import RecordedPluginMetrics
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup, group_key_of
from scheduler_core.ports import ClaimWriter, StorageWriter
from scheduler_core.snapshot.declared_objects import DeclaredObjects, KindStore
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock


@dataclass
class FakeWaitingPods:
    """Pods that a test made wait, by UID."""

    by_uid: dict[str, WaitingPod] = field(default_factory=dict)

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod of this UID."""
        return self.by_uid.get(uid)

    def __iter__(self) -> Iterator[WaitingPod]:
        return iter(self.by_uid.values())

    def reject(self, uid: str) -> bool:
        """Refuse a pod in nobody's name."""
        waiting = self.by_uid.get(uid)
        return waiting is not None and waiting.reject("", "removed")


@dataclass
class FakePodsInPreBind:
    """Pods that a test says to be in PreBind, by UID."""

    by_uid: dict[str, PodInPreBind] = field(default_factory=dict)

    def get(self, uid: str) -> PodInPreBind | None:
        """The pod of this UID."""
        return self.by_uid.get(uid)

    def __iter__(self) -> Iterator[PodInPreBind]:
        return iter(self.by_uid.values())


@dataclass
class FakeNominator:
    """Nominations in memory."""

    by_node: dict[str, dict[str, PodInfo]] = field(default_factory=dict)

    def nominated_pods(self, node_name: str) -> Iterable[PodInfo]:
        """The pods that are nominated to a node."""
        return list(self.by_node.get(node_name, {}).values())

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Nominate a node for a pod, in place of an earlier nomination."""
        self.withdraw(pod.uid)
        self.by_node.setdefault(node_name, {})[pod.uid] = pod

    def withdraw(self, uid: str) -> None:
        """Remove the nomination of a pod."""
        for pods in self.by_node.values():
            pods.pop(uid, None)


@dataclass
class FakeGroup:
    """A group as a test describes it; implements :class:`scheduler_core.framework.group_view.GroupView`.

    Attributes:
        pods: Every member that exists, by UID.
        placed: Members that have a node, by UID.
        queued: Members that wait, by UID.
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
        """How many members exist."""
        return len(self.pods)

    def members(self) -> list[Pod]:
        """Those that are there to stay."""
        return [pod for pod in self.pods.values() if not pod.is_terminal and pod.metadata.deletion_timestamp is None]

    def assigned(self) -> list[PodInfo]:
        """Those that have a node."""
        return list(self.placed.values())

    def waiting(self) -> list[PodInfo]:
        """Those that wait."""
        return list(self.queued.values())


@dataclass
class FakeGroups:
    """Groups as a test describes them."""

    by_key: dict[GroupKey, FakeGroup] = field(default_factory=dict)

    def group_of(self, pod: Pod) -> FakeGroup | None:
        """The group that a pod names."""
        key = group_key_of(pod)
        return None if key is None else self.by_key.get(key)

    def get(self, key: GroupKey) -> FakeGroup | None:
        """The group of this key."""
        return self.by_key.get(key)

    def disrupted_whole(self) -> list[FakeGroup]:
        """Those that say so."""
        return [each for each in self.by_key.values() if each.group is not None and each.group.disrupts_whole]

    def ranked(self) -> list[FakeGroup]:
        """Those with a priority of their own."""
        return [each for each in self.by_key.values() if each.group is not None and each.group.priority is not None]


@dataclass
class FakeDryRun:
    """A question put to one filter; implements :class:`scheduler_core.framework.handle.DryRun`.

    Attributes:
        fits: Whether a pod would fit on a row as the columns are now.
    """

    nodes: NodeColumns
    pod: PodInfo
    fits: Callable[[PodInfo, int], bool]
    is_row_local: bool = True
    gone: dict[str, tuple[PodInfo, int]] = field(default_factory=dict)

    def by_sums(self, rows: Sequence[int]) -> None:
        """There is no quicker way."""

    def remove(self, *running: PodInfo) -> None:
        """Take pods off their rows."""
        for info in running:
            self.gone[info.uid] = (info, info.row)
            self.nodes.remove_pod(info)

    def restore(self, *running: PodInfo) -> None:
        """Put them back."""
        for info in running:
            self.nodes.add_pod(*self.gone.pop(info.uid))

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        """Ask :attr:`fits`; 1 says no."""
        return np.array([not self.fits(self.pod, row) for row in rows.tolist()], dtype=np.int32)


@dataclass
class FakeHandle:
    """Implements :class:`scheduler_core.framework.handle.Handle`.

    Attributes:
        activated: Pods that were activated, in order.
        filters: What :meth:`run_filters_on` answers.
    """

    profile_name: str = "default-scheduler"
    seed: int = 0
    nodes: NodeColumns = field(default_factory=NodeColumns)
    clock: VirtualClock = field(default_factory=VirtualClock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    storage_writer: StorageWriter | None = None
    claim_writer: ClaimWriter | None = None
    waiting_pods: FakeWaitingPods = field(default_factory=FakeWaitingPods)
    pods_in_pre_bind: FakePodsInPreBind = field(default_factory=FakePodsInPreBind)
    preemptions: PreemptionsUnderWay = field(default_factory=PreemptionsUnderWay)
    nominator: FakeNominator = field(default_factory=FakeNominator)
    groups: FakeGroups = field(default_factory=FakeGroups)
    activated: list[PodInfo] = field(default_factory=list)
    filters: Callable[[PodInfo, int], Status] = lambda _pod, _row: SUCCESS
    declared: DeclaredObjects = field(default_factory=DeclaredObjects)
    metrics: RecordedPluginMetrics = field(default_factory=RecordedPluginMetrics)
    device_metrics: DeviceMetrics = field(default_factory=DeviceMetrics)

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        """The objects of a kind, as the test has put them into :attr:`declared`."""
        return self.declared.declare(kind.path)

    def new_uid(self) -> str:
        """A random UUID."""
        return str(uuid4())

    def spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run a coroutine in a task."""
        return asyncio.get_running_loop().create_task(work)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Note the pods."""
        self.activated.extend(pods)

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Ask :attr:`filters`."""
        return self.filters(pod, row)

    def dry_run(
        self, state: CycleState, pod: PodInfo, *, frees_shared_ports: bool = True
    ) -> AbstractContextManager[DryRun]:
        """Ask :attr:`filters` about the columns without some pods."""
        del state, frees_shared_ports
        return self._dry_run(pod)

    @contextmanager
    def _dry_run(self, pod: PodInfo) -> Iterator[DryRun]:
        question = FakeDryRun(self.nodes, pod, lambda asked, row: self.filters(asked, row).is_success)
        try:
            yield question
        finally:
            for running, row in question.gone.values():
                self.nodes.add_pod(running, row)
