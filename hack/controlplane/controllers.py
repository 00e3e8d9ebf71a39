"""Starts kube-controller-manager: Deployments, Jobs, garbage collection and namespace deletion become real.

No control plane starts it by itself: its controllers would delete what most tests set up by hand, such as pods on
nodes that do not exist.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hack.controlplane import binaries, probes
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.processes import Process
from hack.controlplane.servers import Layout

_NAME = "kube-controller-manager"


def start_kube_controller_manager(plane: ControlPlane, flags: Sequence[str] = ()) -> Process:
    """Start kube-controller-manager as administrator, without leader election, and wait until it is ready.

    Raises:
        MissingBinary: It is neither found nor buildable.
        ControlPlaneError: It ended or was not ready in time.
    """
    program = binaries.resolve([_NAME], plane.options.kubernetes)[_NAME]
    layout = Layout(plane.state_dir)
    certificates = layout.certificates / _NAME
    port = probes.free_port()
    command = [str(program), *_arguments(layout, certificates, port), *flags]
    authority = certificates / f"{_NAME}.crt"
    return plane.start_program(_NAME, command, lambda: probes.https_ok(port, "/healthz", authority))


def _arguments(layout: Layout, certificates: Path, port: int) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--bind-address={probes.LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
        "--leader-elect=false",
        f"--service-account-private-key-file={layout.service_account_key}",
        f"--root-ca-file={layout.apiserver_certificate}",
        # kwok renews no leases and reports a status every five minutes, so silence does not make a node NotReady.
        "--node-monitor-grace-period=24h",
        # The default of 20 requests a second is less than what tests with hundreds of pods need.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]
