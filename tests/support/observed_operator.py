"""An operator that has seen a little of everything: what its metrics and its log are tested on.

It runs a scripted life on the real API server, with secrets. It must not know what
is tested. One life serves many tests, since it takes some seconds.
"""

from __future__ import annotations

import base64
import http.client
import json
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.schedulers import await_definitions
from tests.support.certificates import Authority, KeyPair
from tests.support.extender_cluster import ExtenderCluster
from tests.support.manifests import Manifest, most_allocated
from tests.support.operator_process import OperatorProcess

CRDS = Path(__file__).resolve().parents[2] / "crds"
_GANG = 3
_PODS = 30  # every tenth cycle has its plugins' times counted


@dataclass(frozen=True)
class Observed:
    """What the operator showed.

    Attributes:
        name: Of the namespace, of the profile that is live, and part of all other names.
        scrape: Its metrics at the end.
        log: All that it wrote, in JSON at the highest verbosity.
        secrets: Secrets that it received and must not log.
    """

    name: str
    scrape: str
    log: str
    secrets: dict[str, str]

    @property
    def lines(self) -> list[dict[str, object]]:
        """The log, line by line."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]


def observe(plane: ControlPlane, name: str, directory: Path) -> Observed:
    """Run an operator through a short life.

    Args:
        plane: The control plane.
        name: A namespace of it, for this alone.
        directory: Takes files.
    """
    cluster = ExtenderCluster(plane, name, directory)
    pair = Authority().issue("client")
    scraper = f"token-of-a-scraper-{name}"
    flags = ["--log-format=json", "-v=10", "--leader-elect", "--serve-page", f"--namespace={name}"]
    plane.kubectl("apply", "--server-side", "--force-conflicts", f"--filename={CRDS}")
    await_definitions(plane)
    process = OperatorProcess(plane.kubeconfig, directory / "log", flags)
    try:
        with process:
            process.start(wait=False)
            cluster.create(_plugin_config(name), _profile(name, pair), _broken_profile(f"{name}-broken"))
            process.wait_until_ready()
            _live(cluster, process)
            _ask_with_token(process, scraper)
            scrape = process.get("/metrics")[1]
            process.terminate()
    finally:
        made = (f"schedulerprofile/{name}", f"schedulerprofile/{name}-broken", f"pluginconfig/{name}")
        plane.kubectl("delete", *made, "--ignore-not-found")
        cluster.clean_up()
    private = "".join(pair.key.splitlines()[1:-1])
    secrets = {
        "the operator's own token": plane.admin.token,
        "a caller's token": scraper,
        "an extender's key": private,
        "an extender's key in base64": _base64(pair.key),
        "the middle of that": _base64(pair.key)[40:80],
    }
    return Observed(name, scrape, process.log, secrets)


def _live(cluster: ExtenderCluster, process: OperatorProcess) -> None:
    """Bind pods, turn one away, preempt, place a gang, leave one parked."""
    name = cluster.namespace
    for short in ("a", "b"):
        cluster.node(short, cpu="4")
    low, high = cluster.priority("low", 1), cluster.priority("high", 1000)
    small = [_pod(name, f"small-{number}", f"{number + 1}m") for number in range(_PODS)]
    gang = [_pod(name, f"gang-{number}", "10m", "gang") for number in range(_GANG)]
    nowhere = _pod(name, "nowhere", "1m", nodeSelector={"for": "nobody"})
    parked = _pod(name, "parked", "1m", schedulerName=f"{name}-nobody")
    cluster.create(_group(name, _GANG), *small, *gang, nowhere, parked)
    _until_bound(process, name, _PODS + _GANG)
    on_a = {"for": name, "node": "a"}
    cluster.create(_pod(name, "victim", "3500m", priorityClassName=low, nodeSelector=on_a))
    _until_bound(process, name, _PODS + _GANG + 1)
    cluster.create(_pod(name, "urgent", "3500m", priorityClassName=high, nodeSelector=on_a))
    _until_bound(process, name, _PODS + _GANG + 2)
    broken = {"profile": f"{name}-broken", "type": "Accepted", "status": "False"}
    process.until(lambda: process.metric("bayplan_profile_condition", **broken) == 1, "the broken profile is judged")


def _until_bound(process: OperatorProcess, profile: str, count: int) -> None:
    labels = {"profile": profile, "result": "scheduled"}
    process.until(lambda: process.metric("scheduler_schedule_attempts_total", **labels) == count, f"{count} are bound")


def _ask_with_token(process: OperatorProcess, token: str) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, int(process.url.rpartition(":")[2]), timeout=30)
    try:
        for path in ("/metrics", "/nowhere", "/debug/status"):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
    finally:
        connection.close()


def _profile(name: str, pair: KeyPair) -> Manifest:
    """A profile with an extender that is away and may be ignored, and that is shown a certificate."""
    tls = {"insecure": True, "certData": _base64(pair.certificate), "keyData": _base64(pair.key)}
    extender = {
        "urlPrefix": f"https://{LOOPBACK}:{free_port()}",
        "filterVerb": "filter",
        "ignorable": True,
        "enableHTTPS": True,
        "httpTimeout": "1s",
        "tlsConfig": tls,
    }
    return _resource("SchedulerProfile", name, {"extenders": [extender], "pluginConfigRefs": [{"name": name}]})


def _plugin_config(name: str) -> Manifest:
    return _resource("PluginConfig", name, {"plugin": "NodeResourcesFit", "args": most_allocated()})


def _broken_profile(name: str) -> Manifest:
    return _resource("SchedulerProfile", name, {"plugins": {"score": {"enabled": [{"name": "Nonesuch"}]}}})


def _group(namespace: str, members: int) -> Manifest:
    group = _resource("PodGroup", "gang", {"minMember": members})
    group["metadata"]["namespace"] = namespace
    return group


def _pod(namespace: str, name: str, cpu: str, gang: str = "", **spec: object) -> Manifest:
    resources = {"requests": {"cpu": cpu}}
    labels = {"bayplan.dev/pod-group": gang} if gang else {}
    fields = {
        "schedulerName": namespace,
        "nodeSelector": {"for": namespace},
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "c", "image": "registry.example.com/a:1", "resources": resources}],
        **spec,
    }
    return {"kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels}, "spec": fields}


def _resource(kind: str, name: str, spec: Manifest) -> Manifest:
    return {"apiVersion": "bayplan.dev/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
