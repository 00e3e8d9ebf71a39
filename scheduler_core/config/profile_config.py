"""Configuration of one framework instance, from a SchedulerProfile object or a KubeSchedulerConfiguration.

Certificates are checked for base64 only; the TLS library checks the rest when the client is created.
Source: kube-scheduler v0.37.1, config/v1/types.go; v1.37.1, validation/validation.go and pkg/scheduler/extender.go.

The revision is a hash of the content, not of the object: equal profiles that are written differently have the same
revision, so a changed label or comment does not rebuild anything.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import ClassVar

from msgspec import Struct
from pydantic import Field

from scheduler_core.config.config_model import (
    INT32_MAX,
    INT64_MAX,
    ConfigModel,
    DurationField,
    RuleProblem,
    list_field,
    seconds,
)
from scheduler_core.config.gang_owners import GangSettings
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins, repeated_plugin_config
from scheduler_core.config.validation import extended_resource_problems


class ExtenderManagedResource(ConfigModel):
    """An extended resource that an extender manages."""

    name: str = Field(min_length=1, description="Name of the extended resource, such as example.com/licence.")
    ignored_by_scheduler: bool = Field(default=False, description="Whether NodeResourcesFit ignores this resource.")


class ExtenderTLSConfig(ConfigModel):
    """TLS settings of the connection to an extender. Data take precedence over files."""

    insecure: bool = Field(default=False, description="Do not verify the extender's certificate; for tests only.")
    server_name: str = Field(
        default="", description="Name in the extender's certificate; the host of urlPrefix when empty."
    )
    cert_file: str = Field(default="", description="Path of the client certificate (PEM) in the scheduler's files.")
    key_file: str = Field(default="", description="Path of the client key (PEM) in the scheduler's files.")
    ca_file: str = Field(default="", description="Path of the trusted CA certificates (PEM) in the scheduler's files.")
    cert_data: str = Field(default="", description="The client certificate (PEM) in base64.")
    key_data: str = Field(
        default="",
        repr=False,
        description="The client key (PEM) in base64. Prefer keyFile, because all users who can read this object can "
        "read the key.",
    )
    ca_data: str = Field(default="", description="The trusted CA certificates (PEM) in base64.")

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the base64 data, that certificate and key come together, and that insecure has no CA."""
        for name, text in (("certData", self.cert_data), ("keyData", self.key_data), ("caData", self.ca_data)):
            try:
                base64.b64decode(text, validate=True)
            except (binascii.Error, ValueError):
                yield RuleProblem((name,), "must be base64")
        if self.insecure and (self.ca_file or self.ca_data):
            yield RuleProblem(("insecure",), "cannot be true together with caFile or caData; remove one of them")
        if bool(self.cert_file or self.cert_data) != bool(self.key_file or self.key_data):
            yield RuleProblem((), "a client certificate and its key must be set together; set both or neither")


class Extender(ConfigModel):
    """An extender. It takes part in the steps whose verb is set."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"httpTimeout"})

    url_prefix: str = Field(
        min_length=1, description="URL of the extender, such as https://licences.example.com/scheduler."
    )
    filter_verb: str = Field(default="", description="Path after urlPrefix of the filter call; empty for none.")
    preempt_verb: str = Field(default="", description="Path after urlPrefix of the preempt call; empty for none.")
    prioritize_verb: str = Field(default="", description="Path after urlPrefix of the prioritize call; empty for none.")
    weight: int = Field(
        default=0,
        ge=-INT64_MAX - 1,
        le=INT64_MAX,
        description="Weight of the extender's scores; at least 1 with prioritizeVerb.",
    )
    bind_verb: str = Field(
        default="",
        description="Path after urlPrefix of the bind call; empty for none. Only one extender may bind, and it "
        "creates the binding itself.",
    )
    enable_https: bool = Field(
        default=False,
        alias="enableHTTPS",
        description="Whether to skip verification of the extender's certificate if tlsConfig names no CA, as in "
        "kube-scheduler. The scheme of urlPrefix selects HTTP or HTTPS.",
    )
    tls_config: ExtenderTLSConfig | None = Field(default=None, description="TLS settings of the connection.")
    http_timeout: DurationField = Field(
        default=seconds(5),
        description="Timeout of one call, such as 5s. If filter times out, the pod's attempt fails; if prioritize "
        "times out, its scores are left out.",
    )
    node_cache_capable: bool = Field(
        default=False, description="Whether the extender caches nodes, so that requests contain only node names."
    )
    managed_resources: tuple[ExtenderManagedResource, ...] = list_field(
        "Extended resources that the extender manages: it is called only for pods that request one of "
        "them. When empty, it is called for all pods."
    )
    ignorable: bool = Field(
        default=False, description="Whether scheduling continues if the extender is unreachable or returns an error."
    )


def extender_problems(extenders: Sequence[Extender]) -> Iterator[RuleProblem]:
    """Yield scoring extenders without weight, bad or repeated managed resources, and second binders."""
    seen: set[str] = set()
    has_binder = False
    for index, extender in enumerate(extenders):
        if extender.prioritize_verb and extender.weight <= 0:
            yield RuleProblem(
                ("extenders", index, "weight"), f"must be at least 1 with prioritizeVerb, not {extender.weight}"
            )
        if extender.bind_verb:
            if has_binder:
                yield RuleProblem(
                    ("extenders", index, "bindVerb"),
                    "only one extender may bind, but an earlier one binds too; remove one of them",
                )
            has_binder = True
        for position, resource in enumerate(extender.managed_resources):
            place = ("extenders", index, "managedResources", position, "name")
            for message in extended_resource_problems(resource.name):
                yield RuleProblem(place, message)
            if resource.name in seen:
                yield RuleProblem(
                    place, f'"{resource.name}" is already managed by an earlier entry; remove one of them'
                )
            seen.add(resource.name)


_REVISION_DIGITS = 8


class PreemptionSettings(ConfigModel):
    """Preemption by the pods and gangs of a profile."""

    delay_seconds: int = Field(
        default=0,
        ge=0,
        le=86_400,
        description="Seconds after the first attempt of a pod or gang during which it waits for a new node, for "
        "example of an autoscaler, and evicts no pods. Default: 0, as in kube-scheduler.",
    )
    devices: bool = Field(
        default=False,
        description="Whether preemption evicts pods of lower priority to free their devices: all pods that hold a "
        "resource claim. Default: false, as in kube-scheduler.",
    )
    never_violate_disruption_budgets: bool = Field(
        default=False,
        description="Whether preemption evicts no pod whose eviction violates a PodDisruptionBudget. Default: false, "
        "as in kube-scheduler, which evicts such pods if preemption helps nowhere else.",
    )
    max_victims: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum number of pods that are evicted for one pod or gang; pods that terminate already do not "
        "count. Default: no maximum, as in kube-scheduler.",
    )
    break_ties_by_deletion_cost: bool = Field(
        default=False,
        description="Whether the annotation controller.kubernetes.io/pod-deletion-cost of the victims decides between "
        "preemptions that are equal by all criteria of kube-scheduler: the lowest sum first, then the victims that run "
        "for the shortest time. Default: false, as in kube-scheduler.",
    )

    @property
    def limits_victims(self) -> bool:
        """Whether some victims that preemption would help by are not evicted."""
        return self.never_violate_disruption_budgets or self.max_victims is not None


class ProfileSettings(ConfigModel):
    """The fields of a profile, of a SchedulerProfile object as of a complete profile."""

    scheduler_name: str | None = Field(
        default=None,
        min_length=1,
        description="Scheduler name of the pods that this profile schedules. Default: the profile's own name. "
        "Immutable. If two profiles claim a name, the older one holds it.",
    )
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percentage of nodes to find feasible before the search stops (at least 100 nodes). 0 selects "
        "kube-scheduler's adaptive formula, from 50 % down to 5 % as the cluster grows. Default: every feasible node "
        "is scored.",
    )
    pod_initial_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Backoff of a pod after its first failed attempt, in seconds; it doubles with each further one. "
        "Default: the operator's setting.",
    )
    pod_max_backoff_seconds: int | None = Field(
        default=None,
        ge=1,
        le=INT32_MAX,
        description="Maximum backoff of a pod, in seconds; at least podInitialBackoffSeconds. Default: the operator's "
        "setting.",
    )
    plugins: Plugins = Field(
        default=Plugins(),
        description="Plugins to enable and disable at each extension point, in the syntax of "
        "KubeSchedulerConfiguration v1. Everything else is as in kube-scheduler's default profile. The result is in "
        "status.resolvedPlugins.",
    )
    plugin_config: tuple[PluginConfig, ...] = list_field(
        "Args of plugins, in the syntax of KubeSchedulerConfiguration v1; one entry for each plugin. "
        "The plugin validates them; problems are reported in the condition Accepted."
    )
    extenders: tuple[Extender, ...] = list_field("HTTP extenders of this profile's decisions, called in this order.")
    gangs: GangSettings = Field(
        default=GangSettings(), description="Gangs among the pods of this profile that need no PodGroup of the user."
    )

    preemption: PreemptionSettings = Field(
        default=PreemptionSettings(), description="Preemption by the pods of this profile."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the order of backoffs, duplicate plugin configs, and the extenders."""
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        yield from repeated_plugin_config(self.plugin_config)
        yield from extender_problems(self.extenders)


class ProfileConfig(ProfileSettings):
    """A complete profile: it has a name, references are resolved, default plugins are not merged yet.

    A configuration file may have longer backoffs than an object.

    Attributes:
        plugin_versions: Packages with their versions of the enabled plugins that are not built in: another version may
            decide otherwise, so that it is another revision.
    """

    scheduler_name: str = Field(min_length=1)
    plugin_versions: dict[str, str] = Field(default={})
    pod_initial_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)
    pod_max_backoff_seconds: int | None = Field(default=None, ge=1, le=INT64_MAX)

    def revision(self) -> str:
        """Return the revision of this content: eight hexadecimal digits, equal for equal profiles."""
        text = json.dumps(self.document(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:_REVISION_DIGITS]


def backoff_problems(initial: int | None, maximum: int | None) -> Iterator[RuleProblem]:
    """Yield the problem of a maximum backoff that is shorter than the initial one."""
    if initial is not None and maximum is not None and maximum < initial:
        yield RuleProblem(
            ("podMaxBackoffSeconds",), f"must be at least podInitialBackoffSeconds ({initial}), not {maximum}"
        )


DEFAULT_BUDGET_PERCENT = 10


class ShadowSettings(Struct, frozen=True):
    """How a shadow profile, which decides but does not bind, is run.

    Attributes:
        sample_percent: Percentage of the live profile's decisions that are compared, 1 to 100.
        budget_percent: Largest percentage of the scheduler's time that the shadow uses, 1 to 100.
    """

    shadow_of: str
    sample_percent: int = 100
    budget_percent: int = DEFAULT_BUDGET_PERCENT
    calls_extenders: bool = False
