"""Tests of settings from flags and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bayplan.settings.operator_settings import load_settings, revision_namespace, runs_in_cluster
from bayplan.settings.profile_selection import MAX_LENGTH, ProfileSelection

from scheduler_core.errors import ConfigError
from tests.support.tables import table

KUBECONFIG = """
current-context: one
contexts:
- {name: one, context: {cluster: c, user: u, namespace: from-one}}
- {name: two, context: {cluster: c, user: u}}
"""


def test_defaults() -> None:
    """No setting is required."""
    settings = load_settings({})
    assert settings.serve_host_and_port == ("127.0.0.1", 10259)
    assert (settings.pod_initial_backoff_seconds, settings.pod_max_backoff_seconds) == (1, 10)
    assert settings.percentage_of_nodes_to_score is None
    assert settings.client_qps is None
    assert not settings.allow_default_scheduler


def test_flags_override_the_file(tmp_path: Path) -> None:
    """A flag overrides the file unless it is not set."""
    path = tmp_path / "settings.yaml"
    path.write_text("seed: 7\nbindConcurrency: 5\npodMaxInUnschedulablePodsDuration: 5m\n")
    settings = load_settings({"seed": 8, "bind_concurrency": None}, path)
    assert (settings.seed, settings.bind_concurrency) == (8, 5)
    assert settings.pod_max_in_unschedulable_pods_duration == 300.0


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    """A file with only comments is valid and has the defaults."""
    path = tmp_path / "settings.yaml"
    path.write_text("# nothing\n")
    assert load_settings({}, path) == load_settings({})


@table("text, seconds", ("duration", "5m0s", 300.0), ("text", "2.5", 2.5), ("int", 3, 3.0))
def test_seconds(text: Any, seconds: float) -> None:
    """Seconds are numbers or Go durations."""
    assert load_settings({"graceful_stop_seconds": text}).graceful_stop_seconds == seconds


def test_the_flag_overrides_one_field_of_the_election(tmp_path: Path) -> None:
    """The flag --leader-elect overrides only its own field of the leader election."""
    path = tmp_path / "settings.yaml"
    path.write_text("leaderElection: {leaderElect: false, leaseDuration: 30s}\n")
    election = load_settings({}, path, leader_elect=True).leader_election
    assert election.leader_elect
    options = election.options("here")
    assert (options.namespace, options.name, options.lease_seconds) == ("here", "bayplan", 30.0)
    assert not load_settings({}).leader_election.leader_elect


@table(
    "text, where, words",
    (
        "election",
        "leaderElection: {leaderElect: true, renewDeadline: 20}",
        "{path}: leaderElection.leaseDuration",
        "greater than renewDeadline",
    ),
    ("unknown", "sede: 1", "{path}: sede", "did you mean"),
    ("type", "seed: x", "{path}: seed", "whole number"),
    ("range", "podMaxBackoffSeconds: 0", "{path}: podMaxBackoffSeconds", "at least 1"),
    ("rule", "podInitialBackoffSeconds: 20", "{path}: podMaxBackoffSeconds", "at least podInitialBackoffSeconds"),
    ("address", "serveAddress: here", "{path}: serveAddress", "host:port"),
    ("choice", "logFormat: xml", "{path}: logFormat", "must be one of"),
    ("duration", "gracefulStopSeconds: soon", "{path}: gracefulStopSeconds", "is not a duration"),
    ("watch silence", "maxWatchSilence: 89s", "{path}: maxWatchSilence", "0 or at least 90 seconds"),
    ("not-a-mapping", "[1]", "{path}", "mapping"),
    ("invalid-yaml", "a: [", "{path}", "cannot be read"),
)
def test_an_invalid_file_is_reported(tmp_path: Path, text: str, where: str, words: str) -> None:
    """Each problem names the file, the field and the remedy."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_settings({}, path)
    (problem,) = caught.value.problems
    assert problem.path == where.format(path=path)
    assert words in problem.message


def test_every_problem_is_reported(tmp_path: Path) -> None:
    """A problem of a flag names the flag, and a problem of the file the field."""
    path = tmp_path / "settings.yaml"
    path.write_text("seed: -1\nclientBurst: 0\n")
    with pytest.raises(ConfigError) as caught:
        load_settings({"bind_concurrency": 0}, path)
    found = {problem.path for problem in caught.value.problems}
    assert found == {f"{path}: seed", f"{path}: clientBurst", "--bind-concurrency"}


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    """A missing settings file is a problem with its path."""
    with pytest.raises(ConfigError, match=r"nowhere\.yaml: cannot be read"):
        load_settings({}, tmp_path / "nowhere.yaml")


def test_an_empty_address_disables_serving() -> None:
    """An empty serve address disables the HTTP server."""
    assert load_settings({"serve_address": ""}).serve_host_and_port is None


@table(
    "flags, namespace",
    ("setting", {"namespace": "mine"}, "mine"),
    ("current-context", {}, "from-one"),
    ("context-without-namespace", {"context": "two"}, "default"),
    ("missing-context", {"context": "none"}, "default"),
)
def test_namespace_of_revisions(tmp_path: Path, flags: dict[str, str], namespace: str) -> None:
    """ControllerRevisions are stored in the namespace of the settings or of the kubeconfig."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    settings = load_settings(flags)
    assert revision_namespace(settings, {"KUBECONFIG": f"{tmp_path}/none:{path}"}) == namespace
    assert revision_namespace(load_settings({**flags, "kubeconfig": str(path)}), {}) == namespace


@table(
    "flags, environment",
    ("not-in-a-pod", {}, {}),
    ("kubeconfig-setting", {"kubeconfig": "x"}, {"KUBERNETES_SERVICE_HOST": "h"}),
    ("kubeconfig-in-environment", {}, {"KUBERNETES_SERVICE_HOST": "h", "KUBECONFIG": "x"}),
    ("no-service-account", {}, {"KUBERNETES_SERVICE_HOST": "h"}),
)
def test_a_kubeconfig_is_used_outside_pods(flags: dict[str, str], environment: dict[str, str]) -> None:
    """The service account is used only if it exists and no kubeconfig is set."""
    assert not runs_in_cluster(load_settings(flags), environment)


@table(
    "text, expected",
    ("no key", "tlsCertFile: /tls.crt", "tlsPrivateKeyFile: must be set together with tlsCertFile"),
    ("no certificate", "tlsPrivateKeyFile: /tls.key", "tlsCertFile: must be set together with tlsPrivateKeyFile"),
    ("unencrypted tokens", "authorizeRequests: true", "tokens must not be sent unencrypted"),
    ("name", "advertiseAddress: bayplan-0", 'advertiseAddress: must be an IP address, not "bayplan-0"'),
    ("unspecified address", "advertiseAddress: 0.0.0.0", "advertiseAddress: must be the address of one host"),
    ("old version", "tlsMinVersion: VersionTLS11", "tlsMinVersion"),
    ("webhook", "webhook: {}", "webhook.configuration: set this for a generated certificate"),
    (
        "two certificates of the webhook",
        "webhook: {configuration: a, tlsCertFile: /c, tlsPrivateKeyFile: /k}",
        "webhook.configuration: set this for a generated certificate",
    ),
    ("no key of the webhook", "webhook: {tlsCertFile: /c}", "webhook.tlsCertFile: must be set together"),
    ("port", "webhook: {configuration: a, address: '9443'}", 'address: must be host:port such as "0.0.0.0:9443"'),
)
def test_invalid_combinations(tmp_path: Path, text: str, expected: str) -> None:
    """An invalid combination of settings is an error that names the field."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings({}, path)


@table(
    "flags, serves_tls",
    ("plain HTTP on loopback by default", {}, False),
    ("enabled", {"secure_serving": True}, True),
    ("implied by files", {"tls_cert_file": "/c", "tls_private_key_file": "/k"}, True),
)
def test_https_is_enabled_by_settings(flags: dict[str, object], *, serves_tls: bool) -> None:
    """HTTPS is enabled by the setting or by certificate files."""
    settings = load_settings(flags)
    assert settings.serves_tls == serves_tls
    assert not settings.authorize_requests


@table(
    "text, labels, matches",
    ("equal", "tier=a", {"tier": "a", "x": "y"}, True),
    ("another value", "tier=a", {"tier": "b"}, False),
    ("double equals sign", "tier==a", {"tier": "a"}, True),
    ("with spaces", "tier = a", {"tier": "a"}, True),
    ("empty value", "tier=", {"tier": ""}, True),
    ("empty value without the label", "tier=", {}, False),
    ("unequal", "tier!=a", {"tier": "b"}, True),
    ("unequal without the label", "tier!=a", {}, True),
    ("in", "tier in (a, b)", {"tier": "b"}, True),
    ("in without the label", "tier in (a,b)", {}, False),
    ("in with an empty value", "tier in(a,)", {"tier": ""}, True),
    ("not in", "tier notin (a,b)", {"tier": "b"}, False),
    ("not in without the label", "tier notin (a,b)", {}, True),
    ("exists", "tier", {"tier": "x"}, True),
    ("does not exist", "!tier", {"tier": "x"}, False),
    ("does not exist, without the label", "!tier", {}, True),
    ("all requirements met", "tier=a,!old,example.com/team in (x,y)", {"tier": "a", "example.com/team": "y"}, True),
    ("one requirement not met", "tier=a,!old", {"tier": "a", "old": ""}, False),
    ("operator names as key and value", "in in (in)", {"in": "in"}, True),
)
def test_selectors_match_as_in_kubectl(text: str, labels: dict[str, str], matches: bool) -> None:
    """A selector has the same meaning as in kubectl."""
    assert ProfileSelection(text).matches(labels) is matches


@table(
    "text, message",
    ("empty", "  ", "remove it to serve them all"),
    ("trailing comma", "tier=a,", "found the end, expected a label key"),
    ("leading comma", ",tier", 'found ",", expected a label key'),
    ("no parentheses", "tier in a", 'found "a", expected values in parentheses'),
    ("unclosed parenthesis", "tier in (a", 'found the end, expected a comma or "\\)"'),
    ("missing comma in a set", "tier in (a b)", 'found "b", expected a comma or'),
    ("missing comma", "tier=a old", 'found "old", expected a comma'),
    ("greater", "tier > 3", 'found ">", expected one of =, !=, in and notin'),
    ("negated key with a value", "!tier=a", 'found "=", expected a comma'),
    ("invalid key", "-tier=a", '"-tier" is not a label key'),
    ("invalid value", "tier=a_", '"a_" of key "tier" is not a label value'),
    ("too long", "x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}"),
)
def test_invalid_selectors_are_rejected(text: str, message: str) -> None:
    """The error has what was found and what is expected."""
    with pytest.raises(ConfigError, match=message):
        ProfileSelection(text)


def test_digest() -> None:
    """The digest is the start of the trimmed selector's SHA-256, which the chart computes, too."""
    assert ProfileSelection(" tier=a\n").digest == ProfileSelection("tier=a").digest == "cde32450"
    assert ProfileSelection("tier=b").digest != "cde32450"
