"""Law: when all objects are gone, every gauge is as before the first one, whatever happened in between.

Random lifetimes of pods, gangs and trees that are bound, rejected, gated, parked, nominated and preempted, with nodes
and profiles that are added and deleted. The gauges are found in the collectors, so that a new one is covered.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from bayplan.serving.bayplan_metrics import profile_metrics
from bayplan.serving.kube_scheduler_metrics import scheduler_metrics
from msgspec.structs import replace

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, SchedulingGate
from scheduler_core.model.pod_group import CompositePodGroup, GroupSource, PodGroup
from tests.support.builders import node, pod
from tests.support.gangs import add_groups, composite_group, group, leaf_group, member, settle
from tests.support.scheduling import Rig, default_rig, profile

GROUPS: list[PodGroup | CompositePodGroup] = [
    group(min_member=2),
    composite_group("root", 2),
    leaf_group("left", "root", 1),
    leaf_group("right", "root", 2),
]
KINDS = {
    "node": 2, "remove node": 1, "pod": 6, "gated": 1, "delete": 4, "groups": 2, "remove group": 1, "profile": 1,
    "withdraw": 1, "settle": 5, "wait": 3,
}  # fmt: skip
"""Kinds of steps with their weights."""


class Lifetime:
    """A scheduler, and the objects that exist."""

    def __init__(self, seed: int) -> None:
        self._rng = Random(seed)
        self.made = default_rig(groups=GroupSource)
        self._pods: dict[str, Pod] = {}
        self._nodes: dict[str, Node] = {}
        self._created = 0

    async def take(self, kind: str) -> None:
        """Take one step."""
        made, rng = self.made, self._rng
        match kind:
            case "node":
                added = node(f"n{rng.randrange(3)}", allocatable={"cpu": rng.choice("123"), "pods": "4"})
                if added.metadata.name not in self._nodes:
                    self._nodes[added.metadata.name] = added
                    made.add(added)
            case "remove node" if self._nodes:
                made.scheduler.feed.node_deleted(self._nodes.pop(rng.choice(sorted(self._nodes))))
            case "pod" | "gated":
                self._create(is_gated=kind == "gated")
            case "delete" if self._pods:
                self._delete(rng.choice(sorted(self._pods)))
            case "groups":
                add_groups(made, *rng.sample(GROUPS, k=rng.randrange(1, 5)))
            case "remove group":
                made.scheduler.group_feed.group_deleted(rng.choice(GROUPS).key)
            case "profile":
                made.serve(profile(percentage=rng.randrange(10, 100)))
            case "withdraw":
                made.scheduler.withdraw("default-scheduler")
            case "settle":
                await self._settle()
            case "wait":
                made.clock.advance(rng.choice((1.0, 20.0, 400.0)))

    def _create(self, *, is_gated: bool) -> None:
        rng = self._rng
        self._created += 1
        name, of = f"p{self._created}", rng.choice(("", "train", "left", "right"))
        request, priority = {"cpu": rng.choice("1129")}, rng.choice((0, 0, 10))
        if of == "train":
            made = member(name, requests=request, priority=priority)
        else:
            made = pod(name, group=of, requests=request, priority=0 if of else priority)
        if not of and rng.random() < 0.2:
            made = replace(made, spec=replace(made.spec, scheduler_name="not-served"))
        if is_gated:
            made = replace(made, spec=replace(made.spec, scheduling_gates=(SchedulingGate("example.com/later"),)))
        self._pods[name] = made
        self.made.add(made)

    async def _settle(self) -> None:
        before = len(self.made.writer.bindings)
        await settle(self.made)
        for binding in self.made.writer.bindings[before:]:
            old = self._pods[binding.name]
            self._pods[binding.name] = new = replace(old, spec=replace(old.spec, node_name=binding.node_name))
            self.made.scheduler.feed.pod_updated(old, new)

    def _delete(self, name: str) -> None:
        self.made.scheduler.feed.pod_deleted(self._pods.pop(name))

    def end(self) -> None:
        """Delete all objects, in any order."""
        feeds = self.made.scheduler
        left: list[tuple[Callable[[Any], object], Any]] = [(self._delete, name) for name in self._pods]
        left += [(feeds.feed.node_deleted, each) for each in self._nodes.values()]
        left += [(feeds.group_feed.group_deleted, each.key) for each in GROUPS]
        self._rng.shuffle(left)
        for delete, each in left:
            delete(each)
        self.made.serve(profile())


def gauges(made: Rig) -> dict[tuple[str, str], float]:
    """Return the gauges of the scheduler that are not zero, except constants."""
    collectors = (
        scheduler_metrics(made.context, lambda: made.scheduler.binding_count),
        profile_metrics(made.context),
    )
    return {
        (sample.name, str(sample.labels)): sample.value
        for collector in collectors
        for family in collector.collect()
        if family.type == "gauge"
        for sample in family.samples
        if sample.value
    }


@pytest.mark.parametrize("seed", range(40))
async def test_gauges_without_objects(seed: int) -> None:
    """Without objects every gauge has the value of a scheduler that never had one."""
    lifetime, unused = Lifetime(seed), default_rig()
    rng = Random(f"{seed}/steps")
    for kind in rng.choices(list(KINDS), list(KINDS.values()), k=60):
        await lifetime.take(kind)
    lifetime.end()
    assert gauges(lifetime.made) == gauges(unused)
    lifetime.made.queue.close()
    unused.queue.close()
