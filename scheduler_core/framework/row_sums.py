"""What the pods on one node add up to, in Python's numbers: for questions that change it in thought.

Owns the sums of a row while a question lasts. It must not know which plugin compares them with what.
"""

from __future__ import annotations

from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo


class RowSums:
    """A copy of one row's numbers.

    Attributes:
        allocatable: By resource column, in the columns' units.
        requested: The same, summed over pods.
        allowed_pods: How many pods the node takes.
        pod_count: How many it has.
    """

    __slots__ = ("allocatable", "allowed_pods", "pod_count", "requested")

    def __init__(self, nodes: NodeColumns, row: int) -> None:
        self.allocatable: list[int] = nodes.allocatable[:, row].tolist()
        self.requested: list[int] = nodes.requested[:, row].tolist()
        self.allowed_pods: int = nodes.allowed_pods.item(row)
        self.pod_count: int = nodes.pod_count.item(row)

    def add(self, info: PodInfo) -> None:
        """Count a pod in."""
        for column, amount in info.accounted:
            self.requested[column] += amount
        self.pod_count += 1

    def remove(self, info: PodInfo) -> None:
        """Count a pod out."""
        for column, amount in info.accounted:
            self.requested[column] -= amount
        self.pod_count -= 1
