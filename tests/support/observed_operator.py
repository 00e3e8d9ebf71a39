"""Runs an operator on a real API server through all kinds of work, for tests of its metrics and its log.

One run serves many tests, because it takes some seconds.
"""

from __future__ import annotations

import base64
import http.client
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.certificates import Authority, KeyPair
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.schedulers import await_definitions
from tests.support.extender_cluster import ExtenderCluster
from tests.support.manifests import Manifest, most_allocated
from tests.support.operator_process import OperatorProcess

CRDS = Path(__file__).resolve().parents[2] / "crds"
_GANG = 3
_PODS = 30  # plugin durations are sampled in every tenth cycle


@dataclass(frozen=True)
class Observed:
    """Output of the operator.

    Attributes:
        name: Name of the namespace and of the valid profile, and part of all other names.
        scrape: Metrics at the end.
        log: Log in JSON at the highest verbosity.
        secrets: Secrets that the operator received and must not log, by description.
    """

    name: str
    scrape: str
    log: str
    secrets: dict[str, str]

    @property
    def lines(self) -> list[dict[str, object]]:
        """Decoded log records."""
        return [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]


def observe(
    plane: ControlPlane,
    name: str,
    directory: Path,
    scraped: Callable[[OperatorProcess], AbstractContextManager[object]] = nullcontext,
) -> Observed:
    """Run an operator, let it schedule pods, and return its metrics and log.

    Args:
        name: Namespace for this run only.
    """
    directory.mkdir(exist_ok=True)
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
            with scraped(process):
                _schedule_pods(cluster, process)
            _request_with_token(process, scraper)
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


def _schedule_pods(cluster: ExtenderCluster, process: OperatorProcess) -> None:
    """Create pods that are bound, infeasible, preempting, preempted, in a gang, and parked."""
    name = cluster.namespace
    for short in ("a", "b"):
        cluster.node(short, cpu="4")
    low, high = cluster.priority("low", 1), cluster.priority("high", 1000)
    small = [_pod(name, f"small-{number}", f"{number + 1}m") for number in range(_PODS)]
    gang = [_pod(name, f"gang-{number}", "10m", "gang") for number in range(_GANG)]
    infeasible = _pod(name, "infeasible", "1m", nodeSelector={"for": "no-test"})
    parked = _pod(name, "parked", "1m", schedulerName=f"{name}-unserved")
    cluster.create(_group(name, _GANG), *small, *gang, infeasible, parked)
    _until_bound(process, name, _PODS + _GANG)
    on_a = {"for": name, "node": "a"}
    cluster.create(_pod(name, "victim", "3500m", priorityClassName=low, nodeSelector=on_a))
    _until_bound(process, name, _PODS + _GANG + 1)
    cluster.create(_pod(name, "urgent", "3500m", priorityClassName=high, nodeSelector=on_a))
    _until_bound(process, name, _PODS + _GANG + 2)
    broken = {"profile": f"{name}-broken", "type": "Accepted", "status": "False"}
    process.until(lambda: process.metric("bayplan_profile_condition", **broken) == 1, "the broken profile is rejected")


def _until_bound(process: OperatorProcess, profile: str, count: int) -> None:
    labels = {"profile": profile, "result": "scheduled"}
    process.until(lambda: process.metric("scheduler_schedule_attempts_total", **labels) == count, f"{count} are bound")


def _request_with_token(process: OperatorProcess, token: str) -> None:
    connection = http.client.HTTPConnection(LOOPBACK, int(process.url.rpartition(":")[2]), timeout=30)
    try:
        for path in ("/metrics", "/nowhere", "/debug/status"):
            connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            connection.getresponse().read()
    finally:
        connection.close()


def _profile(name: str, pair: KeyPair) -> Manifest:
    """Return a profile with an ignorable extender that is unavailable and has a client certificate."""
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
