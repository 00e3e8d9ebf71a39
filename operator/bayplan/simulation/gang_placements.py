"""Results of a simulation for each gang."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bayplan.gangs.group_phase import Phase, Tally, evaluate_gang
from scheduler_core.queueing.gang_members import Gang

_WAITS_FOR_GROUP = "the PodGroup is not in the files; its members wait for it"


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """Result for one gang.

    Attributes:
        min_member: minMember of the PodGroup; 0 if there is no PodGroup.
        domain: Topology domain in which they were scheduled together; "" for none.
        reason: Why the quorum is not scheduled; "" if it is.
    """

    namespace: str
    name: str
    api: str
    min_member: int
    members: int
    placed: int
    domain: str
    phase: str
    reason: str


def gang_placements(gangs: Iterable[Gang]) -> tuple[GangPlacement, ...]:
    """Return the results of gangs, by namespace and name."""
    found = [_placement(gang) for gang in gangs]
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.api)))


def unscheduled_reason(gang: Gang) -> str:
    """Return why the quorum of a gang is not scheduled; "" if it is."""
    return _phase_and_reason(gang)[1]


def _phase_and_reason(gang: Gang) -> tuple[Phase, str]:
    if gang.group is None:
        return Phase.PENDING, gang.refusal or _WAITS_FOR_GROUP
    verdict = evaluate_gang(gang, Tally.of(gang), gang.group.min_member)
    return verdict.phase, "" if verdict.is_scheduled else verdict.message


def _placement(gang: Gang) -> GangPlacement:
    group, outcome, (phase, reason) = gang.group, gang.outcome, _phase_and_reason(gang)
    return GangPlacement(
        namespace=gang.key.namespace,
        name=gang.key.name,
        api=gang.key.source.value,
        min_member=0 if group is None else group.min_member,
        members=gang.members,
        placed=len(gang.placed),
        domain=outcome.domain if outcome is not None and outcome.is_scheduled else "",
        phase=phase.value,
        reason=reason,
    )
