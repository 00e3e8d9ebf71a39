"""The chart as Helm renders it: lint, values, schema, and what the real API server says to the manifests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.settings import Settings, load_settings

from hack.controlplane.launcher import ControlPlane
from tests.charts.conftest import CHART, ROOT, Helm

# Where the API server is and who calls it is told to a pod by its service account.
_NOT_IN_A_CLUSTER = {"kubeconfig", "context"}
# Loopback is reached by nobody outside of the container.
# Others than the process itself ask it there.
_OTHER_DEFAULTS = {"serveAddress": "0.0.0.0:10259", "secureServing": True, "authorizeRequests": True}
# The chart is narrower: Helm reads numbers as doubles.
_OTHER_BOUNDS = {"seed": {"minimum": 0, "maximum": 2**53 - 1}}
_BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "enum")

_VALUES = [
    pytest.param({}, id="defaults"),
    pytest.param({"replicaCount": 0}, id="stopped"),
    pytest.param(
        {
            "extraVolumes": [{"name": "extender", "secret": {"secretName": "extender"}}],
            "extraVolumeMounts": [{"name": "extender", "mountPath": "/etc/extender", "readOnly": True}],
        },
        id="more volumes",
    ),
    pytest.param({"settings": {"serveAddress": ""}}, id="serves nothing"),
    pytest.param({"settings": {"serveAddress": "[::]:8080"}, "service": {"port": 80}}, id="IPv6 and other ports"),
    pytest.param({"settings": {"namespace": "default"}}, id="revisions in another namespace"),
    pytest.param({"settings": {"leaderElection": {"leaderElect": True, "leaseDuration": "30s"}}}, id="leader election"),
    pytest.param(
        {
            "settings": {
                "percentageOfNodesToScore": 0,
                "clientQps": 0.5,
                "podMaxInUnschedulablePodsDuration": "5m30s",
                "logFormat": "json",
                "pluginTimeBudget": "500ms",
                "livenessLimit": 60,
            },
            "rbac": {"extraRules": [{"apiGroups": ["example.com"], "resources": ["licenses"], "verbs": ["list"]}]},
        },
        id="other settings",
    ),
    pytest.param(
        {"serviceAccount": {"create": False, "name": "given"}, "rbac": {"create": False}, "service": {"create": False}},
        id="accounts and rights are somebody else's",
    ),
    pytest.param(
        {
            "fullnameOverride": "scheduler",
            "image": {"repository": "registry.example/bayplan", "digest": f"sha256:{'0' * 64}", "pullPolicy": "Always"},
            "imagePullSecrets": [{"name": "password"}],
            "serviceAccount": {"annotations": {"example.com/role": "scheduler"}},
            "service": {"annotations": {"prometheus.io/scrape": "true"}},
            "commonLabels": {"team": "platform"},
            "podAnnotations": {"example.com/a": "1"},
            "podLabels": {"example.com/b": "2"},
            "priorityClassName": "",
            "schedulerName": "default-scheduler",
            "nodeSelector": {"kubernetes.io/os": "linux"},
            "tolerations": [{"key": "control-plane", "operator": "Exists"}],
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
                    }
                }
            },
        },
        id="everything optional",
    ),
]


@pytest.fixture(scope="module")
def values() -> dict[str, Any]:
    """The chart's own values."""
    found: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
    return found


@pytest.fixture(scope="module")
def settings_schema() -> dict[str, Any]:
    """The chart's schema of the settings."""
    schema: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
    return schema["properties"]["settings"]["properties"]  # type: ignore[no-any-return]  # a JSON file


@pytest.fixture
def cluster_namespace(control_plane: ControlPlane, namespace: str) -> str:
    """A namespace that admits only pods of the restricted Pod Security Standard."""
    control_plane.kubectl("label", "namespace", namespace, "pod-security.kubernetes.io/enforce=restricted")
    return namespace


def test_the_chart_is_clean(helm: Helm) -> None:
    """Helm's linter has nothing to say."""
    answer = helm.run("lint", "--strict", str(CHART))
    assert answer.returncode == 0, answer.stdout + answer.stderr


@pytest.mark.parametrize("given", _VALUES)
def test_the_api_server_takes_the_manifests(
    helm: Helm, control_plane: ControlPlane, cluster_namespace: str, given: dict[str, Any]
) -> None:
    """Every object is valid to its last field."""
    manifests = helm.template(given, cluster_namespace)
    told = control_plane.kubectl("apply", "--dry-run=server", "--validate=strict", "--filename=-", input=manifests)
    assert len(told.splitlines()) == manifests.count("\nkind: ")


def test_the_pod_is_restricted(helm: Helm, control_plane: ControlPlane, cluster_namespace: str) -> None:
    """The pod is admitted where the restricted Pod Security Standard is enforced."""
    template = helm.documents({}, cluster_namespace)["Deployment"]["spec"]["template"]
    template["metadata"]["name"] = "one"
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", **template})
    command = ("create", "--dry-run=server", f"--namespace={cluster_namespace}", "--filename=-")
    assert "pod/one created" in control_plane.kubectl(*command, input=pod)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        pytest.param({"replicaCount": 2}, "replicaCount': maximum", id="two processes would both bind"),
        pytest.param({"replicas": 1}, "'replicas' not allowed", id="unknown value"),
        pytest.param({"settings": {"podMaxBackof": 1}}, "'podMaxBackof' not allowed", id="unknown setting"),
        pytest.param({"settings": {"kubeconfig": "/k"}}, "'kubeconfig' not allowed", id="no kubeconfig in a cluster"),
        pytest.param({"settings": {"logLevel": "trace"}}, "one of 'debug', 'info'", id="unknown level"),
        pytest.param({"settings": {"serveAddress": ":10259"}}, "serveAddress': ':10259' does not match", id="no host"),
        pytest.param(
            {"settings": {"leaderElection": {"leaderElect": True, "resourceNamespace": "elsewhere"}}},
            "settings.leaderElection.resourceNamespace must be left out",
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
def test_bad_values_are_refused(helm: Helm, given: dict[str, Any], told: str) -> None:
    """A value that cannot work is named when the chart is rendered, not by a pod that crashes."""
    answer = helm.refused_or_rendered(given)
    assert answer.returncode != 0
    assert told in answer.stderr


def test_every_setting_is_a_value(values: dict[str, Any], settings_schema: dict[str, Any]) -> None:
    """Values, schema and model name the same settings."""
    fields = {info.alias or name for name, info in Settings.model_fields.items()} - _NOT_IN_A_CLUSTER
    assert set(values["settings"]) == fields
    assert set(settings_schema) == fields


def test_settings_have_the_models_defaults(values: dict[str, Any]) -> None:
    """What no value says is what no flag says."""
    model = Settings.model_validate({}).model_dump(by_alias=True)
    defaults = {name: default for name, default in model.items() if name not in _NOT_IN_A_CLUSTER}
    assert values["settings"] == defaults | _OTHER_DEFAULTS


def test_settings_have_the_models_bounds(settings_schema: dict[str, Any]) -> None:
    """The chart refuses a number or a word where the operator would."""
    properties = Settings.model_json_schema(by_alias=True)["properties"]
    expected = {
        name: _bounds(schema) | _OTHER_BOUNDS.get(name, {})
        for name, schema in properties.items()
        if name not in _NOT_IN_A_CLUSTER
    }
    assert {name: _bounds(schema) for name, schema in settings_schema.items()} == expected


@pytest.mark.parametrize("given", _VALUES)
def test_the_operator_reads_the_settings_file(helm: Helm, tmp_path: Path, given: dict[str, Any]) -> None:
    """The rendered file is one that the operator takes, and says what the values say."""
    documents = helm.documents(given)
    file = tmp_path / "settings.yaml"
    file.write_text(documents["ConfigMap"]["data"]["settings.yaml"])
    told = _OTHER_DEFAULTS | given.get("settings", {})
    assert load_settings({}, file) == Settings.model_validate(told)


def test_other_settings_are_another_pod(helm: Helm) -> None:
    """Settings are read at start, so a change of them replaces the pod."""
    pods = [
        helm.documents({"settings": {"seed": seed}})["Deployment"]["spec"]["template"]["metadata"] for seed in (0, 1)
    ]
    assert pods[0] != pods[1]


@pytest.mark.parametrize(
    ("address", "port"),
    [pytest.param("0.0.0.0:8080", 8080, id="IPv4"), pytest.param("[::]:9090", 9090, id="IPv6")],
)
def test_probes_follow_the_address(helm: Helm, address: str, port: int) -> None:
    """The container's port is the one that is served, and probes and Service lead to it by name."""
    documents = helm.documents({"settings": {"serveAddress": address}})
    container = documents["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert [(one["name"], one["containerPort"]) for one in container["ports"]] == [("http", port)]
    assert container["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "http"}
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "http"}
    assert documents["Service"]["spec"]["ports"][0]["targetPort"] == "http"


def test_no_two_processes_at_a_time(helm: Helm) -> None:
    """Until there is leader election, one process ends before the next starts."""
    spec = helm.documents({})["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_the_packaged_chart_carries_the_definitions(helm: Helm, tmp_path: Path) -> None:
    """The chart's custom resource definitions are those of ``crds/``, also in the package."""
    answer = helm.run("package", str(CHART), f"--destination={tmp_path}")
    assert answer.returncode == 0, answer.stderr
    (package,) = tmp_path.glob("*.tgz")
    shown = helm.run("show", "crds", str(package)).stdout
    carried = [document for document in yaml.safe_load_all(shown) if document]
    generated = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert sorted(carried, key=_name) == sorted(generated, key=_name)


def _bounds(schema: dict[str, Any]) -> dict[str, Any]:
    """Bounds of a field, those of its alternatives taken together."""
    found: dict[str, Any] = {}
    for part in (schema, *schema.get("anyOf", ())):
        found |= {word: part[word] for word in _BOUNDS if word in part}
    return found


def _name(document: dict[str, Any]) -> str:
    return str(document["metadata"]["name"])
