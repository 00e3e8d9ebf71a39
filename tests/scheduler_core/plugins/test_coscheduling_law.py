"""Laws of Coscheduling, for any interleaving of events of two groups.

A member is only released from Permit if its quorum has nodes. No member waits if its quorum has nodes. After the
timeouts at Permit, only released members have nodes.

Waiting pods, gangs and cache are real; scheduling and binding cycles are simulated step by step, so that any event
can occur between the end of a wait and the rollback of its attempt.
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
"""An event, the group, and the index of the member."""

EVENTS = (
    "create",
    "create",
    "schedule",
    "schedule",
    "schedule",
    "schedule_infeasible",
    "reject",
    "preempt",
    "roll_back",
    "delete",
    "crash",
    "succeed",
    "remove",
    "wait",
    "wait_long",
)

steps = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.sampled_from(GROUPS), st.integers(0, SIBLINGS - 1)), min_size=10, max_size=60
)


@dataclass
class Member:
    """A member and its state: queued, waiting at Permit, or released from Permit."""

    group: str
    info: PodInfo
    state: str = "queued"


@dataclass
class Simulation:
    """Two groups and one node that fits all members."""

    needs: dict[str, int]
    percentage: int
    world: Rig = field(default_factory=rig)
    members: dict[tuple[str, int], Member] = field(default_factory=dict)
    succeeded: dict[str, int] = field(default_factory=lambda: dict.fromkeys(GROUPS, 0))
    released: int = 0
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
        """Apply an event, and release the members that it allows."""
        event, group, index = step
        if event in ("wait", "wait_long"):
            self.world.clock.advance(20 if event == "wait" else WAIT_SECONDS)
        elif event == "create":
            self.create(group, index)
        elif (group, index) in self.members:
            getattr(self, f"{event}_")(self.members[group, index], (group, index))
        self.release_allowed_members()

    def create(self, group: str, index: int) -> None:
        """Create a member unless it exists; a recreated member has the same name and another UID."""
        if (group, index) in self.members:
            return
        self.incarnations += 1
        name = f"{group}-{index}"
        made = pod(name, uid=f"{name}-{self.incarnations}", labels={"bayplan.dev/pod-group": group})
        self.gangs.saw(made)
        self.members[group, index] = Member(group, self.world.context.cache.columns.compile_pod(made))

    def schedule_(self, member: Member, _: tuple[str, int]) -> None:
        """Run the scheduling cycle of a feasible member."""
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
            member.state = "waiting"
            assert self.with_nodes(member.group) < self.needs[member.group], (
                "the member waits although its quorum has nodes"
            )
        else:
            assert result.status.is_success
            member.state = "released"
            self.released += 1
            self.release_allowed_members()
            self.expect_quorum(member.group)

    def schedule_infeasible_(self, member: Member, _: tuple[str, int]) -> None:
        """Run the scheduling cycle of an infeasible member."""
        if member.state == "queued":
            nodes = self.world.context.cache.columns
            nothing = Diagnosis(1, np.zeros(1, dtype=np.int32), nodes.alive, lambda _verdict: SUCCESS)
            self.plugin.post_filter(CycleState(), member.info, nodes, nothing)

    def reject_(self, member: Member, _: tuple[str, int]) -> None:
        """Reject a waiting member by another plugin."""
        wait = self.world.context.waiting.get(member.info.uid)
        if wait is not None:
            wait.reject("Another", "no")

    def preempt_(self, member: Member, _: tuple[str, int]) -> None:
        """Preempt a waiting member."""
        wait = self.world.context.waiting.get(member.info.uid)
        if wait is not None:
            wait.preempt("Another", "no")

    def roll_back_(self, member: Member, at: tuple[str, int]) -> None:
        """Run the rollback of a rejected member's attempt, at any time after the rejection."""
        wait = self.world.context.waiting.get(member.info.uid)
        if member.state != "waiting" or wait is None or not wait.is_refused:
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
        """Set the deletion timestamp of a member, which uses its name and resources until it is removed."""
        meta = msgspec.structs.replace(member.info.pod.metadata, deletion_timestamp=NOW)
        self.report_change(member, msgspec.structs.replace(member.info.pod, metadata=meta))
        self.world.context.waiting.reject(member.info.uid)
        if member.state == "queued":
            self.remove_(member, at)

    def crash_(self, member: Member, _: tuple[str, int]) -> None:
        """Set the phase of a running member to Failed."""
        self.finish(member, "Failed")

    def succeed_(self, member: Member, _: tuple[str, int]) -> None:
        """Set the phase of a running member to Succeeded."""
        if self.finish(member, "Succeeded"):
            self.succeeded[member.group] += 1

    def finish(self, member: Member, phase: str) -> bool:
        """Set a terminal phase; return False if the member was not running."""
        if member.state != "released" or member.info.pod.is_terminal:
            return False
        status = msgspec.structs.replace(member.info.pod.status, phase=phase)
        self.report_change(member, msgspec.structs.replace(member.info.pod, status=status))
        self.world.context.cache.forget(member.info)
        return True

    def remove_(self, member: Member, at: tuple[str, int]) -> None:
        """Remove a member, unless it waits at Permit."""
        if member.state == "waiting":
            return
        if member.info.pod.status.phase == "Succeeded":
            self.succeeded[member.group] -= 1
        elif member.state == "released" and not member.info.pod.is_terminal:
            self.world.context.cache.forget(member.info)
        self.gangs.lost(member.info.uid)
        del self.members[at]

    def report_change(self, member: Member, changed: Pod) -> None:
        """Report a changed member, as the API server's watch does."""
        member.info.pod = changed
        self.gangs.saw(changed)

    def release_allowed_members(self) -> None:
        """Release the members that all plugins have allowed, and check that their quorum has nodes."""
        groups = set()
        for member in self.members.values():
            wait = self.world.context.waiting.get(member.info.uid)
            if member.state == "waiting" and wait is not None and not wait.pending_plugins() and not wait.is_refused:
                self.world.context.waiting.discard(member.info.uid)
                member.state = "released"
                self.released += 1
                groups.add(member.group)
        for group in groups:
            self.expect_quorum(group)

    def with_nodes(self, group: str) -> int:
        """Return the number of members that have a node or have succeeded."""
        count = self.succeeded[group]
        for member in self.members.values():
            gone = member.info.pod.is_terminal or member.info.pod.metadata.deletion_timestamp is not None
            if member.group != group or member.state == "queued" or gone:
                continue
            wait = self.world.context.waiting.get(member.info.uid)
            count += wait is None or not wait.is_refused
        return count

    def expect_quorum(self, group: str) -> None:
        """Check that the released members of the group are a quorum."""
        released = sum(
            (member.group, member.state) == (group, "released")
            and not member.info.pod.is_terminal
            and member.info.pod.metadata.deletion_timestamp is None
            for member in self.members.values()
        )
        assert released + self.succeeded[group] >= self.needs[group], "less than the quorum of the group was released"

    def finish_all(self) -> None:
        """Let all waits time out and roll back their attempts; then only released members have nodes."""
        self.world.clock.advance(2 * WAIT_SECONDS)
        for at, member in list(self.members.items()):
            self.roll_back_(member, at)
        assert len(self.world.context.waiting) == 0
        placed = {entry.info.uid for entry in self.world.context.cache.placed_pods()}
        assert placed <= {member.info.uid for member in self.members.values() if member.state == "released"}
        self.plugin.close()
        assert self.world.clock.pending == 0


async def _simulate(needs: dict[str, int], percentage: int, script: list[Step]) -> Simulation:
    simulation = Simulation(needs, percentage)
    for step in script:
        simulation.do(step)
    simulation.finish_all()
    return simulation


def _first(count: int, *then: Step) -> list[Step]:
    return [*(("create", "left", index) for index in range(count)), *then]


@given(
    needs=st.tuples(st.integers(1, 4), st.integers(1, 4)), percentage=st.sampled_from([0, 10, 50, 100]), script=steps
)
@example(
    (3, 1),
    100,
    _first(3, ("schedule", "left", 0), ("wait_long", "left", 0), ("schedule", "left", 1), ("schedule", "left", 2)),
)
@example((2, 1), 10, _first(2, ("schedule", "left", 0), ("reject", "left", 0), ("schedule", "left", 1)))
@example((2, 1), 10, _first(3, ("schedule", "left", 0), ("delete", "left", 0), ("schedule", "left", 1)))
@example(
    (2, 1),
    10,
    _first(3, ("schedule", "left", 0), ("schedule", "left", 1), ("crash", "left", 1), ("schedule", "left", 2)),
)
def test_members_are_only_released_with_a_quorum(needs: tuple[int, int], percentage: int, script: list[Step]) -> None:
    """The laws hold after each event of any sequence."""
    asyncio.run(_simulate(dict(zip(GROUPS, needs, strict=True)), percentage, script))


@given(st.permutations(range(4)), st.integers(1, 4))
def test_a_group_without_competition_is_scheduled(order: list[int], minimum: int) -> None:
    """All members are released, in any order of their scheduling cycles."""
    script = [*_first(4), *(("schedule", "left", index) for index in order)]
    simulation = asyncio.run(_simulate({"left": minimum, "right": 1}, 10, script))
    assert simulation.released == 4
