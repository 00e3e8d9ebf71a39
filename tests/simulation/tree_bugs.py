"""Planted bugs in the handling of trees of groups; see :mod:`tests.simulation.planted_bugs`.

Each violates the guarantee that a tree is placed with the groups that its quorums need, or loses a waiting tree.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler_core.placement.engine import _Search
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.group_trees import GangTree, GroupForest
from tests.simulation.planted_bugs import Bug, Original, _patched, _skipped


def _one_group_is_enough(original: Original) -> Original:
    def try_children(self: _Search, tree: Any, composite: Any, where: Any) -> Any:
        return original(self, tree, replace(composite, min_groups=1), where)

    return try_children


def _quorum_of_any_member(original: Original) -> Any:
    del original
    return property(lambda self: bool(self.waiting))


def _without_changed_gangs(original: Original) -> Original:
    def changed(self: Any, subject: Any) -> list[Gang]:
        original(self, subject)
        return []

    return changed


def _still_linked(original: Original) -> Original:
    del original
    return lambda self, key: self.leaves_below(key)


TREE_BUGS: dict[str, Bug] = {
    "one group of a tree is enough": lambda: _patched(_Search, "_children", _one_group_is_enough),
    "a tree without its quorum is tried": lambda: _patched(GangTree, "has_quorum", _quorum_of_any_member),
    "a new root does not admit members": lambda: _patched(Gangs, "composite_changed", _without_changed_gangs),
    "a tree is stored after its root is deleted": lambda: _patched(GroupForest, "composite_deleted", _still_linked),
    "a failed group of a tree is not reverted": _skipped(_Search, "_undo"),
    "a gang is complete without its tree": lambda: _patched(GangTree, "settles", lambda _: lambda *_: True),
}
"""Planted bugs by the defect that they cause."""
