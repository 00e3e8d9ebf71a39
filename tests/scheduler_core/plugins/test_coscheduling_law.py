"""Laws of Coscheduling, in any interleaving of what happens to the members of two groups.

No part of a group is ever let go: when a member is, its quorum has nodes and keeps them. Nobody waits whose quorum is
there. Nothing is held for good: once times at Permit are up, only members that were let go have nodes.

The waiting pods, the gangs and the cache are the real ones. What the cycles do is played step by step, so that
anything may come between the end of a wait and the unwinding of the attempt that waited.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from datetime import UTC, datetime

import msgspec
import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import CoschedulingArgs
from scheduler_core.cycle.plugin_handle import PluginHandle
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.status import SUCCESS, Code
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.plugins.coscheduling import Coscheduling
from scheduler_core.runtime.framework_instance import InstanceReference
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import Rig, rig

GROUPS = ("left", "right")
SIBLINGS = 5
WAIT_SECONDS = 60
NOW = datetime(2026, 1, 1, tzinfo=UTC)

Step = tuple[str, str, int]
"""What happens, to which group, to which of its members."""

WHAT = (
    "come",
    "come",
    "try",
    "try",
    "try",
    "fail",
    "refuse",
    "preempt",
    "unwind",
    "delete",
    "end",
    "succeed",
    "go",
    "pass",
    "long",
)

steps = st.lists(
    st.tuples(st.sampled_from(WHAT), st.sampled_from(GROUPS), st.integers(0, SIBLINGS - 1)), min_size=10, max_size=60
)


@dataclass
class Member:
    """A member and where it is: queued, held at Permit, or kept, once it was let go."""

    group: str
    info: PodInfo
    state: str = "queued"


@dataclass
class Play:
    """Two groups and one node with room for all."""

    needs: dict[str, int]
    percentage: int
    world: Rig = field(default_factory=rig)
    members: dict[tuple[str, int], Member] = field(default_factory=dict)
    succeeded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0))
    let_go: int = 0
    incarnations: int = 0

    def __post_init__(self) -> None:
        args = CoschedulingArgs(permit_waiting_time_seconds=WAIT_SECONDS, pod_group_reject_percentage=self.percentage)
        self.world.add(node("n"))
        handle = PluginHandle(self.world.context.services, "default-scheduler", InstanceReference("default-scheduler"))
        self.plugin = Coscheduling(args, handle)
        self.gangs = self.world.queue.gangs
        self.gangs.serve(GroupSource.BAYPLAN)
        for name, minimum in self.needs.items():
            key = GroupKey(GroupSource.BAYPLAN, "default", name)
            self.gangs.group_changed(PodGroup(key, f"uid-of-{name}", minimum))

    def do(self, step: Step) -> None:
        """Let something happen, and see whom that let go."""
        what, group, index = step
        if what in ("pass", "long"):
            self.world.clock.advance(20 if what == "pass" else WAIT_SECONDS)
        elif what == "come":
            self.come(group, index)
        elif (group, index) in self.members:
            getattr(self, f"{what}_")(self.members[group, index], (group, index))
        self.see_who_may_go()

    def come(self, group: str, index: int) -> None:
        """A member is created, unless it exists; one that was replaced keeps the name and gets another UID."""
        if (group, index) in self.members:
            return
        self.incarnations += 1
        name = f"{group}-{index}"
        made = pod(name, uid=f"{name}-{self.incarnations}", labels={"bayplan.dev/pod-group": group})
        self.gangs.saw(made)
        self.members[group, index] = Member(group, self.world.context.cache.columns.compile_pod(made))

    def try_(self, member: Member, _: tuple[str, int]) -> None:
        """The scheduling cycle of a member that fits."""
        if member.state != "queued" or not self.plugin.pre_enqueue(member.info).is_success:
            return
        state, context = CycleState(), self.world.context
        if not self.plugin.pre_filter(state, member.info, context.cache.columns).status.is_success:
            return
        context.cache.assume(member.info, "n")
        self.gangs.assumed(member.info.uid)
        result = self.plugin.permit(state, member.info, "n")
        if result.status.code is Code.WAIT:
            context.waiting.add(member.info, "n", {self.plugin.name: result.timeout_seconds})
            member.state = "held"
            assert self.with_nodes(member.group) < self.needs[member.group], "its quorum is there and it waits"
        else:
            assert result.status.is_success
            member.state = "kept"
            self.let_go += 1
            self.see_who_may_go()
            self.expect_whole(member.group)

    def fail_(self, member: Member, _: tuple[str, int]) -> None:
        """The scheduling cycle of a member that fits nowhere."""
        if member.state == "queued":
            nodes = self.world.context.cache.columns
            nothing = Diagnosis(1, np.zeros(1, dtype=np.int32), nodes.alive, lambda _verdict: SUCCESS)
            self.plugin.post_filter(CycleState(), member.info, nodes, nothing)

    def refuse_(self, member: Member, _: tuple[str, int]) -> None:
        """Another plugin refuses a waiting member."""
        wait = self.world.context.waiting.get(member.info.uid)
        if wait is not None:
            wait.reject("Another", "no")

    def preempt_(self, member: Member, _: tuple[str, int]) -> None:
        """A waiting member gives way to a more important pod."""
        wait = self.world.context.waiting.get(member.info.uid)
        if wait is not None:
            wait.preempt("Another", "no")

    def unwind_(self, member: Member, at: tuple[str, int]) -> None:
        """The binding cycle of a refused member gives its node back, some time after the refusal."""
        wait = self.world.context.waiting.get(member.info.uid)
        if member.state != "held" or wait is None or not wait.is_refused:
            return
        self.world.context.waiting.discard(member.info.uid)
        self.plugin.unreserve(CycleState(), member.info, "n")
        self.world.context.cache.forget(member.info)
        self.gangs.released(member.info.uid)
        member.state = "queued"
        if member.info.pod.metadata.deletion_timestamp is not None:
            del self.members[at]
            self.gangs.lost(member.info.uid)

    def delete_(self, member: Member, at: tuple[str, int]) -> None:
        """A member begins to be deleted; until it is gone it keeps the name, and what it holds if it was let go."""
        meta = msgspec.structs.replace(member.info.pod.metadata, deletion_timestamp=NOW)
        self.show(member, msgspec.structs.replace(member.info.pod, metadata=meta))
        self.world.context.waiting.reject(member.info.uid)
        if member.state == "queued":
            self.go_(member, at)

    def end_(self, member: Member, _: tuple[str, int]) -> None:
        """A member that runs fails."""
        self.finish(member, "Failed")

    def succeed_(self, member: Member, _: tuple[str, int]) -> None:
        """A member that runs ends well."""
        if self.finish(member, "Succeeded"):
            self.succeeded[member.group] += 1

    def finish(self, member: Member, phase: str) -> bool:
        """A member ends; whether it ran."""
        if member.state != "kept" or member.info.pod.is_terminal:
            return False
        status = msgspec.structs.replace(member.info.pod.status, phase=phase)
        self.show(member, msgspec.structs.replace(member.info.pod, status=status))
        self.world.context.cache.forget(member.info)
        return True

    def go_(self, member: Member, at: tuple[str, int]) -> None:
        """A member is gone, unless it still waits."""
        if member.state == "held":
            return
        if member.info.pod.status.phase == "Succeeded":
            self.succeeded[member.group] -= 1
        elif member.state == "kept" and not member.info.pod.is_terminal:
            self.world.context.cache.forget(member.info)
        self.gangs.lost(member.info.uid)
        del self.members[at]

    def show(self, member: Member, changed: Pod) -> None:
        """The API server reports a change of a member."""
        member.info.pod = changed
        self.gangs.saw(changed)

    def see_who_may_go(self) -> None:
        """Members whose wait has ended well are let go: then nobody of the quorum may be missing."""
        gone = set()
        for member in self.members.values():
            wait = self.world.context.waiting.get(member.info.uid)
            if member.state == "held" and wait is not None and not wait.pending_plugins() and not wait.is_refused:
                self.world.context.waiting.discard(member.info.uid)
                member.state = "kept"
                self.let_go += 1
                gone.add(member.group)
        for group in gone:
            self.expect_whole(group)

    def with_nodes(self, group: str) -> int:
        """Members of a group that have a node and keep it, and those that have ended well."""
        count = self.succeeded[group]
        for member in self.members.values():
            gone = member.info.pod.is_terminal or member.info.pod.metadata.deletion_timestamp is not None
            if member.group != group or member.state == "queued" or gone:
                continue
            wait = self.world.context.waiting.get(member.info.uid)
            count += wait is None or not wait.is_refused
        return count

    def expect_whole(self, group: str) -> None:
        """All who were let go together with this one have siblings enough."""
        kept = sum(
            (member.group, member.state) == (group, "kept")
            and not member.info.pod.is_terminal
            and member.info.pod.metadata.deletion_timestamp is None
            for member in self.members.values()
        )
        assert kept + self.succeeded[group] >= self.needs[group], "a part of the group was let go"

    def wind_up(self) -> None:
        """Time passes, and every refused attempt is unwound: nobody holds a node who was not let go."""
        self.world.clock.advance(2 * WAIT_SECONDS)
        for at, member in list(self.members.items()):
            self.unwind_(member, at)
        assert len(self.world.context.waiting) == 0
        held = {placed.info.uid for placed in self.world.context.cache.placed_pods()}
        assert held <= {member.info.uid for member in self.members.values() if member.state == "kept"}
        self.plugin.close()
        assert self.world.clock.pending == 0


async def _play(needs: dict[str, int], percentage: int, script: list[Step]) -> Play:
    play = Play(needs, percentage)
    for step in script:
        play.do(step)
    play.wind_up()
    return play


def _first(count: int, *then: Step) -> list[Step]:
    return [*(("come", "left", index) for index in range(count)), *then]


@given(
    needs=st.tuples(st.integers(1, 4), st.integers(1, 4)), percentage=st.sampled_from([0, 10, 50, 100]), script=steps
)
@example((3, 1), 100, _first(3, ("try", "left", 0), ("long", "left", 0), ("try", "left", 1), ("try", "left", 2)))
@example((2, 1), 10, _first(2, ("try", "left", 0), ("refuse", "left", 0), ("try", "left", 1)))
@example((2, 1), 10, _first(3, ("try", "left", 0), ("delete", "left", 0), ("try", "left", 1)))
@example((2, 1), 10, _first(3, ("try", "left", 0), ("try", "left", 1), ("end", "left", 1), ("try", "left", 2)))
def test_no_part_of_a_group_is_let_go(needs: tuple[int, int], percentage: int, script: list[Step]) -> None:
    """Whatever happens between two steps, and whichever groups meet."""
    asyncio.run(_play(dict(zip(GROUPS, needs, strict=True)), percentage, script))


@given(st.permutations(range(4)), st.integers(1, 4))
def test_a_group_that_is_left_alone_is_placed(order: list[int], minimum: int) -> None:
    """In any order of its members, and at once."""
    script = [*_first(4), *(("try", "left", index) for index in order)]
    play = asyncio.run(_play({"left": minimum, "right": 1}, 10, script))
    assert play.let_go == 4
