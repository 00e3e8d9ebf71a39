"""The kinds of pods that came last: what of each is kept for the next one like it.

Owns which pods are of one kind, and how many kinds are kept. It must not know what is decided with them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from scheduler_core.cycle.read_alike import read_alike
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.runtime.ranking import Ranking
from scheduler_core.runtime.result_cache import ResultCache
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
    """

    info: PodInfo
    results: ResultCache
    checks: tuple[Callable[[], bool], ...] = ()
    state: CycleState | None = None
    ranking: Ranking | None = None

    def forget(self) -> None:
        """What was prepared does not hold any more."""
        self.state = self.ranking = None


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
            if read_alike(kind.info.pod, info.pod) and kind.results.are_alike(kind.info, info):
                if position:
                    kinds.insert(0, kinds.pop(position))
                return kind
        return None

    def add(self, info: PodInfo, results: ResultCache) -> None:
        """Keep a new kind, and drop the one that did not come for longest."""
        self._kinds.insert(0, PodKind(info, results))
        del self._kinds[_MOST:]
