"""The rest of the scheduler, as small as a plugin's test needs it."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from scheduler_core.framework.handle import WaitingPod
from scheduler_core.framework.status import SUCCESS, Status
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


@dataclass
class FakeNominator:
    """Nominations in memory."""

    by_node: dict[str, dict[str, PodInfo]] = field(default_factory=dict)

    def nominated_pods(self, node_name: str) -> Iterable[PodInfo]:
        """The pods that are nominated to a node."""
        return list(self.by_node.get(node_name, {}).values())

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Promise a node to a pod; an earlier promise is replaced."""
        self.withdraw(pod.uid)
        self.by_node.setdefault(node_name, {})[pod.uid] = pod

    def withdraw(self, uid: str) -> None:
        """Take back what was promised to a pod."""
        for pods in self.by_node.values():
            pods.pop(uid, None)


@dataclass
class FakeHandle:
    """Implements :class:`scheduler_core.framework.handle.Handle`.

    Attributes:
        activated: Pods that were activated, in order.
        filters: What :meth:`run_filters_on` answers.
    """

    profile_name: str = "default-scheduler"
    nodes: NodeColumns = field(default_factory=NodeColumns)
    clock: VirtualClock = field(default_factory=VirtualClock)
    writer: RecordingWriter = field(default_factory=RecordingWriter)
    waiting_pods: FakeWaitingPods = field(default_factory=FakeWaitingPods)
    nominator: FakeNominator = field(default_factory=FakeNominator)
    activated: list[PodInfo] = field(default_factory=list)
    filters: Callable[[PodInfo, int], Status] = lambda _pod, _row: SUCCESS

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Note the pods."""
        self.activated.extend(pods)

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Ask :attr:`filters`."""
        return self.filters(pod, row)
