"""The scheduler as its plugins reach it; see :class:`scheduler_core.framework.handle.Handle`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.group_views import GangViews
from scheduler_core.cycle.patient_storage import PatientStorageWriter
from scheduler_core.cycle.plugin_metrics import ProfileMetrics
from scheduler_core.cycle.what_if import NodeDryRun
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.ports import Clock, ClusterWriter, StorageWriter
from scheduler_core.queueing.nominator import NominatedPods
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.permitting import WaitingPodMap
from scheduler_core.runtime.pre_binding import PodsInPreBind
from scheduler_core.snapshot.declared_objects import KindStore
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo


class PluginHandle:
    """The handle of one profile."""

    def __init__(self, context: CycleContext, profile_name: str) -> None:
        self._context = context
        self._instance: FrameworkInstance | None = None
        self.groups = GangViews(context)
        self.profile_name = profile_name

    def attach(self, instance: FrameworkInstance) -> None:
        """Say whose handle this is; the plugins were made with it before the instance was whole."""
        self._instance = instance

    @property
    def nodes(self) -> NodeColumns:
        """The live columns."""
        return self._context.cache.columns

    @property
    def seed(self) -> int:
        """Settles what is left to chance."""
        return self._context.seed

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        """The objects of a declared kind.

        Raises:
            PluginError: No plugin declares it.
        """
        store = self._context.declared.find(kind.path)
        if store is None:
            raise PluginError(
                "", "handle", f"no plugin declares {kind.path}; name the kind in the plugin's reads.kinds"
            )
        return store

    @property
    def metrics(self) -> ProfileMetrics:
        """What the profile's plugins tell of themselves."""
        return self._context.metrics_of(self.profile_name)

    @property
    def clock(self) -> Clock:
        """Time."""
        return self._context.clock

    @property
    def writer(self) -> ClusterWriter:
        """The cluster."""
        return self._context.writer

    @property
    def storage_writer(self) -> StorageWriter | None:
        """The cluster's volumes and claims; None where they cannot be written."""
        writer = self._context.storage_writer
        return None if writer is None else PatientStorageWriter(writer, self._context.suspension)

    @property
    def waiting_pods(self) -> WaitingPodMap:
        """Pods that wait at Permit."""
        return self._context.waiting

    @property
    def pods_in_pre_bind(self) -> PodsInPreBind:
        """Pods whose PreBind runs."""
        return self._context.in_pre_bind

    @property
    def preemptions(self) -> PreemptionsUnderWay:
        """Preemptions whose evictions are still to be issued."""
        return self._context.preemptions

    @property
    def nominator(self) -> NominatedPods:
        """Nominations."""
        return self._context.queue.nominator

    def activate(self, pods: Iterable[PodInfo]) -> None:
        """Move waiting pods into the active queue."""
        self._context.queue.activate([pod.uid for pod in pods])

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        """Whether ``pod`` would pass the profile's filters on one row as things are.

        Raises:
            PluginError: The profile is not made yet, or a plugin raised.
        """
        instance = self._whole_instance()
        if row == NO_ROW:
            raise PluginError("", "filter", "the node is not known; look its row up first")
        state = CycleState()
        outcome = run_pre_filters(instance, state, pod, self.nodes)
        if not outcome.status.is_success:
            return outcome.status
        verdict = int(run_filters(instance, state, pod, self.nodes, np.array([row], dtype=np.intp))[0])
        return decode_verdict(instance, state, pod, verdict) if verdict else SUCCESS

    def dry_run(self, state: CycleState, pod: PodInfo) -> NodeDryRun:
        """Try out how ``pod`` would fare if running pods were gone.

        Raises:
            PluginError: The profile is not made yet.
        """
        return NodeDryRun(self._whole_instance(), state, pod, self.nodes, self._context.queue.nominator)

    def _whole_instance(self) -> FrameworkInstance:
        if self._instance is None:
            raise PluginError("", "filter", f'profile "{self.profile_name}" is not made yet; ask when it serves pods')
        return self._instance
