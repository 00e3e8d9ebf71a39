"""Law: no gang and no tree of groups is bound in part, whatever fails between the decision and the binds.

Members wait at Permit, in PreBind and for their volumes, extenders bind them, and further members are created, while
plugins reject members, volumes cannot be written and members are deleted at random moments.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ClusterWriteError, ExtenderError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult, PreBindPlugin, ReservePlugin
from scheduler_core.framework.status import SUCCESS, Code, Status, unschedulable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.ports import Binding
from scheduler_core.scheduler import SchedulerPorts
from scheduler_core.snapshot.pod_info import PodInfo
from tests.laws.test_group_trees import Tree, trees
from tests.laws.twins.storage import VolumeControllers
from tests.support.builders import node, pod
from tests.support.scheduling import DEFAULT_NAME, default_rig, plugin_set
from tests.support.scripted_extender import ScriptedExtender, extender
from tests.support.storage import RecordingStorageWriter, claim, mounts, storage_class, volume

_CHANGES = 25


class Chaos(ReservePlugin, PermitPlugin, PreBindPlugin):
    """Rejects members and lets them wait, at random until :attr:`random` is None."""

    name = "Chaos"
    random: Random | None = None

    def _status(self, rate: float) -> Status:
        return SUCCESS if self.random is None or self.random.random() >= rate else unschedulable("chaos")

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        return self._status(0.2)

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        pass

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        if self.random is not None and self.random.random() < 0.2:
            return PermitResult(Status(Code.WAIT), self.random.choice((2.0, 30.0)))
        return PermitResult(self._status(0.05))

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        if self.random is not None and self.random.random() < 0.2:
            await self.handle.clock.sleep(self.random.choice((0.0, 1.0, 8.0)))
        return self._status(0.3)


@dataclass(eq=False)
class Binder(ScriptedExtender):
    """Extender that binds pods, late and not always while :attr:`Chaos.random` is set."""

    attempted: list[Binding] = field(default_factory=list)
    bindings: list[Binding] = field(default_factory=list)

    async def bind(self, binding: Binding) -> None:
        """Record the binding, or fail."""
        self.attempted.append(binding)
        random = Chaos.random
        for _ in range(0 if random is None else random.randrange(9)):
            await asyncio.sleep(0)
        if random is not None and random.random() < 0.1:
            raise ExtenderError(self.url, "away")
        self.bindings.append(binding)


class Cluster:
    """A scheduler for one tree, whose pods, volumes and claims are confirmed late."""

    def __init__(self, tree: Tree, random: Random, *, binder: bool) -> None:
        self.tree, self.random = tree, random
        self.storage, self.binder = RecordingStorageWriter(), Binder()
        ports = SchedulerPorts(storage=self.storage, make_extender=lambda *_: self.binder)
        groups = (GroupSource.NATIVE, GroupSource.COMPOSITE)
        self.made = default_rig(plugins=[Chaos], serve=False, ports=ports, groups=groups)
        extenders = (extender(bindVerb="bind", filterVerb="", prioritizeVerb="", preemptVerb=""),) if binder else ()
        plugins = Plugins(multi_point=plugin_set("Chaos"))
        self.made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, plugins=plugins, extenders=extenders))
        self.volumes = VolumeControllers(self.made.scheduler.storage_feed, self.storage)
        self.volumes.add(storage_class())
        self.made.add(node("n", allocatable={"cpu": "99", "pods": "99"}))
        for each in tree.groups:
            self.made.scheduler.group_feed.group_changed(each)
        self.pods: dict[str, Pod] = {}
        self.numbers = [0] * len(tree.gangs)
        for gang, (_, _, count) in enumerate(tree.gangs):
            for _ in range(count):
                self.create(gang)

    def create(self, gang: int) -> None:
        """Create a member, perhaps with a claim for which one volume is available."""
        name = f"g{gang}-{self.numbers[gang]}"
        self.numbers[gang] += 1
        fields: Any = {}
        if self.random.random() < 0.2:
            self.volumes.add(volume(f"pv-{name}"))
            self.volumes.add(claim(name))
            fields["volumes"] = mounts(name)
        self.pods[name] = pod(name, requests={"cpu": "1"}, group=f"g{gang}", **fields)
        self.made.writer.pods[f"default/{name}"] = self.pods[name]
        self.made.add(self.pods[name])

    def change(self) -> None:
        """Let something happen."""
        random, waiting = self.random, list(self.made.context.waiting.entries)
        match random.choice(("allow", "reject", "create", "delete", "fail", "clock", "clock", "volumes", "seen")):
            case "allow" | "reject" as action if waiting:
                pod_at_permit = self.made.context.waiting.get(random.choice(waiting))
                if pod_at_permit is not None and action == "allow":
                    pod_at_permit.allow("Chaos")
                elif pod_at_permit is not None:
                    pod_at_permit.reject("Chaos", "no")
            case "create":
                self.create(random.randrange(len(self.numbers)))
            case "delete" if unsent := [each for each in self.pods.values() if each.metadata.uid not in self.sent()]:
                name = random.choice(unsent).metadata.name
                del self.made.writer.pods[f"default/{name}"]
                self.made.scheduler.feed.pod_deleted(self.pods.pop(name))
            case "fail":
                self.storage.failures.append(ClusterWriteError("no"))
            case "clock":
                self.advance(random.choice((0.1, 1.0, 5.0)))
            case "volumes":
                self.volumes.complete()
            case "seen":
                self.see_binds()

    def bound(self) -> dict[str, Pod]:
        """Return the pods that were bound and are not seen bound yet, as they are then."""
        uids = {each.uid for each in (*self.made.writer.bindings, *self.binder.bindings)}
        unseen = {
            name: each for name, each in self.pods.items() if each.metadata.uid in uids and not each.spec.node_name
        }
        return {name: replace(each, spec=replace(each.spec, node_name="n")) for name, each in unseen.items()}

    def advance(self, seconds: float) -> None:
        """Advance the clock; what the scheduler reads then shows which pods are bound."""
        self.made.writer.pods.update((f"default/{name}", each) for name, each in self.bound().items())
        self.made.clock.advance(seconds)

    def see_binds(self) -> None:
        """Deliver the bound pods."""
        for name, after in self.bound().items():
            before, self.pods[name] = self.pods[name], after
            self.made.scheduler.feed.pod_updated(before, after)

    async def run(self, turns: int) -> None:
        """Let the scheduler run for some turns of the event loop."""
        for _ in range(turns):
            await asyncio.sleep(0)

    def sent(self) -> set[str]:
        """Return the UIDs of the pods whose binds were sent."""
        return {each.uid for each in (*self.made.writer.attempted, *self.binder.attempted)}

    @property
    def counts(self) -> list[int]:
        """Number of the members of each gang whose binds were sent."""
        gangs = [uid.removeprefix("uid-of-default-g").partition("-")[0] for uid in self.sent()]
        return [gangs.count(str(gang)) for gang in range(len(self.numbers))]

    def no_gang_in_part(self) -> bool:
        """Return whether all quorums are met above each member whose bind was sent."""
        counts = self.counts
        return all(self.tree.all_quorums_met(gang, counts) for gang, count in enumerate(counts) if count)


@given(tree=trees(), seed=st.integers(0, 2**32), binder=st.booleans())
async def test_no_gang_in_part(tree: Tree, seed: int, *, binder: bool) -> None:
    """Binds of a member are sent only with the quorums above it, and in the end every complete tree is bound."""
    random = Random(seed)
    cluster = Cluster(tree, random, binder=binder)
    made = cluster.made
    Chaos.random = random
    try:
        async with made.running():
            for _ in range(_CHANGES):
                await cluster.run(random.choice((0, 1, 2, 3, 5, 40)))
                cluster.change()
                if random.random() < 0.3:
                    await cluster.run(60)
                    assert cluster.no_gang_in_part()
            Chaos.random = None
            cluster.storage.failures.clear()
            for number in range(9):
                # Two volumes may name the claim of a member that was released after the first was written.
                cluster.volumes.add(volume(f"spare-{number}"))
            for _ in range(25):
                await cluster.run(60)
                cluster.volumes.complete()
                cluster.see_binds()
                cluster.advance(10.0)
            await cluster.run(60)
            cluster.see_binds()
            assert cluster.no_gang_in_part()
            assert not made.scheduler.binding_count
            assert not made.context.waiting.entries
            assert not made.context.cache.assumed_count
            assert not made.queue.readings.in_flight_count
            assert all(gang.barrier is None and not gang.binding for gang in made.queue.gangs)
            existing = [sum(f"g{gang}-" in name for name in cluster.pods) for gang in range(len(tree.gangs))]
            unbound = [name for name, each in cluster.pods.items() if not each.spec.node_name]
            assert not [name for name in unbound if tree.all_quorums_met(int(name[1:].partition("-")[0]), existing)]
    finally:
        Chaos.random = None
