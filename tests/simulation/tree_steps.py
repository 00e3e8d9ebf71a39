"""Steps that act on trees of groups: creation and deletion of CompositePodGroups with gangs below them.

The steps for gangs also act on members and PodGroups of trees.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, GroupTopology, PodGroup
from tests.simulation.api_server import NAMESPACE
from tests.simulation.cluster_objects import ZONE, happens, one_of
from tests.simulation.gang_jobs import GangJob, GangJobs, generate_job
from tests.simulation.network import Network
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES

StepAction = Callable[[random.Random, int], None]
NAMESPACES = (NAMESPACE, "other")
ROOT, BRANCH = "root", "branch"
_PARENTS = ((ROOT, ROOT), (ROOT, ROOT, ROOT), (ROOT, BRANCH, BRANCH))
"""Parents of the gangs of each shape of tree; BRANCH is a child of ROOT."""


class TreeSteps:
    """Performs the steps.

    Args:
        network: Provides the event loop.
        jobs: Controllers that create members.
    """

    def __init__(self, network: Network, groups: PodGroups, jobs: GangJobs) -> None:
        self._network = network
        self._groups = groups
        self._jobs = jobs
        self.actions: dict[str, StepAction] = {
            "create a tree": self._create,
            "delete a tree": self._delete,
            "change minGroupCount": self._change_quorum,
            "recreate a CompositePodGroup": self._recreate,
        }

    def _create(self, rng: random.Random, number: int) -> None:
        """Create a tree; each object is created now or seconds later, in any order."""
        namespace, parents = one_of(rng, NAMESPACES), one_of(rng, _PARENTS)
        keys = [GroupKey(GroupSource.NATIVE, namespace, f"t{index}") for index in range(3)]
        if any(key in self._jobs.jobs for key in keys) or _composite(namespace, ROOT) in self._groups.composites:
            return
        priority, profile = one_of(rng, (0, 5, 10, 100)), PROFILES[happens(rng, 0.3)]
        root = self._composite(rng, namespace, ROOT, priority)
        later: list[Callable[[], None]] = [lambda: self._put(root)]
        if BRANCH in parents:
            branch = replace(self._composite(rng, namespace, BRANCH, priority), parent=ROOT)
            later.append(lambda: self._put(branch))
        for index, (key, parent) in enumerate(zip(keys, parents, strict=False)):
            job, group = self._leaf(rng, f"t{number}-{index}", key, parent)
            # An attempt fails if these differ among members or from the root.
            job.profile, job.priority = profile, priority
            first = job.size if happens(rng, 0.7) else rng.randrange(job.size)
            self._jobs.begin(job, first)
            self._network.loop.call_later(0.5 + 3.0 * rng.random(), self._jobs.reconcile, job)
            later.append(lambda group=group: self._put(group))  # type: ignore[misc]
        for put in later:
            if happens(rng, 0.5):
                put()
            else:
                self._network.loop.call_later(4.0 * rng.random(), put)

    def _composite(self, rng: random.Random, namespace: str, name: str, priority: int) -> CompositePodGroup:
        key = _composite(namespace, name)
        topology = GroupTopology(ZONE, prefers_allocated=True) if happens(rng, 0.25) else None
        return CompositePodGroup(
            key, self._groups.new_uid(key), one_of(rng, (1, 2, 2)), generation=1, priority=priority, topology=topology
        )

    def _leaf(self, rng: random.Random, name: str, key: GroupKey, parent: str) -> tuple[GangJob, PodGroup]:
        quorum = one_of(rng, (1, 2, 2, 3))
        job = generate_job(rng, name, key, quorum + one_of(rng, (0, 0, 1)))
        # A gated member gates its whole tree.
        job.is_gated = job.is_gated and happens(rng, 0.4)
        topology = GroupTopology(ZONE, prefers_allocated=True) if happens(rng, 0.2) else None
        group = PodGroup(key, self._groups.new_uid(key), quorum, generation=1, topology=topology, waits_for_gated=True)
        return job, replace(group, parent=parent)

    def _put(self, group: PodGroup | CompositePodGroup) -> None:
        if group.key not in self._groups.objects and group.key not in self._groups.composites:
            self._groups.put(group)

    def _some(self, rng: random.Random) -> CompositePodGroup | None:
        found = list(self._groups.composites.values())
        return one_of(rng, found) if found else None

    def _delete(self, rng: random.Random, number: int) -> None:
        """Delete a tree; its gangs are deleted too, or remain without a parent."""
        chosen = self._some(rng)
        if chosen is None:
            return
        namespace, with_gangs = chosen.key.namespace, happens(rng, 0.7)
        for name in (ROOT, BRANCH):
            self._groups.remove(_composite(namespace, name))
        for job in list(self._jobs.jobs.values()):
            group = self._groups.objects.get(job.key)
            if with_gangs and job.key.namespace == namespace and group is not None and group.parent:
                self._groups.remove(job.key)
                self._jobs.end(job)

    def _change_quorum(self, rng: random.Random, number: int) -> None:
        group = self._some(rng)
        if group is not None:
            quorum = max(1, group.min_groups + one_of(rng, (-1, 1)))
            self._groups.put(replace(group, min_groups=quorum, generation=group.generation + 1))

    def _recreate(self, rng: random.Random, number: int) -> None:
        """Delete a CompositePodGroup and mostly create it again; members below a missing one wait."""
        group = self._some(rng)
        if group is None:
            return
        self._groups.remove(group.key)
        if happens(rng, 0.9):
            successor = replace(group, uid=self._groups.new_uid(group.key), generation=1)
            self._network.loop.call_later(0.05 + 4.0 * rng.random() ** 2, self._put, successor)


def _composite(namespace: str, name: str) -> GroupKey:
    return GroupKey(GroupSource.COMPOSITE, namespace, name)
