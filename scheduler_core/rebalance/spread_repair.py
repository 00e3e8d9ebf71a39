"""Moves that repair the spread of pods: from a domain with too many pods of a constraint to the one with the least.

A constraint of ``spec.topologySpreadConstraints`` is repaired until the numbers of its pods differ by ``maxSkew`` at
most, or no pod of the largest domain fits in the smallest one. Only nodes that accept pods count. Each move makes a
difference of two or more smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np

from scheduler_core.model.pod import TopologySpreadConstraint
from scheduler_core.model.selectors import LabelMatcher, compile_label_selector
from scheduler_core.rebalance.mover import MoveSearch, largest_first
from scheduler_core.rebalance.requests import RebalancePlan
from scheduler_core.snapshot.pod_info import PodInfo

_PODS_PER_STEP = 20
_OTHER_NODE = "its node is not in the scope"
_Constraint = tuple[str, str, int, LabelMatcher]
"""Namespace, topology key, maxSkew and selector of the counted pods."""


class SpreadRepair(MoveSearch):
    """Repairs the spread of pods."""

    def run(self, plan: RebalancePlan) -> None:
        """Repair all constraints as far as possible."""
        before = self._excess_of_all()
        self._mover.move_once(self._repair_all)
        plan.gain.excess = before, self._excess_of_all()

    def _excess_of_all(self) -> int:
        """Return by how much the differences of all constraints exceed their ``maxSkew``, in sum."""
        return sum(self._excess(each) for each in self._constraints())

    def _repair_all(self, moves_twice: bool) -> None:
        is_progress = True
        while is_progress:
            is_progress = any(self._is_repaired(each, moves_twice) for each in self._constraints())

    def _constraints(self) -> list[_Constraint]:
        found = {
            (info.pod.metadata.namespace, each.topology_key, each.max_skew, compile_label_selector(each.label_selector))
            for info in self._running()
            for each in info.pod.spec.topology_spread_constraints
            if _is_plain(each)
        }
        return sorted(found, key=repr)

    def _running(self) -> Iterator[PodInfo]:
        for row in np.flatnonzero(self._nodes.alive).tolist():
            self._nodes.steps.spend(1 + len(self._nodes.pods[row]) // _PODS_PER_STEP)
            yield from self._nodes.pods[row].values()

    def _domains(self, key: str) -> dict[str, list[int]]:
        """Return the rows of the nodes that accept pods, by domain."""
        found: dict[str, list[int]] = {}
        for row in np.flatnonzero(self._nodes.alive).tolist():
            node = self._nodes.nodes[row]
            if node is not None and not node.spec.unschedulable and key in node.metadata.labels:
                found.setdefault(node.metadata.labels[key], []).append(row)
        return found

    def _counts(self, constraint: _Constraint, domains: dict[str, list[int]]) -> Counter[str]:
        found = Counter(dict.fromkeys(domains, 0))
        for name, rows in domains.items():
            found[name] = sum(_counts_for(info, constraint) for row in rows for info in self._nodes.pods[row].values())
        return found

    def _excess(self, constraint: _Constraint) -> int:
        counts = self._counts(constraint, self._domains(constraint[1]))
        return max(0, max(counts.values(), default=0) - min(counts.values(), default=0) - constraint[2])

    def _is_repaired(self, constraint: _Constraint, moves_twice: bool) -> bool:
        """Move one pod from the largest to the smallest domain; return whether that was possible."""
        domains = self._domains(constraint[1])
        counts = self._counts(constraint, domains)
        if not counts or max(counts.values()) - min(counts.values()) <= max(constraint[2], 1):
            return False
        largest = min(name for name, count in counts.items() if count == max(counts.values()))
        smallest = min(name for name, count in counts.items() if count == min(counts.values()))
        among = np.zeros(self._nodes.size, dtype=np.bool_)
        among[domains[smallest]] = True
        here = [info for row in domains[largest] for info in self._nodes.pods[row].values()]
        pods = [info for info in here if _counts_for(info, constraint) and self._may_move(info, moves_twice)]
        before = self._excess_of_all()
        for info in reversed(largest_first(pods)):
            if not self._mover.allows([info]):
                return False
            with self._mover.all_or_nothing() as group:
                if self._mover.move(info, among) and self._excess_of_all() < before:
                    group.commit()
                    return True
        return False

    def _may_move(self, info: PodInfo, moves_twice: bool) -> bool:
        if not self._mover.is_moved(info) and not self._movable.may_leave(info.row):
            self._movable.left[info.key] = _OTHER_NODE
            return False
        return super()._may_move(info, moves_twice)


def _is_plain(constraint: TopologySpreadConstraint) -> bool:
    """Return whether a constraint counts pods by its selector alone, and has one."""
    return constraint.label_selector is not None and not constraint.match_label_keys and constraint.max_skew > 0


def _counts_for(info: PodInfo, constraint: _Constraint) -> bool:
    namespace, _, _, selector = constraint
    meta = info.pod.metadata
    return meta.namespace == namespace and not info.is_leaving and selector.matches(meta.labels)
