"""Gangs that heal: room of a lost member is held for its replacement.

::

    bound ──deleted, failed──▶ lost ──its pod has ended──▶ held for hold_seconds ──▶ ended: replaced, expired
                                 │ a member without node appears                            ▲
                                 └──▶ recognised as its replacement ──bound─────────────────┘

Room is held from the moment when the member is lost, before its pod releases the room. Nothing is held for a member
that succeeded or is preempted. All holds of a gang end when none of its members has a node: such a gang is not healed,
but scheduled again as a whole. A member whose bind failed after others were bound counts as lost, and replaces itself.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from functools import partial

import numpy as np
from msgspec.structs import replace

from scheduler_core.cycle.gang_constraints import Where
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.gangs.held_room import HeldPod, HeldRoom, Holder, OwnPods, Terms
from scheduler_core.gangs.reservation_lifecycle import GangReservations
from scheduler_core.model.devices import AllocationResult
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.placement.engine import Subsets
from scheduler_core.placement.subsets import Group, domain_of_members, gang_subsets, scheduled_members
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.gang_members import (
    Gang,
    HealingOutcome,
    LostMember,
    RecordedLoss,
    controller_of,
    is_preempted,
    owner_and_index,
)
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.held_claims import claim_keys
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

HELD = "RoomHeld"
REPLACED = "MembersReplaced"
EXPIRED = "HoldExpired"
ENDED = "HoldEnded"
_SUCCEEDED = "Succeeded"
MOST_OF_GANG = 32
"""Number of lost members of a gang for which room is held: each pod of the gang is compared with all of them."""
MOST_OF_ALL = 128
"""Number of lost members of all gangs for which room is held: each attempt of any pod is compared with it."""
_NOT_HELD = "node(s) had no room that is held for replacements"


class Healing:
    """Recognises lost members and their replacements, and holds the room of the former for the latter."""

    def __init__(
        self, cache: ClusterCache, gangs: Gangs, reservations: GangReservations, clock: Clock, suspension: Suspension
    ) -> None:
        self._cache = cache
        self._nodes = cache.columns
        self._gangs = gangs
        self._reservations = reservations
        self._clock = clock
        self._run_or_defer = suspension.run_or_defer
        self._timers: dict[str, Timer] = {}
        """By UID of the lost member."""
        self._groups: dict[GroupKey, PodGroup] = {}
        """The groups with lost members as they were reported last: their priority and time are those of the rooms."""
        self._count = 0
        """Number of lost members of all gangs."""
        gangs.on_member.append(self._member_changed)
        gangs.on_bind_failed.append(self._bind_failed)
        gangs.on_change.append(self._gang_changed)

    # -- members ------------------------------------------------------------------------------------------------

    def _member_changed(self, gang: Gang, pod: Pod, has_left: bool, is_deleted: bool) -> None:
        uid = pod.metadata.uid
        if has_left:
            self._unassign(gang, uid)
            if pod.spec.node_name and pod.status.phase != _SUCCEEDED and not is_preempted(pod):
                lost = self._begin(gang, pod, pod.spec.node_name, f"the replacement of {pod.key}")
                if lost is not None and (is_deleted or pod.is_terminal):
                    self._start_time(gang, lost)
            return
        lost = gang.lost_members.get(uid)
        if lost is not None and lost.replacement != uid:
            if is_preempted(pod):
                # Its deletion was known before its condition. The room is that of the preemptor.
                self._end(gang, lost, ENDED, f"pod {pod.key} was preempted")
            elif lost.until is None and (is_deleted or pod.is_terminal):
                self._start_time(gang, lost)
        elif is_deleted or pod.is_terminal or pod.metadata.deletion_timestamp is not None:
            self._unassign(gang, uid)
        elif pod.spec.node_name:
            if owner_and_index(pod):
                # Another scheduler may have bound it before it was seen; members that run have other indices.
                self._recognise(gang, pod)
            replaced = next((each for each in gang.lost_members.values() if each.replacement == uid), None)
            if replaced is not None:
                message = f"pod {pod.key} is bound to {pod.spec.node_name}"
                if replaced.pod.metadata.uid != uid:
                    message += f" and replaces {replaced.pod.key}"
                if replaced.node_name != pod.spec.node_name:
                    message += f"; room was held on {replaced.node_name}"
                self._end(gang, replaced, REPLACED, message)
        elif uid not in gang.placed:
            self._recognise(gang, pod)

    def _bind_failed(self, gang: Gang, uid: str) -> None:
        """Hold the room of a member whose bind failed after others were sent, for itself."""
        pod, assumed = gang.pods.get(uid), self._cache.get(uid)
        if pod is None or assumed is None or any(each.replacement == uid for each in gang.lost_members.values()):
            return
        lost = self._begin(gang, pod, assumed.info.node_name, f"{pod.key}, whose bind failed")
        if lost is not None:
            # Not before: what is on a node when a hold begins takes nothing of it, and the pod still is.
            lost.replacement = uid
            self._start_time(gang, lost)

    def restore_all(self, losses: Iterable[tuple[GroupKey, RecordedLoss]]) -> int:
        """Hold the room of members again that were lost before the process started; return of how many."""
        return sum([self.restore(key, recorded) for key, recorded in losses])

    def restore(self, key: GroupKey, recorded: RecordedLoss) -> bool:
        """Hold the room of a member again that was lost before the process started; return whether it is held."""
        try:
            return self._restore(key, recorded)
        except Exception:
            # Any bug: the others are held again all the same, and scheduling starts.
            log.exception(
                "Room of the lost member %s of group %s is not held again because of a bug; please report it",
                recorded.name,
                key,
            )
            return False

    def _restore(self, key: GroupKey, recorded: RecordedLoss) -> bool:
        """Hold the room again.

        The lost pod is not known any more, so that the room is that of its replacement, or of a member that is like it.
        Its devices are not known: other pods with claims do not get the node. Call it when all pods are known.
        """
        gang = self._gangs.get(key)
        if gang is None or gang.group is None or not gang.placed or recorded.until <= self._clock.wall():
            return False
        if any(each.pod.metadata.name == recorded.name for each in gang.lost_members.values()):
            return False
        same = [pod for pod in gang.pods.values() if _is_same(pod, recorded) and not pod.is_terminal]
        like = self._like(gang, recorded) if not same else same[0]
        if like is None or any(pod.spec.node_name for pod in same):
            return False
        meta = replace(like.metadata, name=recorded.name, uid=f"{gang.group.uid} {recorded.name}")
        pod = replace(like, metadata=meta, spec=replace(like.spec, node_name=recorded.node_name))
        pod = replace(pod, status=replace(pod.status, resource_claim_statuses=()))
        lost = self._begin(gang, pod, recorded.node_name, f"the replacement of {pod.key}")
        if lost is None:
            return False
        lost.index = recorded.index
        # The time of the group may have been changed, and the wall clock set, while no operator ran.
        longest = self._clock.wall() + timedelta(seconds=gang.group.hold_seconds)
        self._start_time(gang, lost, min(recorded.until, longest))
        for waiting in list(gang.pods.values()):
            if not waiting.spec.node_name and not waiting.is_terminal:
                self._recognise(gang, waiting)
        return lost.has_room

    def _like(self, gang: Gang, recorded: RecordedLoss) -> Pod | None:
        """Return a member with the requests of a lost one: of its owner, else any one if all request the same."""
        owner = recorded.index.rpartition("/")[0]
        of_owner = [pod for pod in gang.pods.values() if owner and owner_and_index(pod).rpartition("/")[0] == owner]
        compiled = map(self._compiled, of_owner or gang.pods.values())
        found = [info for info in compiled if info is not None]
        return found[0].pod if len({info.fit for info in found}) == 1 else None

    def _compiled(self, pod: Pod) -> PodInfo | None:
        """Return a compiled member; None if it is invalid, which the feed reports when it reads the pod."""
        try:
            return self._nodes.compile_pod(pod)
        except SchedulerCoreError:
            return None

    def _begin(self, gang: Gang, pod: Pod, node_name: str, for_whom: str) -> LostMember | None:
        """Hold the room of a member; return None if the group does not heal, too many are lost, or it is invalid."""
        uid = pod.metadata.uid
        if gang.group is None or not gang.group.hold_seconds or gang.tree is not None:
            return None
        for earlier in list(gang.lost_members.values()):
            if earlier.pod.metadata.name == pod.metadata.name:
                # Another pod has the name since, and is lost now.
                self._end(gang, earlier, ENDED, f"pod {pod.key} was lost again")
        info = self._compiled(pod)
        if info is None or len(gang.lost_members) >= MOST_OF_GANG:
            return None
        if self._count >= MOST_OF_ALL and not self._give_up_one(gang):
            return None
        lost = LostMember(pod, node_name, owner_and_index(pod))
        gang.lost_members[uid] = lost
        self._groups.setdefault(gang.key, gang.group)
        self._count += 1
        info.priority = _priority_of(gang, pod)
        own = OwnPods(gang.key.namespace, group=gang.key, matches=partial(_replaces, lost), are_new=True)
        holder = Holder("Pod", gang.key.namespace, pod.metadata.name, uid, own)
        terms = Terms(frozenset((uid,)), prefers_slots=True)
        room = HeldRoom(holder, [HeldPod(info, "", node_name, self._devices_of(pod))], self._nodes, terms)
        lost.has_room = self._reservations.hold(room)
        if lost.has_room:
            self._report_outcome(gang, HELD, f"room on {node_name} is held for {for_whom}")
        return lost

    def _give_up_one(self, gang: Gang) -> bool:
        """End the oldest hold of the namespace, and there of the gang, that have the most, if *gang* has fewer."""
        gangs = [each for key in self._groups if (each := self._gangs.get(key)) is not None]
        of_namespace = Counter(each.key.namespace for each in gangs for _ in each.lost_members)
        most = max(gangs, key=lambda each: (of_namespace[each.key.namespace], len(each.lost_members)))
        own, its = gang.key.namespace, most.key.namespace
        if own == its:
            has_fewer = len(gang.lost_members) + 1 < len(most.lost_members)
        else:
            has_fewer = of_namespace[own] + 1 < of_namespace[its]
        if has_fewer:
            lost = next(iter(most.lost_members.values()))
            message = f"room of {lost.pod.key} was given up, because lost members of other groups have less"
            self._end(most, lost, ENDED, message)
            self._gangs.changed(most)
        return has_fewer

    def _devices_of(self, pod: Pod) -> tuple[AllocationResult, ...]:
        """Return the devices of a pod's claims; none if they are not all known.

        Devices of a claim that other pods use, too, stay in use.
        """
        found, devices = [], self._nodes.devices
        claims = [devices.claims.get(key) for key in sorted(claim_keys((pod,)))]
        claims += devices.claims.for_resources_of(pod.metadata.uid)
        for claim in claims:
            if claim is None or claim.status.allocation is None:
                return ()
            if all(each.uid == pod.metadata.uid for each in claim.status.reserved_for):
                found.append(claim.status.allocation)
        return tuple(found)

    def _recognise(self, gang: Gang, pod: Pod) -> None:
        """Assign a waiting member to the lost member that it replaces, if any."""
        uid = pod.metadata.uid
        if any(each.replacement == uid for each in gang.lost_members.values()):
            return
        free = [each for each in gang.lost_members.values() if not each.replacement]
        index = owner_and_index(pod)
        found = [each for each in free if each.index == index]
        name = pod.metadata.name
        if found and not index:
            found = [each for each in found if each.pod.metadata.name == name or self._is_like(each.pod, pod)]
        found.sort(key=lambda each: (each.pod.metadata.name != name, not each.has_room))
        if found:
            found[0].replacement = uid

    def _is_like(self, lost: Pod, pod: Pod) -> bool:
        """Return whether two pods have the same controller and equal requests."""
        if controller_of(lost) != controller_of(pod):
            return False
        before, now = self._compiled(lost), self._compiled(pod)
        return before is not None and now is not None and before.fit == now.fit

    @staticmethod
    def _unassign(gang: Gang, uid: str) -> None:
        for lost in gang.lost_members.values():
            if lost.replacement == uid:
                lost.replacement = ""

    # -- time and end -------------------------------------------------------------------------------------------

    def _start_time(self, gang: Gang, lost: LostMember, until: datetime | None = None) -> None:
        """Start the time of a hold, because the room is free from now on, or let it end at a time."""
        assert gang.group is not None
        now, uid = self._clock.wall(), lost.pod.metadata.uid
        lost.until = until or now + timedelta(seconds=gang.group.hold_seconds)
        seconds = (lost.until - now).total_seconds()
        self._stop_time(uid)
        self._timers[uid] = self._clock.call_later(
            max(0.0, seconds), lambda: self._run_or_defer(self._expire, gang.key, uid)
        )

    def _stop_time(self, uid: str) -> None:
        timer = self._timers.pop(uid, None)
        if timer is not None:
            timer.cancel()

    def _expire(self, key: GroupKey, uid: str) -> None:
        gang = self._gangs.get(key)
        lost = None if gang is None else gang.lost_members.get(uid)
        if gang is not None and lost is not None:
            self._end(gang, lost, EXPIRED, f"no replacement of {lost.pod.key} was bound in time")
            self._gangs.changed(gang)

    def _end(self, gang: Gang, lost: LostMember, reason: str, message: str) -> None:
        uid = lost.pod.metadata.uid
        if gang.lost_members.pop(uid, None) is not None:
            self._count -= 1
        if not gang.lost_members:
            self._groups.pop(gang.key, None)
        self._stop_time(uid)
        self._reservations.held.end(uid)
        self._report_outcome(gang, reason, message)

    def _report_outcome(self, gang: Gang, reason: str, message: str) -> None:
        gang.healing = HealingOutcome(reason, message)
        for callback in self._gangs.on_healing:
            callback(gang, gang.healing)

    def _gang_changed(self, gang: Gang) -> None:
        if not gang.lost_members:
            return
        group, before, all_lost = gang.group, self._groups[gang.key], list(gang.lost_members.values())
        why = ""
        if group is None or group.uid != before.uid:
            why = "the PodGroup was deleted"
        elif not group.hold_seconds:
            why = "the value of spec.healing.holdSeconds is 0"
        elif not gang.placed:
            why = "no member of the group has a node"
        if why or group is None:
            for lost in all_lost:
                self._end(gang, lost, ENDED, why)
            return
        self._groups[gang.key] = group
        if group.priority != before.priority:
            for lost in all_lost:
                self._reservations.held.set_priority(lost.pod.metadata.uid, _priority_of(gang, lost.pod))
        if group.hold_seconds != before.hold_seconds:
            more = timedelta(seconds=group.hold_seconds - before.hold_seconds)
            for lost in all_lost:
                if lost.until is not None:
                    self._start_time(gang, lost, lost.until + more)


def _is_same(pod: Pod, recorded: RecordedLoss) -> bool:
    """Return whether a pod replaces a lost member, or is it."""
    if recorded.index:
        return owner_and_index(pod) == recorded.index
    return pod.metadata.name in (recorded.name, recorded.replacement)


def _priority_of(gang: Gang, pod: Pod) -> int:
    group = gang.group
    return pod.spec.priority or 0 if group is None or group.priority is None else group.priority


def _replaces(lost: LostMember, pod: Pod) -> bool:
    return bool(lost.replacement) and lost.replacement == pod.metadata.uid


def held_rows_first(reservations: GangReservations) -> Subsets:
    """Return subsets of a gang whose first one are the nodes on which room is held for its members."""

    def subsets(cache: ClusterCache, group: Group) -> Iterator[tuple[Where, int]]:
        nodes, topology = cache.columns, group.topology
        if topology is not None:
            # Without this, the narrowest domain with room would come first.
            mask = np.zeros(nodes.size, dtype=np.bool_)
            for info in group.members:
                mask[reservations.preferred_rows(info)] = True
            shared = domain_of_members(nodes, topology, scheduled_members(cache, group.gangs))
            if topology.is_required and shared is not None and shared.mask is not None:
                mask &= shared.mask
            if mask.any():
                yield Where(mask, _NOT_HELD, "" if shared is None else shared.name), int(mask.sum())
        yield from gang_subsets(cache, group)

    return subsets
