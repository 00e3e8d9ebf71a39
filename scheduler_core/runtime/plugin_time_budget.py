"""Puts plugins that are not built in under a watchdog, for calls during which nothing else can run.

The methods are replaced on the plugin when it is created, so plugins without a watchdog cost nothing and call sites do
not change. A plugin that takes one node at a time is watched over all nodes of a call, not for each node. Code between
two awaits is not watched; the operator's liveness limit ends a loop that hangs there.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from scheduler_core.framework.cluster_events import EventRegistration
from scheduler_core.framework.registry import Registry
from scheduler_core.ports import Watchdog
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import NodeFilterAdapter, NodeScoreAdapter

_POINTS = {
    "pre_enqueue": "preEnqueue",
    "sort_key": "queueSort",
    "reuse_check": "preFilter",
    "pre_filter": "preFilter",
    "add_pod": "preFilterAddPod",
    "remove_pod": "preFilterRemovePod",
    "filter": "filter",
    "decode": "filter",
    "shortages": "filter",
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
}


def watch_over(instance: FrameworkInstance, registry: Registry, watchdog: Watchdog) -> None:
    """Put every plugin of a new instance that is not built in under the watchdog."""
    for name, plugin in instance.plugins.items():
        if not registry.is_built_in(name):
            _watch(plugin, name, watchdog)
            registrations = instance.registrations.get(name)
            if registrations:
                instance.registrations[name] = tuple(_watched(each, name, watchdog) for each in registrations)
    for runner in (*instance.filters, *(runner for runner, _ in instance.scores)):
        if isinstance(runner, NodeFilterAdapter | NodeScoreAdapter) and not registry.is_built_in(runner.name):
            _watch(runner, runner.name, watchdog)


def _watch(watched: Any, name: str, watchdog: Watchdog) -> None:
    for method, point in _POINTS.items():
        call = getattr(watched, method, None)
        if callable(call):
            setattr(watched, method, watchdog.guarded(name, point, call))


def _watched(registration: EventRegistration, name: str, watchdog: Watchdog) -> EventRegistration:
    if registration.hint is None:
        return registration
    return replace(registration, hint=watchdog.guarded(name, "queueingHint", registration.hint))
