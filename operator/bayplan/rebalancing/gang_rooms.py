"""Room that plans make for gangs: it is held from the first move until the members are bound, for a bounded time.

The pods that are still to be moved are in the way, so that each part of the room is held from the moment when it is
free. Only the members use it, and pods of a higher priority than the gang has now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from bayplan.fit.room_search import RoomHolding
from bayplan.rebalancing.plan_documents import MemberRoom
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import API_VERSION
from scheduler_core.gangs.held_room import EndReason, HeldPod, HeldRoom, Holder, OwnPods, Terms, own_slot
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.ports import Event, ObjectReference
from scheduler_core.scheduler import Scheduler

_KIND = "PodGroup"


@dataclass(slots=True)
class _Entry:
    """Room of a plan, and why it has ended by itself; None if it has not."""

    key: GroupKey
    room: HeldRoom | None = None
    ended: EndReason | None = None


class GangRooms:
    """Room for gangs, by name of the plan."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._holding = RoomHolding(scheduler)
        self._entries: dict[str, _Entry] = {}

    async def hold(
        self, plan: RebalancePlan, members: Iterable[MemberRoom], in_the_way: Collection[str], until: float
    ) -> bool:
        """Hold room for members that wait, in place of what is held for the same gang.

        Args:
            in_the_way: UIDs of the pods that are moved.
            until: Clock time at which the room ends.

        Returns:
            Whether the room exists; if not, nothing is held.
        """
        context, name = self._scheduler.context, plan.metadata.name
        assert plan.spec.gang is not None
        key = GroupKey(GroupSource.BAYPLAN, plan.spec.gang.namespace, plan.spec.gang.name)
        await context.suspension.over()
        gang = context.queue.gangs.get(key)
        waiting = {} if gang is None else gang.waiting
        slots = [HeldPod(waiting[each.uid].info, each.uid, each.node) for each in members if each.uid in waiting]
        if gang is None or not slots:
            self.release(name)
            return False
        entry = _Entry(key)

        def on_end(reason: EndReason) -> None:
            entry.room, entry.ended = None, reason
            if reason is EndReason.CONSUMED:
                event = ("Normal", "GangBound", f"The members of gang {key} are bound")
            else:
                event = ("Warning", "RoomExpired", f"Gang {key} did not use its room in time; other pods may use it")
            record_plan_event(self._scheduler, plan, *event)

        own = OwnPods(key.namespace, group=key, slot_class=own_slot)
        # Two plans for one gang hold room once.
        holder = Holder(_KIND, key.namespace, key.name, f"{_KIND}/{key}", own)
        terms = Terms(frozenset(in_the_way), until, prefers_slots=True, follows_group=True, on_end=on_end)
        room = HeldRoom(holder, slots, context.cache.columns, terms)
        room.reservation.priority = gang.priority
        is_held = await self._holding.hold(room)
        self.release(name)
        if is_held:
            entry.room = room
            self._entries[name] = entry
        return is_held

    def extend(self, name: str, until: float) -> None:
        """Set the clock time at which the room of a plan ends."""
        room = self._held(name)
        if room is not None:
            self._scheduler.reservations.held.extend(room.holder.uid, until)

    def is_held(self, name: str) -> bool:
        return self._held(name) is not None

    def ended(self, name: str) -> EndReason | None:
        """Return why the room of a plan has ended; None if it is held, or none was."""
        entry = self._entries.get(name)
        if entry is None or entry.ended is not None or entry.room is None:
            return None if entry is None else entry.ended
        gang = self._scheduler.context.queue.gangs.get(entry.key)
        # No move gains anything for a gang that is gone; another plan may have its room.
        is_wanted = gang is not None and gang.group is not None and self._is_held(entry.room)
        return None if is_wanted else EndReason.EXPIRED

    def release(self, name: str) -> None:
        """End the room of a plan, if any."""
        entry = self._entries.pop(name, None)
        if entry is not None and entry.room is not None:
            self._scheduler.reservations.release(entry.room)

    def _held(self, name: str) -> HeldRoom | None:
        entry = self._entries.get(name)
        room = None if entry is None else entry.room
        return room if room is not None and self._is_held(room) else None

    def _is_held(self, room: HeldRoom) -> bool:
        return self._scheduler.reservations.held.of(room.holder.uid) is room


def record_plan_event(scheduler: Scheduler, plan: RebalancePlan, kind: str, reason: str, note: str) -> None:
    regarding = ObjectReference("RebalancePlan", plan.metadata.name, "", plan.metadata.uid, API_VERSION)
    scheduler.context.writer.record(Event(regarding, kind, reason, "Rebalancing", note))
