"""The kinds of pods that came last: what of each is kept for the next one like it.

Owns which pods are of one kind, and how many kinds are kept. It must not know what is decided with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from scheduler_core.cycle.read_alike import read_alike
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.ranking import Ranking
from scheduler_core.runtime.result_cache import ResultCache
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_MOST = 8


@dataclass(slots=True)
class PodKind:
    """Pods that are alike to a profile.

    Attributes:
        info: The last one that went the whole way.
        results: The plugins' answers.
        checks: All hold as long as what was prepared does.
        state: What was prepared; None while one pod only has come.
        ranking: The rows, once they were asked for.
        unranked_at: The version of the Node objects by which there is no ranking; -1 for none.
    """

    info: PodInfo
    results: ResultCache
    checks: tuple[Callable[[], bool], ...] = ()
    state: CycleState | None = None
    ranking: Ranking | None = None
    unranked_at: int = -1

    def is_of(self, info: PodInfo) -> bool:
        """Whether a pod is of this kind."""
        return read_alike(self.info.pod, info.pod) and self.results.are_alike(self.info, info)

    def keep(self, info: PodInfo, state: CycleState, nodes: NodeColumns) -> None:
        """Keep what plugins have prepared for a pod that went the whole way, if it serves others."""
        self.info = info
        self.forget()
        if self.unranked_at == nodes.version or not self.results.is_local(state):
            return
        checks = self.results.preparation_checks(info, nodes)
        if checks is not None:
            self.checks, self.state = checks, state.clone()

    def forget(self) -> None:
        """What was prepared does not hold any more."""
        self.state = self.ranking = None

    def ranked(self, nodes: NodeColumns, allowed: NDArray[np.bool_]) -> Ranking | None:
        """The rows as they are now, by what was prepared; None where nothing was, or it gives no ranking.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        if self.state is None:
            return None
        if self.ranking is None:
            self.ranking = self.results.ranking(self.state, self.info, nodes, allowed)
            # What stands against one are scores by Node objects alone: until these change, there is none.
            self.unranked_at = nodes.version if self.ranking is None else -1
            return self.ranking
        return self.ranking if self.ranking.refresh() else None


@dataclass(slots=True)
class PodKinds:
    """The kinds of one framework instance, the last one first.

    Attributes:
        unsampled: Pods whose plugins were not timed because of being like the one before.
    """

    unsampled: int = 0
    _kinds: list[PodKind] = field(default_factory=list)

    def find(self, info: PodInfo) -> PodKind | None:
        """The kind that a pod is of; None for a new one."""
        kinds = self._kinds
        for position, kind in enumerate(kinds):
            if kind.is_of(info):
                if position:
                    kinds.insert(0, kinds.pop(position))
                return kind
        return None

    def add(self, info: PodInfo, results: ResultCache) -> None:
        """Keep a new kind, and drop the one that did not come for longest."""
        self._kinds.insert(0, PodKind(info, results))
        del self._kinds[_MOST:]
