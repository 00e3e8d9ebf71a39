"""Law: the condition of a waiting member names no pod that is gone, whatever happened to its gang.

Random lifetimes of a gang for which there is no room: members are created, deleted and gated, attempts fail, watches
show conditions late, the operator restarts. At rest, each member that was ever reported is reported truthfully.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

import pytest
from msgspec.structs import replace

from scheduler_core.gangs.gated_member_reports import REPORT_AFTER_SECONDS
from scheduler_core.model.pod import Pod, PodCondition, SchedulingGate
from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, group, leaf_group, member, settle
from tests.support.scheduling import Rig, default_rig

BACKOFF_SECONDS = 12.0
KINDS = {"create": 4, "create gated": 1, "delete": 4, "ungate": 1, "attempt": 3, "watch": 1, "restart": 1}
"""Kinds of steps with their weights."""
GROUPS: dict[str, list[PodGroup | CompositePodGroup]] = {
    "bayplan": [group(min_member=2)],
    "tree": [composite_group("root", 2), leaf_group("train", "root", 2), leaf_group("other", "root", 1)],
}


@dataclass
class Lifetime:
    """A gang, and what the API server stores of its members.

    Attributes:
        groups: The group, or the tree of groups.
        pods: Pods as the API server has them, by name.
        seen: Pods as the watch has shown them.
    """

    groups: list[PodGroup | CompositePodGroup]
    pods: dict[str, Pod] = field(default_factory=dict)
    seen: dict[str, Pod] = field(default_factory=dict)
    created: int = 0

    def __post_init__(self) -> None:
        self.made = self._operator()

    def _operator(self) -> Rig:
        made = default_rig(node("n", allocatable={"cpu": "500m", "pods": "10"}), groups=GroupSource)
        add_groups(made, *self.groups)
        self.seen = dict(self.pods)
        made.add(*self.seen.values())
        made.queue.gangs.follow_runs()
        return made

    async def take(self, kind: str, number: int) -> None:
        """Take one step."""
        names = sorted(self.pods)
        if kind.startswith("create") and len(names) < 6:
            self.created += 1
            created = self._member(f"p{self.created}", number)
            gates = (SchedulingGate("example.com/later"),) if kind == "create gated" else ()
            self._put(replace(created, spec=replace(created.spec, scheduling_gates=gates)))
        elif kind == "attempt":
            await self._attempt()
        elif kind == "watch":
            self._watch()
        elif kind == "restart":
            self.made.queue.close()
            self.made = self._operator()
        elif kind == "delete" and names:
            name = names[number % len(names)]
            self.made.scheduler.feed.pod_deleted(self.seen.pop(name))
            del self.pods[name]
        elif kind == "ungate" and names:
            stored = self.pods[names[number % len(names)]]
            self._put(replace(stored, spec=replace(stored.spec, scheduling_gates=())))

    def _member(self, name: str, number: int) -> Pod:
        if len(self.groups) == 1:
            return member(name)
        return pod(name, group="train" if number else "other", requests={"cpu": "1"}, priority=0)

    def _put(self, changed: Pod) -> None:
        name = changed.metadata.name
        before, self.pods[name], self.seen[name] = self.seen.get(name), changed, changed
        if before is None:
            self.made.add(changed)
        else:
            self.made.scheduler.feed.pod_updated(before, changed)

    async def _attempt(self) -> None:
        await settle(self.made)
        self._store()

    def _store(self) -> None:
        """Store the written conditions, which the watch does not show yet."""
        for patch in self.made.writer.patches:
            if patch.condition is not None and patch.name in self.pods:
                self.pods[patch.name] = with_condition(self.pods[patch.name], patch.condition)
        self.made.writer.patches.clear()

    def _watch(self) -> None:
        for name, stored in self.pods.items():
            if stored is not self.seen[name]:
                before, self.seen[name] = self.seen[name], stored
                self.made.scheduler.feed.pod_updated(before, stored)

    async def come_to_rest(self) -> None:
        """Let backoffs and reports end, and the watch show all."""
        for _ in range(4):
            await self._attempt()
            self.made.clock.advance(BACKOFF_SECONDS)
            self.made.clock.advance(REPORT_AFTER_SECONDS)
            self._store()
            self._watch()
        self.made.queue.close()

    def untrue(self) -> list[str]:
        """Return the conditions of ungated members that name a pod that is gone."""
        found = []
        for name, stored in self.pods.items():
            message = "".join(each.message for each in stored.status.conditions)
            if not stored.spec.scheduling_gates and set(re.findall(r"default/(p\d+)", message)) - self.pods.keys():
                found.append(f"{name}: {message}")
        return found


def with_condition(stored: Pod, condition: PodCondition) -> Pod:
    return replace(stored, status=replace(stored.status, conditions=(condition,)))


@pytest.mark.parametrize("groups", GROUPS)
@pytest.mark.parametrize("seed", range(40))
async def test_conditions_name_existing_pods(groups: str, seed: int) -> None:
    """At rest, no condition names a pod that is gone."""
    rng, lifetime = Random(seed), Lifetime(GROUPS[groups])
    for _ in range(6):
        for kind in rng.choices(list(KINDS), list(KINDS.values()), k=rng.randrange(1, 12)):
            await lifetime.take(kind, rng.randrange(6))
        await lifetime.come_to_rest()
        assert not lifetime.untrue()
