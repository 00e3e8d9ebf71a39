"""The plugins that have to be asked about every pod, however much it is like one that came before.

Owns which these are for pods of one kind, point by point. It must not know what the others answered, nor who is served.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from scheduler_core.framework.extension_points import PreFilterPlugin, PreScorePlugin, Reads
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner, ScoreRunner


class AskedAgain(Struct, frozen=True):
    """Plugins by the points at which they are asked.

    Attributes:
        names: Of all of them.
        pre_filter: In the profile's order, as the others.
        filters: With their positions.
        pre_score: Those at PreScore.
        scores: With their weights.
        is_opaque: Whether one of them says nothing of what it reads.
    """

    names: frozenset[str] = frozenset()
    pre_filter: tuple[PreFilterPlugin, ...] = ()
    filters: tuple[tuple[int, FilterRunner], ...] = ()
    pre_score: tuple[PreScorePlugin, ...] = ()
    scores: tuple[tuple[ScoreRunner, int], ...] = ()
    is_opaque: bool = False

    @classmethod
    def of(cls, instance: FrameworkInstance, names: frozenset[str]) -> AskedAgain:
        """Return the named plugins of a profile."""
        filters = tuple(each for each in enumerate(instance.filters) if each[1].name in names)
        scores = tuple(each for each in instance.scores if each[0].name in names)
        return cls(
            names,
            tuple(plugin for plugin in instance.pre_filter if plugin.name in names),
            filters,
            tuple(plugin for plugin in instance.pre_score if plugin.name in names),
            scores,
            any(_is_opaque(plugin, "filter_reads") for _, plugin in filters)
            or any(_is_opaque(plugin, "score_reads") for plugin, _ in scores),
        )


def _is_opaque(plugin: object, reads: str) -> bool:
    return getattr(plugin, reads, Reads.OPAQUE) is Reads.OPAQUE


class Repetition(Struct, frozen=True):
    """What serves further pods of a kind: who is asked again, and what must hold for the others.

    Attributes:
        again: The plugins that are asked about each pod.
        checks: All hold as long as the others would answer and prepare what they did.
    """

    again: AskedAgain
    checks: tuple[Callable[[], bool], ...]

    @property
    def holds(self) -> bool:
        """Whether all checks do."""
        return all(check() for check in self.checks)
