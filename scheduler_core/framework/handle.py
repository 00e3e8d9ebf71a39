"""What a plugin can reach of the scheduler that runs it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.group_view import GroupViews
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import Status
from scheduler_core.ports import Clock, ClusterWriter, PluginMetrics, StorageWriter
from scheduler_core.snapshot.declared_objects import KindStore
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class WaitingPod(Protocol):
    """A pod that a Permit plugin made wait."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def node_name(self) -> str:
        """The node that is held for it."""

    @property
    def is_refused(self) -> bool:
        """Whether its wait has ended by a refusal or by time: what is held for it is about to be given back."""

    def pending_plugins(self) -> list[str]:
        """The plugins that have not allowed it yet."""

    def allow(self, plugin: str) -> None:
        """``plugin`` allows the pod; when the last one does, it is bound."""

    def reject(self, plugin: str, reason: str) -> bool:
        """``plugin`` refuses the pod; everything held for it is given back.

        Returns:
            Whether it did; False when the wait had ended already.
        """

    def preempt(self, plugin: str, reason: str) -> bool:
        """End the wait in favour of another pod: everything held is given back, and the pod is tried after backoff.

        Returns:
            Whether it did; False when the wait had ended already.
        """


class WaitingPods(Protocol):
    """The pods that wait at Permit."""

    def get(self, uid: str) -> WaitingPod | None:
        """The waiting pod of this UID, None if it does not wait."""

    def __iter__(self) -> Iterator[WaitingPod]:
        """All of them, oldest first."""

    def reject(self, uid: str) -> bool:
        """Refuse a pod in nobody's name, as when it is removed; whether it waited."""


class PodInPreBind(Protocol):
    """A pod whose PreBind runs."""

    @property
    def pod(self) -> PodInfo:
        """The pod."""

    @property
    def node_name(self) -> str:
        """The node that is held for it."""

    def cancel(self, reason: str) -> bool:
        """Stop PreBind: everything held is given back, and the pod is tried after backoff.

        Returns:
            Whether it did; False when PreBind is over and the bind goes out.
        """


class PodsInPreBind(Protocol):
    """The pods whose PreBind runs."""

    def get(self, uid: str) -> PodInPreBind | None:
        """The pod of this UID, None if its PreBind does not run."""

    def __iter__(self) -> Iterator[PodInPreBind]:
        """All of them, oldest first."""


class Nominator(Protocol):
    """Pods that preemption has promised a node."""

    def nominated_pods(self, node_name: str) -> Iterable[PodInfo]:
        """The pods that are nominated to a node."""

    def nominate(self, pod: PodInfo, node_name: str) -> None:
        """Promise a node to a pod; an earlier promise is replaced."""

    def withdraw(self, uid: str) -> None:
        """Take back what was promised to a pod."""


class Question(Protocol):
    """What if pods left their rows: see :class:`WhatIf`, of which it is a part."""

    def remove(self, *running: PodInfo) -> None:
        """Take pods off the rows that they run on."""

    def restore(self, *running: PodInfo) -> None:
        """Put pods that were taken off back where they ran."""

    def judge(self, rows: NDArray[np.intp]) -> Verdicts:
        """Run the filters, with and without the pods that are promised these nodes."""


class WhatIf(Protocol):
    """Running pods taken off their nodes in thought, and the profile's filters asked about it.

    Nothing of it is left when the block that it belongs to ends.
    """

    @property
    def is_row_local(self) -> bool:
        """Whether what is taken off one row cannot change the verdict on another, so that many may be tried at once."""

    def in_sums(self, rows: Sequence[int]) -> Question | None:
        """The same question about rows from which nothing was taken yet, far quicker; None where that is not exact."""

    def remove(self, *running: PodInfo) -> None:
        """Take pods off the rows that they run on.

        Raises:
            PluginError: A plugin could not follow.
        """

    def restore(self, *running: PodInfo) -> None:
        """Put pods that were taken off back where they ran.

        Raises:
            PluginError: A plugin could not follow.
        """

    def judge(self, rows: NDArray[np.intp]) -> Verdicts:
        """Run the filters, with and without the pods that are promised these nodes.

        Args:
            rows: Rows in ascending order.

        Returns:
            int32 per row: 0 where the pod would fit; any other is explained by the attempt's diagnosis.

        Raises:
            PluginError: A plugin raised, or answered what the point does not allow.
        """


class Handle(Protocol):
    """The scheduler as a plugin sees it; one per framework instance."""

    @property
    def profile_name(self) -> str:
        """The scheduler name that the profile serves."""

    @property
    def nodes(self) -> NodeColumns:
        """The live columns. What-if work goes on an overlay that is undone."""

    @property
    def seed(self) -> int:
        """Settles what is left to chance: equal seeds and equal clusters give equal decisions."""

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        """The objects of a kind that a plugin declares in its ``reads``.

        Raises:
            PluginError: No plugin declares it.
        """

    @property
    def metrics(self) -> PluginMetrics:
        """Counters and histograms, shown at /metrics as ``bayplan_plugin_<name>`` with the profile as label."""

    @property
    def clock(self) -> Clock:
        """Time."""

    @property
    def writer(self) -> ClusterWriter:
        """The cluster: what records events, deletes pods and patches statuses, in order and within limits."""

    @property
    def storage_writer(self) -> StorageWriter | None:
        """The cluster's volumes and claims; None where they cannot be written."""

    @property
    def waiting_pods(self) -> WaitingPods:
        """Pods that wait at Permit, of all profiles."""

    @property
    def pods_in_pre_bind(self) -> PodsInPreBind:
        """Pods whose PreBind runs, of all profiles."""

    @property
    def preemptions(self) -> PreemptionsUnderWay:
        """Preemptions whose evictions are still to be issued, of all profiles and their earlier revisions."""

    @property
    def nominator(self) -> Nominator:
        """Nominations."""

    @property
    def groups(self) -> GroupViews:
        """Groups of pods that are to be placed together."""

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move waiting pods into the active queue, whatever rejected them."""

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Whether ``pod`` would pass this profile's filters on one row as things are: a what-if."""

    def what_if(self, state: CycleState, pod: PodInfo) -> AbstractContextManager[WhatIf]:
        """Try out how ``pod`` would fare if running pods were gone.

        Args:
            state: The attempt's state; it is cloned.
            pod: The pod to place.

        Returns:
            To be used in a ``with`` block, within one cycle and without awaiting: until the block ends the live columns
            are as they would be.
        """
