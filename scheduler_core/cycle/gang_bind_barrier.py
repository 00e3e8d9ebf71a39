"""The barrier before the binds of a gang: no bind is sent before every member of the quorum is ready to be bound.

1. Each member passes Permit and PreBind by itself, then waits at the barrier.
2. If a member of the quorum fails before the barrier opens, or is deleted, all members are released, also those that
   still wait at Permit, and the gang is requeued. Nothing was bound.
3. When the whole quorum has arrived, the barrier opens and the binds are sent. If one of them fails permanently, the
   others keep running. The missing member is requeued at its gang's position until it is scheduled, and the PodGroup's
   status reports it meanwhile.

A further member that is scheduled by itself before the barrier opens waits there, too, and is released with the quorum:
without it the member would be bound alone, or count as scheduled when the gang is tried again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from scheduler_core.framework.status import GANG_SCHEDULING, SUCCESS, Status, unschedulable
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.snapshot.pod_info import PodInfo

_ERROR, _UNSCHEDULABLE = "SchedulerError", "Unschedulable"


class GangBindBarrier:
    """Members of one gang that were scheduled in one cycle and are being bound.

    Args:
        quorum: UIDs of the members that are bound together or not at all.
        is_assumed: Returns whether a member is still assumed on its node.
        changed: Called when the status of the gang has changed.
        bind_failed: Called with a member whose bind failed after binds of the gang were sent, and its gang.
    """

    def __init__(
        self,
        gang: Gang,
        quorum: Iterable[str],
        is_assumed: Callable[[str], bool],
        reject: Callable[[str, str], object],
        on_end: Callable[[Gang], None],
        *,
        changed: Callable[[Gang], None],
        bind_failed: Callable[[Gang, str], None],
    ) -> None:
        self._gang = gang
        self._quorum = dict.fromkeys(quorum)
        # In the order of the members: the order in which they are released must not depend on hashes.
        self._missing = dict(self._quorum)
        self._is_assumed = is_assumed
        self._reject = reject
        self._on_end = on_end
        self._changed = changed
        self._bind_failed = bind_failed
        self._opened: asyncio.Future[Status] | None = None
        self._is_delayed = False
        self._at_barrier: list[Callable[[], object]] = []
        self._status: Status | None = None
        self._parts = gang.parts
        self._part_of = {uid: part for part in self._parts for uid in part.pods} if gang.is_tree else {}
        self._further: dict[str, None] = {}
        for part in (gang, *self._parts):
            part.barrier = self

    @property
    def is_open(self) -> bool:
        """Whether binds are sent."""
        return self._status is not None and self._status.is_success

    def begun(self) -> None:
        """Count a binding cycle that begins."""
        self._gang.binding += 1

    def join(self, uid: str) -> None:
        """Count the binding cycle of a further member, which is released with the quorum."""
        self.begun()
        self._further[uid] = None
        if self._status is not None and not self._status.is_success:
            self._reject(uid, self._status.message)

    def delayed(self) -> None:
        """Record that a member waits at Permit or runs PreBind: members at the barrier wait for it."""
        if not self._is_delayed and self._status is None:
            self._is_delayed = True
            # So that an autoscaler does not remove the nodes on which these members are assumed.
            for nominate in self._at_barrier:
                nominate()
        self._at_barrier.clear()

    def waits(self, info: PodInfo, step: str) -> None:
        """Report that a member waits for a step of its binding cycle; "" when the step is over."""
        part = self._part_of.get(info.uid, self._gang)
        if step:
            part.binding_steps[info.uid] = step
            self._changed(part)
        elif part.binding_steps.pop(info.uid, None):
            self._changed(part)

    async def ready(self, uid: str, nominate: Callable[[], object] | None = None) -> Status:
        """Wait at the barrier.

        Args:
            nominate: Writes the node of the member as its nomination; called if the barrier opens only later, after
                other members have waited at Permit or run PreBind. None if that was done.

        Returns:
            Success if the bind may be sent, a rejection otherwise.
        """
        self._missing.pop(uid, None)
        if self._status is None and not self._missing:
            # A member at the barrier may have been deleted since it arrived.
            self.member_left()
            if self._status is None:
                self._open(SUCCESS)
        if self._status is not None:
            return self._status
        if nominate is not None and self._is_delayed:
            nominate()
        elif nominate is not None:
            self._at_barrier.append(nominate)
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
        # Shielded: the cancellation of one member's task must not cancel the others' wait.
        return await asyncio.shield(self._opened)

    def failed(self, uid: str, key: str, message: str, *, is_error: bool) -> None:
        """Report that a member failed, and reject the whole quorum if it is of it and the barrier has not opened."""
        is_first = self._status is None or self._status.is_success
        if uid in self._quorum and is_first:
            # Bound members are not released: killing running pods for one late member costs more than it gains. A job
            # can set a timeout instead.
            left = "all members are tried again" if self._status is None else "it is tried again, the others stay"
            text = f"{key} could not be bound: {message.rstrip('.')}; {left}"
            for part in self._parts:
                part.outcome = GangOutcome(_ERROR if is_error else _UNSCHEDULABLE, text)
        if self._status is not None and self._status.is_success:
            self._bind_failed(self._part_of.get(uid, self._gang), uid)
        if self._status is None and uid in self._quorum:
            self._open(_together(f"{key} could not be bound: {message}"))

    def member_left(self) -> None:
        """Reject the whole quorum if a member of it was deleted before the barrier opened."""
        if self._status is not None:
            return
        lost = sum(not self._is_assumed(member) for member in self._quorum)
        if lost:
            self._open(_together(f"{lost} of the members that were placed together went before they were bound"))

    def ended(self) -> None:
        """Count a binding cycle that has ended, with or without success."""
        self._gang.binding -= 1
        if not self._gang.binding:
            for part in (self._gang, *self._parts):
                part.barrier = None
                part.binding_steps.clear()
            self._on_end(self._gang)

    def _open(self, status: Status) -> None:
        self._status = status
        self._at_barrier.clear()
        if not status.is_success:
            for uid in (*self._missing, *self._further):
                self._reject(uid, status.message)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(status)


def _together(why: str) -> Status:
    return unschedulable(f"the gang is placed together or not at all: {why}").of(GANG_SCHEDULING)
