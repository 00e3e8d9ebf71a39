"""Implementation of :class:`scheduler_core.framework.handle.Handle`, the interface of the scheduler for plugins."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.cycle.internal_errors import try_twice
from scheduler_core.cycle.journal import Journal
from scheduler_core.cycle.simulated_pod_removal import NodeDryRun
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.group_view import GroupViews
from scheduler_core.framework.object_reads import ObjectKind, T
from scheduler_core.framework.ongoing_preemptions import PreemptionsUnderWay
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.framework.waiting_pods import PodsInPreBind, WaitingPods
from scheduler_core.metrics.scheduler_metrics import DeviceMetrics, RecordedPluginMetrics
from scheduler_core.ports import ClaimWriter, Clock, ClusterWriter, PodDeletion, StorageWriter
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.node_columns import KindStore, NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from scheduler_core.step_counter import StepCounter

log = logging.getLogger(__name__)
R = TypeVar("R")


class _AfterSuspension:
    """Writer that writes at once, and returns results and errors when no cycle is suspended."""

    def __init__(self, writer: StorageWriter | ClaimWriter, suspension: Suspension) -> None:
        self._writer = writer
        self._suspension = suspension

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        write = getattr(self._writer, name)

        async def deferred(*args: Any) -> Any:
            try:
                return await write(*args)
            finally:
                # A PreBind plugin changes assumed objects as soon as it gets a result, which a suspended cycle must not
                # see.
                await self._suspension.over()

        return deferred


class ReportedDeletions:
    """Writer of the cluster that reports the successful response to each deletion before it calls ``done``.

    Args:
        on_accepted: Called with each deletion that the API server has accepted.
    """

    def __init__(self, writer: ClusterWriter, on_accepted: Callable[[PodDeletion], None]) -> None:
        self._writer = writer
        self._on_accepted = on_accepted

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._writer, name)
        # Stored, because binds and events would pass through this method otherwise, once for each pod.
        setattr(self, name, found)
        return found

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        self._writer.delete_pod(deletion, partial(self._answered, deletion, done))

    def _answered(
        self, deletion: PodDeletion, done: Callable[[Exception | None], None], fault: Exception | None
    ) -> None:
        try:
            if fault is None:
                self._on_accepted(deletion)
        except Exception:
            # The watch shows the deletion too; a preemptor whose victim is never reported would be gated permanently.
            log.exception("the deletion of pod %s/%s is handled later", deletion.namespace, deletion.name)
        finally:
            try_twice(done, fault)


class PluginWriters(NamedTuple):
    """Writers of the cluster for plugins; None for objects that cannot be written."""

    cluster: ClusterWriter
    storage: StorageWriter | None = None
    claims: ClaimWriter | None = None

    def after(self, suspension: Suspension) -> PluginWriters:
        """Return writers whose results and errors arrive when no cycle is suspended."""
        storage = None if self.storage is None else cast("StorageWriter", _AfterSuspension(self.storage, suspension))
        claims = None if self.claims is None else cast("ClaimWriter", _AfterSuspension(self.claims, suspension))
        return PluginWriters(self.cluster, storage, claims)


@dataclass(frozen=True, slots=True)
class PluginServices:
    """What plugins of all profiles may use of the scheduler.

    Attributes:
        queue: Nominations, and activation of waiting pods.
        preemptions: Preemptions whose evictions are not all issued.
        journal: Orders the tasks of plugins among those of the scheduler.
        declared: Objects of kinds that plugins declare.
        metrics: Metrics that plugins record, by scheduler name.
    """

    nodes: NodeColumns
    queue: SchedulingQueue
    groups: GroupViews
    waiting: WaitingPods
    clock: Clock
    writers: PluginWriters
    preemptions: PreemptionsUnderWay
    device_metrics: DeviceMetrics
    journal: Journal
    steps: StepCounter
    suspension: Suspension
    seed: int = 0
    declared: defaultdict[str, KindStore[Any]] = field(default_factory=lambda: defaultdict(KindStore))
    metrics: dict[str, RecordedPluginMetrics] = field(default_factory=dict)
    in_pre_bind: PodsInPreBind = field(default_factory=PodsInPreBind)


class PluginHandle:
    """The handle of one profile; see :class:`scheduler_core.framework.handle.Handle`.

    Args:
        instance: Returns the profile's instance; raises :class:`PluginError` until its plugins are created.
    """

    def __init__(self, services: PluginServices, profile_name: str, instance: Callable[[], FrameworkInstance]) -> None:
        self._services = services
        self._instance = instance
        self.profile_name = profile_name
        self.nodes = services.nodes
        self.groups = services.groups
        self.waiting_pods = services.waiting
        self.pods_in_pre_bind = services.in_pre_bind
        self.preemptions = services.preemptions
        self.device_metrics = services.device_metrics
        self.nominator = services.queue.nominator
        self.clock = services.clock
        self.seed = services.seed
        self.writer, self.storage_writer, self.claim_writer = services.writers

    def new_uid(self) -> str:
        return self._services.journal.new_uid()

    def spawn(self, work: Coroutine[Any, Any, R]) -> asyncio.Task[R]:
        return asyncio.get_running_loop().create_task(self._services.journal.steps(work))

    def objects(self, kind: ObjectKind[T]) -> KindStore[T]:
        store = self._services.declared.get(kind.path)
        if store is None:
            raise PluginError(
                "", "handle", f"no plugin declares {kind.path}; name the kind in the plugin's reads.kinds"
            )
        return store

    @property
    def metrics(self) -> RecordedPluginMetrics:
        return self._services.metrics.setdefault(self.profile_name, RecordedPluginMetrics())

    @property
    def preemption_settings(self) -> PreemptionSettings:
        return self._instance().config.preemption

    def after_suspension(self, act: Callable[[], None]) -> None:
        self._services.suspension.run_afterwards(act)

    def activate(self, pods: Iterable[PodInfo]) -> None:
        self._services.queue.activate([pod.uid for pod in pods])

    def run_filters_on(self, pod: PodInfo, row: int) -> Status:
        instance = self._instance()
        if row == NO_ROW:
            raise PluginError("", "filter", "the node is not known; look its row up first")
        # A state of its own: the attempt in progress, if any, must not see what these plugins write.
        state = CycleState()
        outcome = run_pre_filters(instance, state, pod, self.nodes)
        if not outcome.status.is_success:
            return outcome.status
        verdict = int(run_filters(instance, state, pod, self.nodes, np.array([row], dtype=np.intp))[0])
        return decode_verdict(instance, state, pod, self.nodes, verdict) if verdict else SUCCESS

    def dry_run(
        self, state: CycleState, pod: PodInfo, *, frees_shared_ports: bool = True, held: HeldClaims | None = None
    ) -> NodeDryRun:
        return NodeDryRun(
            self._instance(),
            state,
            pod,
            self.nodes,
            self.nominator,
            steps=self._services.steps,
            frees_shared_ports=frees_shared_ports,
            held=held,
        )
