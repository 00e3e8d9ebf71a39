"""Settings of the operator: everything that is not part of a profile.

Flags and a settings file fill the same model (the chart renders the file), so that one validation reports every problem
with its field path.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BeforeValidator, Field

from bayplan.kube.leader_election import ElectionOptions, address_problem
from bayplan.settings.feature_gates import gate_problems
from bayplan.settings.profile_selection import MAX_LENGTH, ProfileSelection
from bayplan.texts import yaml_documents
from scheduler_core.config.config_model import INT32_MAX, INT64_MAX, ConfigModel, RuleProblem, parse_duration
from scheduler_core.config.profile_config import backoff_problems
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import ForeignGangs

DEFAULT_SERVE_ADDRESS = "127.0.0.1:10259"

TlsVersion = Literal["VersionTLS12", "VersionTLS13"]


class ServingSettings(ConfigModel):
    """Settings of the server of health, metrics, ``/debug`` and the page."""

    serve_address: str = Field(
        default=DEFAULT_SERVE_ADDRESS,
        description='host:port of /livez, /readyz and /metrics; "" disables the server. In a pod, use 0.0.0.0:10260 '
        "with 127.0.0.1:10259 as localAddress.",
    )
    local_address: str = Field(
        default="",
        description="host:port on loopback for local requests, which need no token: commands in the pod and kubectl "
        'port-forward. "" for none: local requests are then those to serveAddress, if it is loopback.',
    )
    advertise_address: str | None = Field(
        default=None,
        min_length=1,
        description="IP address at which other replicas reach the port of serveAddress. A leader writes it into its "
        "Lease, so that commands that query a standby follow it.",
    )
    secure_serving: bool = Field(
        default=False,
        description="Serve HTTPS. Without tlsCertFile a certificate is generated at start and stored in memory.",
    )
    tls_cert_file: str | None = Field(
        default=None,
        min_length=1,
        description="PEM file of the certificate for HTTPS, followed by its intermediates; reloaded when it changes.",
    )
    tls_private_key_file: str | None = Field(
        default=None, min_length=1, description="PEM file of the private key of tlsCertFile, without a passphrase."
    )
    tls_min_version: TlsVersion = Field(default="VersionTLS12", description="Minimum TLS version.")
    authorize_requests: bool = Field(
        default=False,
        description="Accept requests from other hosts only if the API server authenticates their bearer token and "
        "authorizes them to get the path; /livez, /readyz and /healthz are open to all.",
    )
    serve_page: bool = Field(
        default=False,
        description="Serve the read-only page at /page. Callers from other hosts need authorizeRequests and a token.",
    )
    page_viewers: int = Field(
        default=10, ge=1, le=1000, description="Maximum number of browsers that read the page at the same time."
    )

    def serving_problems(self) -> Iterator[RuleProblem]:
        """Validate the address, that a certificate has its key, and that tokens are not sent unencrypted."""
        if self.serve_address:
            yield from host_and_port_problems(
                "serveAddress", self.serve_address, f'"{DEFAULT_SERVE_ADDRESS}", or "" to disable the server'
            )
        yield from self._local_address_problems()
        problem = "" if self.advertise_address is None else address_problem(self.advertise_address)
        if problem:
            yield RuleProblem(("advertiseAddress",), problem)
        if self.tls_cert_file and not self.tls_private_key_file:
            yield RuleProblem(("tlsPrivateKeyFile",), "must be set together with tlsCertFile")
        if self.tls_private_key_file and not self.tls_cert_file:
            yield RuleProblem(("tlsCertFile",), "must be set together with tlsPrivateKeyFile")
        if self.serve_page and not self.serve_address:
            yield RuleProblem(("servePage",), "requires serveAddress: the page has no server of its own")
        if self.authorize_requests and not self.serves_tls:
            yield RuleProblem(
                ("authorizeRequests",), "requires secureServing or tlsCertFile: tokens must not be sent unencrypted"
            )

    def _local_address_problems(self) -> Iterator[RuleProblem]:
        if not self.local_address:
            return
        host, _, port = self.local_address.rpartition(":")
        if not _is_loopback(host.strip("[]")) or not port.isdigit() or int(port) > 65535:
            yield RuleProblem(
                ("localAddress",),
                f'must be a loopback address and a port such as "127.0.0.1:10259", not "{self.local_address}"',
            )
        elif int(port) and port == self.serve_address.rpartition(":")[2]:
            yield RuleProblem(("localAddress",), f"must have another port than serveAddress, {self.serve_address}")

    @property
    def serves_tls(self) -> bool:
        """Whether HTTPS is served: it is enabled, or there is a certificate for it."""
        return self.secure_serving or self.tls_cert_file is not None

    @property
    def serve_host_and_port(self) -> tuple[str, int] | None:
        """Address to listen on; None if the server is disabled."""
        return _host_and_port(self.serve_address)

    @property
    def local_host_and_port(self) -> tuple[str, int] | None:
        """Address to listen on for local requests; None for no separate one."""
        return _host_and_port(self.local_address)


def host_and_port_problems(field: str, address: str, example: str) -> Iterator[RuleProblem]:
    """Yield the problem of an address that is not host:port."""
    host, _, port = address.rpartition(":")
    if not host or not port.isdigit() or int(port) > 65535:
        yield RuleProblem((field,), f'must be host:port such as {example}, not "{address}"')


def _host_and_port(address: str) -> tuple[str, int] | None:
    if not address:
        return None
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _is_loopback(text: str) -> bool:
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

_LEASE = "bayplan"
_BOOKMARKED_SECONDS = 90.0
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def _seconds(value: object) -> object:
    """Convert a number of seconds, also given as a Go duration like kube-scheduler's flags."""
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
    """Leader election among the replicas."""

    leader_elect: bool = Field(default=False, description="Schedule only while this process holds the Lease.")
    lease_duration: Seconds = Field(
        default=15.0, gt=0, description="Duration a standby waits after the last renewal before it acquires the Lease."
    )
    renew_deadline: Seconds = Field(
        default=10.0,
        gt=0,
        description="Duration after the last renewal at which the leader stops; less than leaseDuration.",
    )
    retry_period: Seconds = Field(default=2.0, gt=0, description="Interval between attempts to acquire or renew.")
    resource_name: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description='Name of the Lease. Default: "bayplan"; with profiles, "bayplan-" and a hash of the selector.',
    )
    resource_namespace: str | None = Field(
        default=None, min_length=1, description="Namespace of the Lease. Default: the namespace of the revisions."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check that the durations are consistent."""
        if self.leader_elect:
            for problem in self.options("").problems(""):
                yield RuleProblem((problem.path.lstrip("."),), problem.message)

    def options(self, namespace: str, selection: ProfileSelection | None = None) -> ElectionOptions:
        """Return the Lease and its durations; each selection of profiles (None for all) has its own Lease."""
        name = _LEASE if selection is None else f"{_LEASE}-{selection.digest}"
        return ElectionOptions(
            self.resource_namespace or namespace,
            self.resource_name or name,
            self.lease_duration,
            self.renew_deadline,
            self.retry_period,
        )


class TracingSettings(ConfigModel):
    """Export of cycles as spans; needs the extra ``otel`` of the package bayplan."""

    endpoint: str = Field(
        pattern=r"^https?://", description="URL of the OTLP/HTTP collector, such as http://host:4318/v1/traces."
    )
    sampling_ratio: float = Field(
        default=0.01, ge=0, le=1, strict=False, description="Fraction of scheduling cycles to export, 0 to 1."
    )


class WebhookSettings(ConfigModel):
    """Validating admission webhook for the custom resources, served by every replica."""

    address: str = Field(default="0.0.0.0:9443", description="host:port of the webhook, which is served at /validate.")
    configuration: str | None = Field(
        default=None,
        min_length=1,
        max_length=253,
        description="ValidatingWebhookConfiguration whose caBundle receives the generated certificate. Default: the "
        "certificate is that of tlsCertFile.",
    )
    tls_cert_file: str | None = Field(
        default=None, min_length=1, description="PEM file of the certificate; loaded again when it changes."
    )
    tls_private_key_file: str | None = Field(
        default=None, min_length=1, description="PEM file of the private key of tlsCertFile, without a passphrase."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check the address, and that the certificate comes from one source."""
        yield from host_and_port_problems("address", self.address, '"0.0.0.0:9443"')
        if (self.tls_cert_file is None) != (self.tls_private_key_file is None):
            yield RuleProblem(("tlsCertFile",), "must be set together with tlsPrivateKeyFile")
        if (self.configuration is None) == (self.tls_cert_file is None):
            yield RuleProblem(
                ("configuration",), "set this for a generated certificate, or tlsCertFile and tlsPrivateKeyFile"
            )

    @property
    def host_and_port(self) -> tuple[str, int]:
        host, _, port = self.address.rpartition(":")
        return host.strip("[]"), int(port)


class Settings(ServingSettings):
    """Settings of ``bayplan run``, from flags and from its settings file."""

    kubeconfig: str | None = Field(
        default=None,
        min_length=1,
        description="Kubeconfig file. Default: the pod's service account, else $KUBECONFIG or ~/.kube/config.",
    )
    context: str | None = Field(default=None, min_length=1, description="Context of the kubeconfig.")
    namespace: str | None = Field(
        default=None,
        min_length=1,
        description="Namespace of the ControllerRevisions that store valid profile revisions. Default: the pod's own, "
        'else that of the kubeconfig\'s context, else "default".',
    )
    seed: int = Field(default=0, ge=0, le=INT64_MAX, description="Seed of the random choice among equal nodes.")
    percentage_of_nodes_to_score: int | None = Field(
        default=None,
        ge=0,
        le=100,
        description="Percentage of nodes to find feasible, for profiles that set none; 0 selects kube-scheduler's "
        "adaptive formula. Default: all nodes.",
    )
    pod_initial_backoff_seconds: int = Field(
        default=1, ge=1, le=INT32_MAX, description="Initial backoff of a failed pod, for profiles that set none."
    )
    pod_max_backoff_seconds: int = Field(
        default=10, ge=1, le=INT32_MAX, description="Maximum backoff of a failed pod, for profiles that set none."
    )
    pod_max_in_unschedulable_pods_duration: Seconds = Field(
        default=300.0,
        gt=0,
        description="Maximum time a pod stays unschedulable before it is retried; seconds, or a duration such as 5m.",
    )
    gang_reservation_delay: Seconds = Field(
        default=60.0,
        gt=0,
        description="Time an unschedulable PodGroup with queueing Strict waits before capacity is reserved for it; "
        "seconds, or a duration such as 5m.",
    )
    contested_node_backoff: Seconds | None = Field(
        default=None,
        ge=0,
        le=3600,
        description="Time for which pods prefer other feasible nodes after another scheduler has overcommitted a node, "
        "from its last bind there, and every second bind that fills a node is held for 0.2 seconds; 0 for no effect. "
        "Default: 10 seconds, and 0 with --config, so that decisions are those of kube-scheduler.",
    )
    search_in_background: bool = Field(
        default=True,
        description="Continue long searches in a copy of the process, which takes memory and CPU time of its own, "
        "while other pods are scheduled. Otherwise other pods wait for the end of each search.",
    )
    foreign_gangs: ForeignGangs = Field(
        default="Warn",
        description="Handling of pods that name a gang of another scheduler, such as Volcano, and no PodGroup: Ignore, "
        "Warn (they are scheduled, with an event) or Hold (they wait, with the reason in their condition).",
    )
    client_qps: float | None = Field(
        default=None, gt=0, strict=False, description="Requests per second to the API server. Default: no limit."
    )
    client_burst: int = Field(default=100, ge=1, le=INT32_MAX, description="Requests that may exceed clientQps.")
    bind_concurrency: int = Field(default=32, ge=1, le=1024, description="Maximum number of concurrent binds.")
    allow_default_scheduler: bool = Field(
        default=False,
        description="Allow a profile named default-scheduler. Only for clusters where kube-scheduler does not run it.",
    )
    extender_files_directory: str = Field(
        default="/etc/bayplan-extenders",
        min_length=1,
        max_length=1024,
        description="Directory that must contain the files of an extender's tlsConfig in a SchedulerProfile.",
    )
    allowed_extender_hosts: tuple[str, ...] = Field(
        default=(),
        strict=False,
        max_length=256,
        description="Hosts that extenders of SchedulerProfiles may use, such as licences.example.com or *.svc; empty "
        "allows any.",
    )
    profiles: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LENGTH,
        description='Label selector of the SchedulerProfiles to serve, such as "tier=a,zone in (x,y)". Default: all.',
    )
    initial_profiles: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="File of SchedulerProfiles that the leader creates if they do not exist. Default: none.",
    )
    leader_election: LeaderElectionSettings = Field(
        default=LeaderElectionSettings(), description="Leader election among the replicas."
    )
    delay_cache_until_active: bool = Field(
        default=False,
        description="Keep a standby's informers stopped until it leads: a cheap standby, a slow takeover.",
    )
    plugin_time_budget: Seconds = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="Maximum duration of one call into an installed plugin before it is interrupted.",
    )
    liveness_limit: Seconds = Field(
        default=30.0, gt=0, le=3600, description="Maximum event-loop stall before the process exits."
    )
    max_watch_silence: Seconds = Field(
        default=300.0,
        ge=0,
        description="Maximum time without an event or a bookmark of a watched resource before /readyz fails; 0 "
        "disables the check.",
    )
    enable_profiling: bool = Field(
        default=False, description="Serve /debug/profile, the CPU profile of the running process."
    )
    slow_cycle_threshold: Seconds = Field(
        default=0.1,
        gt=0,
        le=3600,
        description="Log scheduling cycles slower than this, with the time of each plugin; seconds, or 100ms.",
    )
    tracing: TracingSettings | None = Field(
        default=None, description="Export of cycles as OpenTelemetry spans. Default: none."
    )
    webhook: WebhookSettings | None = Field(
        default=None, description="Validating admission webhook; not with --config. Default: none."
    )
    record: str | None = Field(
        default=None,
        min_length=1,
        max_length=1024,
        description="Directory for records of everything that enters the scheduler and of each decision, for `bayplan "
        "replay`. Default: nothing is recorded.",
    )
    record_mebibytes: int = Field(
        default=1024, ge=16, le=INT32_MAX, description="Maximum size of all records in MiB; the oldest are deleted."
    )
    record_age: Seconds = Field(
        default=86_400.0, gt=0, description="Maximum age of records; seconds, or a duration such as 24h."
    )
    feature_gates: dict[str, bool] = Field(
        default_factory=dict,
        description="Feature gates by name, such as ResultCache: false. A gate left out keeps its default.",
    )
    log_level: LogLevel = Field(default="info", description="Minimum severity of log lines.")
    verbosity: int = Field(
        default=0,
        ge=0,
        le=10,
        description="Log verbosity like kube-scheduler's -v: 3 logs each decision, from 5 on everything (debug).",
    )
    log_format: LogFormat = Field(default="text", description="Format of a log line: text or JSON.")
    graceful_stop_seconds: Seconds = Field(
        default=5.0, gt=0, le=300, description="Maximum time for binds in flight and last writes at shutdown."
    )

    def rule_problems(self) -> Iterator[RuleProblem]:
        """Check backoffs, feature gates, the profile selector, and the serving fields against each other."""
        if 0 < self.max_watch_silence < _BOOKMARKED_SECONDS:
            yield RuleProblem(
                ("maxWatchSilence",),
                f"must be 0 or at least {_BOOKMARKED_SECONDS:g} seconds: the API server sends a bookmark once a minute",
            )
        yield from backoff_problems(self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds)
        for problem in gate_problems(self.feature_gates):
            yield RuleProblem(("featureGates", *problem.location), problem.message)
        try:
            self.selection  # noqa: B018 - evaluated for the error that it raises
        except ConfigError as error:
            yield RuleProblem(("profiles",), error.problems[0].message)
        yield from self.serving_problems()

    @property
    def selection(self) -> ProfileSelection | None:
        """Profiles to serve; None for all."""
        return None if self.profiles is None else ProfileSelection(self.profiles)


def load_settings(flags: Mapping[str, Any], path: Path | None = None, *, leader_elect: bool | None = None) -> Settings:
    """Merge flags with a settings file; flags win.

    Args:
        flags: Values by field name in snake_case; None means not given.
        path: A YAML file whose fields are those of :class:`Settings` in camelCase; None reads no file.
        leader_elect: Value of the flag for ``leaderElection.leaderElect``; None if the flag was not given.

    Raises:
        ConfigError: With every problem; the path of each is the field in the file, or the flag.
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
            [Problem(str(path), f"cannot be read: {error}; correct the file or omit --settings")]
        ) from error
    if document is None:
        return {}
    if not isinstance(document, dict) or not all(isinstance(key, str) for key in document):
        raise ConfigError([Problem(str(path), "must be a mapping of settings to values")])
    return document


def runs_in_cluster(settings: Settings, environment: Mapping[str, str] = os.environ) -> bool:
    """Return whether to use the pod's service account: no kubeconfig was given and the account exists."""
    if settings.kubeconfig is not None or settings.context is not None or environment.get("KUBECONFIG"):
        return False
    return "KUBERNETES_SERVICE_HOST" in environment and (_SERVICE_ACCOUNT / "token").is_file()


def revision_namespace(settings: Settings, environment: Mapping[str, str] = os.environ) -> str:
    """Return the setting, else the pod's namespace, else that of the kubeconfig's context, else ``default``."""
    if settings.namespace is not None:
        return settings.namespace
    if runs_in_cluster(settings, environment):
        own = _SERVICE_ACCOUNT / "namespace"
        return (own.read_text(encoding="utf-8").strip() if own.is_file() else "") or "default"
    return _context_namespace(settings, environment) or "default"


def _context_namespace(settings: Settings, environment: Mapping[str, str]) -> str:
    """Return the namespace of the kubeconfig's context, "" if unreadable; the connection reports the error later."""
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
