"""The kinds of pods that came last: what of each is kept for the next one like it.

Owns which pods are of one kind, and how many kinds are kept: pods that are alike, and, more widely, pods that are alike
but for the resources that they ask for. It must not know what is decided with them.
"""

from __future__ import annotations

import copy

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.cycle.read_alike import read_alike, read_alike_but_for_resources
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.asked_again import Repetition
from scheduler_core.runtime.ranking import Ranking
from scheduler_core.runtime.result_cache import ResultCache
from scheduler_core.runtime.reuse_limits import ReuseLimits
from scheduler_core.runtime.scoring import Scoring
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class PodKind(Struct):
    """Pods that are alike to a profile.

    Attributes:
        info: The last one that went the whole way, as it was then: the pod itself is soon bound, which is no matter of
            those like it.
        results: The plugins' answers.
        resources_differ: Whether its pods may ask for different resources.
        prepared: What plugins have kept for the pod; None while one pod only has come.
        repetition: What serves others by it.
        ranking: The rows, once they were asked for.
    """

    info: PodInfo
    results: ResultCache
    resources_differ: bool = False
    prepared: CycleState | None = None
    repetition: Repetition | None = None
    ranking: Ranking | None = None

    def __post_init__(self) -> None:
        """What the cluster makes of the pod is not to be seen here."""
        self.info = copy.copy(self.info)

    def is_of(self, info: PodInfo) -> bool:
        """Whether a pod is of this kind."""
        if self.resources_differ:
            alike = read_alike_but_for_resources(self.info.pod, info.pod)
        else:
            alike = self.info.fit == info.fit and read_alike(self.info.pod, info.pod)
        return alike and self.results.are_alike(self.info, info)

    def keep(self, info: PodInfo, state: CycleState, nodes: NodeColumns) -> None:
        """Keep what plugins have prepared for a pod that went the whole way, if it serves others."""
        self.info = copy.copy(info)
        self.forget()
        self.repetition = self.results.repetition(state, info, nodes, resources_differ=self.resources_differ)
        self.prepared = state.clone(without=self.repetition.again.names)

    def forget(self) -> None:
        """What was prepared does not hold any more."""
        self.prepared = self.repetition = self.ranking = None

    def ranked(self, nodes: NodeColumns, allowed: NDArray[np.bool_]) -> Ranking | None:
        """The rows as they are now, by what was prepared; None where nothing was.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        if self.prepared is None or self.repetition is None:
            return None
        if self.ranking is None or not self.ranking.refresh():
            scoring = Scoring(self.prepared, self.info, nodes, ALL_ROWS)
            self.ranking = self.results.ranking(scoring, self.repetition.again, allowed)
        return self.ranking


class PodKinds(Struct):
    """The kinds of one framework instance, the last one first.

    Attributes:
        limits: How many there are at most.
        unsampled: Pods whose plugins were not timed because of being like the one before.
    """

    limits: ReuseLimits
    unsampled: int = 0
    _kinds: list[PodKind] = field(default_factory=list)
    _families: list[PodKind] = field(default_factory=list)

    def find(self, info: PodInfo) -> PodKind | None:
        """The kind of pods like this one; None for a new one."""
        return _first_of(self._kinds, info)

    def family(self, info: PodInfo) -> PodKind | None:
        """The kind of pods that are like this one but for the resources that they ask for; None for a new one."""
        return _first_of(self._families, info)

    def add(self, kind: PodKind) -> None:
        """Keep a new kind, and drop the one that did not come for longest."""
        kinds, most = self._kinds, self.limits.max_classes
        if kind.resources_differ:
            kinds, most = self._families, self.limits.max_classes_beside_resources
        kinds.insert(0, kind)
        del kinds[most:]


def _first_of(kinds: list[PodKind], info: PodInfo) -> PodKind | None:
    for position, kind in enumerate(kinds):
        if kind.is_of(info):
            if position:
                kinds.insert(0, kinds.pop(position))
            return kind
    return None
