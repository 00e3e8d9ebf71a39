"""A cluster in which pods come, run for a while and end, second by second, with gangs among them.

Owns the clock's steps, run times and what an adversary sends. It must not know what is proved of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, members, settle
from tests.support.scheduling import rig

PATIENCE = 20.0
"""Seconds that a Strict gang fails before capacity is reserved for it."""


class Traffic:
    """A scheduler and pods whose run times the test knows and the scheduler does not.

    Attributes:
        rig: The scheduler.
        ends_at: When running pods end, by name.
    """

    def __init__(self, **options: Any) -> None:
        settings: dict[str, Any] = {"gang_reservation_seconds": PATIENCE, **options}
        self.rig = rig(defaults=default_plugins(), options=SchedulerOptions(**settings))
        self.rig.scheduler.group_feed.serve(GroupSource.BAYPLAN)
        self.ends_at: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._pods: dict[str, Pod] = {}
        self._serial = 0

    @property
    def now(self) -> float:
        """The clock's time."""
        return self.rig.clock.now()

    def nodes(self, cpus: Mapping[str, int], **fields: Any) -> None:
        """Nodes by name with so many CPUs."""
        self.rig.add(*(node(name, allocatable={"cpu": str(cpu), "pods": "20"}, **fields) for name, cpu in cpus.items()))

    def add_running(self, node_name: str, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> Pod:
        """A pod that runs already, and for so many seconds more."""
        self._serial += 1
        policy = fields.pop("restart_policy", "Never")
        made = pod(f"running-{self._serial}", node_name=node_name, requests={"cpu": str(cpu)}, **fields)
        made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, restart_policy=policy))
        self._pods[made.metadata.name] = made
        self.ends_at[made.metadata.name] = self.now + seconds
        self.rig.add(made)
        return made

    def add_pending(self, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> Pod:
        """A pod that wants to run for so many seconds."""
        self._serial += 1
        requests = fields.pop("requests", {"cpu": str(cpu)})
        made = pod(f"small-{self._serial}", requests=requests, **fields)
        self._pods[made.metadata.name] = made
        self._seconds[made.metadata.name] = seconds
        self.rig.add(made)
        return made

    def gang(self, name: str, count: int, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> list[Pod]:
        """A gang of equal members, Strict unless said otherwise."""
        pod_fields = fields.pop("member", {})
        self.rig.scheduler.group_feed.group_changed(group(name, min_member=count, **{"is_strict": True, **fields}))
        made = members(count, name, requests={"cpu": str(cpu)}, **pod_fields)
        for each in made:
            self.add(each, seconds)
        return made

    def add(self, each: Pod, seconds: float = 1e9) -> None:
        """A pod comes that the test has made itself."""
        self._pods[each.metadata.name] = each
        self._seconds[each.metadata.name] = seconds
        self.rig.add(each)

    def delete(self, *pods: Pod) -> None:
        """Pods are gone."""
        for each in pods:
            self.ends_at.pop(each.metadata.name, None)
            self.rig.scheduler.feed.pod_deleted(each)

    def delete_named(self, *names: str) -> None:
        """Pods that run are gone, though nothing was tried since."""
        self.delete(*[self._pods[name] for name in names])

    async def settle(self) -> None:
        """Let the scheduler do what it can; what it binds begins to run."""
        known = len(self.rig.writer.bindings)
        await settle(self.rig)
        for binding in self.rig.writer.bindings[known:]:
            self.ends_at[binding.name] = self.now + self._seconds.pop(binding.name)

    async def step(self, seconds: float = 1.0) -> None:
        """Time passes; who is over ends."""
        self.rig.clock.advance(seconds)
        self.delete(*[self._pods[name] for name, due in self.ends_at.items() if due <= self.now])
        await self.settle()

    def latest_end_on(self, node_names: Iterable[str]) -> float:
        """When the last of the pods that run on some nodes ends; now if none runs."""
        columns = self.rig.context.cache.columns
        there = [info.pod for name in node_names for info in columns.pods[columns.row_of(name)].values()]
        return max((self.ends_at[each.metadata.name] for each in there), default=self.now)

    def is_scheduled(self, name: str) -> bool:
        """Whether a gang's quorum has its nodes."""
        return not gang_of(self.rig, name).needed

    def gang_named(self, name: str) -> Gang:
        """A gang."""
        return gang_of(self.rig, name)

    def is_bound(self, each: Pod) -> bool:
        """Whether a pod was bound."""
        return each.metadata.name in self.rig.bound

    async def reserve(self, name: str) -> Gang:
        """Let a gang fail until capacity is reserved for it."""
        await self.settle()
        await self.step(PATIENCE + 1.0)
        gang = self.gang_named(name)
        assert gang.reservation, gang.outcome
        return gang


async def full_traffic(*, options: dict[str, float] | None = None, **gang: Any) -> Traffic:
    """Nodes a and b of 4 CPUs, full of two pods each, and a gang that waits with a reservation on them."""
    traffic = Traffic(**(options or {}))
    for name in ("a", "b"):
        traffic.nodes({name: 4}, labels={"zone": name})
        traffic.add_running(name, 2, 100.0)
        traffic.add_running(name, 2, 200.0)
    traffic.gang("big", 3, 2, **gang)
    await traffic.reserve("big")
    return traffic
