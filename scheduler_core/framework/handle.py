"""The scheduler as a plugin sees it: columns, writers, queue, nominations and dry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager
from enum import Enum
from typing import Any, Protocol, TypeVar

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.group_view import GroupViews
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import Status
from scheduler_core.framework.waiting_pods import PodsInPreBind, WaitingPods
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.ports import ClaimWriter, Clock, ClusterWriter, PluginMetrics, StorageWriter
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.node_columns import KindStore, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

R = TypeVar("R")


class SimulatedRemoval(Protocol):
    """Simulated removal of running pods; :class:`PluginError` if a plugin fails to update its data, or raises."""

    def remove(self, *running: PodInfo) -> None:
        """Remove pods from the rows on which they run."""

    def restore(self, *running: PodInfo) -> None:
        """Put removed pods back on their rows."""

    def run_filters(self, rows: NDArray[np.intp]) -> Verdicts:
        """Run the filters with and without the pods that are nominated to these nodes.

        Returns:
            int32 per row: 0 where the pod would fit; the attempt's diagnosis explains any other value.
        """


class StoredRows(Struct, frozen=True):
    """What a plugin stored by row for the pods of a class.

    Attributes:
        results: To be read and extended.
        not_on: Names of nodes of which the results depend on more than the class.
    """

    results: dict[int, Any]
    not_on: frozenset[str] = frozenset()


class DryRun(SimulatedRemoval, Protocol):
    """Simulated removal of running pods, with the profile's filters run on the result.

    The live columns are restored when the ``with`` block ends.
    """

    @property
    def is_row_local(self) -> bool:
        """Whether removing a pod from one row cannot affect the verdict on another; then many rows may be tried."""

    def by_sums(self, rows: Sequence[int]) -> SimulatedRemoval | None:
        """Return the same dry run on sums of these unchanged rows, which is much faster; None if that is not exact."""

    def results_by_row(self, owner: str, *versions: object) -> StoredRows | None:
        """Return what a plugin stored by row for pods of the same class; rows that changed since are left out.

        Rows also count as changed if their devices in use changed. Pods that use allocated claims have no class.

        Args:
            owner: Name of the plugin.
            versions: Versions of what the results depend on, besides the node of the row and the pods on it.

        Returns:
            None if filters may return something else for the next pod of the class.
        """


class BindingOutcome(Enum):
    """How the wait for the binding conditions of devices ended; the values are those of kube-scheduler's metrics."""

    SUCCESS = "success"
    FAILURE = "failure"
    TIMEOUT = "timeout"
    ERROR = "error"


class DeviceMetrics(Protocol):
    """Metrics of the allocation of devices."""

    def claim_created(self, *, has_failed: bool) -> None:
        """Count the creation of a claim for extended resources."""

    def allocation_written(self, profile: str, *, has_failed: bool) -> None:
        """Count the write of a new allocation."""

    def binding_waited(
        self, profile: str, claims: Iterable[ResourceClaim], outcome: BindingOutcome, seconds: float
    ) -> None:
        """Count a wait for the binding conditions of the devices of claims."""


class Handle(Protocol):
    """The scheduler as a plugin sees it; one per framework instance."""

    @property
    def profile_name(self) -> str:
        """The scheduler name that the profile serves."""

    @property
    def nodes(self) -> NodeColumns:
        """The live columns. A dry run changes them temporarily."""

    @property
    def seed(self) -> int:
        """Random seed: with equal seeds and equal clusters the decisions are equal."""

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        """Return the objects of a kind that a plugin declares in its ``reads``.

        Raises:
            PluginError: No plugin declares the kind.
        """

    def new_uid(self) -> str:
        """Return a random UUID; a replay of a record returns the same one."""

    def spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        """Run a coroutine in a task whose steps are ordered among those of the scheduler when it is recorded."""

    @property
    def metrics(self) -> PluginMetrics:
        """Counters and histograms, exported at /metrics as ``bayplan_plugin_<name>`` with the profile as label."""

    @property
    def device_metrics(self) -> DeviceMetrics:
        """Metrics of DynamicResources, exported with kube-scheduler's names."""

    @property
    def clock(self) -> Clock:
        """The clock."""

    @property
    def writer(self) -> ClusterWriter:
        """Writes to the cluster: events, pod deletions and status patches, in order and rate-limited."""

    @property
    def storage_writer(self) -> StorageWriter | None:
        """Writes to volumes and claims; None where they cannot be written."""

    @property
    def claim_writer(self) -> ClaimWriter | None:
        """Writes to resource claims; None where they cannot be written."""

    @property
    def waiting_pods(self) -> WaitingPods:
        """Pods of all profiles that wait at Permit."""

    @property
    def pods_in_pre_bind(self) -> PodsInPreBind:
        """Pods of all profiles whose PreBind plugins run."""

    @property
    def preemptions(self) -> PreemptionsUnderWay:
        """Preemptions of all profiles and their earlier revisions whose evictions are not issued yet."""

    @property
    def preemption_settings(self) -> PreemptionSettings:
        """What the profile sets for preemption in ``spec.preemption``.

        Raises:
            PluginError: The profile is not built yet.
        """

    @property
    def nominator(self) -> NominatedPods:
        """The nominations."""

    @property
    def groups(self) -> GroupViews:
        """The pod groups."""

    def after_suspension(self, act: Callable[[], None]) -> None:
        """Call a function at once, or when the suspended cycle has ended and the columns show what arrived meanwhile.

        A cycle that waits for an extender, or that runs in slices, reads the state from before that.
        """

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move unschedulable or backing-off pods into the active queue, regardless of what rejected them."""

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Return whether ``pod`` would pass this profile's filters on one row now.

        Raises:
            PluginError: The profile is not built yet, or a plugin raised.
        """

    def dry_run(
        self, state: CycleState, pod: PodInfo, *, frees_shared_ports: bool = True, held: HeldClaims | None = None
    ) -> AbstractContextManager[DryRun]:
        """Dry-run the filters for ``pod`` with running pods removed.

        Args:
            frees_shared_ports: Whether the removal of a pod frees its host ports although another pod on the node uses
                them, as in kube-scheduler, which stores the ports of a node as a set.
            held: Claims whose devices are free when all their holders are removed; None if devices stay in use.

        Returns:
            A context manager; use it within one cycle and without awaiting. Until the block ends, the live columns
            contain the simulated changes.

        Raises:
            PluginError: The profile is not built yet.
        """
