"""Decisions of a scheduler that was started just now on the API server's state, to compare with the one under test.

Its cache was filled at once, so it has seen none of the run's faults. It writes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle.cycle_context import CycleContext
from scheduler_core.framework.queued_pod import Place, QueuedPod
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.runtime.framework_instance import FrameworkInstance
from tests.simulation.api_server import NODES, ApiServer
from tests.simulation.device_objects import DEVICE_CLASSES, RESOURCE_CLAIMS, SLICES
from tests.simulation.extender import suits
from tests.simulation.ledger import ReservationLedger
from tests.simulation.operator_life import LifeOptions, OperatorLife, make_scheduler, plan_of
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups
from tests.simulation.virtual_loop import LoopClock, VirtualLoop

_OPTIONS = LifeOptions(0, 0, 0.0, 1)


class _NoWriter:
    """Writer that accepts every call and writes nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        if name not in ("patch_pod_status", "record", "delete_pod"):
            raise AssertionError(f"an opinion writes nothing: {name}")
        return lambda *_, **__: None


class _UncheckedLedger(ReservationLedger):
    """Ledger that checks nothing: the plugins of the fresh scheduler reserve nothing and reject no pod."""

    def __init__(self) -> None:
        """Take no arguments."""
        self.is_closed = True

    def take_turn(self, uid: str) -> bool:
        """Ignore the pod's label."""
        del uid
        return False


class FreshOpinion:
    """A fresh scheduler.

    Attributes:
        context: The fresh scheduler's parts.
    """

    def __init__(self, supervisor: OperatorSupervisor, server: ApiServer, groups: PodGroups) -> None:
        self._life: OperatorLife = supervisor.life
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
            name: fresh.build_planned(plan_of(name, revision)) for name, revision in supervisor.profiles.items()
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
        self._waiting = [pod for pod in server.pods() if not pod.spec.node_name and not pod.is_terminal]
        fresh.context.queue.close()
        clock.is_dead = True
        loop.close()

    def left_waiting(self) -> Iterator[str]:
        """Yield pods that wait although a node is feasible."""
        queue = self._life.scheduler.context.queue
        for pod in self._waiting:
            instance = self._profiles.get(pod.spec.scheduler_name)
            if instance is None or pod.metadata.deletion_timestamp is not None or self._waits_with_its_gang(pod):
                continue
            found = self._cycles.examiner.examine(instance, self.context.cache.columns.compile_pod(pod))
            queued = queue.find(pod.metadata.uid)
            reasons = "nobody" if queued is None else ", ".join(sorted(queued.rejected_by)) or "nobody"
            if instance.config.extenders:
                found.feasible = tuple(name for name in found.feasible if suits(self._nodes.get(name)))
            if found.feasible and not (queued is not None and self._is_left_by_the_reference(queued)):
                where = ", ".join(found.feasible)
                yield f"{pod.metadata.uid} fits on {where} and is left waiting (rejected by {reasons})"
            elif found.error:
                yield f"{pod.metadata.uid} cannot be judged: {found.error}"

    def gangs_left_waiting(self) -> Iterator[str]:
        """Yield gangs that wait although they fit as a whole, except those of profiles with extenders."""
        for gang in list(self.context.queue.gangs.units()):
            entry = gang.entry
            if entry is None or entry.place is Place.NOWHERE or self._profiles[entry.profile].config.extenders:
                continue
            # Without extenders a group cycle never awaits.
            try:
                self._cycles.gangs.schedule(entry).send(None)
            except StopIteration as ended:
                placed: list[Attempt] = ended.value
            if placed:
                where = ", ".join(f"{each.info.uid} on {each.node_name}" for each in placed)
                kept = self._life.scheduler.context.queue.gangs.get(gang.key)
                yield f"gang {gang.key} fits ({where}) and is left waiting, {_how_it_waits(kept)}"
            for attempt in reversed(placed):
                self._cycles.assumed.release(attempt)

    def _waits_with_its_gang(self, pod: Pod) -> bool:
        gang = self.context.queue.gangs.of_uid(pod.metadata.uid)
        return gang is not None and (gang.group is None or gang.needed > 0 or gang.is_held or gang.tree is not None)

    def _is_left_by_the_reference(self, queued: QueuedPod) -> bool:
        """Return whether kube-scheduler's own hints do not requeue such a pod, so ours must not either.

        Two kinds of pods that InterPodAffinity rejected wait for the flush after five minutes in both schedulers
        (``interpodaffinity/plugin.go``):

        - Pods without terms of their own, rejected by the anti-affinity of running pods: neither a new node nor a
          changed topology domain requeues them (``isSchedulableAfterNodeChange`` checks the waiting pod's terms only).
        - Pods that match their own affinity: the first of its kind may go anywhere, but the deletion of the last other
          one requeues nobody (``isSchedulableAfterAssignedPodChange`` checks anti-affinity only).
        """
        if "InterPodAffinity" not in queued.rejected_by:
            return False
        terms, meta = queued.info.terms, queued.info.pod.metadata
        labels = self.context.cache.columns.namespaces.get(meta.namespace)
        if not terms.required:
            return not terms.required_anti
        return all(term.query.matches(meta.namespace, meta.labels, labels) for term in terms.required)


def _how_it_waits(gang: Gang | None) -> str:
    if gang is None or gang.entry is None:
        return "and has no entry"
    return f"{gang.entry.place.label}, rejected by {sorted(gang.entry.rejected_by)}"
