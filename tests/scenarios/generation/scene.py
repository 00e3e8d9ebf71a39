"""State of a scenario while it is generated: its random generator, and the objects that exist so far.

Each scenario has a few themes: with all features at once, no node would ever fit, and only the first filter plugin
would be compared.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any, TypeVar

Json = dict[str, Any]
T = TypeVar("T")
HOST = "kubernetes.io/hostname"
RANK = "example.com/rank"
ZONES = ("x", "y", "z")
APPS = ("web", "db", "job")
PRIORITIES = {"low": 10, "middle": 20, "high": 30, "never": 30}
ABSENT = "absent"
MOST_NODES = 6
THEMES = ("preemption", "spread", "affinity", "ports", "volumes", "gates", "taints", "resources", "node-affinity")
_OFF_THEME = 0.04


class Scene:
    """Objects of one scenario so far.

    Args:
        seed: Seed of the series of scenarios.
        index: Index of the scenario; the same seed and index give the same scenario.

    Attributes:
        r: Random generator.
        name: Name of the scenario and of its namespace.
        themes: Features that are frequent in the scenario.
        nodes: Nodes by name.
        pods: Pods by name, without deleted pods unless a finalizer keeps them.
        claims: Storage class by claim name; some claims may not exist yet.
        ranks: Number of nodes generated so far; each node's label has its number as rank.
    """

    def __init__(self, seed: int, index: int) -> None:
        self.r = random.Random(f"{seed}/{index}")
        self.name = f"random-{seed}-{index}"
        preemption = ["preemption"] if self.p(0.3) else []
        self.themes = [*preemption, *self.some([one for one in THEMES if one not in preemption], 1, 3)]
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.claims: dict[str, str] = {}
        self.volumes: list[str] = []
        self.ranks = 0
        self._serial = 0

    def p(self, chance: float) -> bool:
        """Return True with a probability."""
        return self.r.random() < chance

    def pick(self, what: Iterable[T]) -> T:
        """Return a random element."""
        return self.r.choice(list(what))

    def some(self, what: Iterable[T], least: int, most: int) -> list[T]:
        """Return a random number of different elements."""
        listed = list(what)
        return self.r.sample(listed, min(len(listed), self.r.randint(least, most)))

    def on(self, theme: str, chance: float, otherwise: float = _OFF_THEME) -> bool:
        """Return True with *chance* if the scenario has a theme, else with probability *otherwise*."""
        return self.p(chance if theme in self.themes else otherwise)

    def number(self) -> int:
        """Return a number that is unique in the scenario."""
        self._serial += 1
        return self._serial

    def some_node(self) -> str:
        """Return the name of a random node, or a name that no node has."""
        return self.pick([*self.nodes, ABSENT])
