"""The binding of a gang: no bind is sent before every member of the quorum may be bound.

Owns the rule by which a gang never becomes partial in silence:

1. Each member passes Permit and PreBind by itself. Who has passed waits at the barrier.
2. If any member of the quorum fails before the barrier opens, or is deleted, all give back what they hold at once, also
   those that still wait at Permit, and the gang waits as a whole. Nothing was bound.
3. When all have come, the barrier opens and the binds are sent at once. A bind that fails for good after that leaves
   the others where they run: the gang is *completed*. The member that is missing waits as its gang, with the gang's
   place in the queue, until it is placed too, and the PodGroup's status says so as long as it lasts.

Must not know how a member is bound. Why no release after the barrier: bound pods run; to kill those that work because
one came late would cost more than it gives, and whoever wants that sets a timeout on the job.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from scheduler_core.framework.status import SUCCESS, Status, unschedulable
from scheduler_core.queueing.gang import Gang
from scheduler_core.queueing.gang_entries import GANG_SCHEDULING

_Holds = Callable[[str], bool]
_Refuse = Callable[[str, str], object]


class GangBinding:
    """Members of one gang that were placed together and are being bound.

    Args:
        gang: The gang.
        quorum: UIDs of the members of which all are bound or none.
        holds: Whether a member still has the place that it was given.
        refuse: Ends the wait at Permit of a member, if it waits there, with a reason.
        over: Told when all bindings are over.
    """

    def __init__(
        self, gang: Gang, quorum: Iterable[str], holds: _Holds, refuse: _Refuse, over: Callable[[Gang], None]
    ) -> None:
        self._gang = gang
        self._quorum = set(quorum)
        self._missing = set(self._quorum)
        self._holds = holds
        self._refuse = refuse
        self._over = over
        self._opened: asyncio.Future[Status] | None = None
        self._status: Status | None = None
        gang.member_left = self.member_left

    def begun(self) -> None:
        """The binding of a member begins."""
        self._gang.binding += 1

    async def ready(self, uid: str) -> Status:
        """Wait at the barrier.

        Returns:
            Success when the bind may be sent; a rejection when it must not be.
        """
        self._missing.discard(uid)
        if self._status is None and not self._missing:
            self.member_left()
            if self._status is None:
                self._open(SUCCESS)
        if self._status is not None:
            return self._status
        if self._opened is None:
            self._opened = asyncio.get_running_loop().create_future()
        return await asyncio.shield(self._opened)

    def failed(self, uid: str, key: str, message: str) -> None:
        """A member failed; if the barrier is closed and the quorum needs it, all of it fails."""
        if self._status is None and uid in self._quorum:
            self._open(_together(f"{key} could not be bound: {message}"))

    def member_left(self) -> None:
        """A member may have gone: if the barrier is closed and the quorum needs it, all of it fails."""
        if self._status is not None:
            return
        lost = sum(not self._holds(member) for member in self._quorum)
        if lost:
            self._open(_together(f"{lost} of the members that were placed together went before they were bound"))

    def ended(self) -> None:
        """The binding of a member is over, however it ended."""
        self._gang.binding -= 1
        if not self._gang.binding:
            self._gang.member_left = None
            self._over(self._gang)

    def _open(self, status: Status) -> None:
        self._status = status
        if not status.is_success:
            for uid in self._missing:
                self._refuse(uid, status.message)
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(status)


def _together(why: str) -> Status:
    return unschedulable(f"the gang is placed together or not at all: {why}").of(GANG_SCHEDULING)
