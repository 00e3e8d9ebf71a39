"""A scenario during drawing: its random generator, and the objects that exist so far.

Each scenario has themes: if everything were drawn at once, no pod would ever fit, and only the first filter would be
compared.
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
    """What has been drawn of one scenario.

    Args:
        seed: Of all scenarios that are drawn together.
        index: Which of them; the same seed and index give the same scenario.

    Attributes:
        r: The dice.
        name: Of the scenario, and of its namespace.
        themes: What it is about.
        nodes: Nodes by name.
        pods: Pods by name; those deleted are gone, unless a finalizer holds them.
        claims: Names of claims, of which some may not exist yet, and their classes.
        volumes: Names of volumes.
        ranks: How many nodes were ever drawn; each has its number as rank.
    """

    def __init__(self, seed: int, index: int) -> None:
        self.r = random.Random(f"{seed}/{index}")
        self.name = f"drawn-{seed}-{index}"
        preemption = ["preemption"] if self.p(0.3) else []
        self.themes = [*preemption, *self.some([one for one in THEMES if one not in preemption], 1, 3)]
        self.nodes: dict[str, Json] = {}
        self.pods: dict[str, Json] = {}
        self.claims: dict[str, str] = {}
        self.volumes: list[str] = []
        self.ranks = 0
        self._serial = 0

    def p(self, chance: float) -> bool:
        """Throw dice: true with a chance."""
        return self.r.random() < chance

    def pick(self, what: Iterable[T]) -> T:
        """Draw one."""
        return self.r.choice(list(what))

    def some(self, what: Iterable[T], least: int, most: int) -> list[T]:
        """Draw a few without repetition."""
        listed = list(what)
        return self.r.sample(listed, min(len(listed), self.r.randint(least, most)))

    def on(self, theme: str, chance: float, otherwise: float = _OFF_THEME) -> bool:
        """Return true with one probability if the scenario has a theme, with another if not."""
        return self.p(chance if theme in self.themes else otherwise)

    def number(self) -> int:
        """Return a number that no other object has."""
        self._serial += 1
        return self._serial

    def some_node(self) -> str:
        """Draw the name of a node, or one that no node has."""
        return self.pick([*self.nodes, ABSENT])
