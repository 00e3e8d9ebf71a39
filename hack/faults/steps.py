"""What happens in a run, as drawn from its seed: one step after the other, each at its time.

Owns the mix. Must not know how a step is carried out. Each step draws from a generator of its own (seed and number), so
that a run with some steps left out is the same run otherwise: that is what makes a failure small.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

_MIX: dict[str, int] = {
    "create pods": 34,
    "create with a claim": 5,
    "delete a pod": 9,
    "delete a pod in flight": 6,
    "create a pod anew": 5,
    "finish pods": 12,
    "change a pod": 7,
    "lift a gate": 7,
    "open a door": 4,
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
    "rival is faster": 8,
    "kill the operator": 3,
    "stop the operator": 3,
    "swap a profile": 6,
    "refuse a profile": 4,
    "withdraw a profile": 5,
    "stall a watch": 9,
    "drop a watch": 7,
    "end a watch": 5,
    "expire a watch": 6,
    "server away": 4,
    "throttle": 5,
    "disturb binds": 22,
    "disturb reads": 5,
    "disturb patches": 5,
    "disturb deletions": 6,
    "disturb volumes": 7,
    "disturb extenders": 12,
}
"""Weights of the kinds of steps."""

_KINDS = tuple(_MIX)
_WEIGHTS = tuple(_MIX.values())


@dataclass(frozen=True, slots=True)
class Step:
    """One thing that happens.

    Attributes:
        number: Its place in the run.
        at: Seconds from the start.
        kind: A key of the mix.
    """

    number: int
    at: float
    kind: str


def draw_steps(seed: int) -> tuple[Step, ...]:
    """The steps of a run.

    Returns:
        70 to 110 steps, in bursts: between two of them pass milliseconds, or seconds.
    """
    rng = random.Random(f"{seed}/steps")
    steps = [Step(0, 0.0, "create pods"), Step(1, 0.3, "create pods"), Step(2, 0.6, "create pods")]
    at = 1.0
    for number in range(3, rng.randrange(70, 111)):
        at += rng.random() * (0.15 if rng.random() < 0.6 else 2.5)
        [kind] = rng.choices(_KINDS, _WEIGHTS)
        steps.append(Step(number, round(at, 3), kind))
    return tuple(steps)
