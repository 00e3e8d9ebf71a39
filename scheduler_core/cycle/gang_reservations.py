"""Which gangs have capacity kept for them, from when to when, and how long a gang may try.

Owns the life of reservations::

    failing ──after_seconds──▶ planned ──▶ kept ──▶ placed, deleted, no quorum, not Strict, timed out: ended
                                  │          │ the plan became impossible: planned anew
                                  ▼          ▼
                 its nodes are kept for another: waits for its turn

and the clock of ``scheduleTimeoutSeconds``. Must not know how a plan is found: the group cycle asks for one and hands
it over. Why by timers and not only at failures: a gang that waits is not tried while nothing happens in the cluster,
and its reservation must begin, and its time be over, all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.reservation import Plan, Reservation
from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import Clock, Timer
from scheduler_core.queueing.gang import Gang, GangOutcome
from scheduler_core.queueing.scheduling_queue import SchedulingQueue
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo

RESERVED_AFTER_SECONDS = 60.0
TIMED_OUT = "TimedOut"
_AGAIN_SECONDS = 1.0

Report = Callable[[Callable[[GroupKey], None], GroupKey], None]
"""Takes a report at once, or when a suspended cycle is over."""


class GangReservations:
    """All reservations; empty and falsy as long as no gang needs one.

    Args:
        nodes: The columns.
        queue: The queue.
        clock: Time.
        report: Through which timers act, so that nothing changes while a cycle is suspended.

    Attributes:
        after_seconds: How long a Strict gang fails before capacity is kept for it.
    """

    def __init__(self, nodes: NodeColumns, queue: SchedulingQueue, clock: Clock, report: Report) -> None:
        self.after_seconds = RESERVED_AFTER_SECONDS
        self._nodes = nodes
        self._queue = queue
        self._clock = clock
        self._report = report
        self._held: dict[GroupKey, Reservation] = {}
        self._by_node: dict[str, Reservation] = {}
        self._in_turn: set[GroupKey] = set()
        self._hopeless: dict[GroupKey, tuple[int, float]] = {}
        self._asked: dict[GroupKey, float] = {}
        """The first failure in a row after which a plan was asked for; the clock asks once, however it rounds."""
        self._timers: dict[GroupKey, Timer] = {}
        queue.gangs.on_change.append(self._gang_changed)

    def __len__(self) -> int:
        return len(self._held)

    def of(self, key: GroupKey) -> Reservation | None:
        """What is kept for a gang."""
        return self._held.get(key)

    # -- pods that come later -----------------------------------------------------------------------------------

    def kept_from(self, group: GroupKey | None, pod: PodInfo) -> list[tuple[Reservation, NDArray[np.intp]]]:
        """Where a pod must keep off.

        Args:
            group: The gang to which the pod belongs; None for none.
            pod: The pod.

        Returns:
            Reservations of no lower priority than the pod's, or its group's, other than its own gang's, each with the
            rows, intp[k] ascending, where the pod would not fit beside the gang. None without rows.
        """
        if not self._held:
            return []
        priority = self._priority_of(group, pod)
        kept = (
            (each, each.refused_rows(pod, self._queue.nominator))
            for each in self._held.values()
            if each.priority >= priority and each.key != group
        )
        return [(each, rows) for each, rows in kept if len(rows)]

    def _priority_of(self, group: GroupKey | None, pod: PodInfo) -> int:
        gang = None if group is None else self._queue.gangs.get(group)
        own = None if gang is None or gang.group is None else gang.group.priority
        return pod.priority if own is None else own

    def turned_away(self, uid: str, by: Iterable[Reservation]) -> None:
        """A pod fits nowhere, perhaps because of reservations: it is tried again when one of them ends."""
        for reservation in by:
            away = reservation.turned_away
            away.add(uid)
            if len(away) > reservation.most_away:
                away.intersection_update([each for each in away if self._queue.find(each) is not None])
                reservation.most_away = 2 * max(len(away), reservation.most_away // 2)

    # -- what happens in the cluster ----------------------------------------------------------------------------

    def departed(self, node_name: str) -> None:
        """A pod has left a node: if there is room for the gang now, it is next, without backing off."""
        reservation = self._by_node.get(node_name)
        if reservation is not None and reservation.fits_now():
            self._try(reservation.key)

    def node_changed(self, node_name: str) -> None:
        """A node was changed or is gone: the gang whose plan needs it looks whether the plan still holds."""
        reservation = self._by_node.get(node_name)
        if reservation is not None:
            self._try(reservation.key)

    def _try(self, *keys: GroupKey) -> None:
        gangs = (self._queue.gangs.get(key) for key in keys)
        self._queue.activate([gang.entry.uid for gang in gangs if gang is not None and gang.entry is not None])

    # -- beginning and end --------------------------------------------------------------------------------------

    def is_due(self, gang: Gang) -> bool:
        """Whether capacity is to be kept for a gang that has failed now."""
        if gang.group is None or not gang.group.is_strict or not gang.has_quorum:
            return False
        now = self._clock.now()
        since = now if gang.first_failure is None else gang.first_failure
        if gang.key not in self._held and now < since + self.after_seconds:
            return False
        self._asked[gang.key] = since
        return True

    def is_hopeless(self, gang: Gang) -> bool:
        """Whether a plan for this gang was looked for in vain, lately and on the nodes as they are."""
        version, again = self._hopeless.get(gang.key, (-1, 0.0))
        return version == self._nodes.version and self._clock.now() < again

    def free_of(self, gang: Gang, *, lower_too: bool) -> NDArray[np.bool_]:
        """Rows that a gang's plan may use: bool per row, alive and kept for no other gang.

        Args:
            gang: The gang.
            lower_too: Whether what is kept for gangs of lower priority may be taken from them.
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
        """Keep what a plan needs; whatever else is kept for the gang, or on its nodes for lower ones, is given up."""
        assert gang.group is not None
        self.end(gang.key)
        losers = {other.key: other for name in plan.node_names if (other := self._by_node.get(name)) is not None}
        for key in losers:
            self.end(key)
        self._hopeless.pop(gang.key, None)
        self._in_turn.discard(gang.key)
        made = Reservation(gang.key, gang.group.uid, gang.priority, plan, self._nodes)
        self._held[gang.key] = made
        self._by_node.update(dict.fromkeys(plan.node_names, made))
        gang.reservation = str(plan)
        self._try(*losers)

    def await_turn(self, gang: Gang) -> None:
        """A gang needs nodes that are kept for others: it is tried when one of those reservations ends."""
        self._in_turn.add(gang.key)

    def give_up(self, gang: Gang) -> None:
        """No plan can be made for a gang; another is only tried when nodes have changed, or after a while."""
        self._hopeless[gang.key] = (self._nodes.version, self._clock.now() + self.after_seconds)

    def holders(self) -> list[str]:
        """Gangs for which anything is kept, as people name them."""
        return sorted(str(key) for key in self._held)

    def end(self, key: GroupKey) -> None:
        """Keep nothing for a gang any more, and try again who was kept off; nothing where nothing is kept."""
        ended = self._held.pop(key, None)
        if ended is None:
            return
        for name in ended.plan.node_names:
            del self._by_node[name]
        gang = self._queue.gangs.get(key)
        if gang is not None:
            gang.reservation = ""
        waiting, self._in_turn = self._in_turn, set()
        self._try(*(other for other in waiting if other != key))
        self._queue.activate(ended.turned_away)

    def _gang_changed(self, gang: Gang) -> None:
        if gang.group is None:
            self._asked.pop(gang.key, None)
            self._hopeless.pop(gang.key, None)
            self._in_turn.discard(gang.key)
        held = self._held.get(gang.key)
        if held is None:
            return
        group = gang.group
        is_same = group is not None and group.uid == held.group_uid and group.is_strict
        if not (is_same and gang.needed and gang.has_quorum):
            gang.reservation = ""
            self.end(gang.key)

    # -- time ---------------------------------------------------------------------------------------------------

    def failed(self, gang: Gang) -> None:
        """A gang has failed: set the clock for what time alone brings about."""
        dues = self._dues(gang)
        timer = self._timers.pop(gang.key, None)
        if timer is not None:
            timer.cancel()
        if dues:
            self._set(gang.key, min(dues) - self._clock.now())

    def _set(self, key: GroupKey, seconds: float) -> None:
        self._timers[key] = self._clock.call_later(max(0.0, seconds), lambda: self._report(self._due, key))

    def _dues(self, gang: Gang) -> list[float]:
        """Times at which something is due for a gang that fails."""
        group, since = gang.group, gang.first_failure
        if group is None or since is None:
            return []
        dues = [] if group.schedule_timeout_seconds is None else [since + group.schedule_timeout_seconds]
        if group.is_strict and gang.key not in self._held and self._asked.get(gang.key) != since:
            dues.append(since + self.after_seconds)
        _, again = self._hopeless.get(gang.key, (-1, 0.0))
        if group.is_strict and again:
            dues.append(max(again, self._clock.now() + _AGAIN_SECONDS))
        held = self._held.get(gang.key)
        if held is not None and not held.waited_for():
            # Nobody's going will tell that the plan can be tried.
            dues.append(self._clock.now() + _AGAIN_SECONDS)
        return dues

    def _due(self, key: GroupKey) -> None:
        self._timers.pop(key, None)
        gang, now = self._queue.gangs.get(key), self._clock.now()
        if gang is None or gang.group is None or gang.first_failure is None or not gang.needed:
            return
        entry = gang.entry
        if entry is None or entry.place is Place.NOWHERE:
            # Without a quorum nothing is tried; the next failure sets the clock again.
            return
        if entry.place is Place.IN_FLIGHT:
            self._set(key, _AGAIN_SECONDS)
            return
        timeout = gang.group.schedule_timeout_seconds
        if timeout is not None and now >= gang.first_failure + timeout:
            self._time_out(gang, timeout)
            return
        if gang.group.is_strict and now >= gang.first_failure + self.after_seconds:
            self._asked[key] = gang.first_failure
            self._try(key)
        self.failed(gang)

    def _time_out(self, gang: Gang, timeout: float) -> None:
        """A gang had its time: tell why, and let its peers go first."""
        last = gang.outcome or GangOutcome(TIMED_OUT, "")
        text = f"the group was not placed within its scheduleTimeoutSeconds of {timeout:g}; its turn is over and it"
        text += " waits behind its peers"
        if last.message:
            text += f". In its last attempt: {last.message}"
        gang.outcome = replace(last, reason=TIMED_OUT, message=text)
        gang.first_failure = None
        self._hopeless.pop(gang.key, None)
        self._in_turn.discard(gang.key)
        self._queue.gang_stands_back(gang)
        self.end(gang.key)
        self._queue.gangs.changed(gang)
