"""The order in which an attempt runs the plugins of a point, to add names to recorded times.

The order is computed after the cycle, because only then all Skip statuses are known.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import PluginOrder, Point
from scheduler_core.framework.extension_points import Plugin
from scheduler_core.framework.status import Code
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner, ScoreRunner

Named = Plugin | FilterRunner | ScoreRunner


def plugin_order(instance: FrameworkInstance, state: CycleState) -> PluginOrder:
    """Return the order in which an attempt on ``instance`` with this state has run its plugins."""

    def of(point: Point) -> Sequence[tuple[str, Code]]:
        return _order(instance, state, point)

    return of


def _order(instance: FrameworkInstance, state: CycleState, point: Point) -> list[tuple[str, Code]]:
    match point:
        case Point.PRE_FILTER:
            return _all(instance.pre_filter, skipping=state.skip_filter)
        case Point.FILTER:
            return _others(instance.filters, state.skip_filter)
        case Point.POST_FILTER:
            return _all(instance.post_filter)
        case Point.PRE_SCORE:
            return _all(instance.pre_score, skipping=state.skip_score)
        case Point.SCORE:
            return _others((plugin for plugin, _ in instance.scores), state.skip_score)
        case Point.RESERVE:
            return _all(instance.reserve)
        case Point.UNRESERVE:
            return _all(reversed(instance.reserve))
        case Point.PERMIT:
            return _all(instance.permit)
        case Point.PRE_BIND_PRE_FLIGHT:
            return _all(instance.pre_bind, skipping=state.skip_pre_bind)
        case Point.PRE_BIND:
            return _others(instance.pre_bind, state.skip_pre_bind)
        case Point.BIND:
            return _all(instance.bind)
        case Point.POST_BIND:
            return _all(instance.post_bind)
    return []


def _all(plugins: Iterable[Named], skipping: Container[str] = ()) -> list[tuple[str, Code]]:
    return [(plugin.name, Code.SKIP if plugin.name in skipping else Code.SUCCESS) for plugin in plugins]


def _others(plugins: Iterable[Named], skipping: Container[str]) -> list[tuple[str, Code]]:
    return [(plugin.name, Code.SUCCESS) for plugin in plugins if plugin.name not in skipping]
