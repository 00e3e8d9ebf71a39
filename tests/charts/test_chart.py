"""The chart's values: the settings among them are the operator's own, and what cannot work is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.settings.operator_settings import Settings, load_settings

from hack.docs.chart_values import chart_readme
from tests.charts.conftest import CHART, Helm
from tests.charts.value_sets import VALUE_SETS

# A pod's service account says where the API server is and who calls it, and the Deployment sets the pod's address.
_NOT_IN_A_CLUSTER = {"kubeconfig", "context", "advertiseAddress"}
# Others than the process itself ask it there, and loopback is reached by nobody outside of the container. Two replicas
# have to agree on who leads.
_OTHER_DEFAULTS: dict[str, Any] = {
    "serveAddress": "0.0.0.0:10259",
    "secureServing": True,
    "authorizeRequests": True,
    "leaderElection": {"leaderElect": True},
}
# The chart is narrower: Helm reads numbers as doubles.
_OTHER_BOUNDS = {"seed": {"minimum": 0, "maximum": 2**53 - 1}}
# What is taken over into the pod or the ServiceMonitor as it is: the API server knows its fields.
_KUBERNETES = {
    "recordVolume",
    "affinity",
    "defaultProfile.spec",
    "podSecurityContext",
    "resources",
    "securityContext",
    "serviceMonitor.tlsConfig",
}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum")


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """The chart's own values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    """The chart's schema of its values."""
    found: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return found


@pytest.fixture(scope="module")
def settings_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """The chart's schema of the settings."""
    return schema["properties"]["settings"]["properties"]  # type: ignore[no-any-return]  # a JSON file


@pytest.mark.parametrize(
    ("given", "message"),
    [
        pytest.param(
            {"replicaCount": 2, "settings": {"leaderElection": {"leaderElect": False}}},
            "replicaCount must be 1 or 0, not 2, while settings.leaderElection.leaderElect is false",
            id="two processes would both bind",
        ),
        pytest.param({"replicaCount": -1}, "replicaCount': minimum", id="less than none"),
        pytest.param(
            {"settings": {"leaderElection": {"leaseDuration": 10}}},
            "settings.leaderElection.leaseDuration must be more than settings.leaderElection.renewDeadline",
            id="a lease too short",
        ),
        pytest.param(
            {"rollingUpdate": {"maxSurge": "0%"}},
            "rollingUpdate.maxSurge and rollingUpdate.maxUnavailable must not both be 0",
            id="an update that cannot begin",
        ),
        pytest.param(
            {"rollingUpdate": {"maxSurge": "one"}}, "rollingUpdate/maxSurge': 'one' does not match", id="how many"
        ),
        pytest.param(
            {"podDisruptionBudget": {"minAvailable": 1}}, "'minAvailable' not allowed", id="unknown field of a budget"
        ),
        pytest.param({"podAntiAffinity": "maybe"}, "podAntiAffinity': value must be one of", id="anti-affinity"),
        pytest.param(
            {"topologySpreadConstraints": [{"topologyKey": "zone"}]}, "missing properties 'maxSkew'", id="half a spread"
        ),
        pytest.param(
            {"serviceMonitor": {"enabled": True}, "settings": {"serveAddress": ""}},
            "serviceMonitor.enabled needs settings.serveAddress",
            id="nothing to scrape",
        ),
        pytest.param(
            {"serviceMonitor": {"enabled": True}, "service": {"create": False}},
            "serviceMonitor.enabled needs service.create",
            id="no Service to monitor",
        ),
        pytest.param({"serviceMonitor": {"interval": "soon"}}, "interval': 'soon' does not match", id="interval"),
        pytest.param(
            {"networkPolicy": {"apiServer": {"cidrs": ["10.0.0.1"]}}},
            "'10.0.0.1' does not match",
            id="no prefix length",
        ),
        pytest.param(
            {"networkPolicy": {"apiServer": {"ports": []}}},
            "apiServer/ports': minItems",
            id="an API server out of reach",
        ),
        pytest.param({"defaultProfile": {"name": "My_Profile"}}, "'My_Profile' does not match", id="a profile's name"),
        pytest.param(
            {"defaultProfile": {"name": "default-scheduler"}},
            "defaultProfile.name must not be default-scheduler",
            id="a rival of kube-scheduler",
        ),
        pytest.param(
            {"defaultProfile": {"spec": {"schedulerName": "default-scheduler"}}},
            "defaultProfile.name must not be default-scheduler",
            id="a rival by another name",
        ),
        pytest.param(
            {"grafanaDashboard": {"labels": {"grafana_dashboard": 1}}}, "grafana_dashboard': got number", id="no text"
        ),
        pytest.param({"replicas": 1}, "'replicas' not allowed", id="unknown value"),
        pytest.param({"settings": {"podMaxBackof": 1}}, "'podMaxBackof' not allowed", id="unknown setting"),
        pytest.param({"settings": {"kubeconfig": "/k"}}, "'kubeconfig' not allowed", id="no kubeconfig in a cluster"),
        pytest.param({"settings": {"logLevel": "trace"}}, "one of 'debug', 'info'", id="unknown level"),
        pytest.param({"settings": {"serveAddress": ":10259"}}, "serveAddress': ':10259' does not match", id="no host"),
        pytest.param(
            {"settings": {"leaderElection": {"leaderElect": True, "resourceNamespace": "elsewhere"}}},
            "settings.leaderElection.resourceNamespace must be unset",
            id="a Lease without rights",
        ),
        pytest.param({"settings": {"clientQps": 0}}, "clientQps': exclusiveMinimum", id="no requests at all"),
        pytest.param({"settings": {"podMaxInUnschedulablePodsDuration": "5 m"}}, "'5 m' does not match", id="duration"),
        pytest.param({"image": {"digest": "sha256:1"}}, "digest': 'sha256:1' does not match", id="digest"),
        pytest.param(
            {"settings": {"podInitialBackoffSeconds": 20}},
            "settings.podMaxBackoffSeconds must be at least settings.podInitialBackoffSeconds",
            id="backoffs out of order",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": 5}, "must be more than settings.gracefulStopSeconds", id="no time to stop"
        ),
        pytest.param(
            {"settings": {"serveAddress": "127.0.0.1:10259"}}, "serveAddress is loopback", id="probes reach nothing"
        ),
        pytest.param(
            {"serviceAccount": {"create": False}}, "serviceAccount.name must name an existing account", id="no account"
        ),
    ],
)
def test_bad_values_are_refused(each_helm: Helm, given: dict[str, Any], message: str) -> None:
    """A value that cannot work is named when the chart is rendered, not by a pod that crashes."""
    answer = each_helm.refused_or_rendered(given)
    assert answer.returncode != 0
    assert message in answer.stderr


def test_every_setting_is_a_value(values: dict[str, Any], settings_schema: dict[str, Any]) -> None:
    """Values, schema and model name the same settings."""
    fields = {info.alias or name for name, info in Settings.model_fields.items()} - _NOT_IN_A_CLUSTER
    assert set(values["settings"]) == fields
    assert set(settings_schema) == fields


def test_the_schema_is_strict(values: dict[str, Any], schema: dict[str, Any]) -> None:
    """Every value is in the schema, and nothing else is, down to what is Kubernetes' own."""
    assert _loose("", values, schema) == []
    assert set(schema["properties"]) == {*values, "global"}


def test_settings_have_the_models_defaults(values: dict[str, Any]) -> None:
    """What no value says is what no flag says."""
    model = Settings.model_validate({}).model_dump(mode="json", by_alias=True)
    defaults = {name: default for name, default in model.items() if name not in _NOT_IN_A_CLUSTER}
    assert values["settings"] == _over(defaults, _OTHER_DEFAULTS)


def test_settings_have_the_models_bounds(settings_schema: dict[str, Any]) -> None:
    """The chart refuses a number or a word where the operator would."""
    properties = Settings.model_json_schema(by_alias=True)["properties"]
    expected = {
        name: _bounds(schema) | _OTHER_BOUNDS.get(name, {})
        for name, schema in properties.items()
        if name not in _NOT_IN_A_CLUSTER
    }
    assert {name: _bounds(schema) for name, schema in settings_schema.items()} == expected


@pytest.mark.parametrize("given", VALUE_SETS)
def test_the_operator_reads_the_settings_file(helm: Helm, tmp_path: Path, given: dict[str, Any]) -> None:
    """The rendered file is one that the operator takes, and says what the values say."""
    documents = helm.documents(given)
    file = tmp_path / "settings.yaml"
    file.write_text(documents["ConfigMap"]["data"]["settings.yaml"])
    merged = _over(_OTHER_DEFAULTS, given.get("settings", {}))
    if "serving" in given:
        merged |= {"tlsCertFile": "/etc/bayplan-tls/tls.crt", "tlsPrivateKeyFile": "/etc/bayplan-tls/tls.key"}
    assert load_settings({}, file) == Settings.model_validate(merged)


def test_other_settings_are_another_pod(helm: Helm) -> None:
    """Settings are read at start, so a change of them replaces the pod."""
    pods = [
        helm.documents({"settings": {"seed": seed}})["Deployment"]["spec"]["template"]["metadata"] for seed in (0, 1)
    ]
    assert pods[0] != pods[1]


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds of a field, those of its alternatives taken together."""
    found: dict[str, Any] = {}
    for part in (schema, *schema.get("anyOf", ())):
        found |= {word: part[word] for word in _BOUNDS if word in part}
    return found


def _loose(path: str, values: dict[str, Any], schema: dict[str, Any]) -> list[str]:
    """Paths of values that the schema does not know, and of structures that may hold anything."""
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
    """Settings with others over them, those of the election one by one as Helm joins values."""
    election = settings.get("leaderElection", {}) | others.get("leaderElection", {})
    return {**settings, **others, "leaderElection": election}


def test_the_readme_lists_the_values() -> None:
    """The table in the chart's README is what values.yaml says; `make docs` makes it."""
    assert (CHART / "README.md").read_text(encoding="utf-8") == chart_readme()
