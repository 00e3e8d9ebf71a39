"""Lifecycle of reservations for gangs, and the timeout ``scheduleTimeoutSeconds``.

::

    failing ──after_seconds──▶ planned ──▶ reserved ──▶ ended: scheduled, deleted, no quorum, not Strict, timed out
                                  │          │ the plan became infeasible: planned again
                                  ▼          ▼
                 its nodes are reserved for another gang: waits for its turn

The group cycle makes the plans. Timers are needed because a waiting gang is not tried while no event occurs, and its
reservation must begin, and its timeout must end it, nevertheless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.nominated_devices import CLAIM_UPDATE, FREED
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.framework.queued_pod import Place
from scheduler_core.gangs.held_room import HeldRoom, HeldRooms
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.placement.reservations import Plan, Reservation
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.cluster_cache import ClusterCache
from scheduler_core.snapshot.indexes.device_index import HeldDevices
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

RESERVED_AFTER_SECONDS = 60.0
TIMED_OUT = "TimedOut"
_RETRY_SECONDS = 1.0

_LOOK_SECONDS = 1.0
"""Maximum time between the bind of the last pod for which room is held and the end of the room."""


class GangReservations:
    """All reservations.

    Attributes:
        by_gang: The reservations; one that ends and begins again is another object. Those of held room are among
            them, under keys that no gang has.
        held: Room that is held for pods that do not exist yet.
    """

    def __init__(
        self,
        cache: ClusterCache,
        queue: SchedulingQueue,
        clock: Clock,
        suspension: Suspension,
        after_seconds: float = RESERVED_AFTER_SECONDS,
    ) -> None:
        self.after_seconds = after_seconds
        self._nodes = cache.columns
        self._queue = queue
        self._clock = clock
        self._run_or_defer = suspension.run_or_defer
        self.by_gang: dict[GroupKey, Reservation] = {}
        self._of_gangs: dict[GroupKey, Reservation] = {}
        """Those of gangs alone."""
        self._by_node: dict[str, Reservation] = {}
        # In the order in which they wait: their order in the queue must not depend on hashes.
        self._awaiting_turn: dict[GroupKey, None] = {}
        self._hopeless: dict[GroupKey, tuple[int, float]] = {}
        self._planned_after: dict[GroupKey, float] = {}
        """First failure of the series for which a plan was requested; prevents a second request by rounding."""
        self._timers: dict[GroupKey, Timer] = {}
        self.held = HeldRooms(cache, queue.nominator, self.by_gang, queue.gangs.key_of, self._unblock)
        self._look_timer: Timer | None = None
        self._numbers = count(1)
        cache.columns.devices.holds.append(self.devices_held_from)
        queue.gangs.on_change.append(self._gang_changed)

    def of(self, key: GroupKey) -> Reservation | None:
        return self.by_gang.get(key)

    def on_node(self, node_name: str) -> Reservation | None:
        return self._by_node.get(node_name)

    # -- pods that come later -----------------------------------------------------------------------------------

    def blocking(self, group: GroupKey | None, pod: PodInfo) -> list[tuple[GroupKey, NDArray[np.intp]]]:
        """Return the gangs whose reservations block nodes for a pod.

        Returns:
            Other gangs whose reservation has at least the priority of the pod or its group, each with the rows where
            the pod does not fit beside the gang, intp[k] ascending, k > 0; then the holders of room likewise.
        """
        if not self.by_gang:
            return []
        priority = self._priority_of(group, pod)
        gangs = [each for each in self._of_gangs.values() if each.priority >= priority and each.key != group]
        found = [(each.key, rows) for each in gangs if len(rows := each.refused_rows(pod, self._queue.nominator))]
        if not len(self.held):
            return found
        names = self.held.node_names if gangs else ()
        by_node = {name: each for name in names if (each := self._by_node.get(name)) in gangs}
        return [*found, *self.held.blocking(pod, priority, by_node)]

    def preferred_rows(self, pod: PodInfo) -> NDArray[np.intp]:
        """Return the rows that a pod tries first, because room is held for it there, intp[k] ascending."""
        return self.held.preferred_rows(pod.pod)

    def devices_held_from(self, pod: PodInfo) -> list[HeldDevices]:
        """Return the devices that are held for pods that do not exist yet, and that a pod may not use."""
        if not len(self.held):
            return []
        return self.held.devices_held_from(pod, self.priority_of(pod))

    def priority_of(self, pod: PodInfo) -> int:
        """Return the priority of a pod's group; that of the pod if it has no group, or this has no priority."""
        return self._priority_of(self._queue.gangs.key_of(pod.pod), pod)

    def _priority_of(self, group: GroupKey | None, pod: PodInfo) -> int:
        gang = self._queue.gangs.get(group)
        own = None if gang is None or gang.group is None else gang.group.priority
        return pod.priority if own is None else own

    def note_rejected(self, uid: str, by: Iterable[GroupKey]) -> None:
        """Activate a pod that the reservations of these gangs made unschedulable, when one of them ends."""
        for reservation in (held for key in by if (held := self.by_gang.get(key)) is not None):
            uids = reservation.rejected
            uids[uid] = None
            if len(uids) > reservation.max_rejected:
                for gone in [each for each in uids if self._queue.find(each) is None]:
                    del uids[gone]
                reservation.max_rejected = 2 * max(len(uids), reservation.max_rejected // 2)

    def rejected(self, uids: Collection[str]) -> tuple[tuple[GroupKey, tuple[str, ...]], ...]:
        """Return the gangs whose reservations made some of these pods unschedulable, each with their UIDs."""
        found = ((key, tuple(uid for uid in uids if uid in held.rejected)) for key, held in self.by_gang.items())
        return tuple((key, of_gang) for key, of_gang in found if of_gang)

    def hold(self, room: HeldRoom) -> bool:
        """Hold room, beside all that is reserved or held with at least its priority, or whatever their priority is.

        Must be called between two cycles.

        Returns:
            Whether the room exists; if not, nothing is held.
        """
        self.held.end(room.holder.uid)
        began = self.held.begin(room, self._beside(room, at_least=room.reservation.priority))
        if began:
            room.reservation.number = next(self._numbers)
            if room.ends_itself:
                self._look_later()
        return began

    def release(self, room: HeldRoom) -> None:
        """End room, unless it has ended or other room has replaced it, at once or when no cycle is suspended."""
        self._run_or_defer(self._release, room)

    def _release(self, room: HeldRoom) -> None:
        if self.held.held_now(room.holder.uid) is room:
            self.held.end(room.holder.uid)

    def stands(self, room: HeldRoom) -> bool:
        """Return whether the room of all free slots exists, beside all with a higher, or earlier with its priority."""
        own = room.reservation
        beside = self._beside(room, at_least=own.priority)
        rank = -own.priority, own.number
        return own.fits_then([each for each in beside if (-each.priority, each.number) < rank])

    def _beside(self, room: HeldRoom, at_least: int) -> list[Reservation]:
        """Return what is reserved or held on the nodes of a room that counts beside it."""
        others = self.held.beside(room)
        admitted = {each.holder.key for each in others if each.terms.is_admitted and room.terms.is_admitted}
        found = {each.key: each for name in room.reservation.plan.node_names if (each := self._by_node.get(name))}
        found |= {each.reservation.key: each.reservation for each in others}
        return [
            each
            for key, each in found.items()
            # The room of a gang may be part of what is reserved for the same gang.
            if key != room.holder.pods.group and (each.priority >= at_least or key in admitted)
        ]

    def _look_later(self) -> None:
        """Set the timer at which held room is settled or ends."""
        if self._look_timer is not None:
            self._look_timer.cancel()
            self._look_timer = None
        end = self.held.next_end
        if end is not None:
            seconds = max(0.0, min(end - self._clock.now(), _LOOK_SECONDS))
            self._look_timer = self._clock.call_later(seconds, lambda: self._run_or_defer(self._look))

    def _look(self) -> None:
        self._look_timer = None
        try:
            self.held.look(self._clock.now())
        finally:
            self._look_later()

    # -- what happens in the cluster ----------------------------------------------------------------------------

    def room_freed(self, node_name: str) -> None:
        """Activate the gang whose reservation includes a node where room was freed, if the gang fits now."""
        reservation = self._by_node.get(node_name)
        if reservation is not None and reservation.fits_now():
            self._try(reservation.key)

    def node_changed(self, node_name: str) -> None:
        """Activate the gang whose plan uses a changed or deleted node, so that its next cycle checks the plan."""
        reservation = self._by_node.get(node_name)
        if reservation is not None:
            self._try(reservation.key)

    def _try(self, *keys: GroupKey) -> None:
        gangs = (self._queue.gangs.get(key) for key in keys)
        self._queue.activate([gang.entry.uid for gang in gangs if gang is not None and gang.entry is not None])

    # -- beginning and end --------------------------------------------------------------------------------------

    def is_due(self, gang: Gang) -> bool:
        """Return whether capacity must be reserved for a gang that has failed now."""
        if gang.group is None or not gang.group.is_strict or not gang.has_quorum:
            return False
        now = self._clock.now()
        since = now if gang.first_failure is None else gang.first_failure
        if gang.key not in self.by_gang and now < since + self.after_seconds:
            return False
        self._planned_after[gang.key] = since
        return True

    def note_requested(self, gang: Gang) -> None:
        """Record that another process has searched a plan in the series of failures in which the gang is."""
        self._planned_after[gang.key] = self._clock.now() if gang.first_failure is None else gang.first_failure

    def forget_plan(self, gang: Gang) -> None:
        """Let a timer request another plan."""
        self._planned_after.pop(gang.key, None)

    def is_hopeless(self, gang: Gang) -> bool:
        """Return whether planning for this gang failed recently and no node has changed since."""
        version, again = self._hopeless.get(gang.key, (-1, 0.0))
        return version == self._nodes.real_version and self._clock.now() < again

    def usable_rows(self, gang: Gang, *, lower_too: bool) -> NDArray[np.bool_]:
        """Return the rows that a gang's plan may use, bool per row: live nodes that are reserved for no other gang.

        Args:
            lower_too: Whether nodes reserved for gangs of lower priority may be used.
        """
        free = self._nodes.alive.copy()
        for name, reservation in self._by_node.items():
            row = self._nodes.row_of(name)
            if row == NO_ROW or reservation.key == gang.key:
                continue
            if not (lower_too and reservation.priority < gang.priority):
                free[row] = False
        return free

    def begin(self, gang: Gang, plan: Plan) -> None:
        """Reserve the nodes of a plan; end the gang's earlier reservation and those of other gangs on these nodes."""
        assert gang.group is not None
        self.end(gang.key)
        losers = {other.key: other for name in plan.node_names if (other := self._by_node.get(name)) is not None}
        for key in losers:
            self.end(key)
        self._hopeless.pop(gang.key, None)
        self._awaiting_turn.pop(gang.key, None)
        made = Reservation(gang.key, gang.group.uid, gang.priority, plan, self._nodes)
        made.number = next(self._numbers)
        self.by_gang[gang.key] = self._of_gangs[gang.key] = made
        self._by_node.update(dict.fromkeys(plan.node_names, made))
        gang.reservation = str(plan)
        self._try(*losers)

    def await_turn(self, gang: Gang) -> None:
        """Register a gang that needs nodes reserved for others; it is activated when one of those reservations ends."""
        self._awaiting_turn[gang.key] = None

    def plan_failed(self, gang: Gang, version: int) -> None:
        """Record that no plan exists for a gang; the next is made after nodes have changed or ``after_seconds``.

        Args:
            version: Number of changes of Node objects before the search.
        """
        self._hopeless[gang.key] = (version, self._clock.now() + self.after_seconds)

    def holders(self) -> list[str]:
        """Return the gangs and workloads with a reservation, each with its kind."""
        return sorted(key.holder for key in self.by_gang)

    def end(self, key: GroupKey) -> None:
        """End the reservation of a gang, if any, and activate the pods and gangs that it blocked."""
        ended = self.by_gang.pop(key, None)
        if ended is None:
            return
        del self._of_gangs[key]
        for name in ended.plan.node_names:
            del self._by_node[name]
        gang = self._queue.gangs.get(key)
        if gang is not None:
            gang.reservation = ""
        self._unblock(ended)

    def _unblock(self, ended: Reservation) -> None:
        """Activate the pods and gangs that a reservation blocked."""
        waiting, self._awaiting_turn = self._awaiting_turn, {}
        self._try(*(other for other in waiting if other != ended.key))
        self._queue.activate(ended.rejected)
        if ended.has_devices:
            self._queue.on_event(CLAIM_UPDATE, *FREED, max_priority=ended.priority)

    def _gang_changed(self, gang: Gang) -> None:
        if gang.group is None:
            self._planned_after.pop(gang.key, None)
            self._hopeless.pop(gang.key, None)
            self._awaiting_turn.pop(gang.key, None)
        elif gang.group.priority is not None:
            self.held.group_changed(gang.key, gang.group.priority)
        held = self.by_gang.get(gang.key)
        if held is None:
            return
        group = gang.group
        is_same = group is not None and group.uid == held.group_uid and group.is_strict
        if not (is_same and gang.needed and gang.has_quorum):
            gang.reservation = ""
            self.end(gang.key)

    # -- time ---------------------------------------------------------------------------------------------------

    def failed(self, gang: Gang) -> None:
        """Set the timer of a gang that has failed."""
        dues = self._dues(gang)
        timer = self._timers.pop(gang.key, None)
        if timer is not None:
            timer.cancel()
        if dues:
            self._set(gang.key, min(dues) - self._clock.now())

    def _set(self, key: GroupKey, seconds: float) -> None:
        self._timers[key] = self._clock.call_later(max(0.0, seconds), lambda: self._run_or_defer(self._due, key))

    def _dues(self, gang: Gang) -> list[float]:
        """Return the clock times at which the timer of a failing gang must fire."""
        group, since = gang.group, gang.first_failure
        if group is None or since is None:
            return []
        dues = [] if group.schedule_timeout_seconds is None else [since + group.schedule_timeout_seconds]
        if group.is_strict and gang.key not in self.by_gang and self._planned_after.get(gang.key) != since:
            dues.append(since + self.after_seconds)
        _, again = self._hopeless.get(gang.key, (-1, 0.0))
        if group.is_strict and again:
            dues.append(max(again, self._clock.now() + _RETRY_SECONDS))
        held = self.by_gang.get(gang.key)
        if held is not None and not held.waited_for():
            # No pod that ends will activate the gang: there is none to wait for.
            dues.append(self._clock.now() + _RETRY_SECONDS)
        return dues

    def _due(self, key: GroupKey) -> None:
        self._timers.pop(key, None)
        gang, now = self._queue.gangs.get(key), self._clock.now()
        if gang is None or gang.group is None or gang.first_failure is None or not gang.needed:
            return
        entry = gang.entry
        if entry is None or entry.place is Place.NOWHERE:
            # Without a quorum nothing is tried; the next failure sets the timer again.
            return
        if entry.place is Place.IN_FLIGHT:
            self._set(key, _RETRY_SECONDS)
            return
        timeout = gang.group.schedule_timeout_seconds
        if timeout is not None and now >= gang.first_failure + timeout:
            self._time_out(gang, timeout)
            return
        if gang.group.is_strict and now >= gang.first_failure + self.after_seconds:
            self._planned_after[key] = gang.first_failure
            self._try(key)
        self.failed(gang)

    def _time_out(self, gang: Gang, timeout: float) -> None:
        last, since = gang.outcome or GangOutcome(TIMED_OUT, ""), gang.first_failure
        text = f"the group was not placed within its scheduleTimeoutSeconds of {timeout:g}; its turn is over and it"
        text += " waits behind its peers"
        if last.message:
            text += f". In its last attempt: {last.message}"
        gang.outcome = replace(last, reason=TIMED_OUT, message=text)
        gang.first_failure = None
        self._hopeless.pop(gang.key, None)
        self._awaiting_turn.pop(gang.key, None)
        try:
            self._queue.move_gang_behind_peers(gang)
            self.end(gang.key)
            self._queue.gangs.changed(gang)
        except Exception:
            # The timer runs again.
            gang.first_failure = since
            raise
