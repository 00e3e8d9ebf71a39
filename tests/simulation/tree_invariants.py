"""Invariants of the core's trees of groups, at every moment and when nothing changes any more."""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.framework.queued_pod import Place
from scheduler_core.model.pod_group import GroupKey, PodGroup
from scheduler_core.queueing.group_trees import GangTree
from tests.simulation.gang_invariants import entry_problems
from tests.simulation.operator_supervisor import OperatorSupervisor
from tests.simulation.pod_groups import PodGroups, TreeState


def check_trees_now(supervisor: OperatorSupervisor) -> Iterator[str]:
    """Yield the problems at this moment, between two cycles."""
    process = supervisor.process
    if process.is_over or not process.is_scheduling:
        return
    if process.has_unhandled_changes:
        # A change that raised has taken part of its effect.
        return
    queue, received = process.scheduler.context.queue, process.received_groups
    state = TreeState(received.groups, received.composites)
    for tree in queue.gangs.forest.trees.values():
        if not queue._gang_entries._faulty.keys().isdisjoint((tree.key, *(leaf.key for leaf in tree.parts))):
            # The next flush reviews it.
            continue
        entry = tree.entry
        counts = {leaf.key: len(leaf.waiting) + len(leaf.placed) + leaf.succeeded for leaf in tree.parts}
        is_waiting = any(leaf.waiting for leaf in tree.parts) and not tree.gates
        should = is_waiting and state.can_be_met(tree.key, counts) and not tree.binding
        is_queued = entry is not None and entry.place is not Place.NOWHERE
        if should and not is_queued:
            yield f"tree {tree.key} has a waiting quorum, and is not in the queue"
        yield from entry_problems(f"tree {tree.key}", entry, queue, should=should)


def check_idle_trees(supervisor: OperatorSupervisor, groups: PodGroups) -> Iterator[str]:
    """Yield the problems after a long time without changes."""
    if not supervisor.process.is_scheduling:
        return
    gangs = supervisor.process.scheduler.context.queue.gangs
    for key in sorted({*groups.composites, *supervisor.process.received_groups.composites}):
        if gangs.forest.get(key) != groups.composites.get(key):
            yield f"{key} differs from the API server's CompositePodGroup"
    for tree in gangs.forest.trees.values():
        if tree.binding:
            yield f"tree {tree.key} has {tree.binding} members being bound forever"
        yield from _leaf_problems(tree, groups)


def _leaf_problems(tree: GangTree, groups: PodGroups) -> Iterator[str]:
    if tree.key not in groups.composites:
        yield f"tree {tree.key} is stored, and its root does not exist"
    below = {key for key, group in groups.objects.items() if _root_of(group, groups) == tree.key}
    if below != set(tree.leaves):
        yield f"tree {tree.key} has the gangs {sorted(tree.leaves)}, and not {sorted(below)}"


def _root_of(group: PodGroup, groups: PodGroups) -> GroupKey | None:
    key = parent = group.parent_key
    while parent is not None:
        composite = groups.composites.get(parent)
        if composite is None:
            return None
        key, parent = parent, composite.parent_key
    return key
