"""KubeSchedulerConfiguration v1, the configuration file of kube-scheduler, and its conversion to profiles.

Unlike in v1, the legacy volume limit plugins are accepted, because NodeVolumeLimits does their work. Stricter than in
kube-scheduler: ``urlPrefix`` of an extender is required, and the policies of spread constraints are validated.
Source: kube-scheduler v1.37.1, pkg/scheduler/apis/config: v1/defaults.go, validation/validation.go.
"""

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from scheduler_core.config.config_model import (
    INT32_MAX,
    INT64_MAX,
    ConfigModel,
    Duration,
    DurationField,
    RuleProblem,
    list_field,
    seconds,
)
from scheduler_core.config.plugin_args import API_VERSION, in_tree_args_problems
from scheduler_core.config.plugin_set_types import (
    POD_GROUP_POINTS,
    PluginConfig,
    Plugins,
    PluginSet,
    enabled_notes,
    repeated_plugin_config,
)
from scheduler_core.config.profile_config import Extender, ProfileConfig, backoff_problems, extender_problems
from scheduler_core.config.validation import repeated, validate
from scheduler_core.errors import ConfigError, Problem

DEFAULT_SCHEDULER_NAME = "default-scheduler"
KIND = "KubeSchedulerConfiguration"


class LeaderElectionConfiguration(ConfigModel):
    """Leader election between replicas."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset(
        {"leaseDuration", "renewDeadline", "retryPeriod", "resourceLock", "resourceName", "resourceNamespace"}
    )

    leader_elect: bool = True
    lease_duration: DurationField = seconds(15)
    renew_deadline: DurationField = seconds(10)
    retry_period: DurationField = seconds(2)
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check durations and lock type if leader election is enabled."""
        if not self.leader_elect:
            return
        durations = (
            ("leaseDuration", self.lease_duration),
            ("renewDeadline", self.renew_deadline),
            ("retryPeriod", self.retry_period),
        )
        for name, duration in durations:
            if duration <= Duration(0):
                yield RuleProblem((name,), f"must be greater than 0s, not {duration}")
        if self.lease_duration <= self.renew_deadline:
            yield RuleProblem(
                ("leaseDuration",),
                f"must be greater than renewDeadline ({self.renew_deadline}), not {self.lease_duration}",
            )
        if self.resource_lock != "leases":
            yield RuleProblem(("resourceLock",), f'must be "leases", not "{self.resource_lock}"')


class ClientConnectionConfiguration(ConfigModel):
    """Connection to the API server."""

    zero_is_unset: ClassVar[frozenset[str]] = frozenset({"contentType", "qps", "burst"})

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = "application/vnd.kubernetes.protobuf"
    qps: float = 50.0
    burst: int = Field(default=100, ge=0, le=INT32_MAX)


class KubeSchedulerPlugins(Plugins):
    """The plugin sets of a profile of the file, with the extension points of kube-scheduler's group cycle."""

    placement_generate: PluginSet = PluginSet()
    placement_score: PluginSet = PluginSet()
    pod_group_post_filter: PluginSet = PluginSet()

    def common(self) -> Plugins:
        """Return the plugin sets without those of the group cycle."""
        return Plugins(**{name: getattr(self, name) for name in Plugins.model_fields})

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the group cycle only enables plugins whose work Bayplan does, and disables none of them."""
        yield from super().rule_problems()
        points = self.points()
        for point, served_by in POD_GROUP_POINTS.items():
            for index, entry in enumerate(points[point].enabled):
                if entry.name not in served_by:
                    known = ", ".join(sorted(served_by))
                    message = f'Bayplan does the work of {known} only, not of "{entry.name}"; remove the entry'
                    yield RuleProblem((point, "enabled", index, "name"), message)
            for index, entry in enumerate(points[point].disabled):
                if entry.name in served_by:
                    message = (
                        f'"{entry.name}" cannot be disabled here: Bayplan has no extension point {point}; remove it'
                    )
                    yield RuleProblem((point, "disabled", index, "name"), message)


class KubeSchedulerProfile(ConfigModel):
    """A profile of the file."""

    scheduler_name: str = ""
    percentage_of_nodes_to_score: int | None = Field(default=None, ge=0, le=100)
    plugins: KubeSchedulerPlugins = KubeSchedulerPlugins()
    plugin_config: tuple[PluginConfig, ...] = list_field()

    def rule_problems(self) -> Iterator[RuleProblem]:
        yield from repeated_plugin_config(self.plugin_config)


class KubeSchedulerConfiguration(ConfigModel):
    """The complete file with its defaults."""

    api_version: Literal["kubescheduler.config.k8s.io/v1"] = "kubescheduler.config.k8s.io/v1"
    kind: Literal["KubeSchedulerConfiguration"] = "KubeSchedulerConfiguration"
    parallelism: int = Field(default=16, gt=0, le=INT32_MAX)
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True
    enable_contention_profiling: bool | None = None
    percentage_of_nodes_to_score: int = Field(default=0, ge=0, le=100)
    pod_initial_backoff_seconds: int = Field(default=1, gt=0, le=INT64_MAX)
    pod_max_backoff_seconds: int = Field(default=10, ge=-INT64_MAX - 1, le=INT64_MAX)
    profiles: tuple[KubeSchedulerProfile, ...] = list_field()
    extenders: tuple[Extender, ...] = list_field()
    delay_cache_until_active: bool = False

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, data: Any) -> Any:
        """Add the default profile, name a single one, and enable contention profiling with profiling."""
        if not isinstance(data, Mapping):
            return data
        profiles = [{}] if data.get("profiles") in (None, [], ()) else data["profiles"]
        if isinstance(profiles, (list, tuple)) and len(profiles) == 1 and isinstance(profiles[0], Mapping):
            only = profiles[0]
            if only.get("schedulerName", only.get("scheduler_name")) is None:
                rest = {key: value for key, value in only.items() if key not in ("schedulerName", "scheduler_name")}
                profiles = [{**rest, "schedulerName": DEFAULT_SCHEDULER_NAME}]
        completed = {**data, "profiles": profiles}
        if data.get("enableContentionProfiling") is None and data.get("enableProfiling") is not False:
            completed["enableContentionProfiling"] = True
        return completed

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check backoffs, scheduler names, the QueueSort plugins, and the extenders."""
        yield from self._scheduler_name_problems()
        yield from self._queue_sort_problems()
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        yield from extender_problems(self.extenders)

    def profile_configs(self) -> tuple[ProfileConfig, ...]:
        """Return the complete profiles in the order of the file; an unset percentage is 0, as in kube-scheduler."""
        return tuple(
            ProfileConfig(
                scheduler_name=profile.scheduler_name,
                percentage_of_nodes_to_score=self.percentage_of_nodes_to_score
                if profile.percentage_of_nodes_to_score is None
                else profile.percentage_of_nodes_to_score,
                pod_initial_backoff_seconds=self.pod_initial_backoff_seconds,
                pod_max_backoff_seconds=self.pod_max_backoff_seconds,
                plugins=profile.plugins.common(),
                plugin_config=profile.plugin_config,
                extenders=self.extenders,
            )
            for profile in self.profiles
        )

    def notes(self) -> tuple[Problem, ...]:
        """Return a note for each enabled plugin whose entry has no effect, with its field path."""
        return tuple(
            Problem(f"profiles[{index}].{note.path}", note.message)
            for index, profile in enumerate(self.profiles)
            for note in enabled_notes(profile.plugins)
        )

    def _scheduler_name_problems(self) -> Iterator[RuleProblem]:
        names = [profile.scheduler_name for profile in self.profiles]
        for index, name in enumerate(names):
            if not name:
                yield RuleProblem(("profiles", index, "schedulerName"), "is required with several profiles; add it")
        for index in repeated(names):
            if names[index]:
                yield RuleProblem(
                    ("profiles", index, "schedulerName"),
                    f'"{names[index]}" is already used by an earlier profile; use a different name for each profile',
                )

    def _queue_sort_problems(self) -> Iterator[RuleProblem]:
        if not self.profiles:
            return
        first = self.profiles[0]
        for index, profile in enumerate(self.profiles[1:], start=1):
            if _names(profile.plugins.queue_sort) != _names(first.plugins.queue_sort):
                yield RuleProblem(
                    ("profiles", index, "plugins", "queueSort"),
                    "must be the same in all profiles, because they share one queue; use that of the first profile",
                )
            elif _queue_sort_args(profile) != _queue_sort_args(first):
                yield RuleProblem(
                    ("profiles", index, "pluginConfig"),
                    "the args of the queueSort plugin must be the same in all profiles; use those of the first profile",
                )


def parse_configuration(document: Mapping[str, Any]) -> KubeSchedulerConfiguration:
    """Validate a KubeSchedulerConfiguration; args of plugins that are not built in are not validated.

    Raises:
        ConfigError: All problems with their field paths.
    """
    problems = [
        Problem(name, f'must be "{expected}", not "{document.get(name, "")}"')
        for name, expected in (("apiVersion", API_VERSION), ("kind", KIND))
        if document.get(name) != expected
    ]
    rest = {name: value for name, value in document.items() if name not in ("apiVersion", "kind")}
    problems += _args_problems(rest.get("profiles"))
    try:
        configuration = validate(KubeSchedulerConfiguration, rest)
    except ConfigError as error:
        raise ConfigError([*error.problems, *problems]) from error
    if problems:
        raise ConfigError(problems)
    return configuration


def _args_problems(profiles: object) -> list[Problem]:
    """Check args in the document itself, so that they are checked even if something else is wrong."""
    problems: list[Problem] = []
    for index, profile in enumerate(profiles if isinstance(profiles, (list, tuple)) else ()):
        entries = profile.get("pluginConfig") if isinstance(profile, Mapping) else None
        named = [
            (entry.get("name"), entry.get("args") or {}) if isinstance(entry, Mapping) else (None, {})
            for entry in (entries if isinstance(entries, (list, tuple)) else ())
        ]
        readable = [
            (name, args) if isinstance(args, Mapping) and isinstance(name, str) else ("", {}) for name, args in named
        ]
        problems += in_tree_args_problems(readable, f"profiles[{index}].pluginConfig")
    return problems


def _names(plugins: PluginSet) -> tuple[tuple[str, ...], tuple[str, ...]]:
    return tuple(plugin.name for plugin in plugins.enabled), tuple(plugin.name for plugin in plugins.disabled)


def _queue_sort_args(profile: KubeSchedulerProfile) -> dict[str, Any]:
    name = next((plugin.name for plugin in profile.plugins.queue_sort.enabled), "")
    return next((entry.args for entry in profile.plugin_config if entry.name == name), {})
