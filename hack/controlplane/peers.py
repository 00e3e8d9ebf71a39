"""Starts the controllers that Bayplan works beside: Kueue, JobSet, LeaderWorkerSet, Karpenter; runs the descheduler.

They run as processes on loopback, with the CustomResourceDefinitions and webhooks of their charts. The webhooks name
URLs in place of Services, and an authority of their own signs their certificates.
"""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane import binaries, probes
from hack.controlplane.certificates import Authority
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.module_sources import ModuleSourceError, source_of
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.processes import Process
from hack.controlplane.schedulers import await_definitions
from hack.controlplane.servers import Layout

_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
_OFF = "0"
"""Address of metrics that are not served."""

_KARPENTER_DEFINITIONS = ("kwok/charts/crds", "kwok/apis/crds")

Document = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Charted:
    """A controller with a chart in its Go module.

    Args:
        configuration: API version of its configuration file.
        probe: Path of a webhook, which is served last of all.
    """

    name: str
    module: str
    chart: str
    configuration: str
    probe: str
    flags: tuple[str, ...] = ()


_KUEUE = _Charted(
    "kueue",
    "sigs.k8s.io/kueue",
    "charts/kueue",
    "config.kueue.x-k8s.io/v1beta2",
    "/mutate-kueue-x-k8s-io-v1beta2-workload",
)
_JOB_SET = _Charted(
    "jobset",
    "sigs.k8s.io/jobset",
    "charts/jobset",
    "config.jobset.x-k8s.io/v1alpha1",
    "/mutate-jobset-x-k8s-io-v1alpha2-jobset",
)
_LEADER_WORKER_SET = _Charted(
    "lws",
    "sigs.k8s.io/lws",
    "charts/lws",
    "config.lws.x-k8s.io/v1alpha1",
    "/mutate-leaderworkerset-x-k8s-io-v1-leaderworkerset",
)


def start_kueue(
    plane: ControlPlane, configuration: Mapping[str, Any] | None = None, gates: Sequence[str] = ()
) -> Process:
    """Start Kueue and wait until its webhooks are served.

    Args:
        configuration: Further fields of its Configuration, such as `{"waitForPodsReady": {"timeout": "5m"}}`. All its
            integrations are enabled that its chart enables, and pods.

    Raises:
        MissingBinary: It is neither found nor buildable.
        ControlPlaneError: It ended or was not ready in time.
    """
    # Its API server of pending workloads would listen on all interfaces.
    values = ["VisibilityOnDemand=false", *(f"{each}=true" for each in gates)]
    kueue = replace(_KUEUE, flags=(f"--feature-gates={','.join(values)}",))
    return _start_charted(plane, kueue, {"integrations": {"frameworks": _frameworks()}, **(configuration or {})})


def start_job_set(plane: ControlPlane) -> Process:
    """Start the controller of JobSets and wait until its webhooks are served; raises as :func:`start_kueue` does."""
    return _start_charted(plane, _JOB_SET, {})


def start_leader_worker_set(plane: ControlPlane, configuration: Mapping[str, Any] | None = None) -> Process:
    """Start the controller of LeaderWorkerSets; raises as :func:`start_kueue` does.

    Args:
        configuration: Further fields of its Configuration, such as
            `{"gangSchedulingManagement": {"schedulerProvider": "volcano"}}`.
    """
    return _start_charted(plane, _LEADER_WORKER_SET, configuration or {})


def start_karpenter(plane: ControlPlane, flags: Sequence[str] = ()) -> Process:
    """Start Karpenter with its provider of kwok nodes; raises as :func:`start_kueue` does.

    It adds nodes once a NodePool and a KWOKNodeClass exist.
    """
    program = binaries.resolve(["karpenter"])["karpenter"]
    source = _source("karpenter", "sigs.k8s.io/karpenter")
    for directory in _KARPENTER_DEFINITIONS:
        plane.kubectl("apply", "--server-side", f"--filename={source / directory}")
    await_definitions(plane)
    metrics, health = free_port(), free_port()
    command = [
        str(program),
        "--disable-leader-election",
        f"--metrics-port={metrics}",
        f"--health-probe-port={health}",
        *flags,
    ]
    environment = {"KUBECONFIG": str(plane.kubeconfig), "SYSTEM_NAMESPACE": "kube-system"}
    return plane.start_program("karpenter", command, lambda: probes.http_ok(health, "/readyz"), environment)


def run_descheduler(plane: ControlPlane, policy: Mapping[str, Any], seconds: float = 120.0) -> str:
    """Run the descheduler once, for at most some seconds, and return its log; raises as :func:`start_kueue` does.

    Args:
        policy: Its DeschedulerPolicy, without `apiVersion` and `kind`.
    """
    program = binaries.resolve(["descheduler"])["descheduler"]
    directory = Layout(plane.state_dir).certificates / "descheduler"
    directory.mkdir(exist_ok=True)
    file = plane.state_dir / "descheduler-policy.yaml"
    file.write_text(json.dumps({"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy", **policy}))
    command = [
        str(program),
        f"--policy-config-file={file}",
        f"--kubeconfig={plane.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={free_port()}",
        f"--cert-dir={directory}",
        "--v=3",
    ]
    try:
        outcome = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=seconds, cwd=plane.state_dir
        )
    except subprocess.TimeoutExpired as problem:
        raise ControlPlaneError(f"the descheduler did not end within {seconds:.0f} s") from problem
    if outcome.returncode:
        raise ControlPlaneError(f"the descheduler ended with {outcome.returncode}: {outcome.stderr[-2000:]}")
    return outcome.stderr


def _start_charted(plane: ControlPlane, peer: _Charted, configuration: Mapping[str, Any]) -> Process:
    found = binaries.resolve([peer.name, "helm"])
    documents = _render(found["helm"], peer)
    port, health = free_port(), free_port()
    directory = Layout(plane.state_dir).certificates / peer.name
    authority = _write_certificates(directory)
    local = partial(_with_url, port=port, authority=authority)
    definitions = [local(each) for each in documents if each["kind"] == "CustomResourceDefinition"]
    _apply(plane, definitions)
    await_definitions(plane)
    config = plane.state_dir / f"{peer.name}.yaml"
    fields = {
        "apiVersion": peer.configuration,
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{LOOPBACK}:{health}"},
        "metrics": {"bindAddress": _OFF},
        "webhook": {"host": LOOPBACK, "port": port, "certDir": str(directory)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "clientConnection": {"qps": 1000, "burst": 2000},
    }
    config.write_text(json.dumps(fields | dict(configuration)))
    command = [str(found[peer.name]), f"--config={config}", f"--kubeconfig={plane.kubeconfig}", *peer.flags]

    def is_ready() -> bool:
        return probes.http_ok(health, "/readyz") and probes.https_ok(port, peer.probe, directory / "ca.crt")

    process = plane.start_program(peer.name, command, is_ready)
    # Before, the API server would reject all pods, because it could not call these webhooks.
    _apply(plane, [local(each) for each in documents if each["kind"] in _WEBHOOKS])
    return process


def _source(name: str, module: str) -> Path:
    """Return the source of a peer's module.

    Raises:
        MissingBinary: It is not in Go's cache and cannot be downloaded.
    """
    try:
        return source_of(module, binaries.RECIPES[name].directory())
    except ModuleSourceError as problem:
        remedy = "Install Go 1.26 or newer (https://go.dev/dl) with a reachable module proxy."
        raise binaries.MissingBinary([f"manifests of {name}"], [str(problem)], remedy) from problem


def _render(helm: Path, peer: _Charted) -> list[Document]:
    chart = _source(peer.name, peer.module) / peer.chart
    command = [str(helm), "template", peer.name, str(chart), f"--namespace={peer.name}-system", "--include-crds"]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    if outcome.returncode:
        raise ControlPlaneError(f"`{' '.join(command)}` failed: {outcome.stderr.strip()}")
    return [each for each in yaml.load_all(outcome.stdout, yaml.CSafeLoader) if each]


def _frameworks() -> list[str]:
    """Return the integrations that Kueue's chart enables."""
    values = yaml.safe_load((_source("kueue", _KUEUE.module) / _KUEUE.chart / "values.yaml").read_text())
    document = yaml.safe_load(values["managerConfig"]["controllerManagerConfigYaml"])
    frameworks: list[str] = document["integrations"]["frameworks"]
    return frameworks


def _write_certificates(directory: Path) -> str:
    """Write a webhook's certificate and key; return its authority in PEM."""
    authority = Authority("authority of webhooks")
    directory.mkdir(exist_ok=True)
    authority.issue("webhooks").write(directory, "tls")
    (directory / "ca.crt").write_text(authority.certificate)
    return authority.certificate


def _with_url(document: Document, port: int, authority: str) -> Document:
    """Return a manifest whose clients of webhooks call loopback in place of a Service."""
    bundle = base64.b64encode(authority.encode()).decode()
    conversion = document.get("spec", {}).get("conversion", {}).get("webhook")
    for each in (*document.get("webhooks", ()), *filter(None, [conversion])):
        service = each["clientConfig"].pop("service")
        each["clientConfig"] |= {"url": f"https://{LOOPBACK}:{port}{service['path']}", "caBundle": bundle}
    return document


def _apply(plane: ControlPlane, documents: Sequence[Document]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(documents)}
    plane.kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", input=json.dumps(listed))
