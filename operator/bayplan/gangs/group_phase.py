"""The phase of a gang, with a reason and a message.

Phases follow from what the API server last reported of each member (bound, running, terminated), never from what is
only assumed, so that a phase can be checked against ``kubectl get pods``. A pod that is being deleted and has not
terminated is not a member any more, as in the scheduler. The last phase matters only for Finished: it must not change
when the pods of a finished Job are cleaned up. The first rule that holds applies, with n for minMember:

    Finished    n succeeded, or the phase was Finished and no member is left that has not terminated
    Running     n run or succeeded, whatever other members failed
    Scheduled   n are bound or succeeded
    Failed      some failed, with them there were n, and without them there are not; until they are replaced
    Pending     fewer than n exist or succeeded, or fewer than n without those that have scheduling gates or cannot be
                attempted (a gate of a plugin, no profile), or, for a native group of v1beta1, some are gated
    Scheduling  n exist; they are attempted, or wait for an attempt

Differs on purpose from scheduler-plugins v0.34.7, ``pkg/controllers/podgroup_controller.go``, where Failed and Finished
are never left and one failure is enough although others fill the quorum.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum

from msgspec import Struct

from bayplan.texts.document_formats import capitalized, counted, listed
from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.pod import Pod
from scheduler_core.queueing.gang_members import Gang

_NAMED = 5
"""Maximum number of members named in a message; the others are counted."""


class Phase(StrEnum):
    PENDING = "Pending"
    SCHEDULING = "Scheduling"
    SCHEDULED = "Scheduled"
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"


_SCHEDULED_PHASES = frozenset({Phase.SCHEDULED, Phase.RUNNING, Phase.FINISHED})


class Verdict(Struct, frozen=True):
    """Phase of a gang with the reason for it.

    Attributes:
        message: Message; it stays the same while nothing changes.
        is_failure: Whether an attempt has failed; False if the gang only waits.
        is_partial: Whether some members of an incomplete quorum are bound.
    """

    phase: Phase
    reason: str
    message: str
    is_failure: bool = False
    is_partial: bool = False

    @property
    def is_scheduled(self) -> bool:
        """Whether the quorum is scheduled, or was until it finished."""
        return self.phase in _SCHEDULED_PHASES


class Tally(Struct, frozen=True):
    """Numbers of members of a gang by state.

    Attributes:
        alive: By UID, members that have not terminated and are not being deleted.
        members: Number of members that exist, including terminated ones.
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
        """Number of members that count for the quorum or may do so later."""
        return len(self.alive) + self.succeeded

    @classmethod
    def of(cls, gang: Gang) -> Tally:
        alive: dict[str, Pod] = {}
        members = gated = bound = running = failed = 0
        for uid, pod in gang.pods.items():
            is_wanted = pod.metadata.deletion_timestamp is None
            members += is_wanted
            if pod.is_terminal:
                failed += pod.status.phase == "Failed" and gang.run.includes(pod)
            elif is_wanted:
                alive[uid] = pod
                gated += _is_gated(pod)
                bound += bool(pod.spec.node_name)
                running += pod.status.phase == "Running"
        return cls(alive, members, gated, bound, running, gang.succeeded, failed)


def evaluate_gang(gang: Gang, tally: Tally, needed: int, last_phase: str = "") -> Verdict:
    """Return the verdict on a gang whose status has ``last_phase``, "" for none."""
    phase = _phase(tally, needed, last_phase)
    if phase is Phase.SCHEDULING and (gang.is_held or _are_aside(gang)):
        phase = Phase.PENDING
    if phase is Phase.FINISHED:
        whole = tally.succeeded >= needed
        words = f"All {needed} required members succeeded."
        return Verdict(phase, "Finished", words if whole else "The required members succeeded and no longer exist.")
    if phase in _SCHEDULED_PHASES:
        outcome = gang.outcome
        words = outcome.message if outcome is not None and outcome.is_scheduled else ""
        return Verdict(phase, "Scheduled", words or f"All {needed} required members are scheduled.")
    if phase is Phase.FAILED:
        return _failed(gang, tally, needed)
    if sum(uid in tally.alive for uid in gang.placed) + tally.succeeded >= needed:
        words = f"All {needed} required members have a node and are being bound."
        return Verdict(phase, "Binding", f"{words}{_binding_steps(gang)}")
    if tally.bound:
        return _partial(gang, tally, needed, phase)
    if phase is Phase.PENDING:
        return _pending(gang, tally, needed)
    if gang.tree is not None and not gang.tree.has_quorum:
        return Verdict(phase, "Waiting", f"{capitalized(gang.tree.lacks_quorum)}.")
    outcome = gang.outcome
    if outcome is None or outcome.is_scheduled:
        # It was scheduled before, but a bind failed or its members were replaced.
        return Verdict(phase, "Waiting", f"All {needed} required members exist and wait for an attempt.")
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
    ended = (pod for pod in gang.pods.values() if pod.status.phase == "Failed" and gang.run.includes(pod))
    names = [pod.metadata.name for pod in ended]
    left = f"{tally.usable} of {needed} required members {_are(tally.usable)} left"
    remedy = "Replace the failed pods or delete the PodGroup."
    words = f"{counted(tally.failed, 'member')} failed ({_listed(names)}); {left}. {remedy}"
    return Verdict(Phase.FAILED, "MembersFailed", words, is_partial=tally.bound > 0)


def _partial(gang: Gang, tally: Tally, needed: int, phase: Phase) -> Verdict:
    have = tally.bound + tally.succeeded
    words = f"Only {have} of {needed} required members {_are(have)} bound."
    waiting = [pod.metadata.name for uid, pod in tally.alive.items() if uid not in gang.placed]
    if waiting:
        words += f" Not scheduled: {_listed(waiting)}."
    if tally.gated:
        words += f" {_gated(tally)}."
    if tally.usable < needed:
        words += f" {needed - tally.usable} more must be created."
    failure = gang.outcome if phase is Phase.SCHEDULING else None
    if failure is None or failure.is_scheduled:
        return Verdict(phase, "Partial", words, is_partial=True)
    return Verdict(phase, "Partial", f"{words} {failure.message}", is_failure=True, is_partial=True)


def _pending(gang: Gang, tally: Tally, needed: int) -> Verdict:
    lacking = needed - tally.usable
    if lacking <= 0 and gang.is_held:
        return Verdict(Phase.PENDING, "Gated", f"{capitalized(gang.why_held)}.")
    if lacking <= 0 and tally.usable - tally.gated >= needed:
        return _aside(gang, needed)
    if lacking <= 0:
        return Verdict(Phase.PENDING, "Gated", f"{_gated(tally)}; {needed} members are required.")
    words = f"{tally.usable} of {needed} members exist; {lacking} more {_are(lacking)} needed."
    if tally.failed:
        words += f" {counted(tally.failed, 'member')} failed."
    return Verdict(Phase.PENDING, "MembersMissing", words)


def _are_aside(gang: Gang) -> bool:
    """Return whether the quorum cannot be attempted, because members of it are gated or no profile serves them."""
    return bool(gang.aside) and len(gang.waiting) < gang.needed


def _aside(gang: Gang, needed: int) -> Verdict:
    reasons: dict[str, list[str]] = {}
    for pod in gang.aside.values():
        if pod.place is Place.PARKED:
            why = f'no profile serves schedulerName "{pod.info.pod.spec.scheduler_name}"'
        else:
            why = ", ".join(pod.gate_reasons)
        reasons.setdefault(why, []).append(pod.info.pod.metadata.name)
    ready = needed - gang.needed + len(gang.waiting)
    words = "; ".join(f"{_listed(names)}: {why}" for why, names in sorted(reasons.items())[:_NAMED])
    text = f"{ready} of {needed} required members can be attempted. {words}."
    return Verdict(Phase.PENDING, "MembersNotReady", text)


def _binding_steps(gang: Gang) -> str:
    steps: dict[str, list[str]] = {}
    for uid, step in gang.binding_steps.items():
        pod = gang.pods.get(uid)
        if pod is not None:
            steps.setdefault(step, []).append(pod.metadata.name)
    return "".join(f" Waiting: {_listed(names)} for {step}." for step, names in sorted(steps.items())[:_NAMED])


def _gated(tally: Tally) -> str:
    gates = {gate.name for pod in tally.alive.values() if _is_gated(pod) for gate in pod.spec.scheduling_gates}
    return f"{tally.gated} of {tally.usable} members {_are(tally.gated)} gated by scheduling gates: {_listed(gates)}"


def _is_gated(pod: Pod) -> bool:
    return bool(pod.spec.scheduling_gates) and not pod.spec.node_name


def _are(count: int) -> str:
    return "is" if count == 1 else "are"


def _listed(names: Iterable[str]) -> str:
    return listed(sorted(names), _NAMED)
