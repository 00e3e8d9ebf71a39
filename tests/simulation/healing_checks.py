"""Checks of room that is held for replacements of lost members and for NodeReservations.

Which members are lost follows from what the scheduler has received, and room from plain sums. From the core the checks
read only the list of lost members, and what it reports when a hold ends.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field

from bayplan.reservations.reserved_pods import KIND

from scheduler_core.cycle.attempt import Attempt
from scheduler_core.cycle_assembly import CycleContext
from scheduler_core.gangs.healing import HELD, REPLACED
from scheduler_core.gangs.held_room import HeldRoom, HeldRooms
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, group_key_of
from scheduler_core.queueing.gang_members import Gang, HealingOutcome, LostMember, is_preempted
from tests.simulation.ledger import ReservationLedger
from tests.simulation.node_reservations import is_owned
from tests.simulation.plain_fit import capacity_of, requests_of
from tests.simulation.pod_groups import ReceivedGroups
from tests.simulation.received import ReceivedFeed

_COUNTED = {HELD: "room held for a lost member", REPLACED: "lost member replaced"}
_SLACK_SECONDS = 15.0
"""Time for which an end is deferred at most, because a cycle waits for an extender, or an injected error delays it."""


@dataclass(slots=True)
class HealingChecks:
    """Checks of one operator process.

    Attributes:
        held: Room that the core holds.
    """

    ledger: ReservationLedger
    received: ReceivedFeed
    groups: ReceivedGroups
    context: CycleContext
    held: HeldRooms
    _running: dict[str, Pod] = field(default_factory=dict)
    """Members that were bound and had not ended when they were checked last, by UID."""
    _group_uids: dict[GroupKey, str] = field(default_factory=dict)
    """UIDs of the groups at that time."""
    _reports: list[str] = field(default_factory=list)
    """What the core has reported since then."""
    _problems: dict[str, str] = field(default_factory=dict)
    """Of the pods that have a node and whose binding has not started, by UID."""

    def __post_init__(self) -> None:
        """Record what the core reports."""
        self.context.queue.gangs.on_healing.append(self._reported)

    def _reported(self, gang: Gang, outcome: HealingOutcome) -> None:
        self._reports.append(outcome.message)
        if outcome.reason in _COUNTED:
            self.ledger.count(_COUNTED[outcome.reason])

    # -- decisions ------------------------------------------------------------------------------------------------

    def reserved(self, pod: Pod, name: str) -> None:
        """Check that a pod uses no room that is held for another pod, by what is known when its node is chosen."""
        node, uid = self.received.nodes.get(name), pod.metadata.uid
        self._problems.pop(uid, None)
        holds = [lost.pod for lost in self._untaken(name) if lost.replacement != uid]
        rooms = self._rooms_of_others(pod, name)
        holds += [slot.info.pod for room in rooms for slot in room.free_slots if slot.node_name == name]
        if node is None or not holds:
            return
        # Pods that end, or are evicted, before a reservation's pods come leave their room to all.
        ending = {uid, *(each for room in rooms for each in room.terms.in_the_way)}
        there = [each for each in self.ledger._pods_on(name) if each.metadata.uid not in ending]
        counted, priority = {each.metadata.uid for each in there}, self._priority_of(pod)
        held = [each for each in holds if each.metadata.uid not in counted and self._priority_of(each) >= priority]
        if held and _fits([*there, *held], node) and not _fits([*there, *held, pod], node):
            names = ", ".join(each.metadata.name for each in held)
            self._problems[uid] = f"{uid} uses room on {name} that is held for {names}"

    def placed(self, attempt: Attempt) -> None:
        """Report a pod whose binding starts, and which uses such room."""
        problem = self._problems.pop(attempt.info.uid, "")
        if problem:
            self.ledger.report_problem(problem)

    def _untaken(self, node_name: str) -> Iterator[LostMember]:
        """Yield the lost members whose room on a node no replacement has taken."""
        bound_elsewhere = self.ledger.bound_elsewhere
        for gang in self.context.queue.gangs:
            for lost in gang.lost_members.values():
                # A replacement that a read has shown on another node needs no room, also before the watch shows it.
                is_bound = lost.replacement in gang.placed or lost.replacement in bound_elsewhere
                if lost.node_name == node_name and lost.has_room and not is_bound:
                    yield lost

    def _rooms_of_others(self, pod: Pod, node_name: str) -> list[HeldRoom]:
        """Return the room on a node that is held for NodeReservations and that the pod may not use."""
        rooms = self.held.on_node(node_name)
        return [room for room in rooms if room.holder.kind == KIND and not is_owned(pod, room.holder.name)]

    def _priority_of(self, pod: Pod) -> int:
        key = group_key_of(pod)
        group = None if key is None else self.groups.groups.get(key)
        return pod.spec.priority or 0 if group is None or group.priority is None else group.priority

    # -- at every moment --------------------------------------------------------------------------------------------

    def now(self) -> Iterator[str]:
        """Yield the problems at this moment, between two cycles."""
        lost = {uid: each for gang in self.context.queue.gangs for uid, each in gang.lost_members.items()}
        wall = self.context.clock.wall()
        for uid, each in lost.items():
            late = 0.0 if each.until is None else (wall - each.until).total_seconds()
            if late > _SLACK_SECONDS:
                yield f"room is held for the replacement of {uid} {late:.0f} s after its time"
            if each.until is None and self._is_over(each.pod):
                yield f"{uid} has ended, and the time of the hold for its replacement has not started"
        for room in self.held:
            if room.holder.kind == "Pod" and room.holder.uid not in lost:
                yield f"room is held for the replacement of {room.holder.uid}, which is no lost member"
        yield from self._forgotten(lost)

    def _is_over(self, pod: Pod) -> bool:
        known = self.received.pods.get(pod.key)
        return known is None or known.metadata.uid != pod.metadata.uid or known.is_terminal

    def _forgotten(self, lost: Collection[str]) -> Iterator[str]:
        """Yield members of groups that heal, which were lost since the last check, and for which nothing is held."""
        before, reports = self._running, self._reports
        known = {pod.metadata.uid: pod for pod in self.received.pods.values()}
        self._running = {uid: pod for uid, pod in known.items() if self._heals(pod) and _runs(pod)}
        self._reports = []
        uids, self._group_uids = self._group_uids, {key: each.uid for key, each in self.groups.groups.items()}
        stayed = {group_key_of(pod) for uid, pod in before.items() if uid in self._running}
        # The deletion of a group ends its holds, and their end is reported only if there was room.
        stayed = {key for key in stayed if key is not None and uids.get(key) == self._group_uids.get(key)}
        for uid, pod in before.items():
            # Its end may be delivered only with its deletion.
            now = known.get(uid) or self.received.removed.get(uid, pod)
            # The response to an eviction shows its condition, and the watch may have ended before.
            was_evicted = is_preempted(now) or uid in self.ledger.evicted
            is_lost = uid not in self._running and now.status.phase != "Succeeded" and not was_evicted
            # A group without a member that has a node all the time is not healed.
            if not is_lost or group_key_of(pod) not in stayed or not self._heals(pod) or uid in lost:
                continue
            if not any(pod.key in report for report in reports):
                yield f"{uid} was lost, and nothing is held for its replacement"

    def _heals(self, pod: Pod) -> bool:
        key = group_key_of(pod)
        group = None if key is None else self.groups.groups.get(key)
        gang = None if key is None else self.context.queue.gangs.get(key)
        return group is not None and group.hold_seconds > 0 and gang is not None and gang.group == group


def _runs(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and not pod.is_terminal and pod.metadata.deletion_timestamp is None


def _fits(pods: Iterable[Pod], node: Node) -> bool:
    """Return whether pods fit on a node by CPU, memory and their number."""
    requests = [requests_of(pod) for pod in pods]
    cpu, memory, count = capacity_of(node)
    return (
        sum(each[0] for each in requests) <= cpu
        and sum(each[1] for each in requests) <= memory
        and len(requests) <= count
    )
