"""What became of the gangs of a simulation.

Owns the reading. It must not know how it is printed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from bayplan.gangs.group_verdict import Phase, Tally, judge
from scheduler_core.queueing.gang import Gang

_WAITS_FOR_GROUP = "there is no such PodGroup in the files; its members wait for it"


@dataclass(frozen=True, slots=True)
class GangPlacement:
    """What became of one gang.

    Attributes:
        api: The API group of its PodGroup.
        min_member: How many are placed together; 0 where there is no PodGroup.
        members: How many exist.
        placed: How many have a node.
        domain: The topology domain in which they were placed together; "" for none.
        phase: How far it has come.
        reason: Why its quorum is not placed; "" if it is.
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
    """Read gangs, by namespace and name."""
    found = [_placement(gang) for gang in gangs]
    return tuple(sorted(found, key=lambda each: (each.namespace, each.name, each.api)))


def why_not(gang: Gang) -> str:
    """Why the quorum of a gang is not placed; "" if it is."""
    return _judged(gang)[1]


def _judged(gang: Gang) -> tuple[Phase, str]:
    if gang.group is None:
        return Phase.PENDING, _WAITS_FOR_GROUP
    verdict = judge(gang, Tally.of(gang), gang.group.min_member)
    return verdict.phase, "" if verdict.is_scheduled else verdict.message


def _placement(gang: Gang) -> GangPlacement:
    group, outcome, (phase, reason) = gang.group, gang.outcome, _judged(gang)
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
