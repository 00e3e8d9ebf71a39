"""What a scheduler reports for a record; other input passes through its ports and feeds, which a recorder wraps."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar
from uuid import uuid4

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.cycle.attempt import Attempt
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.step_counter import PART_STEPS, SLICE_STEPS

T = TypeVar("T")


class Journal:
    """Receives the order of the scheduler's steps, changes of profiles, and placements; this one records nothing.

    Attributes:
        slice_steps: Steps after which :meth:`is_slice_over` is called.
        part_steps: Steps after which an attempt is postponed at a checkpoint.
        follows_binds: Whether :meth:`placed` and :meth:`steps` of binding cycles are called.
    """

    slice_steps = SLICE_STEPS
    part_steps = PART_STEPS
    follows_binds = False

    def steps(self, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """Return a coroutine that does the same work, for a task of the scheduler; its steps are ordered."""
        return work

    def new_uid(self) -> str:
        return str(uuid4())

    def begun(self) -> None:
        """Note that the scheduling loop begins."""

    def ended(self) -> None:
        """Note that the scheduling loop is stopped; nothing more is recorded."""

    async def paused(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that lets other tasks run and does not affect decisions; only its end is a step."""
        await work

    def is_slice_over(self) -> bool:
        """Return whether a slice of a cycle that is used up ends here."""
        return True

    async def between_slices(self, work: Coroutine[Any, Any, None]) -> None:
        """Do work that lets other tasks run between two slices of a cycle; the cycle is suspended."""
        await work

    def may_move(self, left: int | None) -> bool:
        """Return whether a search whose slice is used up may continue in another process, or an attempt be postponed.

        Args:
            left: What the attempt must still store, at a checkpoint; None at the end of a slice.
        """
        del left
        return True

    def moved(self, left: int | None = None) -> None:
        """Note that a search continues in another process, or starts again: when that of another one ends, or later."""

    def cut(self) -> None:
        """Record nothing more: this process is a copy of the one that writes the record."""

    def suspending(self) -> None:
        """Note that changes are deferred from now on, because shadows decide."""

    def resuming(self) -> None:
        """Note that the deferred changes take effect next."""

    def building(self, config: ProfileConfig | None) -> None:
        """Note that an instance of a profile is built next, with or without success; None for one of a shadow."""

    def built(self, instance: FrameworkInstance) -> None:
        """Note that the build succeeded."""

    def activating(self, instances: Iterable[FrameworkInstance]) -> None:
        """Note that instances become live together next, with or without success."""

    def withdrawing(self, name: str) -> None:
        """Note that a profile is withdrawn next."""

    def placed(self, attempt: Attempt) -> None:
        """Note that a node was chosen for a pod, whose binding cycle begins; a replay may move it to another node."""
