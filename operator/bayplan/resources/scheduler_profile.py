"""SchedulerProfile: a scheduler, by its name, as a custom resource.

The schedulerName is immutable: after a change the pods with the old name would wait forever. A new name is a new
profile.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.alias_generators import to_camel

from bayplan.resources.conditions import Condition, conditions_field, generation_field
from bayplan.resources.crd_rules import MAX_EXTENDERS, MAX_PLUGINS
from bayplan.resources.resource_model import (
    MAX_NAME_LENGTH,
    CustomResource,
    ObjectRule,
    PrinterColumn,
    ResourceDefinition,
    StatusModel,
    Timestamp,
    condition_column,
    count,
    entries,
    number,
    text,
)
from scheduler_core.config import plugin_set_types as plugins_config
from scheduler_core.config.config_model import INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.profile_config import ProfileConfig, ProfileSettings
from scheduler_core.config.validation import repeated, validate

MAX_DIFFERENCES = 100
SHOWN_DIFFERENCES = 3
"""An earlier version of the operator writes up to :data:`MAX_DIFFERENCES`."""
MAX_REASON_LENGTH = 512
_MAX_POD_KEY_LENGTH = 2 * MAX_NAME_LENGTH + 1
_MAX_RESOURCES = 32
_MAX_REASONS = 16
_MAX_PLUGIN_NAMES = 2 * MAX_PLUGINS * (MAX_NAME_LENGTH + 13)
_DECIMAL = 32
"""Maximum length of a decimal number as text."""


class NotCompared(StatusModel):
    """Decisions of the live profile that the shadow did not make, by reason."""

    reason: str = text(
        "Why. Sample: not in the sample. Budget: no time was left. StateChanged: the cluster or the "
        "nominations changed before the shadow could decide. Gang, Devices, Volumes, Preemption, Resize: the pod is a "
        "member of a gang, has resource claims or unbound volume claims, preempts others, or waits for a resize. "
        "Extenders: an extender of the shadow takes part, and shadowExtenders is not true. Error, ShadowError: the "
        "live profile or the shadow failed. Paused: the shadow failed repeatedly.",
        63,
    )
    count: int = count("Number of decisions.", limit=INT64_MAX)


class ScoreDifference(StatusModel):
    """Average difference of total scores where the profiles chose different nodes that both allow."""

    live: str | None = text(
        "Points by which the live profile prefers its own node to the shadow's, in its own scores.",
        _DECIMAL,
        default=None,
    )
    shadow: str | None = text(
        "Points by which the shadow prefers its own node to the live one, in its own scores.", _DECIMAL, default=None
    )


class ResourceFigures(StatusModel):
    """Figures of one resource."""

    name: str = text("The resource.")
    imbalance: str | None = text("Standard deviation of the nodes' utilization, in percent.", _DECIMAL, default=None)
    unusable: str | None = text(
        "Share of the free amount on nodes where a carried pod would not fit, in percent, averaged over "
        "the carried pods.",
        _DECIMAL,
        default=None,
    )


class PlacementFigures(StatusModel):
    """Packing and spread of one state of the cluster."""

    empty_nodes: int = count("Nodes without pods.")
    placed: int = count("Carried pods that have a node.")
    zone_skew: int | None = count(
        "Difference between the zones with the most and the fewest carried pods; absent without two zones.",
        default=None,
    )
    resources: tuple[ResourceFigures, ...] = entries("Figures by resource.", _MAX_RESOURCES)


class CarriedForward(StatusModel):
    """Estimate of what the shadow's choices would cause: they are carried forward for up to 300 pods or 10 minutes."""

    since: Timestamp = Field(description="Start of the present period.")
    pods: int = count("Pods whose decisions are carried forward.")
    moved: int = count("Those that have another node than in the cluster, or none, by the shadow.")
    live: PlacementFigures = Field(description="The cluster as it is.")
    shadow: PlacementFigures = Field(description="The cluster with the shadow's choices for these pods.")


class Difference(StatusModel):
    """One decision that differed."""

    time: Timestamp = Field(description="Time of the decision.")
    pod: str = text("namespace/name.", _MAX_POD_KEY_LENGTH)
    kind: Literal["OtherNode", "WouldReject", "WouldPlace"] = Field(
        description="OtherNode: the shadow chose another node. WouldReject: it rejects a pod that the live profile "
        "placed. WouldPlace: it places a pod that the live profile rejected."
    )
    live_node: str | None = text("Node of the live profile; absent if it rejected the pod.", default=None)
    shadow_node: str | None = text("Node of the shadow; absent if it rejects the pod.", default=None)
    reason: str = text(
        "Why they differ: which profile rejects which node, or the plugins whose scores decide.", MAX_REASON_LENGTH
    )


class ShadowStatus(StatusModel):
    """Comparison of a shadow with its live profile, since one of the two changed last."""

    live_revision: str | None = text("Revision of the live profile that it is compared with.", 63, default=None)
    since: Timestamp = Field(description="Start of the comparison.")
    decided: int = count("Decisions of the live profile.", limit=INT64_MAX)
    compared: int = count("Decisions that the shadow made, too, on the same state.", limit=INT64_MAX)
    agreed: int = count("Compared decisions that were equal: the same node, or none.", limit=INT64_MAX)
    differed: int = count("Compared decisions that differed.", limit=INT64_MAX)
    other_node: int = count("Pods for which the shadow chose another node.", limit=INT64_MAX)
    would_reject: int = count("Pods that the live profile placed and the shadow rejects.", limit=INT64_MAX)
    would_place: int = count("Pods that the live profile rejected and the shadow places.", limit=INT64_MAX)
    not_compared: tuple[NotCompared, ...] = entries(
        "Decisions of the live profile that were not compared.", _MAX_REASONS, key="reason"
    )
    errors: int = count("Decisions of the shadow that failed.", default=0, limit=INT64_MAX)
    last_error: str | None = text("Message of the last of these.", 4096, default=None)
    seconds: str = text("Time that the shadow used, in seconds of the scheduler.", _DECIMAL)
    score_difference: ScoreDifference = Field(
        default=ScoreDifference(), description="Average score differences, per decision."
    )
    carried_forward: CarriedForward | None = Field(
        default=None,
        description="Effect of the shadow's choices on packing and spread, if they had been taken. All other figures "
        "are of single decisions on the live state.",
    )
    differences: tuple[Difference, ...] = entries(
        "The last three differences, the newest first; `bayplan status --shadow` shows 100.", MAX_DIFFERENCES
    )


_EFFECTIVE_NAME = "(has({0}.spec.schedulerName) ? {0}.spec.schedulerName : {0}.metadata.name)"


SHADOW_FIELDS = ("shadowOf", "samplePercent", "shadowBudgetPercent", "shadowExtenders")
"""Fields of a spec that only shadows have."""


class PluginConfigRef(ConfigModel):
    """A reference to a PluginConfig object."""

    name: str = text("Name of the PluginConfig.", min_length=1)


class SchedulerProfileSpec(ProfileSettings):
    """Plugins of each extension point, their args, and the limits of the node search."""

    plugin_config_refs: tuple[PluginConfigRef, ...] = Field(
        default=(),
        strict=False,
        description="PluginConfig objects (kubectl get plc) whose args this profile uses; an edit of one takes effect "
        "in every profile that refers to it. A plugin must not be configured both here and in pluginConfig.",
        json_schema_extra={
            "maxItems": MAX_PLUGINS,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
        },
    )

    shadow_of: str | None = text(
        "Scheduler name of a live profile. This profile is then its shadow: it decides the pods of that "
        "profile again, after their binds were sent, and binds none. What it decides differently is in status.shadow. "
        "It has no schedulerName of its own, and the field cannot be added or removed later; bayplan promote writes "
        "the spec of a shadow into the live profile.",
        default=None,
        min_length=1,
    )
    sample_percent: int | None = number(
        "Percentage of the live profile's decisions that a shadow makes, too. Default: 100.", ge=1, le=100
    )
    shadow_budget_percent: int | None = number(
        "Largest percentage of the scheduler's time that a shadow uses; further decisions are not "
        "compared. Default: 10.",
        ge=1,
        le=100,
    )
    shadow_extenders: bool | None = Field(
        default=None,
        description="Whether the extenders of a shadow are called, which live decisions wait for within the budget. "
        "Without it, pods that an extender takes part in are not compared. Default: false.",
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check repeated references and the fields of shadows, too."""
        yield from super().rule_problems()
        if self.shadow_of is not None and self.scheduler_name:
            yield RuleProblem(("schedulerName",), "a shadow schedules no pods of its own; remove it, or shadowOf")
        for name in ("sample_percent", "shadow_budget_percent", "shadow_extenders"):
            if self.shadow_of is None and getattr(self, name) is not None:
                yield RuleProblem((to_camel(name),), "only a shadow has it; set shadowOf, or remove it")
        for index in repeated([reference.name for reference in self.plugin_config_refs]):
            yield RuleProblem(
                ("pluginConfigRefs", index, "name"),
                f'"{self.plugin_config_refs[index].name}" is referenced by an earlier entry already; remove one',
            )


class QueueCounts(StatusModel):
    """Numbers of the profile's waiting pods, by queue."""

    active: int = count("Pods in the active queue.", default=0)
    backoff: int = count("Pods in backoff after a failed attempt.", default=0)
    unschedulable: int = count("Unschedulable pods, which wait for the cluster to change.", default=0)
    gated: int = count("Gated pods, or pods rejected at PreEnqueue.", default=0)


class ExtenderStatus(StatusModel):
    """State of an extender of the live revision."""

    url_prefix: str = text("urlPrefix of the extender.", 1024)
    state: Literal["Closed", "Open", "HalfOpen"] = Field(
        description="State of its circuit. Closed: it is called. Open: it failed several times in a row and is not "
        "called for a while; pods fail at once, or are scheduled without it if it is ignorable. HalfOpen: one trial "
        "call decides."
    )
    since: Timestamp | None = Field(
        default=None, description="Time of the last change of state; absent if it was always Closed."
    )
    last_error: str | None = text("Reason of the last failed call; it stays after a success.", 4096, default=None)


class SchedulerProfileStatus(StatusModel):
    """Live revision and progress; written by the operator."""

    observed_generation: int = generation_field("this status")
    scheduler_name: str | None = text("Scheduler name of the pods that this profile schedules.", default=None)
    active_revision: str | None = text(
        "Hash of the live content; different content has a different hash.", 63, default=None
    )
    conditions: tuple[Condition, ...] = conditions_field(
        "Accepted: whether the current spec is valid, with every problem and its field path. Ready: "
        "whether a revision is live, the last good one if the spec is invalid. Contested: whether another client has "
        "recently bound pods that this profile was binding, or overcommitted a node with its pods. Comparing: whether "
        "a shadow decides the pods of its live profile. Stalled and Reconciling are present only while they are "
        "true, for tools that wait for a spec to take effect: it was rejected, or waits for other profiles."
    )
    resolved_plugins: dict[str, Annotated[str, Field(json_schema_extra={"maxLength": _MAX_PLUGIN_NAMES})]] = Field(
        default={},
        description="Live plugins of each extension point in the order of their calls, including the default plugins, "
        "such as `score: TaintToleration=3, NodeAffinity=2`: at score with their weights.",
        json_schema_extra={"maxProperties": 16},
    )
    queue: QueueCounts = Field(default=QueueCounts(), description="Waiting pods, by queue.")
    pending: int = count("All waiting pods, the sum of queue.", default=0)
    scheduled_total: int = count(
        "Pods that this profile has bound since the operator started.", default=0, limit=INT64_MAX
    )
    last_scheduled_time: Timestamp | None = Field(default=None, description="Time of the last bind.")
    last_error: str | None = text(
        "Last error other than an unschedulable pod, such as a failed plugin.", 4096, default=None
    )
    last_error_time: Timestamp | None = Field(
        default=None, description="Time of lastError, to the second; not stored over restarts of the operator."
    )
    lost_binds: int = count(
        "Pods bound by another client while this profile was binding them, since the operator started.",
        default=0,
        limit=INT64_MAX,
    )
    last_lost_bind_time: Timestamp | None = Field(
        default=None, description="Time of the last such bind; see the condition Contested."
    )
    extenders: tuple[ExtenderStatus, ...] = entries(
        "The extenders of the live revision, in the order of the spec.", MAX_EXTENDERS
    )
    shadow: ShadowStatus | None = Field(
        default=None, description="What a shadow decided; absent for other profiles, and while it does not run."
    )


class SchedulerProfile(CustomResource):
    """A scheduler, by its name: pods whose spec.schedulerName is its name are scheduled by its plugins."""

    definition: ClassVar[ResourceDefinition] = ResourceDefinition(
        kind="SchedulerProfile",
        plural="schedulerprofiles",
        short_name="sp",
        namespaced=False,
        description="SchedulerProfile is a scheduler, by its name: pods with that spec.schedulerName are scheduled by "
        "the plugins that it configures. An edit takes effect at once, without a restart; an invalid edit is reported "
        "in the condition Accepted while the last good revision keeps running.",
        columns=(
            condition_column("Ready", "Ready", "Whether a revision is live."),
            condition_column("Accepted", "Accepted", "Whether the spec is valid."),
            PrinterColumn("Revision", "string", ".status.activeRevision", "Hash of the live content."),
            PrinterColumn("Pending", "integer", ".status.pending", "Waiting pods."),
            PrinterColumn("Unsched", "integer", ".status.queue.unschedulable", "Unschedulable pods."),
            PrinterColumn("Backoff", "integer", ".status.queue.backoff", "Pods in backoff.", wide=True),
            PrinterColumn("Gated", "integer", ".status.queue.gated", "Gated pods.", wide=True),
            PrinterColumn(
                "Bound", "integer", ".status.scheduledTotal", "Pods bound since the operator started.", wide=True
            ),
            PrinterColumn("Shadows", "string", ".spec.shadowOf", "Live profile of a shadow.", wide=True),
            PrinterColumn("Agree", "integer", ".status.shadow.agreed", "Equal decisions of a shadow.", wide=True),
            PrinterColumn("Differ", "integer", ".status.shadow.differed", "Other decisions of a shadow.", wide=True),
            condition_column(
                "Contested",
                "Contested",
                "Whether another client binds its pods, or overcommits their nodes.",
                wide=True,
            ),
            PrinterColumn("Scheduler", "string", ".status.schedulerName", "Scheduler name of its pods.", wide=True),
            condition_column("Message", "Accepted", "Problems of the spec.", "message", wide=True),
            PrinterColumn("Last Error", "string", ".status.lastError", "The last error.", wide=True),
            PrinterColumn("Error Age", "date", ".status.lastErrorTime", "Time since the last error.", wide=True),
        ),
        rules=(
            ObjectRule(
                f"{_EFFECTIVE_NAME.format('self')} == {_EFFECTIVE_NAME.format('oldSelf')}",
                "cannot change; create another SchedulerProfile with the new name",
                ".spec.schedulerName",
            ),
            ObjectRule(
                "has(self.spec.shadowOf) == has(oldSelf.spec.shadowOf)",
                "cannot be added or removed; create another SchedulerProfile, or promote a shadow with bayplan promote",
                ".spec.shadowOf",
            ),
        ),
        selectable=(".spec.schedulerName", ".spec.shadowOf", ".status.activeRevision"),
    )

    spec: SchedulerProfileSpec
    status: SchedulerProfileStatus = SchedulerProfileStatus()

    @property
    def scheduler_name(self) -> str:
        """Scheduler name of the pods that it schedules."""
        return self.spec.scheduler_name or self.metadata.name

    def profile_config(self, referenced: Iterable[plugins_config.PluginConfig] = ()) -> ProfileConfig:
        """Merge the spec with the args that it refers to.

        Args:
            referenced: Plugin and args of each PluginConfig in ``pluginConfigRefs``, in their order.

        Raises:
            ConfigError: A plugin is configured twice.
        """
        fields = {name: value for name, value in self.spec if name in ProfileSettings.model_fields}
        fields |= {"scheduler_name": self.scheduler_name, "plugin_config": (*self.spec.plugin_config, *referenced)}
        return validate(ProfileConfig, fields, "spec")
