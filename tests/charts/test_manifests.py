"""The chart's manifests as rendered by Helm 3 and 4, and validated by a real API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import Any

import pytest
import yaml
from bayplan.cli.operator_requests import TOKEN_FILE
from bayplan.resources.crd_generation import RESOURCES
from bayplan.serving import COMMAND_PATHS
from bayplan.serving.authorization import COMMAND_AUDIENCE

from hack.controlplane.api_client import ApiClient
from hack.controlplane.installed_operator import expanded_arguments
from hack.controlplane.launcher import ControlPlane
from tests.charts.conftest import SERVED, Helm
from tests.charts.rights import granted
from tests.charts.value_sets import MONITORING, PLAIN, SINGLE, VALUE_SETS
from tests.support.namespaces import new_namespace
from tests.support.tables import table

pytestmark = pytest.mark.cluster
_WAYS = (("ingress", "from"), ("egress", "to"))
_RESTRICTED = "pod-security.kubernetes.io/enforce=restricted"


@pytest.fixture(scope="module")
def cluster_namespace(chart_plane: ControlPlane) -> Iterator[str]:
    """Create a namespace that enforces the restricted Pod Security Standard; tests only dry-run in it."""
    # Admission checks the class of the pod of `helm test`.
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "gvisor"},
        "handler": "runsc",
    }
    chart_plane.kubectl("apply", "--filename=-", input=json.dumps(runtime))
    with new_namespace(chart_plane, "restricted") as name:
        chart_plane.kubectl("label", "namespace", name, _RESTRICTED)
        yield name


@pytest.mark.parametrize("given", VALUE_SETS)
def test_the_api_server_accepts_the_manifests(
    helm: Helm, helm3: Helm, chart_plane: ControlPlane, cluster_namespace: str, given: dict[str, Any]
) -> None:
    """The API server accepts every object in a dry run, and Helm 3 renders the same objects as Helm 4."""
    manifests = helm.template(given, cluster_namespace)
    assert _objects(helm3.template(given, cluster_namespace)) == _objects(manifests)
    with ApiClient(chart_plane) as api:
        for (kind, name), one in _objects(manifests).items():
            applied = api.would_apply(one)
            assert (applied["kind"], applied["metadata"]["name"]) == (kind, name)


@table("given", ("defaults", {}), ("no leader election", SINGLE))
def test_the_pod_is_restricted(
    helm: Helm, chart_plane: ControlPlane, cluster_namespace: str, given: dict[str, Any]
) -> None:
    """The pod is admitted in a namespace that enforces the restricted Pod Security Standard."""
    template = helm.documents(given, cluster_namespace)["Deployment"]["spec"]["template"]
    template["metadata"]["name"] = "one"
    pod = json.dumps({"apiVersion": "v1", "kind": "Pod", **template})
    command = ("create", "--dry-run=server", f"--namespace={cluster_namespace}", "--filename=-")
    assert "pod/one created" in chart_plane.kubectl(*command, input=pod)


def test_the_container_is_restricted(helm: Helm) -> None:
    """The container has no root, no capability, only a temporary directory to write to, and bounded memory."""
    pod = helm.documents({})["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    writable = [mount["name"] for mount in container["volumeMounts"] if not mount.get("readOnly")]
    assert writable == ["tmp"]
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}
    assert set(container["resources"]["limits"]) == {"memory"}


def test_secrets_of_extenders_can_be_mounted(helm: Helm) -> None:
    """The directory for extender files is in no read-only mount of the chart, where no mount point can be created."""
    documents = helm.documents({"serving": {"tls": {"secretName": "tls"}}})
    (container,) = documents["Deployment"]["spec"]["template"]["spec"]["containers"]
    rendered = yaml.safe_load(documents["ConfigMap"]["data"]["settings.yaml"])
    directory = PurePosixPath(rendered["extenderFilesDirectory"])
    mounts = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert [mount for mount in mounts if directory.is_relative_to(mount)] == []


@table(
    "given, replicas, strategy, budgeted",
    ("defaults", {}, 2, "RollingUpdate", True),
    ("one replica", {"replicaCount": 1}, 1, "RollingUpdate", False),
    ("stopped", {"replicaCount": 0}, 0, "RollingUpdate", False),
    ("no budget", {"podDisruptionBudget": {"enabled": False}}, 2, "RollingUpdate", False),
    ("no leader election", SINGLE, 1, "Recreate", False),
)
def test_replicas_and_strategy(helm: Helm, given: dict[str, Any], replicas: int, strategy: str, budgeted: bool) -> None:
    """With leader election two replicas roll over and have a disruption budget; without it one is recreated."""
    documents = helm.documents(given)
    spec = documents["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["type"]) == (replicas, strategy)
    assert ("PodDisruptionBudget" in documents) == budgeted
    rendered = yaml.safe_load(documents["ConfigMap"]["data"]["settings.yaml"])
    assert rendered["leaderElection"]["leaderElect"] == (strategy == "RollingUpdate")


@table(
    "given, terms, spread",
    ("defaults", {}, {"preferredDuringSchedulingIgnoredDuringExecution": 1}, 1),
    ("hard", {"podAntiAffinity": "hard"}, {"requiredDuringSchedulingIgnoredDuringExecution": 1}, 1),
    ("none", {"podAntiAffinity": "none", "topologySpreadConstraints": []}, None, 0),
    ("custom affinity", {"affinity": {"podAntiAffinity": {}}}, {}, 1),
)
def test_replicas_are_spread(helm: Helm, given: dict[str, Any], terms: dict[str, int] | None, spread: int) -> None:
    """By default replicas prefer different nodes and zones."""
    pod = helm.documents(given)["Deployment"]["spec"]["template"]["spec"]
    anti = pod.get("affinity", {}).get("podAntiAffinity")
    assert (None if anti is None else {name: len(each) for name, each in anti.items()}) == terms
    assert len(pod.get("topologySpreadConstraints", ())) == spread


@table(
    "settings, port, scheme",
    ("IPv4", {"serveAddress": "0.0.0.0:8080"}, 8080, "HTTPS"),
    ("IPv6", {"serveAddress": "[::]:9090"}, 9090, "HTTPS"),
    ("plain HTTP", PLAIN, 10260, "HTTP"),
)
def test_probes_follow_the_address(helm: Helm, settings: dict[str, Any], port: int, scheme: str) -> None:
    """The container port is the served port, and probes, Service, ServiceMonitor and NetworkPolicy use it."""
    documents = helm.documents({"settings": settings, "networkPolicy": {"enabled": True}, **MONITORING})
    container = documents["Deployment"]["spec"]["template"]["spec"]["containers"][0]
    assert [(one["name"], one["containerPort"]) for one in container["ports"]] == [(scheme.lower(), port)]
    probes = {"startupProbe": "/livez", "livenessProbe": "/livez", "readinessProbe": "/readyz"}
    for probe, path in probes.items():
        assert container[probe]["httpGet"] == {"path": path, "port": scheme.lower(), "scheme": scheme}
    assert documents["ServiceMonitor"]["spec"]["endpoints"][0]["scheme"] == scheme.lower()
    assert documents["Service"]["spec"]["ports"][0]["targetPort"] == scheme.lower()
    assert documents["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [{"port": port, "protocol": "TCP"}]


@table(
    "given, follows",
    ("defaults", {}, True),
    ("another port", {"settings": {"serveAddress": "[::]:8080"}}, True),
    ("no leader election", SINGLE, False),
    ("no token review", {"settings": PLAIN}, False),
    ("serves nothing", {"settings": {"serveAddress": ""}}, False),
)
def test_a_command_in_a_standby_can_query_the_leader(helm: Helm, given: dict[str, Any], follows: bool) -> None:
    """Replicas have an advertised address, a token of Bayplan's audience and the right to use it, or none of these."""
    policy = {"enabled": True, "ingressFrom": [{"podSelector": {"matchLabels": {"app": "prometheus"}}}]}
    objects = _objects(helm.template({**given, "networkPolicy": policy}, "ns"))
    pod = objects["Deployment", "release-bayplan"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    flags = [one for one in expanded_arguments(container, "fd00::1") if one.startswith("--advertise-address")]
    assert flags == (["--advertise-address=fd00::1"] if follows else [])
    mounts = {one["name"]: PurePosixPath(one["mountPath"]) for one in container["volumeMounts"] if one.get("readOnly")}
    tokens = [
        (mounts[volume["name"]] / token["path"], token["audience"])
        for volume in pod["spec"]["volumes"]
        for source in volume.get("projected", {}).get("sources", ())
        for token in [source["serviceAccountToken"]]
    ]
    assert tokens == ([(PurePosixPath(TOKEN_FILE), COMMAND_AUDIENCE)] if follows else [])
    rules = objects["ClusterRole", "ns:release-bayplan"]["rules"]
    paths = {path for rule in rules for path in rule.get("nonResourceURLs", ())}
    assert paths == (COMMAND_PATHS if follows else set())
    selector = {"podSelector": {"matchLabels": _selected(pod["metadata"]["labels"])}}
    spec = objects["NetworkPolicy", "release-bayplan"]["spec"]
    peers = [[one["ports"] for one in spec[way] or () if one.get(end) == [selector]] for way, end in _WAYS]
    served = [{"port": port["containerPort"], "protocol": "TCP"} for port in container.get("ports", ())]
    assert peers == ([[served], [served]] if follows else [[], []])


@table(
    "given, absent",
    ("defaults", {}, set()),
    ("no leader election", SINGLE, {"leases"}),
    ("served without authorization", {"settings": PLAIN}, {"tokenreviews", "subjectaccessreviews"}),
    ("serves nothing", {"settings": {"serveAddress": ""}}, {"tokenreviews", "subjectaccessreviews"}),
)
def test_rights_follow_the_values(helm: Helm, given: dict[str, Any], absent: set[str]) -> None:
    """A right that the settings make unnecessary is not granted."""
    rights = granted(_objects(helm.template(given, "ns")).values(), "release-bayplan", "ns")
    conditional = {"leases", "tokenreviews", "subjectaccessreviews"}
    assert conditional - {right.resource for right in rights} == absent


WEBHOOK: dict[str, Any] = {"enabled": True, "port": 8443}


@table(
    "more, secret, kinds",
    ("generated", {}, None, set()),
    ("Secret", {"secretName": "tls", "caBundle": "QQ=="}, "tls", set()),
    ("cert-manager", {"certManager": {"enabled": True}}, "release-bayplan-webhook", {"Issuer", "Certificate"}),
    (
        "cert-manager with an issuer",
        {"certManager": {"enabled": True, "issuerRef": {"kind": "ClusterIssuer", "name": "ca"}}},
        "release-bayplan-webhook",
        {"Certificate"},
    ),
)
def test_the_webhook_reaches_the_pods(helm: Helm, more: dict[str, Any], secret: str | None, kinds: set[str]) -> None:
    """The webhook names the pods' Service, the certificate is for its name, and only generated ones need rights."""
    objects = _objects(helm.template({"webhook": {**WEBHOOK, **more}, "networkPolicy": {"enabled": True}}, "ns"))
    service = objects["Service", "release-bayplan-webhook"]["spec"]
    configuration = objects["ValidatingWebhookConfiguration", "release-bayplan.ns"]
    (webhook,) = configuration["webhooks"]
    pod = objects["Deployment", "release-bayplan"]["spec"]["template"]
    assert service["selector"].items() <= pod["metadata"]["labels"].items()
    (container,) = pod["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports[service["ports"][0]["targetPort"]] == 8443
    where = {
        "name": "release-bayplan-webhook",
        "namespace": "ns",
        "path": "/validate",
        "port": service["ports"][0]["port"],
    }
    assert webhook["clientConfig"] == {"service": where, **({"caBundle": "QQ=="} if "caBundle" in more else {})}
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    open_to_all = [{"ports": [{"port": 8443, "protocol": "TCP"}]}]
    assert open_to_all[0] in objects["NetworkPolicy", "release-bayplan"]["spec"]["ingress"]
    mounted = {each["name"]: each.get("secret") for each in pod["spec"]["volumes"]}.get("webhook-tls")
    assert mounted == (None if secret is None else {"secretName": secret, "optional": True})
    assert {kind for kind, _ in objects} & {"Issuer", "Certificate"} == kinds
    if kinds:
        certificate = objects["Certificate", str(secret)]
        assert certificate["spec"]["dnsNames"] == ["release-bayplan-webhook.ns.svc"]
        assert certificate["spec"]["secretName"] == secret
        issuer = more["certManager"].get("issuerRef") or {"kind": "Issuer", "name": "release-bayplan-webhook"}
        assert certificate["spec"]["issuerRef"] == issuer
        assert configuration["metadata"]["annotations"] == {
            "cert-manager.io/inject-ca-from": "ns/release-bayplan-webhook"
        }
    rights = granted(objects.values(), "release-bayplan", "ns")
    own = {(each.verb, each.name) for each in rights if each.resource == "validatingwebhookconfigurations"}
    assert own == (set() if secret else {("get", "release-bayplan.ns"), ("patch", "release-bayplan.ns")})


def test_the_monitor_finds_the_service(helm: Helm) -> None:
    """The ServiceMonitor selects the chart's Service and port, and the job label is a label of the Service."""
    documents = helm.documents(MONITORING, "ns")
    monitor, service = documents["ServiceMonitor"]["spec"], documents["Service"]
    labels = service["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]] == ["ns"]
    assert monitor["endpoints"][0]["port"] == service["spec"]["ports"][0]["name"]
    assert labels[monitor["jobLabel"]] == "bayplan"


def test_alerts_select_this_release(helm: Helm) -> None:
    """Each alert selects the job and namespace of the release, and Prometheus' own templates are not expanded."""
    rule = {"prometheusRule": {"enabled": True, "runbookUrl": "http://docs.example/alerts"}}
    given = MONITORING | rule | {"nameOverride": "other"}
    groups = helm.documents(given, "ns")["PrometheusRule"]["spec"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 5
    for rule in rules:
        assert 'job="other",namespace="ns"' in rule["expr"]
        assert 'job="bayplan"' not in rule["expr"]
    alerts = [rule for rule in rules if "alert" in rule]
    assert any("{{ $labels.pod }}" in rule["annotations"]["description"] for rule in alerts)
    for rule in alerts:
        assert rule["annotations"]["runbook_url"] == f"http://docs.example/alerts#{rule['alert'].lower()}"


def test_alerts_have_no_runbook_by_default(helm: Helm) -> None:
    """Without an address no alert leads to a page that does not exist; everything else of the alerts is the same."""
    rule: dict[str, Any] = {"enabled": True}
    without, with_address = (
        helm.documents(MONITORING | {"prometheusRule": {**rule, **given}}, "ns")["PrometheusRule"]["spec"]["groups"]
        for given in ({}, {"runbookUrl": "http://docs.example/alerts"})
    )
    assert "runbook_url" not in str(without)
    for group in with_address:
        for each in group["rules"]:
            if "alert" in each:
                del each["annotations"]["runbook_url"]
    assert without == with_address


@table(
    "given, requests, limits",
    ("small", {}, {"cpu": "250m", "memory": "256Mi"}, {"memory": "1Gi"}),
    ("large", {"clusterSize": "large"}, {"cpu": "1", "memory": "2Gi"}, {"memory": "6Gi"}),
    (
        "medium with another limit",
        {"clusterSize": "medium", "resources": {"limits": {"memory": "3Gi"}}},
        {"cpu": "500m", "memory": "768Mi"},
        {"memory": "3Gi"},
    ),
    ("none", {"clusterSize": ""}, None, None),
)
def test_resources_by_cluster_size(helm: Helm, given: dict[str, Any], requests: object, limits: object) -> None:
    """The size of the cluster selects the resources, and `resources` overrides single amounts."""
    (container,) = helm.documents(given)["Deployment"]["spec"]["template"]["spec"]["containers"]
    assert (container["resources"].get("requests"), container["resources"].get("limits")) == (requests, limits)


def test_additions_to_the_pod(helm: Helm) -> None:
    """Additional arguments, variables and containers are added to those of the chart."""
    given = {
        "extraArgs": ["--log-level=debug"],
        "extraEnv": [{"name": "A", "value": "1"}],
        "envFrom": [{"secretRef": {"name": "proxy"}}],
        "initContainers": [{"name": "first", "image": "first"}],
        "hostNetwork": True,
        "runtimeClassName": "gvisor",
        "revisionHistoryLimit": 3,
        "deploymentAnnotations": {"example.com/a": "1"},
    }
    deployment = helm.documents(given)["Deployment"]
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["args"][0] == "run"
    assert container["args"][-1] == "--log-level=debug"
    assert [one["name"] for one in container["env"]] == ["POD_IP", "A"]
    assert container["envFrom"] == given["envFrom"]
    assert pod["initContainers"] == given["initContainers"]
    assert (pod["hostNetwork"], pod["dnsPolicy"], pod["runtimeClassName"]) == (
        True,
        "ClusterFirstWithHostNet",
        "gvisor",
    )
    assert deployment["spec"]["revisionHistoryLimit"] == 3
    assert deployment["metadata"]["annotations"] == {"example.com/a": "1"}


@table(
    "given, issuer",
    ("self-signed", {}, {"kind": "Issuer", "name": "release-bayplan-serving"}),
    ("an issuer", {"kind": "ClusterIssuer", "name": "ca"}, {"kind": "ClusterIssuer", "name": "ca"}),
)
def test_a_served_certificate_of_cert_manager(helm: Helm, given: dict[str, str], issuer: dict[str, str]) -> None:
    """cert-manager's Secret is mounted and served, and the certificate is for the names of the Service."""
    values = {"serving": {"tls": {"certManager": {"enabled": True, "issuerRef": given}}}}
    objects = _objects(helm.template(values, "ns"))
    certificate = objects["Certificate", "release-bayplan-serving"]["spec"]
    assert (certificate["secretName"], certificate["issuerRef"]) == ("release-bayplan-serving", issuer)
    assert certificate["dnsNames"][0] == "release-bayplan.ns.svc"
    assert ("Issuer" in {kind for kind, _ in objects}) is (not given)
    pod = objects["Deployment", "release-bayplan"]["spec"]["template"]["spec"]
    (secret,) = [each["secret"] for each in pod["volumes"] if each["name"] == "serving-tls"]
    assert secret == {"secretName": "release-bayplan-serving"}
    (mount,) = [one["mountPath"] for one in pod["containers"][0]["volumeMounts"] if one["name"] == "serving-tls"]
    settings = yaml.safe_load(objects["ConfigMap", "release-bayplan"]["data"]["settings.yaml"])
    assert settings["tlsCertFile"] == f"{mount}/tls.crt"


@table(
    "given, fields",
    ("token of Prometheus", {}, {"bearerTokenFile"}),
    ("no authorization", {"settings": PLAIN}, set()),
    (
        "token of a Secret",
        {"serviceMonitor": {"enabled": True, "authorization": {"credentials": {"name": "t", "key": "token"}}}},
        {"authorization"},
    ),
)
def test_the_authorization_of_scrapes(helm: Helm, given: dict[str, Any], fields: set[str]) -> None:
    """A scrape sends one token at most: that of the values, or that of Prometheus' own account."""
    (endpoint,) = helm.documents({**MONITORING, **given})["ServiceMonitor"]["spec"]["endpoints"]
    assert endpoint.keys() & {"authorization", "bearerTokenFile"} == fields


@table(
    "given, scheduler",
    ("defaults", {}, "bayplan"),
    ("its scheduler name", {"defaultProfile": {"spec": {"schedulerName": "night"}}}, "night"),
    ("no profile", {"defaultProfile": {"enabled": False}}, None),
    ("another profile", {"defaultProfile": {"enabled": False}, "test": {"schedulerName": "steady"}}, "steady"),
)
def test_the_pod_of_helm_test(helm: Helm, given: dict[str, Any], scheduler: str | None) -> None:
    """The pod names the scheduler of the default profile or of the values, and no Service selects it."""
    objects = _objects(helm.template(given, "ns"))
    pod = objects.get(("Pod", "release-bayplan-test"))
    assert (pod and pod["spec"]["schedulerName"]) == scheduler
    if pod is not None:
        selector = objects["Service", "release-bayplan"]["spec"]["selector"]
        assert not selector.items() <= pod["metadata"]["labels"].items()


@table(
    "given, annotations",
    ("defaults", {}, {"helm.sh/resource-policy": "keep"}),
    ("not kept", {"keep": False}, None),
    ("left out", {"enabled": False}, False),
)
def test_the_definitions_are_kept(helm: Helm, given: dict[str, Any], annotations: object) -> None:
    """Each definition is kept when the release is uninstalled, unless the values disable that."""
    objects = _objects(helm.template({"crds": given}, "ns"))
    found = [one["metadata"].get("annotations") for (kind, _), one in objects.items() if kind.endswith("Definition")]
    assert found == ([] if annotations is False else [annotations] * len(RESOURCES))


def test_the_profile_of_a_first_installation(helm: Helm) -> None:
    """Where the definition is not served yet, the operator creates the profile that Helm creates elsewhere."""
    first, later = (helm.documents({}, "ns", flags) for flags in ((), SERVED))
    assert "SchedulerProfile" not in first
    profile = yaml.safe_load(first["ConfigMap"]["data"]["initial-profiles.yaml"])
    owner = {"meta.helm.sh/release-name": "release", "meta.helm.sh/release-namespace": "ns"}
    later["SchedulerProfile"]["metadata"]["annotations"] |= owner
    assert profile == later["SchedulerProfile"]
    flags = [
        [flag for flag in one["Deployment"]["spec"]["template"]["spec"]["containers"][0]["args"] if "initial" in flag]
        for one in (first, later)
    ]
    assert flags == [["--initial-profiles=/etc/bayplan/initial-profiles.yaml"], []]
    rights = [{str(one) for one in granted(one.values(), "release-bayplan", "ns")} for one in (first, later)]
    assert rights[0] - rights[1] == {
        "create schedulerprofiles.bayplan.dev",
        "get schedulerprofiles.bayplan.dev/bayplan",
        "patch schedulerprofiles.bayplan.dev/bayplan",
    }


def test_the_default_profile_is_kept(helm: Helm) -> None:
    """The default profile has the annotation that keeps it when the release is uninstalled."""
    profile = helm.documents({})["SchedulerProfile"]
    assert profile["metadata"]["name"] == "bayplan"
    assert profile["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert "SchedulerProfile" not in helm.documents({"defaultProfile": {"enabled": False}})


def _selected(labels: dict[str, str]) -> dict[str, str]:
    return {name: labels[name] for name in ("app.kubernetes.io/name", "app.kubernetes.io/instance")}


def _objects(manifests: str) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the objects of a YAML stream by kind and name."""
    found = [one for one in yaml.safe_load_all(manifests) if one]
    by_name = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(by_name) == len(found)
    return by_name


_COMPOSITE, _VOLCANO = ("resources", "compositepodgroups"), ("apiGroups", "scheduling.volcano.sh")


@table(
    "of, gates, allowed",
    ("composite groups by default", _COMPOSITE, {}, set()),
    ("composite groups, on", _COMPOSITE, {"CompositePodGroups": True}, {"list", "watch"}),
    ("composite groups, on by AllAlpha", _COMPOSITE, {"AllAlpha": True}, {"list", "watch"}),
    ("composite groups, off by name", _COMPOSITE, {"AllAlpha": True, "CompositePodGroups": False}, set()),
    ("groups of Volcano by default", _VOLCANO, {}, set()),
    ("groups of Volcano, on", _VOLCANO, {"VolcanoPodGroups": True}, {"list", "watch", "patch"}),
)
def test_the_rights_on_groups(helm: Helm, of: tuple[str, str], gates: dict[str, bool], allowed: set[str]) -> None:
    """The rights to read groups, and to write the status of Volcano's, are granted if the feature gate is on."""
    objects = _objects(helm.template({"settings": {"featureGates": gates}}, "ns"))
    field, name = of
    rules = objects["ClusterRole", "ns:release-bayplan"]["rules"]
    assert {verb for rule in rules if name in rule.get(field, ()) for verb in rule["verbs"]} == allowed
