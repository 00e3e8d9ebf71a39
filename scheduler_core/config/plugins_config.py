"""The grammar of ``plugins`` and ``pluginConfig`` in KubeSchedulerConfiguration v1.

Owns which plugins a profile names at which extension point, with which weight and args. It must not know which
plugins exist (the registry does) nor how sets merge with the defaults (``framework.plugin_sets`` does). Why weight
0 stays 0 here: whether it means 1 depends on the merge, not on the text.
Source: kube-scheduler v0.36.3, config/v1/types.go; kube-scheduler v1.36.3, pkg/scheduler/framework/runtime.
"""

from collections.abc import Iterator
from typing import Any

from pydantic import Field

from scheduler_core.config.config_model import INT32_MAX, ConfigModel, RuleProblem
from scheduler_core.config.validation import repeated

ALL_PLUGINS = "*"
"""In ``disabled``: every default plugin of the point."""


class Plugin(ConfigModel):
    """A plugin, by its name."""

    name: str = Field(
        min_length=1, description='Name of the plugin, such as NodeResourcesFit. In disabled, "*" stands for all.'
    )
    weight: int | None = Field(
        default=None,
        ge=0,
        le=INT32_MAX,
        description="How much the plugin's score counts; only used in enabled, at score and multiPoint. Unset or 0 "
        "means 1, also for a plugin of the default set that is named again; score goes before multiPoint.",
    )


class PluginSet(ConfigModel):
    """Plugins to enable and to disable at one extension point."""

    enabled: tuple[Plugin, ...] = Field(
        default=(),
        strict=False,
        description="Plugins to call, in this order. One that comes from the default set or multiPoint anyway is moved "
        "before the others of the point and takes the weight given here; one that does not is called after them. "
        "Under multiPoint, a plugin of the default set keeps its place.",
    )
    disabled: tuple[Plugin, ...] = Field(
        default=(),
        strict=False,
        description="Plugins to leave out that come from the default set or multiPoint; one entry named "
        '"*" leaves out all of them. What stands in enabled beside it stays.',
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """A plugin is enabled once, and ``*`` only disables."""
        for index in repeated([plugin.name for plugin in self.enabled]):
            yield RuleProblem(
                ("enabled", index, "name"),
                f'"{self.enabled[index].name}" is enabled by an earlier entry already; remove one of them',
            )
        for index, plugin in enumerate(self.enabled):
            if plugin.name == ALL_PLUGINS:
                yield RuleProblem(("enabled", index, "name"), '"*" can only be disabled; name the plugins to enable')


class Plugins(ConfigModel):
    """The plugin sets of all extension points. A point that is left out keeps its default plugins."""

    pre_enqueue: PluginSet = Field(
        default=PluginSet(), description="Plugins that a pod must pass before it enters the active queue."
    )
    queue_sort: PluginSet = Field(
        default=PluginSet(),
        description="The one plugin that orders the queue, PrioritySort by default; the same, with the same args, in "
        "all profiles.",
    )
    pre_filter: PluginSet = Field(
        default=PluginSet(),
        description="Plugins that prepare filtering, or rule out the pod, or most nodes, before it.",
    )
    filter: PluginSet = Field(
        default=PluginSet(),
        description="Plugins that rule out nodes that cannot run the pod. A node must pass all of them.",
    )
    post_filter: PluginSet = Field(
        default=PluginSet(), description="Plugins that are tried in order when no node is left, such as preemption."
    )
    pre_score: PluginSet = Field(default=PluginSet(), description="Plugins that prepare scoring.")
    score: PluginSet = Field(
        default=PluginSet(),
        description="Plugins that rank the nodes that passed the filters, each with 0 to 100 "
        "points times its weight; the node with the highest sum is chosen.",
    )
    reserve: PluginSet = Field(
        default=PluginSet(), description="Plugins that reserve, or give back, what the pod takes on the chosen node."
    )
    permit: PluginSet = Field(
        default=PluginSet(), description="Plugins that allow, refuse or delay binding, once a node is chosen."
    )
    pre_bind: PluginSet = Field(default=PluginSet(), description="Plugins that prepare what the pod needs to be bound.")
    bind: PluginSet = Field(
        default=PluginSet(), description="Plugins that bind; they are tried in order until one does it."
    )
    post_bind: PluginSet = Field(default=PluginSet(), description="Plugins that are told after a pod was bound.")
    multi_point: PluginSet = Field(
        default=PluginSet(),
        description="Plugins for every extension point that they implement, the usual place to enable one. What a "
        "single point says goes before this, and this goes before the default set.",
    )

    def points(self) -> dict[str, PluginSet]:
        """Give every set by its extension point.

        Returns:
            From the point's name as documents spell it (``preFilter``, ``multiPoint``) to its set, in the order of
            a scheduling cycle.
        """
        return {info.alias or name: getattr(self, name) for name, info in type(self).model_fields.items()}

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Only one plugin can order the queue."""
        for index in range(1, len(self.queue_sort.enabled)):
            yield RuleProblem(
                ("queueSort", "enabled", index), "only one plugin can order the queue; remove this or the first"
            )


class PluginConfig(ConfigModel):
    """The args of one plugin."""

    name: str = Field(min_length=1, description="Name of the plugin that takes the args.")
    args: dict[str, Any] = Field(
        default_factory=dict,
        description="The plugin's args in its own grammar, such as `scoringStrategy: {type: MostAllocated}` for "
        "NodeResourcesFit: for the plugins of kube-scheduler, the fields of its args kinds. What is left out takes the "
        "plugin's default.",
    )


def repeated_plugin_config(entries: tuple[PluginConfig, ...], location: str) -> Iterator[RuleProblem]:
    """Find plugins that are configured more than once.

    Args:
        entries: The list.
        location: Name of the list's field.

    Yields:
        A problem for each repetition.
    """
    for index in repeated([entry.name for entry in entries]):
        yield RuleProblem(
            (location, index, "name"),
            f'"{entries[index].name}" is configured by an earlier entry already; join the two or remove one',
        )
