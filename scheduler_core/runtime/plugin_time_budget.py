"""Puts plugins that are not built in under a watchdog, for calls during which nothing else can run.

The methods are replaced on the plugin when it is created, so plugins without a watchdog cost nothing and call sites do
not change. A plugin that takes one node at a time is watched over all nodes of a call, not for each node. Code between
two awaits is not watched; the operator's liveness limit ends a loop that hangs there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.plugin import Plugin
from scheduler_core.framework.registry import Registry
from scheduler_core.ports import Watchdog
from scheduler_core.runtime.node_adapters import FilterRunner, NodeFilterAdapter, NodeScoreAdapter, ScoreRunner

Runner = TypeVar("Runner", bound=FilterRunner | ScoreRunner)
Watched = TypeVar("Watched", bound=Plugin | FilterRunner | ScoreRunner)

_POINTS = {
    "pre_enqueue": "preEnqueue",
    "preview_gate": "preEnqueue",
    "sort_key": "queueSort",
    "reuse_check": "preFilter",
    "pre_filter": "preFilter",
    "add_pod": "preFilterAddPod",
    "remove_pod": "preFilterRemovePod",
    "filter": "filter",
    "decode": "filter",
    "shortages": "filter",
    "details": "filter",
    "post_filter": "postFilter",
    "preview": "postFilter",
    "pre_score": "preScore",
    "score": "score",
    "normalize": "normalizeScore",
    "reserve": "reserve",
    "unreserve": "unreserve",
    "permit": "permit",
    "pre_bind_pre_flight": "preBindPreFlight",
    "post_bind": "postBind",
    "post_filter_for_gang": "postFilter",
}


class PluginTimeBudget:
    """Puts what is not built in under a watchdog, as an instance is built.

    Args:
        registry: Defines which plugins are built in.
        watchdog: Interrupts calls that take too long; None for no limit.
    """

    def __init__(self, registry: Registry, watchdog: Watchdog | None) -> None:
        self._registry = registry
        self._watchdog = watchdog

    def runner(self, runner: Runner) -> Runner:
        """Watch an adapter of a plugin; a plugin that is its own runner is watched already."""
        return self.watch(runner) if isinstance(runner, NodeFilterAdapter | NodeScoreAdapter) else runner

    def watch(self, called: Watched) -> Watched:
        """Watch the calls of a new plugin or adapter, and return it."""
        name, watchdog = called.name, self._watchdog
        if watchdog is not None and not self._registry.is_built_in(name):
            for method, point in _POINTS.items():
                call = getattr(called, method, None)
                if callable(call):
                    setattr(called, method, watchdog.guarded(name, point, call))
        return called

    def registrations(self, plugin: Plugin) -> tuple[EventRegistration, ...]:
        """Return the events that a plugin registers, with hints that are watched."""
        registered, watchdog = tuple(plugin.events_to_register()), self._watchdog
        if watchdog is None or self._registry.is_built_in(plugin.name):
            return registered
        return tuple(
            each if each.hint is None else replace(each, hint=watchdog.guarded(plugin.name, "queueingHint", each.hint))
            for each in registered
        )
