"""One try to place a gang's members on the live columns, and its undoing.

Owns the overlay: each member that has found a node is assumed and reserved, so that the next one sees the cluster with
it; nothing else runs meanwhile, so nobody else does. Undone in reverse, nothing of it is left. Must not know why it is
tried, nor what becomes of the members afterwards.

Members that read alike are judged alike: where one of them fits nowhere, no other is tried on the same columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle import class_choice
from scheduler_core.cycle.context import Attempt, CycleContext
from scheduler_core.cycle.cycle_report import begin_attempt
from scheduler_core.cycle.extended_scheduling import choose_with_extenders
from scheduler_core.cycle.failure import Failure, no_fit
from scheduler_core.cycle.node_selection import find_feasible, select_node
from scheduler_core.cycle.scheduling import failure_of, release, reserve
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.runtime.equivalence.reuse import filter_class
from scheduler_core.runtime.framework_instance import FrameworkInstance


@dataclass(frozen=True, slots=True)
class Where:
    """Where members may go.

    Attributes:
        among: bool per row; None for anywhere.
        reason: Why not elsewhere, for people.
        name: The domain, such as ``zone=a``; "" for anywhere.
    """

    among: NDArray[np.bool_] | None = None
    reason: str = ""
    name: str = ""


ANYWHERE = Where()


@dataclass(slots=True)
class GangTrial:
    """A try under way, or over.

    Attributes:
        where: Where members may go.
        placed: Attempts that hold a node, in the order of taking it.
        failed: Attempts that found none, with why.
        reached: How many had a node when it was undone.
        nearest: What the next member lacks, in words; "" where that was not found out.
        untried: Members that were not tried, because too few were left to make up the quorum.
    """

    where: Where
    placed: list[Attempt] = field(default_factory=list)
    failed: list[tuple[Attempt, Failure]] = field(default_factory=list)
    reached: int = 0
    nearest: str = ""
    untried: list[QueuedPod] = field(default_factory=list)

    @property
    def is_error(self) -> bool:
        """Whether a member met an error rather than a rejection."""
        return any(failure.is_error for _, failure in self.failed)


async def try_members(
    context: CycleContext, instance: FrameworkInstance, members: Sequence[QueuedPod], needed: int, trial: GangTrial
) -> None:
    """Place members one after the other, each through the profile's whole path, until too few are left.

    Args:
        context: The shared parts.
        instance: The profile's revision that decides.
        members: The members, in the order in which they are to be placed.
        needed: How many must find a node; the rest is placed if it can be.
        trial: The try, which says where they may go; what it placed is held until :func:`undo`.

    Awaits only where the profile has extenders; however it ends, ``trial`` tells what is held.
    """
    left = list(members)
    while left:
        refused = await _try_once(context, instance, left, needed, trial)
        is_over = len(trial.placed) >= needed or refused.are_final
        trial.failed += refused.attempts if is_over else ()
        left = [] if is_over else [attempt.queued for attempt, _ in refused.attempts]


@dataclass(slots=True)
class _Refused:
    """Members that found no node in one pass.

    Attributes:
        attempts: Theirs, with why.
        are_final: Whether none was placed after any of them, so that nothing is otherwise for them now.
    """

    attempts: list[tuple[Attempt, Failure]] = field(default_factory=list)
    are_final: bool = True


async def _try_once(
    context: CycleContext, instance: FrameworkInstance, members: Sequence[QueuedPod], needed: int, trial: GangTrial
) -> _Refused:
    """Try each member once; one that needs another beside it may find it in the next pass."""
    where, passed = trial.where, _Refused()
    refused: dict[object, Failure] = {}
    for position, queued in enumerate(members):
        if refused and passed.are_final and len(trial.placed) + len(members) - position < needed:
            trial.untried = list(members[position:])
            break
        attempt = begin_attempt(context, queued, instance)
        attempt.among, attempt.among_reason = where.among, where.reason
        # Members are counted when the cycle is over.
        attempt.number = queued.attempts + 1
        # A gang is one cycle of those of which some are timed plugin by plugin, which is dear.
        attempt.is_sampled = attempt.is_sampled and not position
        failure = refused.get(filter_class(instance, queued.info)) if refused else None
        if failure is None:
            failure = await _place(context, attempt)
            if failure is not None and not failure.is_error:
                refused[filter_class(instance, queued.info)] = failure
        if failure is not None:
            passed.attempts.append((attempt, failure))
            continue
        trial.placed.append(attempt)
        if refused:
            refused.clear()
            passed.are_final = False
    return passed


def undo(context: CycleContext, trial: GangTrial) -> None:
    """Give back all that a try holds, last first."""
    for attempt in reversed(trial.placed):
        release(context, attempt)
    trial.placed.clear()


async def _place(context: CycleContext, attempt: Attempt) -> Failure | None:
    try:
        if attempt.instance.extenders:
            node_name, failure = await choose_with_extenders(context, attempt)
        else:
            node_name, failure = class_choice.choose(context, attempt), None
            if not node_name:
                node_name, failure = _choose(context, attempt)
        if failure is None:
            failure = reserve(context, attempt, node_name)
    except Exception as error:
        failure = failure_of(attempt, error)
    if failure is not None:
        release(context, attempt)
    return failure


def _choose(context: CycleContext, attempt: Attempt) -> tuple[str, Failure | None]:
    feasible = find_feasible(context, attempt)
    if not len(feasible.rows):
        return "", no_fit(feasible.diagnosis, None)
    node_name = select_node(context, attempt, feasible)
    class_choice.learn(context, attempt, feasible)
    return node_name, None
