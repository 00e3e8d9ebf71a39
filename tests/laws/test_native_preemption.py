"""Law of the preemption for groups of ``scheduling.k8s.io``: the victims are those of a plain form of the algorithm.

All pods of lower priority are taken off, the members are placed, and each pod returns that fits beside them: those
whose eviction violates a PodDisruptionBudget first, then by priority and start.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import msgspec
from hypothesis import event, given
from hypothesis import strategies as st

from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import running_pod, small_node
from tests.support.preemption import budget
from tests.support.scheduling import DEFAULT_NAME, Rig, rig

KEY = GroupKey(GroupSource.NATIVE, "default", "train")
START = datetime(2026, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Running:
    """A running pod: its node, its size, its priority, and whether the budget protects it."""

    node: int
    cpus: int
    priority: int
    is_protected: bool


@dataclass(frozen=True)
class World:
    """Nodes by their CPUs, pods on them in the order of their start, what the budget allows, and the group."""

    cpus: tuple[int, ...]
    pods: tuple[Running, ...]
    allowed: int
    members: int
    size: int
    needed: int

    def preview(self) -> tuple[Rig, GangPreview]:
        """Return the dry run of the group's preemption."""
        made = rig(defaults=default_plugins())
        made.scheduler.group_feed.serve(GroupSource.NATIVE)
        made.add(*(small_node(f"n{number}", cpus) for number, cpus in enumerate(self.cpus)))
        made.add(*(self._pod(number) for number in range(len(self.pods))))
        made.context.cache.columns.disruption_budgets.assign(budget("kept", {"app": "kept"}, self.allowed))
        made.scheduler.group_feed.group_changed(PodGroup(KEY, "uid", self.needed, priority=0, is_uniform=True))
        made.add(*(pod(f"m{each}", requests={"cpu": str(self.size)}, group="train") for each in range(self.members)))
        gang, instance = made.queue.gangs.get(KEY), made.context.profiles.get(DEFAULT_NAME)
        assert gang is not None
        assert instance is not None
        return made, made.scheduler.cycles.preemption.preview(gang, instance)

    def _pod(self, number: int) -> Pod:
        each = self.pods[number]
        labels = {"app": "kept"} if each.is_protected else {}
        made = running_pod(f"v{number}", f"n{each.node}", each.priority, each.cpus, labels=labels)
        status = msgspec.structs.replace(made.status, start_time=START + timedelta(seconds=number))
        return msgspec.structs.replace(made, status=status)

    def free(self, kept: set[int]) -> list[int]:
        """CPUs that are free on each node beside the pods of these numbers."""
        free = list(self.cpus)
        for number in kept:
            free[self.pods[number].node] -= self.pods[number].cpus
        return free

    def in_order_of_return(self) -> list[int]:
        """Numbers of the pods of lower priority, in the order in which they return."""
        lower = sorted(
            (number for number, each in enumerate(self.pods) if each.priority < 0),
            key=lambda number: (-self.pods[number].priority, number),
        )
        protected = [number for number in lower if self.pods[number].is_protected]
        violating = set(protected[max(0, self.allowed) :])
        return sorted(lower, key=lambda number: number not in violating)


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """Draw a cluster with as many pods as its nodes have room for, and a group."""
    cpus = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    pods: list[Running] = []
    for number, total in enumerate(cpus):
        left = total
        while left > 0 and draw(st.integers(0, 4)):
            size = draw(st.integers(1, min(3, left)))
            left -= size
            pods.append(Running(number, size, draw(st.sampled_from((-9, -5, -5, 9))), draw(st.booleans())))
    members = draw(st.integers(1, 4))
    needed = draw(st.integers(1, members))
    shuffled = tuple(draw(st.permutations(pods)))
    return World(cpus, shuffled, draw(st.integers(0, 3)), members, draw(st.integers(1, 3)), needed)


@given(world=worlds())
def test_the_victims(world: World) -> None:
    """The plan has the victims of the plain form, and there is one if the quorum fits without the lower pods."""
    made, preview = world.preview()
    higher = {number for number, each in enumerate(world.pods) if each.priority >= 0}
    lower = world.in_order_of_return()
    room = sum(max(0, free) // world.size for free in world.free(higher))
    if not lower or room < world.needed:
        assert preview.plan is None
        return
    kept, seats = set(higher), [0] * len(world.cpus)
    if preview.plan is None:
        event("feasible without a victim")
        beside = sum(max(0, free) // world.size for free in world.free(higher | set(lower)))
        assert beside >= min(world.members, room)
        return
    assert len(preview.plan.nodes) == min(world.members, room)
    for name in preview.plan.nodes.values():
        seats[int(name[1:])] += world.size
    for number in lower:
        free = world.free(kept | {number})[world.pods[number].node]
        if free >= seats[world.pods[number].node]:
            kept.add(number)
    victims = {f"v{number}" for number in lower if number not in kept}
    event(f"{len(victims)} victims")
    assert {info.pod.metadata.name for info in preview.plan.victims} == victims
    assert not made.bound
