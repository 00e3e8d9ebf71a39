"""Order of devices by size, for requests that should take the smallest device that serves them.

Sizes are compared capacity by capacity, in the order of their names: first the capacities that the request or its
selectors name, then all. A device that lacks a capacity has 0 of it; of a device that requests share, the rest counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from scheduler_core.devices.device_state import NodeDevices, Position, TakenDevice
from scheduler_core.devices.requests import ClaimPlan, RequestTerms
from scheduler_core.devices.selector_cache import Reads, SelectorCache

Size = tuple[Mapping[str, int], Mapping[str, int]]
"""Capacities in nano-units by name: those that the request names, and all."""


class BestFit:
    """Sizes of devices for the requests of one attempt."""

    def __init__(self, plans: Sequence[ClaimPlan], selectors: SelectorCache) -> None:
        self._reads: dict[int, Reads] = {
            terms.number: selectors.reads((*terms.class_selectors, *terms.selectors))
            for plan in plans
            for request in plan.requests
            for terms in request.terms
        }

    def order(self, terms: RequestTerms, node: NodeDevices) -> Iterable[Position]:
        """Return the devices of a node that any request could take, the smallest first, equal ones in their order."""
        positions = list(node.positions())
        ranks = size_ranks([self._size(terms, node, position) for position in positions])
        return (position for _, _, position in sorted(zip(ranks, range(len(positions)), positions, strict=True)))

    def total(self, node: NodeDevices, taken: Iterable[TakenDevice]) -> Size:
        """Return the sum of the sizes of devices."""
        named: dict[str, int] = {}
        whole: dict[str, int] = {}
        for one in taken:
            for total, amounts in zip((named, whole), self._size(one.terms, node, one.position), strict=True):
                for name, amount in amounts.items():
                    total[name] = total.get(name, 0) + amount
        return named, whole

    def _size(self, terms: RequestTerms, node: NodeDevices, position: Position) -> Size:
        view, usage = node.pools[position[0]], node.usages[position[0]]
        record = view.records[position[1]]
        whole = {name: rule.value.nano for name, rule in record.rules.items()}
        shares = None if usage is None else usage.shares.get(view.names.names[position[1]])
        if record.shareable and shares is not None:
            whole = {name: amount - shares.consumed.get(name, 0) for name, amount in whole.items()}
        reads = self._reads[terms.number]
        named = {
            name: amount
            for name, amount in whole.items()
            if name in terms.amounts or (reads is not None and _is_read(name, reads))
        }
        return named, whole


def size_ranks(sizes: Sequence[Size]) -> list[int]:
    """Return the rank of each size among the distinct ones, 0 for the smallest."""
    orders = [sorted({name for size in sizes for name in size[part]}) for part in (0, 1)]
    keys = [tuple(size[part].get(name, 0) for part, names in enumerate(orders) for name in names) for size in sizes]
    ranks = {key: rank for rank, key in enumerate(sorted(set(keys)))}
    return [ranks[key] for key in keys]


def _is_read(name: str, reads: Iterable[tuple[str, str]]) -> bool:
    """Return whether a capacity is read; a name without a domain counts whatever its driver is."""
    domain, slash, identifier = name.rpartition("/")
    return any(each == identifier and (not slash or of == domain) for of, each in reads)
