"""Decisions of a scheduler that was just started on the API server's state, to compare with the scheduler under test.

Its cache was filled at once, so it has seen none of the run's faults. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from tests.simulation.api_server import NODES, ApiServer
from tests.simulation.device_objects import DEVICE_CLASSES, RESOURCE_CLAIMS, SLICES
from tests.simulation.extender import accepts
from tests.simulation.ledger import ReservationLedger
from tests.simulation.operator_process import OperatorProcess, ProcessOptions, make_scheduler
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups
from tests.simulation.virtual_loop import LoopClock, VirtualLoop

_OPTIONS = ProcessOptions(0, 0, 0.0, 1)


class _NoWriter:
    """Writer that accepts the calls of a scheduling cycle and writes nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("patch_pod_status", "record", "delete_pod"):
            raise AssertionError(f"the fresh scheduler called {name}; it must write nothing")
        return lambda *_, **__: None


class _UncheckedLedger(ReservationLedger):
    """Ledger that checks nothing and injects no faults."""

    def __init__(self) -> None:
        """Create a closed ledger without a run."""
        self.is_closed = True

    def inject_fault(self, uid: str) -> bool:
        """Return false: no fault is injected."""
        return False


class FreshScheduler:
    """A fresh scheduler.

    Attributes:
        context: The fresh scheduler's parts.
    """

    def __init__(self, supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> None:
        self._life: OperatorProcess = supervisor.process
        loop = VirtualLoop()
        clock = LoopClock(loop)
        fresh = make_scheduler(clock, _NoWriter(), _UncheckedLedger(), _OPTIONS)
        self.context: CycleContext = fresh.context
        self._cycles = fresh.cycles
        for path in WORKLOADS:
            for each in server.objects(path):
                fresh.workload_feed.added(each)
        for path in STORAGE:
            for each in server.objects(path):
                fresh.storage_feed.added(each)
        for path in (DEVICE_CLASSES, SLICES, RESOURCE_CLAIMS):
            for each in server.objects(path):
                fresh.device_feed.added(each)
        self._nodes = server.collection(NODES).objects
        for node in server.objects(NODES):
            fresh.feed.node_added(node)
        self._profiles: dict[str, FrameworkInstance] = {
            name: fresh.build_planned(supervisor.process.plan(name, revision))
            for name, revision in supervisor.profiles.items()
        }
        fresh.activate(self._profiles.values())
        for source in GroupSource:
            fresh.group_feed.serve(source)
        for composite in groups.composites.values():
            fresh.group_feed.group_changed(composite)
        for group in groups.objects.values():
            fresh.group_feed.group_changed(group)
        for pod in server.pods():
            fresh.feed.pod_added(pod)
        self._take_over_runs()
        self._waiting = [pod for pod in server.pods() if not pod.spec.node_name and not pod.is_terminal]
        fresh.context.queue.close()
        clock.is_dead = True
        loop.close()

    def _take_over_runs(self) -> None:
        """Take over which ended members count, because the pods do not show those that were collected.

        Nothing stores the runs of the simulated PodGroups, so the fresh scheduler would infer other ones. The pods are
        equal, and no more of them arrive.
        """
        queue = self.context.queue
        for gang in list(queue.gangs):
            tested = self._life.scheduler.context.queue.gangs.get(gang.key)
            if tested is not None:
                gang.run = tested.run
                if gang.tree is not None:
                    gang.tree.member_changed(gang.key)
                queue.gang_changed(gang)

    def feasible_pending_pods(self) -> Iterator[str]:
        """Yield pending pods for which a node is feasible."""
        queue = self._life.scheduler.context.queue
        for pod in self._waiting:
            instance = self._profiles.get(pod.spec.scheduler_name)
            if instance is None or pod.metadata.deletion_timestamp is not None or self._waits_for_gang(pod):
                continue
            found = self._cycles.examiner.examine(instance, self.context.cache.columns.compile_pod(pod))
            queued = queue.find(pod.metadata.uid)
            reasons = "no plugin" if queued is None else ", ".join(sorted(queued.rejected_by)) or "no plugin"
            if instance.config.extenders:
                found.feasible = tuple(name for name in found.feasible if accepts(self._nodes.get(name)))
            if found.feasible and not (queued is not None and self._stays_pending_in_kube_scheduler(queued)):
                where = ", ".join(found.feasible)
                yield f"{pod.metadata.uid} fits on {where} and is left waiting (rejected by {reasons})"
            elif found.error:
                yield f"{pod.metadata.uid} cannot be checked: {found.error}"

    def feasible_pending_gangs(self) -> Iterator[str]:
        """Yield pending gangs that fit as a whole, except those of profiles with extenders."""
        for gang in list(self.context.queue.gangs.units()):
            entry = gang.entry
            if entry is None or entry.place is Place.NOWHERE or self._profiles[entry.profile].config.extenders:
                continue
            # A group cycle awaits only extenders.
            try:
                self._cycles.gangs.schedule(entry).send(None)
            except StopIteration as ended:
                placed: list[Attempt] = ended.value
            if placed:
                where = ", ".join(f"{each.info.uid} on {each.node_name}" for each in placed)
                tested = self._life.scheduler.context.queue.gangs.get(gang.key)
                yield f"gang {gang.key} fits ({where}) and is left waiting, {_queue_state(tested)}"
            for attempt in reversed(placed):
                self._cycles.assumed.release(attempt)

    def _waits_for_gang(self, pod: Pod) -> bool:
        gang = self.context.queue.gangs.of_uid(pod.metadata.uid)
        return gang is not None and (gang.group is None or gang.needed > 0 or gang.is_held or gang.tree is not None)

    def _stays_pending_in_kube_scheduler(self, queued: QueuedPod) -> bool:
        """Return whether kube-scheduler's queueing hints leave such a pod pending, so that ours must, too.

        Two kinds of pods that InterPodAffinity rejected wait in both schedulers for the flush after five minutes
        (``interpodaffinity/plugin.go``):

        - Pods without terms of their own that the anti-affinity of running pods rejects. Neither a new node nor a
          changed topology domain requeues them: ``isSchedulableAfterNodeChange`` checks only the pending pod's terms.
        - Pods that match their own affinity. The first such pod may go to any node, but the deletion of the last
          other one requeues no pod: ``isSchedulableAfterAssignedPodChange`` checks only anti-affinity.
        """
        if "InterPodAffinity" not in queued.rejected_by:
            return False
        terms, meta = queued.info.terms, queued.info.pod.metadata
        labels = self.context.cache.columns.namespaces.get(meta.namespace)
        if not terms.required:
            return not terms.required_anti
        return all(term.query.matches(meta.namespace, meta.labels, labels) for term in terms.required)


def _queue_state(gang: Gang | None) -> str:
    if gang is None or gang.entry is None:
        return "and has no entry"
    return f"{gang.entry.place.label}, rejected by {sorted(gang.entry.rejected_by)}"
