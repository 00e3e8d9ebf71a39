"""A cluster with gangs in which pods are created, run and terminate, in steps of virtual time.

The test sets the run times, which the scheduler does not see.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.scheduler import SchedulerOptions
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, members, settle
from tests.support.scheduling import gang_rig

PATIENCE = 20.0
"""Seconds for which a Strict gang must have failed before capacity is reserved for it."""


class Traffic:
    """Scheduler and pods with run times.

    Attributes:
        ends_at: Time at which each running pod terminates, by name.
    """

    def __init__(self, **options: Any) -> None:
        settings: dict[str, Any] = {"gang_reservation_seconds": PATIENCE, **options}
        self.rig = gang_rig(options=SchedulerOptions(**settings))
        self.ends_at: dict[str, float] = {}
        self._seconds: dict[str, float] = {}
        self._pods: dict[str, Pod] = {}
        self._serial = 0

    @property
    def now(self) -> float:
        """Time of the clock."""
        return self.rig.clock.now()

    def nodes(self, cpus: Mapping[str, int], **fields: Any) -> None:
        """Add nodes; *cpus* is their CPUs by name."""
        self.rig.add(*(node(name, allocatable={"cpu": str(cpu), "pods": "20"}, **fields) for name, cpu in cpus.items()))

    def add_running(self, node_name: str, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> Pod:
        """Add a running pod that terminates after *seconds*."""
        self._serial += 1
        policy = fields.pop("restart_policy", "Never")
        made = pod(f"running-{self._serial}", node_name=node_name, requests={"cpu": str(cpu)}, **fields)
        made = msgspec.structs.replace(made, spec=msgspec.structs.replace(made.spec, restart_policy=policy))
        self._pods[made.metadata.name] = made
        self.ends_at[made.metadata.name] = self.now + seconds
        self.rig.add(made)
        return made

    def add_pending(self, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> Pod:
        """Add a pending pod with a run time."""
        self._serial += 1
        requests = fields.pop("requests", {"cpu": str(cpu)})
        made = pod(f"small-{self._serial}", requests=requests, **fields)
        self._pods[made.metadata.name] = made
        self._seconds[made.metadata.name] = seconds
        self.rig.add(made)
        return made

    def gang(self, name: str, count: int, cpu: int = 1, seconds: float = 1e9, **fields: Any) -> list[Pod]:
        """Add a gang of equal members, Strict by default."""
        pod_fields = fields.pop("member", {})
        self.rig.scheduler.group_feed.group_changed(group(name, min_member=count, **{"is_strict": True, **fields}))
        made = members(count, name, requests={"cpu": str(cpu)}, **pod_fields)
        for each in made:
            self.add(each, seconds)
        return made

    def add(self, each: Pod, seconds: float = 1e9) -> None:
        """Add a pod that the test has built."""
        self._pods[each.metadata.name] = each
        self._seconds[each.metadata.name] = seconds
        self.rig.add(each)

    def delete(self, *pods: Pod) -> None:
        """Delete pods."""
        for each in pods:
            self.ends_at.pop(each.metadata.name, None)
            self.rig.scheduler.feed.pod_deleted(each)

    def delete_named(self, *names: str) -> None:
        """Delete running pods by name, without running the scheduler."""
        self.delete(*[self._pods[name] for name in names])

    async def settle(self) -> None:
        """Run the scheduler until it is idle; the run time of bound pods begins."""
        bound = len(self.rig.writer.bindings)
        await settle(self.rig)
        for binding in self.rig.writer.bindings[bound:]:
            self.ends_at[binding.name] = self.now + self._seconds.pop(binding.name)

    async def step(self, seconds: float = 1.0) -> None:
        """Advance the time, delete the pods whose run time is over, and run the scheduler."""
        self.rig.clock.advance(seconds)
        self.delete(*[self._pods[name] for name, due in self.ends_at.items() if due <= self.now])
        await self.settle()

    def latest_end_on(self, node_names: Iterable[str]) -> float:
        """Return the time at which the last pod on some nodes terminates; the current time if there is none."""
        columns = self.rig.columns
        running = [info.pod for name in node_names for info in columns.pods[columns.row_of(name)].values()]
        return max((self.ends_at[each.metadata.name] for each in running), default=self.now)

    def is_scheduled(self, name: str) -> bool:
        """Return whether the quorum of a gang is scheduled."""
        return not gang_of(self.rig, name).needed

    def gang_named(self, name: str) -> Gang:
        """Return a gang by the name of its group."""
        return gang_of(self.rig, name)

    def is_bound(self, each: Pod) -> bool:
        """Return whether a pod was bound."""
        return each.metadata.name in self.rig.bound

    async def reserve(self, name: str) -> Gang:
        """Run the scheduler until capacity is reserved for a gang."""
        await self.settle()
        await self.step(PATIENCE + 1.0)
        gang = self.gang_named(name)
        assert gang.reservation, gang.outcome
        return gang


async def full_traffic(*, options: dict[str, float] | None = None, **gang: Any) -> Traffic:
    """Return full nodes a and b of 4 CPUs with two pods each, and a pending gang with a reservation on both."""
    traffic = Traffic(**(options or {}))
    for name in ("a", "b"):
        traffic.nodes({name: 4}, labels={"zone": name})
        traffic.add_running(name, 2, 100.0)
        traffic.add_running(name, 2, 200.0)
    traffic.gang("big", 3, 2, **gang)
    await traffic.reserve("big")
    return traffic
