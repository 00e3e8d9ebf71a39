"""In-tree plugins of kube-scheduler whose work the scheduler core does without a plugin.

A profile may enable them, which has no effect, and may not disable them. kube-scheduler has these plugins behind
feature gates, so a configuration names them when the gates are on.

Source: kube-scheduler v1.36.3 and v1.37.1, ``pkg/scheduler/framework/plugins/registry.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from msgspec import Struct

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import Problem

_MULTI_POINT = "multiPoint"


class BuiltInBehaviour(Struct, frozen=True):
    """The work of one plugin of kube-scheduler.

    Attributes:
        points: Extension points that the plugin has in kube-scheduler.
        behaviour: What the scheduler core does instead, as a clause.
    """

    points: tuple[str, ...]
    behaviour: str


BUILT_IN_BEHAVIOUR: Mapping[str, BuiltInBehaviour] = MappingProxyType(
    {
        "GangScheduling": BuiltInBehaviour(
            ("preEnqueue", "permit"), "Bayplan schedules the members of a pod group together without a plugin"
        ),
        "TopologyPlacementGenerator": BuiltInBehaviour(
            ("placementGenerate",), "Bayplan applies the topology constraint of a pod group without a plugin"
        ),
        "PodGroupPodsCount": BuiltInBehaviour(
            ("placementScore",), "Bayplan ranks the topology domains for a pod group without a plugin"
        ),
    }
)
"""By the plugin's name."""

POD_GROUP_POINTS: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "placementGenerate": frozenset({"TopologyPlacementGenerator"}),
        "placementScore": frozenset({"PodGroupPodsCount", "NodeResourcesFit"}),
        "podGroupPostFilter": frozenset({"DynamicResources", "DefaultPreemption"}),
    }
)
"""Extension points of kube-scheduler's group cycle, which Bayplan does not have, and the in-tree plugins there."""


def unavailable_plugin(name: str, point: str) -> str | None:
    """Return why a plugin of kube-scheduler cannot be enabled.

    Args:
        name: A plugin that is not in the registry.
        point: The extension point at which a profile enables it, or ``multiPoint``.

    Returns:
        The message; "" if the plugin can be enabled; None if kube-scheduler has no such plugin.
    """
    known = BUILT_IN_BEHAVIOUR.get(name)
    if known is None:
        return None
    if point in (*known.points, _MULTI_POINT):
        return ""
    return f'plugin "{name}" does not serve {point}; it serves {", ".join(known.points)}'


def disabled_problems(plugins: Plugins) -> Iterator[Problem]:
    """Find disabled plugins whose work cannot be switched off.

    Args:
        plugins: Plugins of a profile. ``*`` is ignored: it stands for the plugins of the default set.

    Yields:
        A problem for each entry, with a path from the profile's root.
    """
    for point, plugin_set in plugins.points().items():
        for index, entry in enumerate(plugin_set.disabled):
            known = BUILT_IN_BEHAVIOUR.get(entry.name)
            if known is not None and point in (*known.points, _MULTI_POINT):
                message = f'plugin "{entry.name}" cannot be disabled: {known.behaviour}; remove the entry'
                yield Problem(f"plugins.{point}.disabled[{index}].name", message)


def enabled_notes(plugins: Plugins) -> tuple[Problem, ...]:
    """Return a note for each enabled plugin whose entry has no effect.

    Returns:
        The notes, with paths from the profile's root.
    """
    return tuple(
        Problem(f"plugins.{point}.enabled[{index}]", f"{entry.name} has no effect: {_reason(entry.name, point)}")
        for point, plugin_set in plugins.points().items()
        for index, entry in enumerate(plugin_set.enabled)
        if entry.name in BUILT_IN_BEHAVIOUR or point in POD_GROUP_POINTS
    )


def _reason(name: str, point: str) -> str:
    known = BUILT_IN_BEHAVIOUR.get(name)
    return f"Bayplan has no extension point {point}" if known is None else known.behaviour
