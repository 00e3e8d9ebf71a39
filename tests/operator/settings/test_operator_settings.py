"""Tests of settings from flags and a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bayplan.settings.operator_settings import load_settings, revision_namespace, runs_in_cluster
from bayplan.settings.profile_selection import MAX_LENGTH, ProfileSelection

from scheduler_core.errors import ConfigError

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


@pytest.mark.parametrize(
    ("text", "seconds"),
    [pytest.param("5m0s", 300.0, id="duration"), pytest.param("2.5", 2.5, id="text"), pytest.param(3, 3.0, id="int")],
)
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


BAD_FILES = [
    pytest.param(
        "leaderElection: {leaderElect: true, renewDeadline: 20}",
        "{path}: leaderElection.leaseDuration",
        "greater than renewDeadline",
        id="election",
    ),
    pytest.param("sede: 1", "{path}: sede", "did you mean", id="unknown"),
    pytest.param("seed: x", "{path}: seed", "whole number", id="type"),
    pytest.param("podMaxBackoffSeconds: 0", "{path}: podMaxBackoffSeconds", "at least 1", id="range"),
    pytest.param(
        "podInitialBackoffSeconds: 20", "{path}: podMaxBackoffSeconds", "at least podInitialBackoffSeconds", id="rule"
    ),
    pytest.param("serveAddress: here", "{path}: serveAddress", "host:port", id="address"),
    pytest.param("logFormat: xml", "{path}: logFormat", "must be one of", id="choice"),
    pytest.param("gracefulStopSeconds: soon", "{path}: gracefulStopSeconds", "is not a duration", id="duration"),
    pytest.param("maxWatchSilence: 89s", "{path}: maxWatchSilence", "0 or at least 90 seconds", id="watch silence"),
    pytest.param("[1]", "{path}", "mapping", id="not-a-mapping"),
    pytest.param("a: [", "{path}", "cannot be read", id="invalid-yaml"),
]


@pytest.mark.parametrize(("text", "where", "words"), BAD_FILES)
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


@pytest.mark.parametrize(
    ("flags", "namespace"),
    [
        pytest.param({"namespace": "mine"}, "mine", id="setting"),
        pytest.param({}, "from-one", id="current-context"),
        pytest.param({"context": "two"}, "default", id="context-without-namespace"),
        pytest.param({"context": "none"}, "default", id="missing-context"),
    ],
)
def test_namespace_of_revisions(tmp_path: Path, flags: dict[str, str], namespace: str) -> None:
    """ControllerRevisions are stored in the namespace of the settings or of the kubeconfig."""
    path = tmp_path / "kubeconfig"
    path.write_text(KUBECONFIG)
    settings = load_settings(flags)
    assert revision_namespace(settings, {"KUBECONFIG": f"{tmp_path}/none:{path}"}) == namespace
    assert revision_namespace(load_settings({**flags, "kubeconfig": str(path)}), {}) == namespace


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        pytest.param({}, {}, id="not-in-a-pod"),
        pytest.param({"kubeconfig": "x"}, {"KUBERNETES_SERVICE_HOST": "h"}, id="kubeconfig-setting"),
        pytest.param({}, {"KUBERNETES_SERVICE_HOST": "h", "KUBECONFIG": "x"}, id="kubeconfig-in-environment"),
        pytest.param({}, {"KUBERNETES_SERVICE_HOST": "h"}, id="no-service-account"),
    ],
)
def test_a_kubeconfig_is_used_outside_pods(flags: dict[str, str], environment: dict[str, str]) -> None:
    """The service account is used only if it exists and no kubeconfig is set."""
    assert not runs_in_cluster(load_settings(flags), environment)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("tlsCertFile: /tls.crt", "tlsPrivateKeyFile: must be set together with tlsCertFile", id="no key"),
        pytest.param(
            "tlsPrivateKeyFile: /tls.key",
            "tlsCertFile: must be set together with tlsPrivateKeyFile",
            id="no certificate",
        ),
        pytest.param("authorizeRequests: true", "tokens must not be sent unencrypted", id="unencrypted tokens"),
        pytest.param(
            "advertiseAddress: bayplan-0", 'advertiseAddress: must be an IP address, not "bayplan-0"', id="name"
        ),
        pytest.param(
            "advertiseAddress: 0.0.0.0", "advertiseAddress: must be the address of one host", id="unspecified address"
        ),
        pytest.param("tlsMinVersion: VersionTLS11", "tlsMinVersion", id="old version"),
        pytest.param("webhook: {}", "webhook.configuration: set this for a generated certificate", id="webhook"),
        pytest.param(
            "webhook: {configuration: a, tlsCertFile: /c, tlsPrivateKeyFile: /k}",
            "webhook.configuration: set this for a generated certificate",
            id="two certificates of the webhook",
        ),
        pytest.param(
            "webhook: {tlsCertFile: /c}", "webhook.tlsCertFile: must be set together", id="no key of the webhook"
        ),
        pytest.param(
            "webhook: {configuration: a, address: '9443'}",
            'address: must be host:port such as "0.0.0.0:9443"',
            id="port",
        ),
    ],
)
def test_invalid_combinations(tmp_path: Path, text: str, expected: str) -> None:
    """An invalid combination of settings is an error that names the field."""
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError, match=expected):
        load_settings({}, path)


@pytest.mark.parametrize(
    ("flags", "serves_tls"),
    [
        pytest.param({}, False, id="plain HTTP on loopback by default"),
        pytest.param({"secure_serving": True}, True, id="enabled"),
        pytest.param({"tls_cert_file": "/c", "tls_private_key_file": "/k"}, True, id="implied by files"),
    ],
)
def test_https_is_enabled_by_settings(flags: dict[str, object], *, serves_tls: bool) -> None:
    """HTTPS is enabled by the setting or by certificate files."""
    settings = load_settings(flags)
    assert settings.serves_tls == serves_tls
    assert not settings.authorize_requests


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        pytest.param("tier=a", {"tier": "a", "x": "y"}, True, id="equal"),
        pytest.param("tier=a", {"tier": "b"}, False, id="another value"),
        pytest.param("tier==a", {"tier": "a"}, True, id="double equals sign"),
        pytest.param("tier = a", {"tier": "a"}, True, id="with spaces"),
        pytest.param("tier=", {"tier": ""}, True, id="empty value"),
        pytest.param("tier=", {}, False, id="empty value without the label"),
        pytest.param("tier!=a", {"tier": "b"}, True, id="unequal"),
        pytest.param("tier!=a", {}, True, id="unequal without the label"),
        pytest.param("tier in (a, b)", {"tier": "b"}, True, id="in"),
        pytest.param("tier in (a,b)", {}, False, id="in without the label"),
        pytest.param("tier in(a,)", {"tier": ""}, True, id="in with an empty value"),
        pytest.param("tier notin (a,b)", {"tier": "b"}, False, id="not in"),
        pytest.param("tier notin (a,b)", {}, True, id="not in without the label"),
        pytest.param("tier", {"tier": "x"}, True, id="exists"),
        pytest.param("!tier", {"tier": "x"}, False, id="does not exist"),
        pytest.param("!tier", {}, True, id="does not exist, without the label"),
        pytest.param(
            "tier=a,!old,example.com/team in (x,y)",
            {"tier": "a", "example.com/team": "y"},
            True,
            id="all requirements met",
        ),
        pytest.param("tier=a,!old", {"tier": "a", "old": ""}, False, id="one requirement not met"),
        pytest.param("in in (in)", {"in": "in"}, True, id="operator names as key and value"),
    ],
)
def test_selectors_match_as_in_kubectl(text: str, labels: dict[str, str], matches: bool) -> None:
    """A selector has the same meaning as in kubectl."""
    assert ProfileSelection(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("  ", "remove it to serve them all", id="empty"),
        pytest.param("tier=a,", "found the end, expected a label key", id="trailing comma"),
        pytest.param(",tier", 'found ",", expected a label key', id="leading comma"),
        pytest.param("tier in a", 'found "a", expected values in parentheses', id="no parentheses"),
        pytest.param("tier in (a", 'found the end, expected a comma or "\\)"', id="unclosed parenthesis"),
        pytest.param("tier in (a b)", 'found "b", expected a comma or', id="missing comma in a set"),
        pytest.param("tier=a old", 'found "old", expected a comma', id="missing comma"),
        pytest.param("tier > 3", 'found ">", expected one of =, !=, in and notin', id="greater"),
        pytest.param("!tier=a", 'found "=", expected a comma', id="negated key with a value"),
        pytest.param("-tier=a", '"-tier" is not a label key', id="invalid key"),
        pytest.param("tier=a_", '"a_" of key "tier" is not a label value', id="invalid value"),
        pytest.param("x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}", id="too long"),
    ],
)
def test_invalid_selectors_are_rejected(text: str, message: str) -> None:
    """The error has what was found and what is expected."""
    with pytest.raises(ConfigError, match=message):
        ProfileSelection(text)


def test_digest() -> None:
    """The digest is the start of the trimmed selector's SHA-256, which the chart computes, too."""
    assert ProfileSelection(" tier=a\n").digest == ProfileSelection("tier=a").digest == "cde32450"
    assert ProfileSelection("tier=b").digest != "cde32450"
