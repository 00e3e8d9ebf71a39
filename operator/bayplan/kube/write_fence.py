"""The write fence: bars every write of a process that does not lead."""

from __future__ import annotations

from scheduler_core.errors import ServerUnavailableError
from scheduler_core.ports import Clock

_NEVER = float("-inf")


class NotLeadingError(ServerUnavailableError):
    """Raised for a write of a process that does not lead, or no longer leads."""


class WriteFence:
    """Fence that the leader election opens until a time; open forever without leader election.

    Args:
        clock: Its monotonic time decides.
        lease: The Lease as ``namespace/name``; "" without leader election.

    Attributes:
        open_until: Monotonic seconds until which this process may write; minus infinity if it does not lead.
    """

    def __init__(self, clock: Clock, lease: str = "") -> None:
        self._clock = clock
        self._lease = lease
        self.open_until = _NEVER if lease else float("inf")

    def close(self) -> None:
        """Reject writes from now on."""
        self.open_until = _NEVER

    def check(self) -> None:
        """Reject a write that only the leader may send.

        Raises:
            NotLeadingError: This process does not lead, or its time is over.
        """
        if self._clock.now() >= self.open_until:
            raise NotLeadingError(
                f"Nothing was sent: this process does not hold Lease {self._lease}; the leader does the work."
            )
