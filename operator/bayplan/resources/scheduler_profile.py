"""SchedulerProfile: a scheduler, by its name, as a custom resource.

Owns the grammar of its spec, its status and its columns. It must not know how a profile becomes live. Why the
schedulerName cannot change: the pods that wait under a name would wait for nobody; a new name is a new profile.
"""

from collections.abc import Iterable, Iterator
from typing import ClassVar, Literal

from pydantic import ConfigDict, Field
from pydantic.config import JsonDict

from bayplan.resources.admission import BINDER_RULE, MANAGED_RESOURCE_RULE, MAX_EXTENDERS, MAX_PLUGINS
from bayplan.resources.conditions import CONDITIONS_SCHEMA, Condition
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
    CustomResource,
    ObjectRule,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    Timestamp,
)
from scheduler_core.config import plugins_config
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.extender_config import Extender, extender_problems
from scheduler_core.config.plugins_config import Plugins, repeated_plugin_config
from scheduler_core.config.profile_config import ProfileConfig, backoff_problems
from scheduler_core.config.validation import repeated, validate

_EFFECTIVE_NAME = "(has({0}.spec.schedulerName) ? {0}.spec.schedulerName : {0}.metadata.name)"

_BACKOFF_RULE: JsonDict = {
    "rule": "!has(self.podMaxBackoffSeconds) || !has(self.podInitialBackoffSeconds) || "
    "self.podMaxBackoffSeconds >= self.podInitialBackoffSeconds",
    "message": "must be at least podInitialBackoffSeconds",
    "fieldPath": ".podMaxBackoffSeconds",
}


class PluginConfigRef(ConfigModel):
    """A reference to a PluginConfig object."""

    name: str = Field(
        min_length=1, description="Name of the PluginConfig.", json_schema_extra={"maxLength": MAX_NAME_LENGTH}
    )


class SchedulerProfileSpec(ConfigModel):
    """What the profile is to do: the plugins of each extension point, their args and the limits of the search."""

    model_config = ConfigDict(json_schema_extra={"x-kubernetes-validations": [_BACKOFF_RULE]})

    scheduler_name: str | None = Field(
        default=None,
        min_length=1,
        description="Pods with this spec.schedulerName are scheduled by this profile. The profile's own name when "
        "left out. It cannot change. When two profiles claim a name, the older one holds it.",
        json_schema_extra={"maxLength": MAX_NAME_LENGTH},
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="How many percent of the nodes must be found feasible before the search for more stops (at least "
        "100 nodes). 0 takes kube-scheduler's formula, 50 % down to 5 % with the size of the cluster. When left out, "
        "every feasible node is scored.",
    )
    pod_initial_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="How long a pod waits after its first failed attempt, in seconds; it doubles with each further "
        "one. The operator's setting when left out.",
    )
    pod_max_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="The longest that a pod waits after a failed attempt, in seconds; at least "
        "podInitialBackoffSeconds. The operator's setting when left out.",
    )
    plugins: Plugins = Field(
        default=Plugins(),
        description="Plugins to enable and disable at each extension point, in the grammar of "
        "KubeSchedulerConfiguration v1. What is left out stays as in kube-scheduler's default profile. What comes of "
        "it stands in status.plugins.",
    )
    plugin_config: tuple[plugins_config.PluginConfig, ...] = Field(
        default=(),
        strict=False,
        description="Args of plugins, in the grammar of KubeSchedulerConfiguration v1; one entry for each plugin. "
        "They are checked with the plugin's own rules: the condition Accepted tells what is wrong with them.",
        json_schema_extra={
            "maxItems": MAX_PLUGINS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    plugin_config_refs: tuple[PluginConfigRef, ...] = Field(
        default=(),
        strict=False,
        description="PluginConfig objects (kubectl get plc) whose args this profile takes; an edit of one reaches "
        "every profile that refers to it. A plugin must not be configured both here and in pluginConfig.",
        json_schema_extra={
            "maxItems": MAX_PLUGINS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )
    extenders: tuple[Extender, ...] = Field(
        default=(),
        strict=False,
        description="HTTP services that take part in this profile's decisions, called in this order.",
        json_schema_extra={
            "maxItems": MAX_EXTENDERS,
            "x-kubernetes-list-type": "atomic",
            "x-kubernetes-validations": [BINDER_RULE, MANAGED_RESOURCE_RULE],
        },
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Backoffs are in order, nothing is configured or referred to twice, the extenders go together."""
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        yield from repeated_plugin_config(self.plugin_config, "pluginConfig")
        for index in repeated([reference.name for reference in self.plugin_config_refs]):
            yield RuleProblem(
                ("pluginConfigRefs", index, "name"),
                f'"{self.plugin_config_refs[index].name}" is referred to by an earlier entry already; remove one',
            )
        yield from extender_problems(self.extenders)


class ResolvedPlugin(StatusModel):
    """A plugin that is live at an extension point."""

    name: str = Field(description="The plugin's name.", json_schema_extra={"maxLength": MAX_NAME_LENGTH})
    weight: int | None = Field(default=None, ge=0, le=INT32_MAX, description="Its weight, at score only.")


class ResolvedPoint(StatusModel):
    """The plugins of an extension point in the order in which they are called."""

    point: str = Field(description="The extension point, such as preFilter.", json_schema_extra={"maxLength": 63})
    plugins: tuple[ResolvedPlugin, ...] = Field(
        default=(),
        description="Its plugins in the order in which they are called.",
        json_schema_extra={"maxItems": 2 * MAX_PLUGINS, "x-kubernetes-list-type": "atomic"},
    )


class QueueCounts(StatusModel):
    """How many of the profile's pods wait, and how."""

    active: int = Field(default=0, ge=0, le=INT32_MAX, description="Pods that are next to be tried.")
    backoff: int = Field(default=0, ge=0, le=INT32_MAX, description="Pods that wait a little after a failed attempt.")
    unschedulable: int = Field(
        default=0, ge=0, le=INT32_MAX, description="Pods that wait for the cluster to change, since they fit nowhere."
    )
    gated: int = Field(default=0, ge=0, le=INT32_MAX, description="Pods that a scheduling gate or plugin holds back.")


class ExtenderStatus(StatusModel):
    """How one extender of the live revision is."""

    url_prefix: str = Field(description="Which extender.", json_schema_extra={"maxLength": 1024})
    state: Literal["Closed", "Open", "HalfOpen"] = Field(
        description="Its circuit. Closed: it is called. Open: it failed several times in a row and is left alone for a "
        "while; pods fail at once, or go on without it if it is ignorable. HalfOpen: one call tries whether it is well."
    )
    since: Timestamp | None = Field(
        default=None, description="When state last changed; left out while it has been Closed all along."
    )
    last_error: str | None = Field(
        default=None,
        description="The last reason why it could not be asked, also when that is over.",
        json_schema_extra={"maxLength": 4096},
    )


class SchedulerProfileStatus(StatusModel):
    """What is live and how it goes; written by the operator."""

    observed_generation: int = Field(
        default=0, ge=0, le=INT64_MAX, description="The metadata.generation that this status was found for."
    )
    scheduler_name: str | None = Field(
        default=None,
        description="The name of which this profile schedules the pods.",
        json_schema_extra={"maxLength": MAX_NAME_LENGTH},
    )
    active_revision: str | None = Field(
        default=None,
        description="Hash of the content that is live; another content has another hash.",
        json_schema_extra={"maxLength": 63},
    )
    conditions: tuple[Condition, ...] = Field(
        default=(),
        description="Accepted: whether the spec as written is valid, with every problem and its field path. Ready: "
        "whether a revision is live, the last good one when the spec is not valid. Contested: whether someone else has "
        "lately bound pods that this profile was binding. Stalled and Reconciling stand there only while they hold, "
        "for tools that wait for a spec to take effect: it is not taken, or waits for other profiles.",
        json_schema_extra=dict(CONDITIONS_SCHEMA),
    )
    plugins: tuple[ResolvedPoint, ...] = Field(
        default=(),
        description="The live plugins of each extension point, with the default plugins and all weights.",
        json_schema_extra={
            "maxItems": 16,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["point"],
        },
    )
    queue: QueueCounts = Field(default=QueueCounts(), description="Pods that wait, by where they wait.")
    pending: int = Field(default=0, ge=0, le=INT32_MAX, description="All pods that wait, the sum of queue.")
    scheduled_total: int = Field(
        default=0, ge=0, le=INT64_MAX, description="Pods that this profile has bound since the operator started."
    )
    last_scheduled_time: Timestamp | None = Field(default=None, description="When it last bound a pod.")
    last_error: str | None = Field(
        default=None,
        description="The last error that was not a pod's own, such as a plugin that failed.",
        json_schema_extra={"maxLength": 4096},
    )
    lost_binds: int = Field(
        default=0,
        ge=0,
        le=INT64_MAX,
        description="Pods that someone else bound while this profile was binding them, since the operator started.",
    )
    last_lost_bind_time: Timestamp | None = Field(
        default=None, description="When that was last found; the condition Contested tells more."
    )
    extenders: tuple[ExtenderStatus, ...] = Field(
        default=(),
        description="The extenders of the live revision, in the order of the spec.",
        json_schema_extra={"maxItems": MAX_EXTENDERS, "x-kubernetes-list-type": "atomic"},
    )


class SchedulerProfile(CustomResource):
    """A scheduler, by its name: pods whose spec.schedulerName is its name are scheduled by its plugins."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="SchedulerProfile",
        plural="schedulerprofiles",
        short_name="sp",
        namespaced=False,
        description="SchedulerProfile is a scheduler, by its name: pods whose spec.schedulerName is that name are "
        "scheduled by the plugins that it sets up. An edit takes effect at once, without a restart; one that is not "
        "valid is told in the condition Accepted while the last good revision goes on.",
        columns=(
            PrinterColumn(
                "Ready", "string", '.status.conditions[?(@.type=="Ready")].status', "Whether a revision is live."
            ),
            PrinterColumn(
                "Accepted", "string", '.status.conditions[?(@.type=="Accepted")].status', "Whether the spec is valid."
            ),
            PrinterColumn("Revision", "string", ".status.activeRevision", "Hash of what is live."),
            PrinterColumn("Pending", "integer", ".status.pending", "Pods that wait for a node."),
            PrinterColumn("Unsched", "integer", ".status.queue.unschedulable", "Pods that fit nowhere at present."),
            PrinterColumn("Backoff", "integer", ".status.queue.backoff", "Pods that wait a little.", wide=True),
            PrinterColumn("Gated", "integer", ".status.queue.gated", "Pods that are held back.", wide=True),
            PrinterColumn(
                "Bound", "integer", ".status.scheduledTotal", "Pods bound since the operator started.", wide=True
            ),
            PrinterColumn(
                "Contested",
                "string",
                '.status.conditions[?(@.type=="Contested")].status',
                "Whether someone else binds its pods.",
                wide=True,
            ),
            PrinterColumn("Scheduler", "string", ".status.schedulerName", "The schedulerName of its pods.", wide=True),
            PrinterColumn(
                "Message",
                "string",
                '.status.conditions[?(@.type=="Accepted")].message',
                "What is wrong with the spec.",
                wide=True,
            ),
            PrinterColumn("Last Error", "string", ".status.lastError", "The last error.", wide=True),
        ),
        rules=(
            ObjectRule(
                f"{_EFFECTIVE_NAME.format('self')} == {_EFFECTIVE_NAME.format('oldSelf')}",
                "cannot change; create another SchedulerProfile with the new name",
                ".spec.schedulerName",
            ),
        ),
    )

    spec: SchedulerProfileSpec
    status: SchedulerProfileStatus = SchedulerProfileStatus()

    @property
    def scheduler_name(self) -> str:
        """The ``spec.schedulerName`` of the pods that it schedules."""
        return self.spec.scheduler_name or self.metadata.name

    def profile_config(self, referenced: Iterable[plugins_config.PluginConfig] = ()) -> ProfileConfig:
        """Join the spec with what it refers to.

        Args:
            referenced: Plugin and args of each PluginConfig in ``pluginConfigRefs``, in their order.

        Returns:
            What a framework instance is built from.

        Raises:
            ConfigError: When a plugin is configured twice.
        """
        inline = self.spec.document()
        inline.pop("pluginConfigRefs", None)
        entries = [*inline.get("pluginConfig", ()), *(entry.document() for entry in referenced)]
        return validate(
            ProfileConfig, {**inline, "schedulerName": self.scheduler_name, "pluginConfig": entries}, "spec"
        )
