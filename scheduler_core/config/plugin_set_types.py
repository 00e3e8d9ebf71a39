"""The grammar of ``plugins`` and ``pluginConfig`` in KubeSchedulerConfiguration v1.

The registry checks plugin names, and ``framework.registry`` merges sets with the defaults. Weight 0 stays 0
here, because whether it means 1 depends on the merge.
Source: kube-scheduler v0.37.1, config/v1/types.go; kube-scheduler v1.37.1, pkg/scheduler/framework/runtime.

A profile may enable them, which has no effect, and may not disable them. kube-scheduler has these plugins behind
feature gates, so a configuration names them when the gates are on.

Source: kube-scheduler v1.36.3 and v1.37.1, ``pkg/scheduler/framework/plugins/registry.go``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from msgspec import Struct
from pydantic import Field

from scheduler_core.config.config_model import INT32_MAX, ConfigModel, RuleProblem, list_field
from scheduler_core.config.validation import repeated
from scheduler_core.errors import Problem

ALL_PLUGINS = "*"
"""Stands for all default plugins of an extension point in ``disabled``."""


class Plugin(ConfigModel):
    """A plugin with its weight."""

    name: str = Field(
        min_length=1, description='Name of the plugin, such as NodeResourcesFit. In disabled, "*" means all.'
    )
    weight: int | None = Field(
        default=None,
        ge=0,
        le=INT32_MAX,
        description="Weight of the plugin's score; only used in enabled, at score and multiPoint. Unset or 0 "
        "means 1, also for a default plugin that is listed again; score takes precedence over multiPoint.",
    )


class PluginSet(ConfigModel):
    """Plugins to enable and disable at one extension point."""

    enabled: tuple[Plugin, ...] = list_field(
        "Plugins to enable, in this order. A plugin that the default set or multiPoint enables already is "
        "moved before the other plugins of the point and gets this weight; other plugins are called last. "
        "Under multiPoint, a default plugin keeps its position."
    )
    disabled: tuple[Plugin, ...] = list_field(
        "Plugins of the default set or multiPoint to disable; an entry named "
        '"*" disables all of them. Plugins in enabled stay enabled.'
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that a plugin is enabled once, and that ``*`` is only disabled."""
        for index in repeated([plugin.name for plugin in self.enabled]):
            yield RuleProblem(
                ("enabled", index, "name"),
                f'"{self.enabled[index].name}" is already enabled by an earlier entry; remove one of them',
            )
        for index, plugin in enumerate(self.enabled):
            if plugin.name == ALL_PLUGINS:
                yield RuleProblem(("enabled", index, "name"), '"*" can only be disabled; name the plugins to enable')


def _plugin_set(description: str) -> Any:
    return Field(default=PluginSet(), description=description)


class Plugins(ConfigModel):
    """Plugin sets of all extension points. A point that is not set keeps its default plugins."""

    pre_enqueue: PluginSet = _plugin_set("Plugins that a pod must pass before it enters the active queue.")
    queue_sort: PluginSet = _plugin_set(
        "The plugin that orders the queue, PrioritySort by default; all profiles must have the same plugin "
        "with the same args."
    )
    pre_filter: PluginSet = _plugin_set("Plugins that prepare Filter, reject the pod, or restrict the nodes.")
    filter: PluginSet = _plugin_set(
        "Plugins that rule out nodes that cannot run the pod. A node must pass all of them."
    )
    post_filter: PluginSet = _plugin_set(
        "Plugins that are called in order when no node is feasible, such as preemption."
    )
    pre_score: PluginSet = _plugin_set("Plugins that prepare scoring.")
    score: PluginSet = _plugin_set(
        "Plugins that score the feasible nodes, each with 0 to 100 points times its weight; the node with "
        "the highest sum is chosen."
    )
    reserve: PluginSet = _plugin_set("Plugins that reserve resources for the pod on the chosen node.")
    permit: PluginSet = _plugin_set("Plugins that approve, reject or delay the binding.")
    pre_bind: PluginSet = _plugin_set("Plugins that prepare the binding.")
    bind: PluginSet = _plugin_set("Plugins that bind the pod; they are called in order until one does.")
    post_bind: PluginSet = _plugin_set("Plugins that are called after a pod was bound.")
    multi_point: PluginSet = _plugin_set(
        "Plugins to enable at every extension point that they implement; the usual way to enable a plugin. "
        "The sets of single points take precedence over it, and it takes precedence over the default set."
    )

    def points(self) -> dict[str, PluginSet]:
        """Return the sets by the name of the point in documents (``preFilter``), in the order of a scheduling cycle."""
        return {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that at most one plugin orders the queue."""
        for index in range(1, len(self.queue_sort.enabled)):
            yield RuleProblem(
                ("queueSort", "enabled", index), "only one plugin can order the queue; remove this or the first"
            )


class PluginConfig(ConfigModel):
    """Args of one plugin."""

    name: str = Field(min_length=1, description="Name of the plugin.")
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="The plugin's args, such as `scoringStrategy: {type: MostAllocated}` for NodeResourcesFit. For the "
        "plugins of kube-scheduler they have the fields of its args kinds. Fields that are not set have the plugin's "
        "defaults.",
    )


def repeated_plugin_config(entries: tuple[PluginConfig, ...]) -> Iterator[RuleProblem]:
    """Yield a problem for each plugin that ``pluginConfig`` configures again."""
    for index in repeated([entry.name for entry in entries]):
        yield RuleProblem(
            ("pluginConfig", index, "name"),
            f'"{entries[index].name}" is already configured by an earlier entry; merge the two or remove one',
        )


_MULTI_POINT = "multiPoint"


class BuiltInBehaviour(Struct, frozen=True):
    """The work of one plugin of kube-scheduler.

    Attributes:
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

    Returns:
        The message; "" if the plugin can be enabled; None if kube-scheduler has no such plugin.
    """
    known = BUILT_IN_BEHAVIOUR.get(name)
    if known is None:
        return None
    if point in (*known.points, _MULTI_POINT):
        return ""
    return f'plugin "{name}" does not serve {point}; it serves {", ".join(known.points)}: move the entry there'


def disabled_problems(plugins: Plugins) -> Iterator[Problem]:
    """Yield a problem for each disabled plugin whose work cannot be switched off; ``*`` is ignored."""
    for point, plugin_set in plugins.points().items():
        for index, entry in enumerate(plugin_set.disabled):
            known = BUILT_IN_BEHAVIOUR.get(entry.name)
            if known is not None and point in (*known.points, _MULTI_POINT):
                message = f'plugin "{entry.name}" cannot be disabled: {known.behaviour}; remove the entry'
                yield Problem(f"plugins.{point}.disabled[{index}].name", message)


def enabled_notes(plugins: Plugins) -> tuple[Problem, ...]:
    """Return a note, with its path from the profile, for each enabled plugin whose entry has no effect."""
    return tuple(
        Problem(f"plugins.{point}.enabled[{index}]", f"{entry.name} has no effect: {_reason(entry.name, point)}")
        for point, plugin_set in plugins.points().items()
        for index, entry in enumerate(plugin_set.enabled)
        if entry.name in BUILT_IN_BEHAVIOUR or point in POD_GROUP_POINTS
    )


def _reason(name: str, point: str) -> str:
    known = BUILT_IN_BEHAVIOUR.get(name)
    return f"Bayplan has no extension point {point}" if known is None else known.behaviour
