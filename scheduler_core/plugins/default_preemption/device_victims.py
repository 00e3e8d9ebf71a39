"""The least harmful victims on a node whose devices a pod needs.

kube-scheduler's order of reprieves finds a set of victims of which none may stay, but perhaps not the least harmful
one: pods hold unequal numbers of devices, and a claim ends only when all its holders are gone. So sets of pods are
tried in ascending order of harm until the pod fits. More victims do more harm, so the first set that suffices
is the least harmful one. A search that reaches its limit reprieves pods once more, among those of equal priority the
holders of the fewest devices first, and keeps the better victims of both reprieves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import Any

import numpy as np
from numpy.typing import NDArray

from scheduler_core.framework.handle import DryRun
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.pod_info import PodInfo

MOST_TRIED = 400
"""Number of sets that are tried for one preemptor."""
MOST_COMPARED = 20_000
"""Number of sets whose harm is computed for one preemptor."""

HarmOf = Callable[[Iterable[PodInfo]], Any]
"""Returns the sort key of victims, the lowest is the best; a set has no lower one than its subsets."""


@dataclass(frozen=True, slots=True)
class SearchedRow:
    """A row with pods that may be evicted; none of them is removed yet.

    Attributes:
        essential: UIDs of pods without whose eviction the pod does not fit; perhaps not all.
        dry_run: Returns a dry run of the pod; it is not called if no filter has to run.
    """

    row: int
    pods: Sequence[PodInfo]
    essential: AbstractSet[str]
    dry_run: Callable[[], AbstractContextManager[DryRun]]


@dataclass(slots=True)
class VictimSearch:
    """Search for the least harmful victims on several nodes.

    Attributes:
        why_not: Returns why victims are not evicted, "" if they may be; None if all may be.
        tries: Number of sets that may still be tried.
        compared: Number of sets whose harm was computed.
    """

    held: HeldClaims
    harm_of: HarmOf
    why_not: Callable[[Sequence[PodInfo]], str] | None = None
    tries: int = MOST_TRIED
    compared: int = 0

    def better(self, where: SearchedRow, bound: Any) -> list[PodInfo] | None:
        """Return victims with which the pod of the dry run fits on a row and whose harm is below a bound.

        Args:
            bound: A result of ``harm_of``; None for no bound.

        Returns:
            The least harmful victims, perhaps not of all if the search reached its limit; None if none were found.
        """
        # On most rows every victim does at least the harm of the best candidate.
        items = self._items(where.pods, bound) if self.tries > 0 else []
        if not items:
            return None
        with ExitStack() as opened:
            return self._search(where, items, bound, lambda: opened.enter_context(where.dry_run()))

    def _search(
        self, where: SearchedRow, items: Sequence[dict[str, PodInfo]], bound: Any, open_dry_run: Callable[[], DryRun]
    ) -> list[PodInfo] | None:
        rows = np.array([where.row], dtype=np.intp)
        dry_run: DryRun | None = None
        removed: dict[str, PodInfo] = {}
        tried: set[frozenset[str]] = set()
        heap: list[tuple[Any, int, int, dict[str, PodInfo]]] = []
        for number, item in enumerate(items):
            heappush(heap, (self.harm_of(item.values()), number - len(items), number, item))
        while heap and self.tries > 0:
            _, _, last, chosen = heappop(heap)
            uids = frozenset(chosen)
            if uids in tried:
                continue
            tried.add(uids)
            self.tries -= 1
            if where.essential <= uids:
                dry_run = open_dry_run() if dry_run is None else dry_run
                dry_run.restore(*(info for uid, info in removed.items() if uid not in chosen))
                dry_run.remove(*(info for uid, info in chosen.items() if uid not in removed))
                removed = chosen
                victims = list(chosen.values())
                if not dry_run.run_filters(rows)[0] and not (self.why_not is not None and self.why_not(victims)):
                    return victims
            for number in range(last + 1, len(items)):
                if self.compared >= MOST_COMPARED:
                    break
                more = chosen | items[number]
                if len(more) == len(chosen):
                    continue
                self.compared += 1
                harm = self.harm_of(more.values())
                if bound is None or harm < bound:
                    # The number of the entry decides between equal sets, so that pods are not compared.
                    heappush(heap, (harm, self.compared, number, more))
        if not heap and self.compared < MOST_COMPARED:
            return None
        dry_run = open_dry_run() if dry_run is None else dry_run
        dry_run.restore(*removed.values())
        victims = self._with_most_devices(dry_run, rows, where.pods)
        is_better = bool(victims) and (bound is None or self.harm_of(victims) < bound)
        return victims if is_better and not (self.why_not is not None and self.why_not(victims)) else None

    def _with_most_devices(self, dry_run: DryRun, rows: NDArray[np.intp], pods: Sequence[PodInfo]) -> list[PodInfo]:
        """Return the pods that cannot be reprieved in an order in which holders of many devices are the last."""
        dry_run.remove(*pods)
        if dry_run.run_filters(rows)[0]:
            return []
        victims = []
        for info in sorted(pods, key=self._order):
            dry_run.restore(info)
            if dry_run.run_filters(rows)[0]:
                dry_run.remove(info)
                victims.append(info)
        return victims

    def _order(self, info: PodInfo) -> tuple[int, int, float]:
        violations: int = self.harm_of((info,))[0]
        shares = (held.device_count / len(held.holders) for held in self.held.of(info))
        return -violations, -info.priority, sum(shares)

    def _items(self, pods: Sequence[PodInfo], bound: Any) -> list[dict[str, PodInfo]]:
        """Return the sets whose unions are tried: each pod, and all holders of each claim."""
        found = [{info.uid: info} for info in pods]
        claims = {id(held): held for info in pods for held in self.held.of(info) if len(held.holders) > 1}
        found += ({info.uid: info for info in held.holders} for held in claims.values())
        return [item for item in found if bound is None or self.harm_of(item.values()) < bound]
