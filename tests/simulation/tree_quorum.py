"""Quorums of trees of groups, computed from the objects that the scheduler has received, not from the core's trees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, PodGroup


@dataclass(frozen=True, slots=True)
class TreeState:
    """Groups of a namespace at the time of a decision.

    Attributes:
        groups: PodGroups by key.
        composites: CompositePodGroups by key.
    """

    groups: Mapping[GroupKey, PodGroup]
    composites: Mapping[GroupKey, CompositePodGroup]

    def problem(self, key: GroupKey, counted: Mapping[GroupKey, int]) -> str:
        """Return why a member of a gang must not be scheduled; "" if it may.

        Args:
            counted: Number of members of each gang that have a node or have succeeded.
        """
        group = self.groups.get(key)
        parent = None if group is None else group.parent_key
        while parent is not None:
            composite = self.composites.get(parent)
            if composite is None:
                return f"{parent} has not been received"
            met = sum(self._is_met(child, counted) for child in self._children(parent))
            if met < composite.min_groups:
                return f"{met} of {composite.min_groups} groups of {parent} have their quorum"
            parent = composite.parent_key
        return ""

    def can_be_met(self, root: GroupKey, counted: Mapping[GroupKey, int]) -> bool:
        """Return whether a root has the groups that its quorum needs, with the given members of each gang."""
        composite = self.composites.get(root)
        return composite is not None and self._is_met(composite, counted)

    def _children(self, parent: GroupKey) -> Iterator[PodGroup | CompositePodGroup]:
        yield from (group for group in self.groups.values() if group.parent_key == parent)
        yield from (each for each in self.composites.values() if each.parent_key == parent)

    def _is_met(self, group: PodGroup | CompositePodGroup, counted: Mapping[GroupKey, int]) -> bool:
        if isinstance(group, PodGroup):
            return counted.get(group.key, 0) >= group.min_member
        return sum(self._is_met(child, counted) for child in self._children(group.key)) >= group.min_groups
