"""Laws of gangs that heal: replacements are bound first, holds end in time with all that is stored, and no pod starves.

Random lifetimes of gangs on shared nodes: members are deleted and fail, replacements come twice, late, larger or not at
all, groups are edited and created again, nodes go, and other pods of all priorities compete.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.gangs.healing import Healing
from scheduler_core.gangs.held_room import HeldRooms
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import PodGroup
from scheduler_core.queueing.gang_members import Gang, RecordedLoss
from tests.support.builders import pod
from tests.support.gangs import add_groups, group, key, member
from tests.support.random_lifetimes import NODES, SmallCluster, cpus_of, live_all
from tests.support.scheduling import gang_rig
from tests.support.tables import table

SEEDS = int(os.environ.get("BAYPLAN_HEALING_LIFETIMES", "24"))
GROUPS = ("one", "two")
INDEX = "batch.kubernetes.io/job-completion-index"


class Lifetime(SmallCluster):
    """A scheduler with two gangs and competing pods."""

    def __init__(self, random: Random, processes: AsyncExitStack) -> None:
        super().__init__(random)
        self.processes = processes
        self.groups: dict[str, PodGroup] = {}
        for name in GROUPS:
            self._set_group(name)
            for index in range(self.groups[name].min_member):
                node_name = random.choice(NODES)
                if self.free(node_name) >= 1:
                    self.add(self._member(name, index, 1, node_name=node_name))

    async def step(self) -> None:
        steps: dict[Callable[[], Awaitable[None]], int] = {
            self.lose: 5,
            self.replace: 6,
            self.compete: 5,
            self.end_pod: 2,
            self.change_node: 1,
            self.edit_group: 1,
            self.recreate_group: 1,
            self.heal: 5,
            self.wait: 3,
            self.restart: 2,
        }
        await self.any_of(steps)
        self.check()
        await self.schedule()
        self.check()

    # -- steps --------------------------------------------------------------------------------------------------

    def _set_group(self, name: str, **fields: Any) -> None:
        before = self.groups.get(name)
        self.groups[name] = group(
            name,
            min_member=self.random.randint(2, 3) if before is None else before.min_member,
            hold_seconds=self.random.choice((5.0, 20.0, 60.0)),
            **fields,
        )
        add_groups(self.made, self.groups[name])

    def _member(self, of: str, index: int, cpus: int, **fields: Any) -> Pod:
        self.number += 1
        owner = OwnerReference("Job", of, f"job-{of}", "batch/v1", controller=True)
        labels = {INDEX: str(index)} if of == "one" else {}
        name = f"{of}-{self.number}"
        fields = {"owners": (owner,), "labels": labels, "requests": {"cpu": str(cpus)}, **fields}
        return member(name, of, preemption_policy="Never", **fields)

    def _priority(self, each: Pod) -> int:
        of = self.groups.get(each.metadata.name.partition("-")[0])
        return (each.spec.priority if of is None else of.priority) or 0

    def _running(self) -> list[str]:
        return sorted(name for name, each in self.pods.items() if each.spec.node_name and name.startswith(GROUPS))

    async def lose(self) -> None:
        """Delete a member, or let it fail and be deleted."""
        running = self._running()
        if running:
            self._lose(self.random.choice(running))

    def _lose(self, name: str) -> None:
        if self.random.random() < 0.5:
            before = self.pods[name]
            self.pods[name] = replace(before, status=replace(before.status, phase="Failed"))
            self.made.scheduler.feed.pod_updated(before, self.pods[name])
        self.remove(name)

    async def replace(self) -> None:
        """Create a member of any index and size, which may replace a lost one."""
        self.add(self._member(self.random.choice(GROUPS), self.random.randint(0, 2), self.random.choice((1, 1, 1, 2))))

    async def compete(self) -> None:
        self.number += 1
        name = f"other-{self.number}"
        priority = self.random.choice((0, 0, 0, 1))
        self.add(
            pod(name, requests={"cpu": str(self.random.randint(1, 2))}, priority=priority, preemption_policy="Never")
        )

    async def end_pod(self) -> None:
        others = sorted(name for name in self.pods if not name.startswith(GROUPS))
        if others:
            self.remove(self.random.choice(others))

    async def change_node(self) -> None:
        """Delete or create a node; the pods of a deleted one are deleted later or earlier."""
        name = self.random.choice(NODES)
        if name not in self.nodes:
            self.create_node(name)
            return
        gone = [each for each in sorted(self.pods) if self.pods[each].spec.node_name == name]
        is_first = self.random.random() < 0.5
        if is_first:
            self.made.scheduler.feed.node_deleted(self.nodes.pop(name))
        for each in gone:
            self.remove(each)
        if not is_first:
            self.made.scheduler.feed.node_deleted(self.nodes.pop(name))

    async def edit_group(self) -> None:
        """Change time and priority."""
        name = self.random.choice(GROUPS)
        self._set_group(name, generation=self.number + 2, priority=self.random.choice((None, 0, 1)))
        self.made.clock.advance(0)

    async def recreate_group(self) -> None:
        name = self.random.choice(GROUPS)
        self.made.scheduler.group_feed.group_deleted(key(name))
        assert not any(gang.lost_members for gang in self.made.queue.gangs if gang.key.name == name)
        self._set_group(name)

    async def heal(self) -> None:
        """Lose a member: its equal replacement has its room, whatever of equal priority waits."""
        name = self._to_heal()
        if not name:
            return
        before = self.pods[name]
        again = self._member("one", int(before.metadata.labels[INDEX]), cpus_of(before))
        self._lose(name)
        (hold,) = (each for each in self.gang("one").lost_members.values() if each.pod.metadata.name == name)
        added = [pod(f"other-{name}-{number}", requests={"cpu": "1"}, preemption_policy="Never") for number in range(2)]
        added.insert(self.random.randint(0, 2), again)
        for each in added:
            self.add(each)
            if self.random.random() < 0.5:
                await self.schedule()
        await self.schedule()
        if hold.has_room:
            assert self.made.bound.get(again.metadata.name) == before.spec.node_name, "the replacement has its room"

    def _to_heal(self) -> str:
        """Return a running member beside whose end the quorum runs, and whose index no other pod has."""
        running = [name for name in self._running() if name.startswith("one")]
        indices = Counter(each.metadata.labels[INDEX] for name, each in self.pods.items() if name.startswith("one"))
        indices.update(each.pod.metadata.labels[INDEX] for each in self.gang("one").lost_members.values())
        alone = [name for name in running if indices[self.pods[name].metadata.labels[INDEX]] == 1]
        has_quorum = len(running) > 1 and len(running) >= self.groups["one"].min_member
        waiting = [each for each in self.pods.values() if not each.spec.node_name]
        has_urgent = any(self._priority(each) > (self.groups["one"].priority or 0) for each in waiting)
        return self.random.choice(alone) if alone and has_quorum and not has_urgent else ""

    async def restart(self) -> None:
        """Let another process read everything: it holds what was held, if members do not differ, and nothing else."""
        before = [(gang.key, each) for gang in self.made.queue.gangs for each in gang.lost_members.values()]
        # Pods of higher priority may have taken room, which then exists when they have ended.
        reservations = self.made.scheduler.reservations
        taken = {room.holder.name for room in reservations.held if not reservations.stands(room)}
        clock, groups = self.made.clock, self.groups.values()
        await self.processes.aclose()
        self.made = gang_rig(clock=clock)
        add_groups(self.made, *groups)
        self.made.add(*self.nodes.values(), *self.pods.values())
        held = {each.pod.metadata.name: each for _, each in before if each.has_room}
        losses = [
            (of, RecordedLoss(each.pod.metadata.name, each.node_name, each.index, each.until, each.replacement))
            for of, each in before
            if each.has_room and each.until is not None
        ]
        self.made.scheduler.healing.restore_all(losses)
        await self.processes.enter_async_context(self.made.running())
        again = [each for gang in self.made.queue.gangs for each in gang.lost_members.values()]
        for each in again:
            was = held[each.pod.metadata.name]
            assert (each.node_name, each.index, each.until) == (was.node_name, was.index, was.until)
        names = {each.pod.metadata.name for each in again if each.has_room}
        for of, _ in losses:
            members = [each for name, each in self.pods.items() if name.startswith(of.name)]
            lost = [each for key, each in before if key == of and each.has_room]
            are_equal = len({cpus_of(each) for each in (*members, *(each.pod for each in lost))}) == 1
            indices = [each.metadata.labels.get(INDEX) for each in members if each.spec.node_name]
            for each in lost:
                is_back = bool(each.index) and each.index.rpartition("/")[2] in indices
                if are_equal and not is_back and each.pod.metadata.name not in taken:
                    assert each.pod.metadata.name in names, "room is lost"

    async def wait(self) -> None:
        self.made.clock.advance(self.random.choice((0.5, 3.0, 15.0, 45.0)))

    async def schedule(self) -> None:
        """Schedule all that is active, and report the nodes."""
        await self.made.scheduler.until_idle()
        self.report_bound()

    # -- checks -------------------------------------------------------------------------------------------------

    def gang(self, name: str) -> Gang:
        (found,) = (each for each in self.made.queue.gangs if each.key.name == name)
        return found

    def check(self) -> None:
        """Check that what is stored agrees, and that no hold is longer than its group allows."""
        gangs = [gang for gang in self.made.queue.gangs if gang.lost_members]
        lost = {uid: (gang, each) for gang in gangs for uid, each in gang.lost_members.items()}
        healing, wall = self.made.scheduler.healing, self.made.clock.wall()
        assert healing._count == len(lost)
        assert healing._timers.keys() == {uid for uid, (_, each) in lost.items() if each.until is not None}
        assert healing._groups.keys() == {gang.key for gang in gangs}
        rooms = {room.holder.uid: room for room in self.made.scheduler.reservations.held}
        assert rooms.keys() == {uid for uid, (_, each) in lost.items() if each.has_room}
        for uid, (gang, each) in lost.items():
            assert gang.placed, "a gang without placed members holds nothing"
            assert each.pod.metadata.name not in self.pods, "the lost pod is gone"
            assert each.until is not None
            left = (each.until - wall).total_seconds()
            assert 0 < left <= self.groups[gang.key.name].hold_seconds, "held for longer than the group allows"
            assert uid not in rooms or rooms[uid].reservation.priority == (self.groups[gang.key.name].priority or 0)

    async def finish(self) -> None:
        """Let all holds end: nothing is stored, and no pod waits that fits."""
        self.made.clock.advance(100)
        self.check()
        assert not self.made.scheduler.reservations.by_gang
        for _ in range(40):
            self.made.clock.advance(20)
            await self.schedule()
        for name, each in self.pods.items():
            if not each.spec.node_name and not name.startswith(GROUPS):
                room = max(self.free(node_name) for node_name in self.nodes) if self.nodes else 0
                assert room < cpus_of(each), f"{name} starves"


async def live(seed: int, steps: int = 30) -> None:
    async with AsyncExitStack() as processes:
        lifetime = Lifetime(Random(seed), processes)
        await processes.enter_async_context(lifetime.made.running())
        for _ in range(steps):
            await lifetime.step()
        await lifetime.finish()


@pytest.mark.parametrize("block", range(2))
async def test_lifetimes(block: int) -> None:
    """Replacements, times and what is stored, in random lifetimes."""
    await live_all(live, range(block * SEEDS // 2, (block + 1) * SEEDS // 2))


_GANG_CHANGED = Healing._gang_changed


def _ignore_edits(healing: Healing, gang: Gang) -> None:
    if gang.group is None or not gang.placed:
        _GANG_CHANGED(healing, gang)


@table(
    "owner, name, planted",
    ("expired room is kept", Healing, "_expire", lambda *_: None),
    ("no pod is blocked", HeldRooms, "blocking", lambda *_: []),
    ("no replacement is recognised", Healing, "_recognise", lambda *_: None),
    ("edits are ignored", Healing, "_gang_changed", _ignore_edits),
    ("nothing is restored", Healing, "restore", lambda *_: False),
)
async def test_planted_bugs_are_found(owner: type, name: str, planted: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each bug breaks the law in a few lifetimes."""
    monkeypatch.setattr(owner, name, planted)
    with pytest.raises(AssertionError):
        await live_all(live, range(100))
