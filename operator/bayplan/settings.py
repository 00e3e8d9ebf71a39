"""Settings of the operator: everything that is not a profile's.

Owns the fields, their defaults and rules, and how flags and a settings file go together. It must not know what uses
them. Why a model and not flags alone: the chart renders the same fields into a file, and every problem is told at once
with its field path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from bayplan import yaml_documents
from bayplan.feature_gates import gate_problems
from bayplan.kube.leader_election import ElectionOptions
from bayplan.reconcile.profile_selection import MAX_LENGTH, ProfileSelection
from bayplan.serving.serving_settings import ServingSettings
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem
from scheduler_core.config.duration import parse_duration
from scheduler_core.config.profile_config import backoff_problems
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_LEASE = "bayplan"
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _seconds(value: object) -> object:
    """A number of seconds, also written as a Go duration such as kube-scheduler's flags take it."""
    if isinstance(value, str):
        try:
            return float(value)
        except ValueError:
            pass
        try:
            return parse_duration(value).seconds
        except ConfigError as error:
            raise ValueError(error.problems[0].message) from error
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


Seconds = Annotated[float, BeforeValidator(_seconds)]


class LeaderElectionSettings(ConfigModel):
    """How several processes agree on the one that schedules."""

    leader_elect: bool = Field(default=False, description="Schedule only while this process holds the Lease.")
    lease_duration: Seconds = Field(
        default=15.0, gt=0, description="So long after its last renewal a Lease is taken by a standby."
    )
    renew_deadline: Seconds = Field(
        default=10.0, gt=0, description="So long after its last renewal a leader stops; less than leaseDuration."
    )
    retry_period: Seconds = Field(default=2.0, gt=0, description="Between two tries to get or renew the Lease.")
    resource_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description='Name of the Lease. When left out "bayplan"; with profiles that, and eight letters made of them.',
    )
    resource_namespace: str | None = Field(
        default=None, min_length=1, description="Namespace of the Lease; that of the revisions when left out."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """The times go together."""
        if self.leader_elect:
            for problem in self.options("").problems(""):
                yield RuleProblem((problem.path.lstrip("."),), problem.message)

    def options(self, namespace: str, selection: ProfileSelection | None = None) -> ElectionOptions:
        """Give the Lease and its times.

        Args:
            namespace: Of the Lease, where the settings name none.
            selection: The profiles that are led by it, where they are not all: each selection has a Lease of its own.
        """
        name = _LEASE if selection is None else f"{_LEASE}-{selection.digest}"
        return ElectionOptions(
            self.resource_namespace or namespace,
            self.resource_name or name,
            self.lease_duration,
            self.renew_deadline,
            self.retry_period,
        )


class TracingSettings(ConfigModel):
    """Where spans of cycles are sent; needs the extra ``otel`` of the package bayplan."""

    endpoint: str = Field(
        pattern=r"^https?://", description="The collector's URL for OTLP over HTTP, such as http://host:4318/v1/traces."
    )
    sampling_ratio: float = Field(
        default=0.01, ge=0, le=1, strict=False, description="The part of scheduling cycles that is sent, 0 to 1."
    )


class Settings(ServingSettings):
    """What ``bayplan run`` is told by flags and by its settings file."""

    kubeconfig: str | None = Field(
        default=None,
        min_length=1,
        description="Kubeconfig file. When left out: the pod's service account, else $KUBECONFIG or ~/.kube/config.",
    )
    context: str | None = Field(default=None, min_length=1, description="Context of the kubeconfig.")
    namespace: str | None = Field(
        default=None,
        min_length=1,
        description="Namespace of the ControllerRevisions that keep good revisions. When left out: the pod's own, "
        'else that of the kubeconfig\'s context, else "default".',
    )
    seed: int = Field(default=0, ge=0, le=INT64_MAX, description="Settles ties among equal nodes.")
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="For profiles that set none: percent of the nodes that must be found feasible; 0 is "
        "kube-scheduler's formula. When left out, all nodes.",
    )
    pod_initial_backoff_seconds: int = Field(
        default=1, ge=1, le=INT32_MAX, description="First backoff of a failed pod, for profiles that set none."
    )
    pod_max_backoff_seconds: int = Field(
        default=10, ge=1, le=INT32_MAX, description="Longest backoff of a failed pod, for profiles that set none."
    )
    pod_max_in_unschedulable_pods_duration: Seconds = Field(
        default=300.0,
        gt=0,
        description="After so long a pod that fits nowhere is tried again whatever happened; seconds, or such as 5m.",
    )
    gang_reservation_delay: Seconds = Field(
        default=60.0,
        gt=0,
        description="After so long in vain, capacity is reserved for a PodGroup of queueing Strict; seconds, or 5m.",
    )
    client_qps: float | None = Field(
        default=None, gt=0, strict=False, description="Requests per second to the API server; no limit when left out."
    )
    client_burst: int = Field(default=100, ge=1, le=INT32_MAX, description="Requests that may exceed client_qps.")
    bind_concurrency: int = Field(default=32, ge=1, le=1024, description="Binds on their way at once.")
    allow_default_scheduler: bool = Field(
        default=False,
        description="Let a profile take the name default-scheduler. Only where kube-scheduler does not serve it.",
    )
    extender_files_directory: str = Field(
        default="/etc/bayplan-extenders",
        min_length=1,
        max_length=1024,
        description="Where the files of an extender's tlsConfig must lie, for profiles that are custom resources.",
    )
    allowed_extender_hosts: tuple[str, ...] = Field(
        default=(),
        strict=False,
        max_length=256,
        description="Hosts that extenders of such profiles may be on, such as licences.example.com or *.svc; any when "
        "empty.",
    )
    profiles: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LENGTH,
        description='Label selector such as "tier=a,zone in (x,y)": only SchedulerProfiles that it matches are served '
        "here. When left out, all.",
    )
    leader_election: LeaderElectionSettings = Field(
        default=LeaderElectionSettings(), description="How several processes agree on the one that schedules."
    )
    delay_cache_until_active: bool = Field(
        default=False,
        description="A standby reads nothing of the cluster before it leads: cheap, and slow to take over.",
    )
    plugin_time_budget: Seconds = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="Longest that one call into an installed plugin may take before it is interrupted.",
    )
    liveness_limit: Seconds = Field(
        default=30.0,
        gt=0,
        le=3600,
        description="So long the event loop may stand still before the process ends, for another to take over.",
    )
    enable_profiling: bool = Field(
        default=False, description="Answer /debug/profile: where the time of the running process goes."
    )
    slow_cycle_threshold: Seconds = Field(
        default=0.1,
        gt=0,
        le=3600,
        description="From so long on a scheduling cycle is logged with the times of its plugins; seconds, or 100ms.",
    )
    tracing: TracingSettings | None = Field(
        default=None, description="Where spans of cycles are sent; nowhere when left out."
    )
    feature_gates: dict[str, bool] = Field(
        default_factory=dict,
        description="Feature gates by name, such as ResultCache: false; those left out are at their defaults.",
    )
    log_level: LogLevel = Field(default="info", description="Least severity of what is logged.")
    verbosity: int = Field(
        default=0,
        ge=0,
        le=10,
        description="As kube-scheduler's -v: 3 logs each decision too, 5 and more everything (debug).",
    )
    log_format: LogFormat = Field(default="text", description="One line of text, or of JSON, for each message.")
    graceful_stop_seconds: Seconds = Field(
        default=5.0, gt=0, le=300, description="Longest that binds in flight and last writes may take at the end."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Backoffs are in order, gates are known, the selector can be read, and what is served goes together."""
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        for problem in gate_problems(self.feature_gates):
            yield RuleProblem(("featureGates", *problem.location), problem.message)
        try:
            self.selection  # noqa: B018 - it is read for what is wrong with it
        except ConfigError as error:
            yield RuleProblem(("profiles",), error.problems[0].message)
        yield from self.serving_problems()

    @property
    def selection(self) -> ProfileSelection | None:
        """Which profiles are served; None for all."""
        return None if self.profiles is None else ProfileSelection(self.profiles)


def load_settings(flags: Mapping[str, Any], path: Path | None = None, *, leader_elect: bool | None = None) -> Settings:
    """Join flags with a settings file; flags win.

    Args:
        flags: Values by field name in snake_case; None is not given.
        path: A YAML file whose fields are those of :class:`Settings` in camelCase; None reads none.
        leader_elect: ``leaderElection.leaderElect``, of which a flag says nothing when it is None.

    Returns:
        The settings with their defaults.

    Raises:
        ConfigError: With every problem: its path is the field in the file, or the flag.
    """
    names = {name: info.alias or name for name, info in Settings.model_fields.items()}
    given = {names[name]: value for name, value in flags.items() if value is not None}
    document = _read_file(path) if path is not None else {}
    if leader_elect is not None:
        election = document.get("leaderElection")
        document["leaderElection"] = {**(election if isinstance(election, dict) else {}), "leaderElect": leader_elect}
    gates = document.get("featureGates")
    if isinstance(gates, dict) and "featureGates" in given:
        given["featureGates"] = {**gates, **given["featureGates"]}
    by_alias = {alias: name for name, alias in names.items()}
    try:
        return validate(Settings, {**document, **given})
    except ConfigError as error:
        problems = []
        for problem in error.problems:
            field = problem.path.split(".", 1)[0].split("[", 1)[0]
            if field in given:
                problems.append(Problem(f"--{by_alias[field].replace('_', '-')}", problem.message))
            else:
                problems.append(Problem(f"{path}: {problem.path}" if path else problem.path, problem.message))
        raise ConfigError(problems) from error


def _read_file(path: Path) -> dict[str, Any]:
    try:
        document = yaml_documents.load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(
            [Problem(str(path), f"cannot be read: {error}; correct it or leave --settings out")]
        ) from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError([Problem(str(path), "must be a mapping of settings to values")])
    return document


def runs_in_cluster(settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether the pod's service account is to be used: no kubeconfig was asked for, and there is one."""
    if settings.kubeconfig is not None or settings.context is not None or environment.get("KUBECONFIG"):
        return False
    return "KUBERNETES_SERVICE_HOST" in environment and (_SERVICE_ACCOUNT / "token").is_file()


def revision_namespace(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """The namespace in which ControllerRevisions are kept.

    Args:
        settings: Their ``namespace`` wins.
        environment: Of the process.

    Returns:
        The setting, the pod's namespace, that of the kubeconfig's context, or ``default``.
    """
    if settings.namespace is not None:
        return settings.namespace
    if runs_in_cluster(settings, environment):
        own = _SERVICE_ACCOUNT / "namespace"
        return (own.read_text(encoding="utf-8").strip() if own.is_file() else "") or "default"
    return _context_namespace(settings, environment) or "default"


def _context_namespace(settings: Settings, environment: Mapping[str, str]) -> str:
    """The namespace of the kubeconfig's context, as far as it can be read; what is wrong the connection tells."""
    listed = settings.kubeconfig or environment.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    context = settings.context
    for name in listed.split(os.pathsep):
        try:
            document = yaml_documents.load(Path(name).read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
        if not isinstance(document, dict):
            continue
        context = context or document.get("current-context")
        for entry in document.get("contexts") or ():
            if isinstance(entry, dict) and entry.get("name") == context:
                return str((entry.get("context") or {}).get("namespace") or "")
    return ""
