"""How far a gang has come, and why no further: its phase, and a reason in words.

Owns the rules of the phases. Must not know how any API spells them, nor what was written before, but for one thing: a
group that has finished. Why: its Job's pods are cleaned up afterwards, and that must not look like a group whose
members never came.

What is judged is what the API server last said of each member (bound, running, ended), never what is only assumed, so
that a phase can be checked against ``kubectl get pods``. A pod that is being deleted and has not ended is no member any
more: nothing counts on it, as the scheduler does not either. The first rule that holds, with n for minMember:

    Finished    n succeeded, or did once and no member that has not ended is left
    Running     n run or succeeded; that others failed takes nothing away
    Scheduled   n are bound or succeeded
    Failed      some failed, with them there were n, and without them there are not: until they are replaced
    Pending     fewer than n exist or succeeded, or fewer than n without those that their scheduling gates hold back
    Scheduling  n exist: they are tried, or wait to be

Differs on purpose from scheduler-plugins v0.34.7, ``pkg/controllers/podgroup_controller.go``, where Failed and Finished
are never left and one failure is enough although others fill the quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang import Gang

_NAMED = 5
"""Members named in a message; the others are counted."""


class Phase(StrEnum):
    """How far a gang has come."""

    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"


_QUORATE = frozenset({Phase.SCHEDULED, Phase.RUNNING, Phase.FINISHED})


class Verdict(Struct, frozen=True):
    """What is told of a gang.

    Attributes:
        phase: How far it has come.
        reason: Why, one word in CamelCase.
        message: Why, in words; equal words as long as nothing changed.
        is_failure: Whether an attempt has failed, rather than that something is waited for.
        is_partial: Whether some members of a quorum that is not whole have nodes.
    """

    phase: Phase
    reason: str
    message: str
    is_failure: bool = False
    is_partial: bool = False

    @property
    def is_scheduled(self) -> bool:
        """Whether the quorum has nodes, or had them until it finished."""
        return self.phase in _QUORATE


class Tally(Struct, frozen=True):
    """The members of a gang, counted.

    Attributes:
        alive: By UID, members that have not ended and are not being deleted.
        members: Members that exist, ended ones included.
        gated: Of the living, those that their own scheduling gates hold back.
        bound: Of the living, those with a node.
        running: Of the living, those that run.
        succeeded: Members that ended well.
        failed: Members that failed.
    """

    alive: Mapping[str, Pod]
    members: int
    gated: int
    bound: int
    running: int
    succeeded: int
    failed: int

    @property
    def usable(self) -> int:
        """Members that count for the quorum or may come to."""
        return len(self.alive) + self.succeeded

    @classmethod
    def of(cls, gang: Gang) -> Tally:
        """Count the members of ``gang`` in one pass."""
        alive: dict[str, Pod] = {}
        members = gated = bound = running = failed = 0
        for uid, pod in gang.pods.items():
            is_kept = pod.metadata.deletion_timestamp is None
            members += is_kept
            if pod.is_terminal:
                failed += pod.status.phase == "Failed"
            elif is_kept:
                alive[uid] = pod
                gated += _is_gated(pod)
                bound += bool(pod.spec.node_name)
                running += pod.status.phase == "Running"
        return cls(alive, members, gated, bound, running, len(gang.succeeded), failed)


def judge(gang: Gang, tally: Tally, needed: int, last_phase: str = "") -> Verdict:
    """Judge a gang.

    Args:
        gang: The gang.
        tally: Its members.
        needed: How many are needed.
        last_phase: The phase that its status tells by now, "" for none.

    Returns:
        The verdict.
    """
    phase = _phase(tally, needed, last_phase)
    if phase is Phase.FINISHED:
        whole = tally.succeeded >= needed
        words = f"All {needed} members that are needed succeeded."
        return Verdict(phase, "Finished", words if whole else "The members that were needed succeeded and are gone.")
    if phase in _QUORATE:
        outcome = gang.outcome
        told = outcome.message if outcome is not None and outcome.is_scheduled else ""
        return Verdict(phase, "Scheduled", told or f"All {needed} members that are needed have nodes.")
    if phase is Phase.FAILED:
        return _failed(gang, tally, needed)
    if sum(uid in tally.alive for uid in gang.placed) + tally.succeeded >= needed:
        words = f"Nodes are found for all {needed} members that are needed; they are being bound."
        return Verdict(phase, "Binding", words)
    if tally.bound:
        return _partial(gang, tally, needed, phase)
    if phase is Phase.PENDING:
        return _pending(tally, needed)
    outcome = gang.outcome
    if outcome is None or outcome.is_scheduled:
        # Placed before, and undone since: a bind failed, or its members were replaced.
        return Verdict(phase, "Waiting", f"All {needed} members that are needed exist and wait for their turn.")
    return Verdict(phase, outcome.reason, outcome.message, is_failure=True)


def _phase(tally: Tally, needed: int, last_phase: str) -> Phase:
    if tally.succeeded >= needed or (last_phase == Phase.FINISHED and not tally.alive):
        return Phase.FINISHED
    if tally.running + tally.succeeded >= needed:
        return Phase.RUNNING
    if tally.bound + tally.succeeded >= needed:
        return Phase.SCHEDULED
    if tally.usable < needed:
        return Phase.FAILED if tally.failed and tally.usable + tally.failed >= needed else Phase.PENDING
    return Phase.PENDING if tally.usable - tally.gated < needed else Phase.SCHEDULING


def _failed(gang: Gang, tally: Tally, needed: int) -> Verdict:
    names = [pod.metadata.name for pod in gang.pods.values() if pod.status.phase == "Failed"]
    left = f"{tally.usable} of the {needed} that are needed {_are(tally.usable)} left"
    words = f"{_members(tally.failed)} failed ({_listed(names)}) and {left}. Replace what failed, or delete the group."
    return Verdict(Phase.FAILED, "MembersFailed", words, is_partial=tally.bound > 0)


def _partial(gang: Gang, tally: Tally, needed: int, phase: Phase) -> Verdict:
    have = tally.bound + tally.succeeded
    words = f"Only {have} of {needed} members that are needed {_are(have)} bound."
    waiting = [pod.metadata.name for uid, pod in tally.alive.items() if uid not in gang.placed]
    if waiting:
        words += f" Without a node: {_listed(waiting)}."
    if tally.gated:
        words += f" {_held_back(tally)}."
    if tally.usable < needed:
        words += f" {needed - tally.usable} more must be created."
    failure = gang.outcome if phase is Phase.SCHEDULING else None
    if failure is None or failure.is_scheduled:
        return Verdict(phase, "Partial", words, is_partial=True)
    return Verdict(phase, "Partial", f"{words} {failure.message}", is_failure=True, is_partial=True)


def _pending(tally: Tally, needed: int) -> Verdict:
    lacking = needed - tally.usable
    if lacking <= 0:
        return Verdict(Phase.PENDING, "Gated", f"{_held_back(tally)}; {needed} are needed.")
    words = f"{tally.usable} of {needed} members exist; {lacking} more {_are(lacking)} needed."
    if tally.failed:
        words += f" {_members(tally.failed)} failed."
    return Verdict(Phase.PENDING, "MembersMissing", words)


def _held_back(tally: Tally) -> str:
    gates = {gate.name for pod in tally.alive.values() if _is_gated(pod) for gate in pod.spec.scheduling_gates}
    which = f"{tally.gated} of {tally.usable} members {_are(tally.gated)} held back by scheduling gates"
    return f"{which} ({_listed(gates)})"


def _is_gated(pod: Pod) -> bool:
    return bool(pod.spec.scheduling_gates) and not pod.spec.node_name


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _members(count: int) -> str:
    return "1 member" if count == 1 else f"{count} members"


def _listed(names: Iterable[str]) -> str:
    ordered = sorted(names)
    shown = ", ".join(ordered[:_NAMED])
    return shown if len(ordered) <= _NAMED else f"{shown} and {len(ordered) - _NAMED} more"
