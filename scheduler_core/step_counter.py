"""Bounds of work: the steps of scheduling attempts, and the share of the time that work beside them may use.

The counter bounds an attempt, and divides it into slices. A step is a unit of work that takes about 10 microseconds.
Steps are counted and not timed, so that the point at which an attempt is given up does not depend on the machine or its
load.

::

    idle ──begin──▶ attempt ──slice used up──▶ on_slice_end (the event loop runs) ──▶ attempt ──end──▶ idle
                                    └────────▶ on_long_search (another process continues) ──▶ undone ──▶ idle
    attempt ──part used up, at a checkpoint──▶ on_long_search (it starts again later) ──▶ undone ──▶ idle
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from scheduler_core.errors import AttemptLimitError

STEP_SECONDS = 0.000_01
"""Duration of a step, roughly."""
SLICE_STEPS = 2_000
"""Steps between two turns of the event loop: about 20 ms."""
PART_STEPS = 100
"""Steps between checkpoints after which an attempt ends, and starts again later from what it has stored: about 1 ms."""
ATTEMPT_STEPS = 100_000
"""Steps of an attempt to schedule a pod: about 1 s."""
DRY_RUN_STEPS = 5_000
"""Steps of a dry run, during which the event loop does not run: about 50 ms."""

_MEMBERS_PER_ATTEMPT = 100
"""Further members of a gang that together add the steps of one attempt to its limit."""
_STEPS_OF_ERROR = 20
NO_LIMIT = 1 << 62


class StepCounter:
    """Steps of the attempt or dry run in progress; without one, steps are not bounded.

    ============  ======================  ===============================
    method        charged to the attempt  the attempt may leave its cycle
    ============  ======================  ===============================
    spend         yes                     when a slice ends
    spend_stored  yes, and as stored      when a slice ends
    pass_by       no                      when a slice ends
    upkeep        no                      never
    checkpoint    no                      when a part ends
    ============  ======================  ===============================

    Attributes:
        spent: Steps of the attempt in progress, or of the last one.
        stored: Steps since the start whose results later attempts use again.
        limit: Steps that the attempt or dry run in progress may take; :data:`NO_LIMIT` without one.
        dry_runs: Number of dry runs that have begun, by which what is stored in one of them is recognised.
        is_dry: Whether a dry run is in progress, which must not change what live attempts are charged for.
        on_slice_end: Called when a slice is used up; None if nothing can run between two slices.
        on_long_search: Called first if the step that used it up does not refresh shared state, and if a part is used up
            at a checkpoint; may raise to end the attempt. None if the attempt must end where it began.
        left: What the attempt must still store, if it is called at a checkpoint; None if it is not.
    """

    __slots__ = (
        "_left", "_left_of_part", "attempt_steps", "dry_run_steps", "dry_runs", "is_dry", "left", "limit",
        "on_long_search", "on_slice_end", "part_steps", "slice_steps", "spent", "stored",
    )  # fmt: skip

    def __init__(
        self,
        slice_steps: int = SLICE_STEPS,
        attempt_steps: int = ATTEMPT_STEPS,
        dry_run_steps: int = DRY_RUN_STEPS,
        part_steps: int = PART_STEPS,
    ) -> None:
        self.slice_steps = slice_steps
        self.part_steps = part_steps
        self.attempt_steps = attempt_steps
        self.dry_run_steps = dry_run_steps
        self.spent = self.stored = self.dry_runs = 0
        self.is_dry = False
        self.left: int | None = None
        self.on_slice_end: Callable[[], None] | None = None
        self.on_long_search: Callable[[], None] | None = None
        self.limit = NO_LIMIT
        self._left = slice_steps
        self._left_of_part = slice_steps - part_steps

    def spend(self, steps: int = 1) -> None:
        """Count steps of the attempt; the event loop may run before this returns.

        Raises:
            AttemptLimitError: The attempt took more steps than it may.
        """
        self.spent += steps
        if self.spent > self.limit:
            # What catches the error and goes on with something else is interrupted, too.
            self.upkeep(steps + _STEPS_OF_ERROR)
            raise AttemptLimitError(self.limit, is_dry=self.is_dry)
        self._left -= steps
        if self._left <= 0:
            # Not in upkeep(), which refreshes shared state: an exception there would leave it half refreshed.
            if self.on_long_search is not None:
                self.on_long_search()
            self._end_slice()

    def spend_stored(self, steps: int = 1) -> None:
        """Count steps of the attempt, as :meth:`spend` does, whose results are stored for later attempts."""
        if not self.is_dry:
            # What dry runs store is not for attempts.
            self.stored += steps
        self.spend(steps)

    def pass_by(self, steps: int) -> None:
        """Count steps that use up the slice, but that the attempt is not charged for: its limit must not change.

        Unlike in :meth:`upkeep`, the search may move.
        """
        self._left -= steps
        if self._left <= 0:
            if self.on_long_search is not None:
                self.on_long_search()
            self._end_slice()

    def upkeep(self, steps: int = 1) -> None:
        """Count steps that refresh shared state: they use up a slice, but the attempt is not charged for them."""
        self._left -= steps
        if self._left <= 0:
            self._end_slice()

    def begin_part(self) -> None:
        """Begin a part that ends at a checkpoint; it is as long as what the attempt did before, which is repeated."""
        self._left_of_part = self._left - max(self.part_steps, self.slice_steps - self._left)

    def checkpoint(self, left: int, steps: int = 1) -> None:
        """Count steps as :meth:`upkeep` does, where everything before is stored, so that another try goes on from here.

        If a part is used up, the attempt may end and start again later.

        Args:
            left: A number that falls from one checkpoint to the next, to 0 at the last one.
        """
        self._left -= steps
        if self._left <= self._left_of_part:
            self.begin_part()
            if self.on_long_search is not None:
                self.left = left
                try:
                    self.on_long_search()
                finally:
                    self.left = None
        if self._left <= 0:
            self._end_slice()

    @contextmanager
    def uninterrupted(self) -> Iterator[None]:
        """Let no slice end in a block, and no search move: what the block reads is still true when it ends."""
        before = self.on_slice_end, self.on_long_search
        self.on_slice_end = self.on_long_search = None
        try:
            yield
        finally:
            self.on_slice_end, self.on_long_search = before

    def _end_slice(self) -> None:
        self._left = self.slice_steps
        self.begin_part()
        if self.on_slice_end is not None:
            self.on_slice_end()

    @contextmanager
    def live_attempt(self, pods: int = 1) -> Iterator[None]:
        """Bound a live attempt.

        Args:
            pods: Number of pods that are scheduled together; each one beyond the first raises the limit a little.
        """
        self.begin_attempt(pods)
        try:
            yield
        finally:
            self.limit = NO_LIMIT

    def begin_attempt(self, pods: int = 1) -> None:
        """Bound a live attempt as :meth:`live_attempt` does, until ``limit`` is set to :data:`NO_LIMIT`."""
        limit = self.attempt_steps
        if pods > 1:
            limit += (pods - 1) * (limit // _MEMBERS_PER_ATTEMPT)
        self.spent, self.limit, self._left = 0, limit, self.slice_steps

    @contextmanager
    def dry_run(self, *, limit: int | None = None, in_slices: bool = False) -> Iterator[None]:
        """Bound all dry runs that are made within; no effect within a live attempt or another dry run.

        Args:
            limit: Maximum number of steps; None for that of dry runs.
            in_slices: Whether the scheduling loop makes it, so that the event loop runs between its slices.
        """
        if self.limit != NO_LIMIT:
            yield
            return
        before = self.spent, self._left, self._left_of_part
        self.dry_runs += 1
        self.spent, self._left, self.is_dry = 0, self.slice_steps, True
        self.limit = limit or (self.attempt_steps if in_slices else self.dry_run_steps)
        try:
            yield
        finally:
            self.is_dry, self.limit = False, NO_LIMIT
            if not in_slices:
                # It took nothing of a slice or part of the scheduling cycle, whose next ones must end as without it.
                self.spent, self._left, self._left_of_part = before


_FULL_SECONDS = 1.0
_LONGEST_SECONDS = 0.01
"""Longest time of decisions between two batches, for which live decisions and events wait."""
_WEIGHT = 0.1


class TimeBudget:
    """Credit of work beside attempts, such as a shadow profile, for a share of the time above 0 and at most 1.

    Time is credited as it passes, up to one second's share, and what a decision took is charged after it. A decision
    that took too long leaves a debt, so no further one starts until the share covers it.
    """

    def __init__(self, share: float, now: Callable[[], float]) -> None:
        self._share = share
        self._now = now
        self._credit = share * _FULL_SECONDS
        self._credited = now()
        self._typical: float | None = None
        self.spent = 0.0

    @property
    def seconds(self) -> float:
        """Time that may be used now; negative for a debt."""
        now = self._now()
        self._credit = min(self._share * _FULL_SECONDS, self._credit + self._share * (now - self._credited))
        self._credited = now
        return self._credit

    def decisions(self, wanted: int) -> int:
        """Return how many of the wanted decisions may be made now, by what earlier ones took."""
        credit, each = self.seconds, self._typical
        if credit <= 0 or not wanted:
            return 0
        if each is None:
            # How long a decision takes is not known before the first.
            return 1
        seconds = min(credit, _LONGEST_SECONDS)
        if wanted * each <= seconds:
            return wanted
        # A decision that takes longer than all of the credit waits until the credit is full.
        return int(seconds / each) or int(credit >= min(each, self._share * _FULL_SECONDS))

    def charge(self, seconds: float, decisions: int) -> None:
        self._credit = self.seconds - seconds
        self.spent += seconds
        if decisions:
            each = seconds / decisions
            self._typical = each if self._typical is None else (1 - _WEIGHT) * self._typical + _WEIGHT * each
