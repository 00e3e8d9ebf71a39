"""The chart's values: its settings equal the operator's settings, and values that cannot work are rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.settings.operator_settings import Settings, load_settings

from tests.charts.conftest import CHART, Helm
from tests.charts.value_sets import VALUE_SETS
from tests.support.tables import table

# In a pod, the service account supplies the API server and the identity, and the Deployment sets the pod's address.
_NOT_IN_A_CLUSTER = {"kubeconfig", "context", "advertiseAddress", "webhook", "initialProfiles"}
# The last two are rendered from other values.
# Kubelets and scrapers reach the pod from other hosts, so it does not listen on loopback only, and two replicas need
# leader election.
_OTHER_DEFAULTS: dict[str, Any] = {
    "serveAddress": "0.0.0.0:10260",
    "localAddress": "127.0.0.1:10259",
    "secureServing": True,
    "authorizeRequests": True,
    "leaderElection": {"leaderElect": True},
}
# The chart's bound is narrower because Helm reads numbers as doubles.
_OTHER_BOUNDS = {
    "seed": {"minimum": 0, "maximum": 2**53 - 1},
    "contestedNodeBackoff": {"minimum": 0, "maximum": 3600},  # the schema of the model has them within anyOf
}
# Values that are copied into the pod or the ServiceMonitor; the API server validates their fields.
_KUBERNETES = {
    "recordVolume",
    "affinity",
    "defaultProfile.spec",
    "podSecurityContext",
    "resources",
    "securityContext",
    "serviceMonitor.tlsConfig",
    "serving.tls.certManager.issuerRef",
    "webhook.certManager.issuerRef",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum")


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """Return the chart's default values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """Return the chart's schema of its values."""
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


@pytest.fixture(scope="module")
def settings_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the chart's schema of the settings."""
    return schema["properties"]["settings"]["properties"]  # type: ignore[no-any-return]  # a JSON file


@table(
    "given, message",
    (
        "two replicas without leader election",
        {"replicaCount": 2, "settings": {"leaderElection": {"leaderElect": False}}},
        "replicaCount must be 1 or 0, not 2, while settings.leaderElection.leaderElect is false",
    ),
    ("negative replicas", {"replicaCount": -1}, "replicaCount': minimum"),
    (
        "lease duration too short",
        {"settings": {"leaderElection": {"leaseDuration": 10}}},
        "settings.leaderElection.leaseDuration must be more than settings.leaderElection.renewDeadline",
    ),
    (
        "no surge and none unavailable",
        {"rollingUpdate": {"maxSurge": "0%"}},
        "rollingUpdate.maxSurge and rollingUpdate.maxUnavailable must not both be 0",
    ),
    ("surge", {"rollingUpdate": {"maxSurge": "one"}}, "rollingUpdate/maxSurge': 'one' does not match"),
    ("unknown field of a budget", {"podDisruptionBudget": {"minAvailable": 1}}, "'minAvailable' not allowed"),
    ("anti-affinity", {"podAntiAffinity": "maybe"}, "podAntiAffinity': value must be one of"),
    ("no maxSkew", {"topologySpreadConstraints": [{"topologyKey": "zone"}]}, "missing properties 'maxSkew'"),
    (
        "nothing to scrape",
        {"serviceMonitor": {"enabled": True}, "settings": {"serveAddress": ""}},
        "serviceMonitor.enabled needs settings.serveAddress",
    ),
    (
        "no Service to monitor",
        {"serviceMonitor": {"enabled": True}, "service": {"create": False}},
        "serviceMonitor.enabled needs service.create",
    ),
    ("interval", {"serviceMonitor": {"interval": "soon"}}, "interval': 'soon' does not match"),
    ("no prefix length", {"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}}, "'10.0.0.1' does not match"),
    ("no API server port", {"networkPolicy": {"apiServer": {"ports": []}}}, "apiServer/ports': minItems"),
    (
        "two certificates of the webhook",
        {"webhook": {"certManager": {"enabled": True}, "secretName": "tls"}},
        "webhook.secretName must be unset while webhook.certManager.enabled is true",
    ),
    ("a bundle without a Secret", {"webhook": {"caBundle": "QQ=="}}, "webhook.caBundle needs webhook.secretName"),
    ("one port", {"webhook": {"enabled": True, "port": 10260}}, "webhook.port must differ from the port of"),
    (
        "two certificates for HTTPS",
        {"serving": {"tls": {"certManager": {"enabled": True}, "secretName": "tls"}}},
        "serving.tls.secretName must be unset while serving.tls.certManager.enabled is true",
    ),
    (
        "a certificate that is not served",
        {"serving": {"tls": {"certManager": {"enabled": True}}}, "settings": {"serveAddress": ""}},
        "serving.tls.certManager.enabled needs settings.serveAddress",
    ),
    ("cluster size", {"clusterSize": "huge"}, "clusterSize': value must be one of"),
    ("argument that is no flag", {"extraArgs": ["debug"]}, "'debug' does not match"),
    ("variable without a name", {"extraEnv": [{"value": "1"}]}, "missing property 'name'"),
    ("DNS policy", {"dnsPolicy": "clusterfirst"}, "dnsPolicy': value must be one of"),
    (
        "credentials without a key",
        {"serviceMonitor": {"authorization": {"credentials": {"name": "token"}}}},
        "missing property 'key'",
    ),
    ("profile name", {"defaultProfile": {"name": "My_Profile"}}, "'My_Profile' does not match"),
    (
        "profile named default-scheduler",
        {"defaultProfile": {"name": "default-scheduler"}},
        "defaultProfile.name must not be default-scheduler",
    ),
    (
        "schedulerName default-scheduler",
        {"defaultProfile": {"spec": {"schedulerName": "default-scheduler"}}},
        "defaultProfile.name must not be default-scheduler",
    ),
    ("label", {"grafanaDashboard": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard': got number"),
    ("unknown value", {"replicas": 1}, "'replicas' not allowed"),
    ("unknown setting", {"settings": {"podMaxBackof": 1}}, "'podMaxBackof' not allowed"),
    ("kubeconfig", {"settings": {"kubeconfig": "/k"}}, "'kubeconfig' not allowed"),
    ("unknown level", {"settings": {"logLevel": "trace"}}, "one of 'debug', 'info'"),
    ("no host", {"settings": {"serveAddress": ":10259"}}, "serveAddress': ':10259' does not match"),
    (
        "Lease in another namespace",
        {"settings": {"leaderElection": {"leaderElect": True, "resourceNamespace": "elsewhere"}}},
        "settings.leaderElection.resourceNamespace must be unset",
    ),
    ("client QPS 0", {"settings": {"clientQps": 0}}, "clientQps': exclusiveMinimum"),
    ("duration", {"settings": {"podMaxInUnschedulablePodsDuration": "5 m"}}, "'5 m' does not match"),
    ("digest", {"image": {"digest": "sha256:1"}}, "digest': 'sha256:1' does not match"),
    (
        "backoffs out of order",
        {"settings": {"podInitialBackoffSeconds": 20}},
        "settings.podMaxBackoffSeconds must be at least settings.podInitialBackoffSeconds",
    ),
    ("grace period", {"terminationGracePeriodSeconds": 5}, "must be more than settings.gracefulStopSeconds"),
    ("loopback", {"settings": {"serveAddress": "127.0.0.1:10259"}}, "serveAddress is loopback"),
    ("no account", {"serviceAccount": {"create": False}}, "serviceAccount.name must name an existing account"),
)
def test_invalid_values_are_rejected(each_helm: Helm, given: dict[str, Any], message: str) -> None:
    """Rendering the chart fails with a message that names an invalid value."""
    answer = each_helm.refused_or_rendered(given)
    assert answer.returncode != 0
    assert message in answer.stderr


def test_every_setting_is_a_value(values: dict[str, Any], settings_schema: dict[str, Any]) -> None:
    """Values, schema and the Settings model have the same settings."""
    fields = {info.alias or name for name, info in Settings.model_fields.items()} - _NOT_IN_A_CLUSTER
    assert set(values["settings"]) == fields
    assert set(settings_schema) == fields


def test_the_schema_is_strict(values: dict[str, Any], schema: dict[str, Any]) -> None:
    """The schema has every value and rejects all others, except inside objects of Kubernetes' own types."""
    assert _loose("", values, schema) == []
    assert set(schema["properties"]) == {*values, "global"}


def test_settings_have_the_models_defaults(values: dict[str, Any]) -> None:
    """The default of each setting in values.yaml equals the operator's default."""
    model = Settings.model_validate({}).model_dump(mode="json", by_alias=True)
    defaults = {name: default for name, default in model.items() if name not in _NOT_IN_A_CLUSTER}
    assert values["settings"] == _over(defaults, _OTHER_DEFAULTS)


def test_settings_have_the_models_bounds(settings_schema: dict[str, Any]) -> None:
    """The bounds in the chart's schema equal those of the operator."""
    properties = Settings.model_json_schema(by_alias=True)["properties"]
    expected = {
        name: _bounds(schema) | _OTHER_BOUNDS.get(name, {})
        for name, schema in properties.items()
        if name not in _NOT_IN_A_CLUSTER
    }
    assert {name: _bounds(schema) for name, schema in settings_schema.items()} == expected


@pytest.mark.parametrize("given", VALUE_SETS)
def test_the_operator_reads_the_settings_file(helm: Helm, tmp_path: Path, given: dict[str, Any]) -> None:
    """The operator loads the rendered settings file, and its settings equal the values."""
    documents = helm.documents(given)
    file = tmp_path / "settings.yaml"
    file.write_text(documents["ConfigMap"]["data"]["settings.yaml"])
    merged = _over(_OTHER_DEFAULTS, given.get("settings", {}))
    if "tls" in given.get("serving", {}):
        merged |= {"tlsCertFile": "/etc/bayplan-tls/tls.crt", "tlsPrivateKeyFile": "/etc/bayplan-tls/tls.key"}
    if "webhook" in given:
        files = {"tlsCertFile": "/etc/bayplan-webhook/tls.crt", "tlsPrivateKeyFile": "/etc/bayplan-webhook/tls.key"}
        source = files if "secretName" in given["webhook"] else {"configuration": "release-bayplan.default"}
        merged["webhook"] = {"address": f"0.0.0.0:{given['webhook'].get('port', 9443)}", **source}
    assert load_settings({}, file) == Settings.model_validate(merged)


def test_changed_settings_replace_the_pod(helm: Helm) -> None:
    """A change of settings changes the pod template, because the operator reads settings only at start."""
    pods = [
        helm.documents({"settings": {"seed": seed}})["Deployment"]["spec"]["template"]["metadata"] for seed in (0, 1)
    ]
    assert pods[0] != pods[1]


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the bounds of a field, merged with those of its alternatives."""
    found: dict[str, Any] = {}
    for part in (schema, *schema.get("anyOf", ())):
        found |= {word: part[word] for word in _BOUNDS if word in part}
    return found


def _loose(path: str, values: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Return paths of values that the schema lacks, and of objects that allow any field."""
    found = []
    for name, value in values.items():
        inner, where = schema["properties"].get(name), f"{path}{name}"
        if inner is None:
            found.append(where)
        elif isinstance(value, dict) and where not in _KUBERNETES:
            if "properties" in inner:
                found += _loose(f"{where}.", value, inner)
            found += [] if "additionalProperties" in inner else [where]
    return found


def _over(settings: dict[str, Any], others: dict[str, Any]) -> dict[str, Any]:
    """Return settings with overrides; the fields of leaderElection are merged, as Helm merges values."""
    election = settings.get("leaderElection", {}) | others.get("leaderElection", {})
    return {**settings, **others, "leaderElection": election}
