"""A few small nodes whose pods come and end at random: what laws of healing gangs and of reservations share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from random import Random
from typing import Any

from msgspec.structs import replace

from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from tests.support.gang_preemption import small_node
from tests.support.scheduling import gang_rig

NODES = "abc"


def cpus_of(pod: Pod) -> int:
    """Return the CPUs that a pod requests."""
    return int(pod.spec.containers[0].resources.requests["cpu"])


async def live_all(live: Callable[[int], Awaitable[None]], seeds: Iterable[int]) -> None:
    """Run a lifetime for each seed."""
    for seed in seeds:
        await live(seed)


class SmallCluster:
    """A scheduler that serves PodGroups, with nodes and pods by name."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.made = gang_rig()
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.number = 0
        for name in NODES:
            self.create_node(name)

    async def any_of(self, steps: Mapping[Callable[[], Awaitable[Any]], int]) -> None:
        """Make one of the steps, which have weights."""
        await self.random.choices(list(steps), weights=list(steps.values()))[0]()

    def create_node(self, name: str) -> None:
        """Add a node of a random size."""
        self.nodes[name] = small_node(name, self.random.randint(2, 5))
        self.made.add(self.nodes[name])

    def add(self, added: Pod) -> None:
        """Add a pod."""
        self.pods[added.metadata.name] = added
        self.made.add(added)

    def remove(self, name: str) -> None:
        """Delete a pod."""
        self.made.scheduler.feed.pod_deleted(self.pods.pop(name))

    def free(self, node_name: str) -> int:
        """Return the CPUs of a node that no pod uses."""
        used = sum(cpus_of(each) for each in self.pods.values() if each.spec.node_name == node_name)
        return int(self.nodes[node_name].status.allocatable["cpu"]) - used

    def report_bound(self) -> None:
        """Report the pods that the scheduler has bound with their nodes."""
        for name, node_name in self.made.bound.items():
            each = self.pods.get(name)
            if each is not None and not each.spec.node_name:
                self.pods[name] = replace(each, spec=replace(each.spec, node_name=node_name))
                self.made.scheduler.feed.pod_updated(each, self.pods[name])
