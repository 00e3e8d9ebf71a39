"""Steps that act on gangs: creation and deletion, gates, failures, and faults during the binding of a gang.

Faults during the binding of a gang are armed in advance and take effect when one begins, because a step would rarely
meet these milliseconds.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec.structs import replace as altered

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from tests.simulation.api_server import PODS
from tests.simulation.cluster_objects import HOST, ZONE, happens, one_of
from tests.simulation.gang_jobs import KEYS, GangJob, GangJobs, generate_job, without_gates
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import gang_key
from tests.simulation.steps import has_gang_devices, has_healing
from tests.support.presence import present

if TYPE_CHECKING:
    from tests.simulation.cluster_steps import StepContext

_MIN_MEMBERS = (2, 2, 2, 3, 3, 4, 5, 6, 8, 12)
_BIND_FAULTS = ("error before", "error after", "request lost", "response lost", "no response", "conflict", "slow")
StepAction = Callable[[random.Random, int], None]


class GangSteps:
    """Performs the steps.

    Attributes:
        jobs: Controllers that create members.
    """

    def __init__(self, context: StepContext, groups: PodGroups) -> None:
        self._seed = context.seed
        self._server = context.server
        self._network = context.network
        self._supervisor = context.supervisor
        self._counts = context.counts
        self._groups = groups
        self.jobs = GangJobs(context.network.loop, context.server)
        self._on_placed: list[Callable[[str], None]] = []
        self._kills = 0
        self.actions: dict[str, StepAction] = {
            "create a gang": self._create,
            "delete a gang": self._delete_gang,
            "resize a gang": self._resize,
            "delete a waiting member": self._delete_waiting,
            "delete a running member": self._delete_running,
            "delete a member before its bind": self._arm_member_deletion,
            "fail a gang's binds": self._arm_bind_faults,
            "kill the operator between binds": self._arm_operator_kill,
            "lose a member of a running gang": self._lose,
            "members succeed": lambda rng, _: self._end_members(rng, "Succeeded"),
            "members fail": lambda rng, _: self._end_members(rng, "Failed"),
            "lift a gang's gates": self._lift_gates,
            "change minMember": self._change_min_member,
            "change a group's priority": self._change_priority,
            "recreate a PodGroup": self._recreate_group,
        }

    # -- notifications --------------------------------------------------------------------------------------------

    def placed(self, uid: str) -> None:
        """Apply armed faults to a member that was scheduled with its gang and is about to be bound."""
        waiting, self._on_placed = self._on_placed, []
        for each in waiting:
            each(uid)

    def bound(self, pod: Pod) -> None:
        """Apply armed faults after the operator has bound a pod."""
        key = gang_key(pod)
        group = None if key is None else self._groups.objects.get(key)
        if not self._kills or key is None or group is None:
            return
        there = [each for each in self._members(key) if each.spec.node_name and not each.is_terminal]
        if len(there) < group.min_member:
            self._kills -= 1
            self._counts.add("operator killed between binds")
            self._network.loop.call_soon(self._supervisor.kill)

    def heal(self) -> None:
        """Disarm all faults."""
        self._on_placed.clear()
        self._kills = 0

    # -- gangs --------------------------------------------------------------------------------------------------

    def _members(self, key: GroupKey) -> list[Pod]:
        return [pod for pod in self._server.pods() if gang_key(pod) == key]

    def _job(self, rng: random.Random) -> GangJob | None:
        jobs = list(self.jobs.jobs.values())
        return one_of(rng, jobs) if jobs else None

    def _create(self, rng: random.Random, number: int) -> None:
        """Create the group first or the members first, and all members at once or some of them."""
        free = [key for key in KEYS if key not in self.jobs.jobs]
        if not free:
            return
        key, min_member = one_of(rng, free), one_of(rng, _MIN_MEMBERS)
        size = min_member + one_of(rng, (0, 0, 0, 0, 1, 2, -1))
        job = generate_job(rng, f"g{number}", key, size)
        if has_gang_devices(self._seed) and happens(random.Random(f"{job.seed}/devices"), 0.6):
            job.templates = ("gpu",)
        priority = one_of(rng, (None, None, job.priority, 5, 100))
        uid, is_native = self._groups.new_uid(key), key.source is GroupSource.NATIVE
        topology = _topology(rng)
        group = PodGroup(
            key, uid, min_member, generation=1, priority=priority, topology=topology, waits_for_gated=is_native
        )
        group = replace(group, min_resources=self._min_resources(job, min_member, number))
        if has_healing(self._seed) and key.source is GroupSource.BAYPLAN:
            rng_of_healing = random.Random(f"{job.seed}/healing")
            group = replace(group, hold_seconds=one_of(rng_of_healing, (0.0, 5.0, 20.0, 20.0, 60.0)))
        first = size if happens(rng, 0.6) else rng.randrange(size)
        if happens(rng, 0.6):
            self._groups.put(group)
        else:
            self._network.loop.call_later(4.0 * rng.random(), self._create_group, job, group)
        self.jobs.begin(job, first)
        self._network.loop.call_later(0.5 + 3.0 * rng.random(), self.jobs.reconcile, job)

    def _min_resources(self, job: GangJob, min_member: int, number: int) -> dict[str, int]:
        """Return the quorum's requests or nothing; a separate generator leaves other random values unchanged."""
        rng = random.Random(f"{self._seed}/minResources {number}")
        return {"cpu": min_member * max(job.sizes)} if happens(rng, 0.4) else {}

    def _create_group(self, job: GangJob, group: PodGroup) -> None:
        if self.jobs.jobs.get(job.key) is job and job.key not in self._groups.objects:
            self._groups.put(group)

    def _delete_gang(self, rng: random.Random, number: int) -> None:
        """Delete a job with its members, and mostly also its group."""
        job = self._job(rng)
        if job is None:
            return
        if happens(rng, 0.7):
            self._groups.remove(job.key)
        self.jobs.end(job)

    def _resize(self, rng: random.Random, number: int) -> None:
        job = self._job(rng)
        if job is not None:
            job.size = max(1, job.size + one_of(rng, (-1, 1, 2)))
            self.jobs.reconcile(job)

    # -- groups -------------------------------------------------------------------------------------------------

    def _group(self, rng: random.Random) -> PodGroup | None:
        groups = list(self._groups.objects.values())
        return one_of(rng, groups) if groups else None

    def _change_min_member(self, rng: random.Random, number: int) -> None:
        group = self._group(rng)
        if group is not None:
            min_member = max(1, group.min_member + one_of(rng, (-2, -1, 1)))
            self._counts.add("minMember changed")
            self._groups.put(replace(group, min_member=min_member, generation=group.generation + 1))

    def _change_priority(self, rng: random.Random, number: int) -> None:
        """Set the priority to that of the members or another one, or unset it."""
        job = self._job(rng)
        group = None if job is None else self._groups.objects.get(job.key)
        if job is not None and group is not None:
            priority = one_of(rng, (job.priority, 5, 100)) if group.priority is None else None
            self._groups.put(replace(group, priority=priority, generation=group.generation + 1))

    def _recreate_group(self, rng: random.Random, number: int) -> None:
        """Delete a group and mostly create it again; members without a group wait."""
        group = self._group(rng)
        if group is None:
            return
        self._groups.remove(group.key)
        if happens(rng, 0.9):
            successor = replace(group, uid=self._groups.new_uid(group.key), generation=1)
            self._network.loop.call_later(0.05 + 4.0 * rng.random() ** 2, self._return_group, successor)

    def _return_group(self, group: PodGroup) -> None:
        if group.key not in self._groups.objects:
            self._counts.add("PodGroup recreated")
            self._groups.put(group)

    # -- members ------------------------------------------------------------------------------------------------

    def _some_member(self, rng: random.Random, which: Callable[[Pod], bool]) -> Pod | None:
        """Return a random member that meets the condition and is not being deleted."""
        found = [
            pod
            for pod in self._server.pods()
            if gang_key(pod) is not None and pod.metadata.deletion_timestamp is None and which(pod)
        ]
        return one_of(rng, found) if found else None

    def _delete(self, pod: Pod, fault: str) -> None:
        self._counts.add(fault)
        self._network.log(f"delete member {pod.metadata.uid}")
        self._server.delete_pod(pod.metadata.name)

    def _delete_waiting(self, rng: random.Random, number: int) -> None:
        reserved_nodes = self._supervisor.reserved_nodes()
        pod = self._some_member(rng, lambda pod: not pod.spec.node_name and pod.metadata.uid not in reserved_nodes)
        if pod is not None:
            self._delete(pod, "gang member deleted while it waits")

    def _delete_running(self, rng: random.Random, number: int) -> None:
        pod = self._some_member(rng, lambda pod: bool(pod.spec.node_name) and not pod.is_terminal)
        if pod is not None:
            self._delete(pod, "gang member deleted while it runs")

    def _lose(self, rng: random.Random, number: int) -> None:
        """Delete or fail one member of a group that heals, while another one runs."""
        counts = Counter(gang_key(pod) for pod in self._server.pods() if _runs(pod))
        healing = {key for key, group in self._groups.objects.items() if group.hold_seconds and counts[key] > 1}
        pod = self._some_member(rng, lambda pod: _runs(pod) and gang_key(pod) in healing)
        if pod is None:
            return
        if happens(rng, 0.5):
            self._delete(pod, "gang member deleted while it runs")
        else:
            self._counts.add("gang member failed")
            self._server.put(PODS, altered(pod, status=altered(pod.status, phase="Failed")))

    def _end_members(self, rng: random.Random, phase: str) -> None:
        pod = self._some_member(rng, lambda pod: bool(pod.spec.node_name) and not pod.is_terminal)
        if pod is None:
            return
        key = present(gang_key(pod))
        for each in self._members(key):
            if each is pod or (each.spec.node_name and not each.is_terminal and happens(rng, 0.4)):
                self._counts.add("gang member succeeded" if phase == "Succeeded" else "gang member failed")
                self._server.put(PODS, altered(each, status=altered(each.status, phase=phase)))

    def _lift_gates(self, rng: random.Random, number: int) -> None:
        pod = self._some_member(rng, lambda pod: bool(pod.spec.scheduling_gates))
        if pod is None:
            return
        key = present(gang_key(pod))
        for each in self._members(key) if happens(rng, 0.5) else [pod]:
            if each.spec.scheduling_gates:
                self._counts.add("gang member's gate lifted")
                self._server.put(PODS, without_gates(each))

    # -- armed faults -----------------------------------------------------------------------------------------------

    def _arm_member_deletion(self, rng: random.Random, number: int) -> None:
        """Delete a member of the next gang that is scheduled, before the member is bound."""
        seconds, share = one_of(rng, (0.0, 0.01, 0.05, 1.0, 3.0)), rng.random()
        self._on_placed.append(lambda uid: self._delete_one_placed(uid, seconds, share))

    def _delete_one_placed(self, uid: str, seconds: float, share: float) -> None:
        self._network.loop.call_later(seconds, self._delete_placed, uid, share)

    def _delete_placed(self, uid: str, share: float) -> None:
        """Delete the member, or another one of its gang that has a reservation."""
        reserved_nodes = self._supervisor.reserved_nodes()
        first = next((pod for pod in self._server.pods() if pod.metadata.uid == uid), None)
        key = None if first is None else gang_key(first)
        if key is not None:
            found = [pod for pod in self._members(key) if pod.metadata.uid in reserved_nodes and not pod.spec.node_name]
            if found:
                self._delete(found[int(share * len(found))], "gang member deleted before its bind")

    def _arm_bind_faults(self, rng: random.Random, number: int) -> None:
        fault, count = one_of(rng, _BIND_FAULTS), rng.randrange(1, 3)
        self._on_placed.append(lambda _: self._network.arm("bind", fault, count))

    def _arm_operator_kill(self, rng: random.Random, number: int) -> None:
        self._kills = 1


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not pod.is_terminal and pod.metadata.deletion_timestamp is None


def _topology(rng: random.Random) -> GroupTopology | None:
    if not happens(rng, 0.4):
        return None
    return GroupTopology(ZONE, (HOST,) if happens(rng, 0.2) else (), is_required=happens(rng, 0.6))
