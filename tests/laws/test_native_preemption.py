"""Law of preemption for groups of ``scheduling.k8s.io``: the victims equal those of a plain algorithm.

The plain algorithm removes all pods of lower priority, places the members, and restores each pod that still fits. It
restores pods whose eviction violates a PodDisruptionBudget first, then by priority and start time.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import event, given
from hypothesis import strategies as st

from scheduler_core.gangs.preemption import GangPreview
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from tests.support.builders import pod
from tests.support.gang_preemption import KEPT, BudgetedPod, small_node
from tests.support.preemption import budget
from tests.support.scheduling import DEFAULT_NAME, Rig, default_rig

KEY = GroupKey(GroupSource.NATIVE, "default", "train")


@dataclass(frozen=True)
class Scenario:
    """CPUs of the nodes, running pods in order of their start, allowed disruptions of the budget, and the group."""

    cpus: tuple[int, ...]
    pods: tuple[BudgetedPod, ...]
    allowed: int
    members: int
    size: int
    needed: int

    def preview(self) -> tuple[Rig, GangPreview]:
        """Return the dry run of the group's preemption."""
        made = default_rig(
            *(small_node(f"n{number}", cpus) for number, cpus in enumerate(self.cpus)), groups=[GroupSource.NATIVE]
        )
        made.add(*(each.running(number) for number, each in enumerate(self.pods)))
        made.columns.disruption_budgets.assign(budget("kept", KEPT, self.allowed))
        made.scheduler.group_feed.group_changed(PodGroup(KEY, "uid", self.needed, priority=0, is_uniform=True))
        made.add(*(pod(f"m{each}", requests={"cpu": str(self.size)}, group="train") for each in range(self.members)))
        gang, instance = made.queue.gangs.get(KEY), made.context.profiles.get(DEFAULT_NAME)
        assert gang is not None
        assert instance is not None
        return made, made.scheduler.cycles.preemption.preview(gang, instance)

    def free(self, remaining: set[int]) -> list[int]:
        """Return the free CPUs of each node next to the pods with the given numbers."""
        free = list(self.cpus)
        for number in remaining:
            free[self.pods[number].node] -= self.pods[number].cpus
        return free

    def in_order_of_restoration(self) -> list[int]:
        """Return the numbers of the pods of lower priority, in the order in which they are restored."""
        lower_pods = sorted(
            (number for number, each in enumerate(self.pods) if each.priority < 0),
            key=lambda number: (-self.pods[number].priority, number),
        )
        protected = [number for number in lower_pods if self.pods[number].is_protected]
        violating = set(protected[max(0, self.allowed) :])
        return sorted(lower_pods, key=lambda number: number not in violating)


@st.composite
def scenarios(draw: st.DrawFn) -> Scenario:
    """Generate nodes, pods that fit on them, and a group."""
    cpus = tuple(draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)))
    pods: list[BudgetedPod] = []
    for number, total in enumerate(cpus):
        left = total
        while left > 0 and draw(st.integers(0, 4)):
            size = draw(st.integers(1, min(3, left)))
            left -= size
            pods.append(BudgetedPod(number, size, draw(st.sampled_from((-9, -5, -5, 9))), draw(st.booleans())))
    members = draw(st.integers(1, 4))
    needed = draw(st.integers(1, members))
    shuffled = tuple(draw(st.permutations(pods)))
    return Scenario(cpus, shuffled, draw(st.integers(0, 3)), members, draw(st.integers(1, 3)), needed)


@given(scenario=scenarios())
def test_the_victims(scenario: Scenario) -> None:
    """The plan has the victims of the plain algorithm; there is a plan if the quorum fits without lower pods."""
    made, preview = scenario.preview()
    higher_pods = {number for number, each in enumerate(scenario.pods) if each.priority >= 0}
    lower_pods = scenario.in_order_of_restoration()
    capacity = sum(max(0, free) // scenario.size for free in scenario.free(higher_pods))
    if not lower_pods or capacity < scenario.needed:
        assert preview.plan is None
        return
    remaining, member_cpus = set(higher_pods), [0] * len(scenario.cpus)
    if preview.plan is None:
        event("feasible without a victim")
        next_to_lower_pods = sum(max(0, free) // scenario.size for free in scenario.free(higher_pods | set(lower_pods)))
        assert next_to_lower_pods >= min(scenario.members, capacity)
        return
    assert len(preview.plan.nodes) == min(scenario.members, capacity)
    for name in preview.plan.nodes.values():
        member_cpus[int(name[1:])] += scenario.size
    for number in lower_pods:
        free = scenario.free(remaining | {number})[scenario.pods[number].node]
        if free >= member_cpus[scenario.pods[number].node]:
            remaining.add(number)
    victims = {str(number) for number in lower_pods if number not in remaining}
    event(f"{len(victims)} victims")
    assert {info.pod.metadata.name for info in preview.plan.victims} == victims
    assert not made.bound
