"""Puts the plugins of an instance under a watchdog.

Owns which calls are watched: those that are made while nothing else can run, of plugins that are not built in. Must not
know how a call is interrupted. Why the methods are replaced on the plugin when it is made: what is not watched then
costs nothing, and no call site knows of it.

A plugin that looks at one node at a time is watched over all nodes of a question, not for each. What a plugin does
between two awaits is not watched: a loop that stands still there is ended by the operator's liveness limit.
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
    """Watch over every plugin of a new instance that is not built in."""
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
            object.__setattr__(watched, method, watchdog.guarded(name, point, call))


def _watched(registration: EventRegistration, name: str, watchdog: Watchdog) -> EventRegistration:
    if registration.hint is None:
        return registration
    return replace(registration, hint=watchdog.guarded(name, "queueingHint", registration.hint))
