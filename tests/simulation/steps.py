"""Generates the steps of a run from its seed: kind and time of each.

Each step has its own random generator, seeded by the run's seed and the step's number. Leaving out some steps does not
change the others, which makes shrinking possible.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass

from tests.simulation import node_reservations
from tests.simulation.device_contention import KINDS
from tests.simulation.profiles import REVISIONS, resizes_late

COMMON_FAULTS = ("error before", "error after", "request lost", "response lost", "response lost", "no response")
"""Faults of every kind of write, by their frequency."""

_MIX: dict[str, int] = {
    "create pods": 34,
    "create with a claim": 5,
    "delete a pod": 9,
    "delete a pod in flight": 6,
    "recreate a pod": 5,
    "finish pods": 12,
    "change a pod": 7,
    "lift a gate": 7,
    "open a label gate": 4,
    "shrink a running pod": 3,
    "add a node": 6,
    "delete a node": 3,
    "delete a node in use": 4,
    "shrink a node": 4,
    "grow a node": 4,
    "cordon or taint": 6,
    "lift cordons and taints": 6,
    "relabel a node": 5,
    "change a budget": 3,
    "rival binds": 6,
    "rival overcommits": 4,
    "rival binds first": 8,
    "kill the operator": 3,
    "stop the operator": 3,
    "edit a profile": 6,
    "apply an invalid profile": 4,
    "delete a profile": 5,
    "stall a watch": 9,
    "drop a watch": 7,
    "end a watch": 5,
    "expire a watch": 6,
    "make the API server unavailable": 4,
    "throttle requests": 5,
    "fail binds": 22,
    "fail reads": 5,
    "fail patches": 5,
    "fail deletions": 6,
    "fail volumes": 7,
    "fail extenders": 12,
}
"""Weights of the kinds of steps."""

_GANG_MIX: dict[str, int] = {
    "create a gang": 18,
    "delete a gang": 3,
    "resize a gang": 4,
    "delete a waiting member": 6,
    "delete a running member": 5,
    "delete a member before its bind": 9,
    "fail a gang's binds": 9,
    "kill the operator between binds": 6,
    "members succeed": 6,
    "members fail": 5,
    "lift a gang's gates": 9,
    "change minMember": 7,
    "change a group's priority": 3,
    "recreate a PodGroup": 6,
}
"""Weights of the kinds of steps for gangs, in the runs that have gangs."""

_DEVICE_MIX: dict[str, int] = {
    "create pods with devices": 26,
    "create a shared claim": 6,
    "delete a claim": 6,
    "replace devices": 9,
    "withdraw devices": 6,
    "fail claim writes": 14,
    "change an allocated claim": 14,
    "kill the operator after an allocation": 5,
    "delete a device class": 3,
    "stall a watch of devices": 8,
    "drop a watch of devices": 4,
    "expire a watch of devices": 4,
}
"""Weights of the kinds of steps for devices, in the runs that have devices."""

_TREE_MIX: dict[str, int] = {
    "create a tree": 16,
    "delete a tree": 3,
    "change minGroupCount": 6,
    "recreate a CompositePodGroup": 6,
    "delete a gang": 3,
    "resize a gang": 4,
    "delete a waiting member": 5,
    "delete a running member": 5,
    "delete a member before its bind": 7,
    "fail a gang's binds": 8,
    "kill the operator between binds": 5,
    "members succeed": 5,
    "members fail": 5,
    "lift a gang's gates": 8,
    "change minMember": 5,
    "recreate a PodGroup": 5,
}
"""Weights of the kinds of steps for trees of groups, in the runs that have trees."""

_OWNER_MIX: dict[str, int] = {
    "create an owner": 26,
    "create a CronJob": 3,
    "scale an owner": 9,
    "suspend or resume an owner": 9,
    "delete an owner": 6,
    "recreate an owner": 4,
    "delete a PodGroup of an owner": 6,
    "edit a PodGroup of an owner": 10,
    "fail writes of PodGroups": 12,
    "kill the operator after a PodGroup": 10,
    "stall a watch of owners": 8,
    "drop a watch of owners": 3,
    "expire a watch of owners": 3,
    "delete a waiting member": 4,
    "delete a running member": 5,
    "delete a member before its bind": 5,
    "fail a gang's binds": 5,
    "kill the operator between binds": 3,
    "members succeed": 6,
    "members fail": 6,
    "lift a gang's gates": 5,
}
"""Weights of the kinds of steps for owners, in the runs that have them."""

_EXTENDED = ("create pods with extended resources",) * 7
"""Steps of a run in which pods request devices as extended resources."""

_HEALING = ("lose a member of a running gang",) * 12
"""Further steps of a run in which gangs hold the room of lost members."""

_RESIZES = ("shrink a running pod",) * 3
"""Further steps of a run in which kubelets make resizes late."""

_EARLY = ("create replicas", "create replicas", "plan moves", "fail evictions", "plan moves", "create replicas")
PLAN_STEPS = (
    *_EARLY,
    *("plan moves", "edit a plan", "fail evictions", "plan moves", "fail statuses of plans", "delete a plan"),
    *("plan moves", "edit a plan", "plan moves"),
    *("plan moves", "suspend or resume a plan") * 3,
)
"""Kinds of steps in a run with RebalancePlans, in order."""

_KINDS = tuple(_MIX)
_WEIGHTS = tuple(_MIX.values())
_FIRST_RARE_STEP = 2000
_FIRST_CONTENTION_STEP = 4000
_FIRST_EXTENDED_STEP = 6000
_FIRST_HEALING_STEP = 8000
_FIRST_RESERVATION_STEP = 9000
_FIRST_RESIZE_STEP = 9500
_FIRST_PLAN_STEP = 10_000
_FIRST_SEED_WITH_RESERVATIONS = 20
_FIRST_SEED_WITH_PLANS = 114
_WITH_RESERVATIONS = frozenset((12, 17, 22, 24, 30, 32, 34))
_RARE = ("acknowledge binds without binding", "delete a profile during a cycle") * 4


@dataclass(frozen=True, slots=True)
class Step:
    """One step.

    Attributes:
        number: Number in the run; part of the seed of the step's random generator.
        at: Seconds from the start.
        kind: A key of one of the mixes.
    """

    number: int
    at: float
    kind: str


@dataclass(frozen=True, slots=True)
class _Mixed:
    """Further steps of some runs.

    Attributes:
        first: Number of the first step.
        kinds: Kinds of the first steps.
        at: Time of the first step.
        gap: Time between two of the first steps.
        count: Range of the number of all steps.
        mix: Weights of the kinds of the other steps.
        pauses: Maximum pauses between two of the other steps.
    """

    first: int
    kinds: tuple[str, ...]
    at: float
    gap: float
    count: tuple[int, int]
    mix: Mapping[str, int]
    pauses: tuple[float, float]


_DEVICES = "create pods with devices"
_MIXED = {
    "gang": _Mixed(1000, ("create a gang",) * 2, 0.1, 0.8, (25, 41), _GANG_MIX, (0.3, 4.0)),
    "device": _Mixed(3000, ("create a shared claim", _DEVICES, _DEVICES), 0.2, 0.4, (30, 46), _DEVICE_MIX, (0.2, 3.5)),
    "tree": _Mixed(5000, ("create a tree",) * 2, 0.1, 0.8, (25, 41), _TREE_MIX, (0.3, 4.0)),
    "owner": _Mixed(7000, ("create an owner",) * 3, 0.1, 0.5, (35, 51), _OWNER_MIX, (0.3, 3.0)),
}


def generate_steps(seed: int) -> tuple[Step, ...]:
    """Return the steps of a run, in the order of their times.

    Every run has 70 to 110 steps, with milliseconds or seconds between two of them. Some runs have further steps, which
    do not change the others: every fourth run for gangs, another fourth for devices, every eighth for trees of groups,
    every sixth for gangs by owner, and every fifth for rare faults. See also :func:`has_contention`,
    :func:`has_gang_devices` and :func:`has_extended_resources`.
    """
    steps = _pod_steps(seed)
    if has_gangs(seed):
        steps = (*steps, *_mixed_steps(seed, "gang"))
    if has_devices(seed):
        steps = (*steps, *_mixed_steps(seed, "device"))
    if has_trees(seed):
        steps = (*steps, *_mixed_steps(seed, "tree"))
    if has_owners(seed):
        steps = (*steps, *_mixed_steps(seed, "owner"))
    if has_contention(seed):
        steps = (*steps, *_spread_steps(seed, "contention", _FIRST_CONTENTION_STEP, KINDS))
    if has_extended_resources(seed):
        steps = (*steps, *_spread_steps(seed, "extended", _FIRST_EXTENDED_STEP, _EXTENDED))
    if loses_members(seed):
        steps = (*steps, *_spread_steps(seed, "healing", _FIRST_HEALING_STEP, _HEALING))
    if resizes_late(seed):
        steps = (*steps, *_spread_steps(seed, "resizes", _FIRST_RESIZE_STEP, _RESIZES))
    if has_reservations(seed):
        kinds = node_reservations.KINDS
        steps = (*steps, *_spread_steps(seed, "reservations", _FIRST_RESERVATION_STEP, kinds))
    if has_plans(seed):
        steps = (*steps, *_spread_steps(seed, "plans", _FIRST_PLAN_STEP, PLAN_STEPS))
    if seed % 5 == 2:
        steps = (*steps, *_rare_steps(seed))
    return tuple(sorted(steps, key=lambda step: step.at))


def has_gangs(seed: int) -> bool:
    """Return whether a run has gangs."""
    return seed % 4 == 1


def has_healing(seed: int) -> bool:
    """Return whether gangs hold the room of lost members in a run that has gangs."""
    return seed % 24 in (1, 5, 13, 17, 21)


def loses_members(seed: int) -> bool:
    """Return whether a run with healing has further steps that lose members."""
    return seed % 24 in (1, 13, 21)


def has_devices(seed: int) -> bool:
    """Return whether a run has devices and pods with resource claims."""
    return seed % 4 == 0 or has_gang_devices(seed)


def has_gang_devices(seed: int) -> bool:
    """Return whether members of gangs have resource claims."""
    return seed % 48 == 45


def has_extended_resources(seed: int) -> bool:
    """Return whether pods request devices as extended resources in a run that has devices."""
    return has_devices(seed) and seed // 4 % 7 in (4, 6)


def has_contention(seed: int) -> bool:
    """Return whether pods compete for devices in a run that has devices."""
    return seed % 12 == 8


def has_reservations(seed: int) -> bool:
    """Return whether a run has NodeReservations."""
    # Not in the runs that found fixed or planted bugs, and in those that are recorded: held room is not recorded.
    return seed % 38 in _WITH_RESERVATIONS and seed >= _FIRST_SEED_WITH_RESERVATIONS


def has_plans(seed: int) -> bool:
    """Return whether a run with NodeReservations has RebalancePlans, too."""
    return has_reservations(seed) and seed >= _FIRST_SEED_WITH_PLANS and seed // 38 % 2 == 1


def has_watch_lag(seed: int) -> bool:
    """Return whether watches show the operator's own writes late, up to seconds after the responses."""
    return seed % 5 == 2


def has_trees(seed: int) -> bool:
    """Return whether a run has CompositePodGroups."""
    return seed % 8 == 3


def has_owners(seed: int) -> bool:
    """Return whether pods of Jobs and other workloads are gangs."""
    return seed % 12 in (6, 10)


def shadow_revision(seed: int) -> str:
    """Return the revision of the shadow of the default profile; "" for a run without a shadow."""
    return REVISIONS[seed // 11 % len(REVISIONS)] if seed % 11 == 7 else ""


def _rare_steps(seed: int) -> tuple[Step, ...]:
    rng = random.Random(f"{seed}/rare steps")
    times = sorted(round(60.0 * rng.random(), 3) for _ in range(len(_RARE)))
    return tuple(Step(_FIRST_RARE_STEP + number, at, _RARE[number]) for number, at in enumerate(times))


def _mixed_steps(seed: int, what: str) -> tuple[Step, ...]:
    """Return the first steps, then those of the mix; the shorter maximum pause holds before 40 % of them."""
    rng, mixed = random.Random(f"{seed}/{what} steps"), _MIXED[what]
    steps = [Step(mixed.first + number, mixed.at + mixed.gap * number, kind) for number, kind in enumerate(mixed.kinds)]
    at, (short, long) = 1.5, mixed.pauses
    for number in range(mixed.first + len(steps), mixed.first + rng.randrange(*mixed.count)):
        at += rng.random() * (short if rng.random() < 0.4 else long)
        [kind] = rng.choices(tuple(mixed.mix), tuple(mixed.mix.values()))
        steps.append(Step(number, round(at, 3), kind))
    return tuple(steps)


def _spread_steps(seed: int, what: str, first: int, kinds: tuple[str, ...]) -> tuple[Step, ...]:
    """Return steps at random times within the first 42 seconds."""
    rng = random.Random(f"{seed}/{what} steps")
    times = sorted(round(2.0 + 40.0 * rng.random(), 3) for _ in kinds)
    return tuple(Step(first + number, at, kinds[number]) for number, at in enumerate(times))


def _pod_steps(seed: int) -> tuple[Step, ...]:
    rng = random.Random(f"{seed}/steps")
    steps = [Step(0, 0.0, "create pods"), Step(1, 0.3, "create pods"), Step(2, 0.6, "create pods")]
    at = 1.0
    for number in range(3, rng.randrange(70, 111)):
        at += rng.random() * (0.15 if rng.random() < 0.6 else 2.5)
        [kind] = rng.choices(_KINDS, _WEIGHTS)
        steps.append(Step(number, round(at, 3), kind))
    return tuple(steps)
