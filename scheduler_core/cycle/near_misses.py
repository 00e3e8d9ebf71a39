"""The nodes that a pod misses by least, and everything that each of them lacks.

Owns the second look at nodes that were rejected. A cycle keeps one rejection a node, that of the first plugin in order;
whoever wants to mend something must know of all of them, so here every plugin judges every node by itself. It must not
know how it is shown.

It is the plugins' own Filter that is asked, one plugin at a time, so that what is said here cannot drift from what is
decided.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.cycle.context import CycleContext
from scheduler_core.cycle.examination import Examination
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, Shortage
from scheduler_core.framework.status import Code, Status
from scheduler_core.queueing.gang_entries import GANG_SCHEDULING
from scheduler_core.runtime.filtering import decode_verdict, run_filters, run_pre_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.node_columns import ALL_ROWS

_LOOKED_AT_CLOSELY = 200
"""Nodes of which every reason is written out before they are ranked; the rest is further off or as far."""


class Lack(Struct, frozen=True):
    """Why one plugin rejects one node.

    Attributes:
        plugin: The plugin; several are joined by a comma where they left the node out together.
        reasons: What it says.
        is_resolvable: Whether removing pods might help.
        shortages: Amounts, where the plugin knows them.
    """

    plugin: str
    reasons: tuple[str, ...]
    is_resolvable: bool
    shortages: tuple[Shortage, ...] = ()

    @property
    def count(self) -> int:
        """How many things are amiss."""
        return max(1, len(self.reasons))

    @property
    def missing_share(self) -> float:
        """What is missing, each resource as a share of what is needed; 1.0 for what is no amount."""
        if not self.shortages:
            return 1.0
        return sum((each.needed - each.free) / max(1, each.needed) for each in self.shortages)


class NearMiss(Struct, frozen=True):
    """A node and all that it lacks, in the order of the plugins."""

    node_name: str
    lacks: tuple[Lack, ...]


class _Verdicts(Struct):
    """Each plugin's own verdicts, int32 per row, and on how many plugins each row fails."""

    state: CycleState
    by_plugin: dict[str, NDArray[np.int32]] = field(default_factory=dict)


def near_misses(
    context: CycleContext, instance: FrameworkInstance, found: Examination, limit: int
) -> tuple[NearMiss, ...]:
    """The nodes that fail the fewest things.

    Args:
        context: The shared parts; nothing in them is changed.
        instance: The profile that was asked.
        found: The attempt, in which nodes were rejected.
        limit: How many nodes are wanted.

    Returns:
        Nearest first: fewest things amiss, then those that removing pods might mend, then the least missing, then by
        name. Empty where the pod was turned away before any node was looked at.

    Raises:
        PluginError: A plugin raised, or answered what the point does not allow.
    """
    if not found.rejected:
        return ()
    columns = context.cache.columns
    state = CycleState()
    narrowing = run_pre_filters(instance, state, found.pod, columns).narrowing
    verdicts = _every_verdict(context, instance, found, state)
    failures = np.zeros(columns.size, dtype=np.int64)
    for rejected in verdicts.by_plugin.values():
        failures += rejected != 0
    rows = sorted(
        (columns.row_of(name) for name in found.rejected), key=lambda row: (failures[row], columns.names[row])
    )
    misses = []
    for row in rows[: max(limit, _LOOKED_AT_CLOSELY)]:
        name = columns.node_name(row)
        lacks = _lacks(context, instance, found, (verdicts, row))
        first = found.rejected[name]
        if not first.plugin:
            lacks.insert(0, _lack(first, ", ".join(narrowing)))
        elif first.plugin == GANG_SCHEDULING:
            # Kept for another gang, or not where the pod's own is: no plugin says so.
            lacks.append(_lack(first, first.plugin))
        elif not lacks:
            # Only with the pods that were promised the node does it not fit.
            lacks.append(_lack(first, first.plugin))
        misses.append(NearMiss(name, tuple(lacks)))
    misses.sort(key=_distance)
    return tuple(misses[:limit])


def _every_verdict(
    context: CycleContext, instance: FrameworkInstance, found: Examination, state: CycleState
) -> _Verdicts:
    verdicts = _Verdicts(state)
    skipped = frozenset(state.skip_filter)
    everyone = {plugin.name for plugin in instance.filters}
    for plugin in instance.filters:
        if plugin.name in skipped:
            continue
        state.skip_filter = (everyone - {plugin.name}) | skipped
        try:
            rejected = run_filters(instance, state, found.pod, context.cache.columns, ALL_ROWS)
        except PluginError:
            # In a cycle it is asked about what others left only; a node that it cannot stand is no reason to say less.
            continue
        verdicts.by_plugin[plugin.name] = rejected
    state.skip_filter = set(skipped)
    return verdicts


def _lacks(
    context: CycleContext, instance: FrameworkInstance, found: Examination, place: tuple[_Verdicts, int]
) -> list[Lack]:
    verdicts, row = place
    lacks = []
    for plugin in instance.filters:
        rejected = verdicts.by_plugin.get(plugin.name)
        verdict = 0 if rejected is None else int(rejected[row])
        if not verdict:
            continue
        status = decode_verdict(instance, verdicts.state, found.pod, verdict)
        shortages: tuple[Shortage, ...] = ()
        if isinstance(plugin, FilterPlugin):
            shortages = plugin.shortages(verdicts.state, found.pod, context.cache.columns, row)
        lacks.append(_lack(status, plugin.name, shortages))
    return lacks


def _lack(status: Status, plugin: str, shortages: tuple[Shortage, ...] = ()) -> Lack:
    return Lack(plugin, status.reasons, status.code is not Code.UNSCHEDULABLE_AND_UNRESOLVABLE, shortages)


def _distance(miss: NearMiss) -> tuple[int, int, float, str]:
    count = sum(lack.count for lack in miss.lacks)
    final = sum(not lack.is_resolvable for lack in miss.lacks)
    return count, final, sum(lack.missing_share for lack in miss.lacks), miss.node_name
