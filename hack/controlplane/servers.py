"""Command lines of the control plane's servers, and the options that change them.

There is an option only for what some test varies; everything else is a fixed flag here, with its reason.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from hack.controlplane.credentials import User
from hack.controlplane.probes import LOOPBACK

_HERE = Path(__file__).resolve().parent

STAGES = _HERE / "stages.yaml"
"""The kwok stages of this project."""

AUDIT_POLICY = _HERE / "audit-policy.yaml"
"""Audit policy: every write of a pod, every binding with its body, and every request of a service account."""


RARE_COLLECTION = {"GOGC": "400"}
"""Environment of etcd and the API server: a sixth less CPU time for a pod created and bound, for 300 MiB of memory.

Schedulers run with Go's default, as users run them.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the API server.

    Args:
        runtime_config: API versions to enable or disable, such as `{"scheduling.k8s.io/v1alpha2": "true"}`.
        audit: Write an audit log by `audit-policy.yaml` to `ControlPlane.audit_log`.
        users: Users besides the administrator; RBAC objects, created later, grant their rights.
        apiserver_args: Further flags of kube-apiserver; they come last and win.
        kubernetes: Minor version of Kubernetes; by default that of the environment variable K8S, else the newest.
        state_dir: State directory; a temporary directory by default.
        ready_seconds: Time limit for each server to become ready.
    """

    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    runtime_config: Mapping[str, str] = field(default_factory=dict)
    audit: bool = False
    users: Sequence[User] = ()
    apiserver_args: Sequence[str] = ()
    kubernetes: str = ""
    state_dir: Path | None = None
    ready_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Layout:
    """Paths inside a state directory."""

    root: Path

    @property
    def certificates(self) -> Path:
        return self.root / "certs"

    @property
    def apiserver_certificate(self) -> Path:
        """The API server's certificate, followed by the self-made authority that signed it."""
        return self.certificates / "apiserver.crt"

    @property
    def tokens(self) -> Path:
        return self.certificates / "tokens.csv"

    @property
    def service_account_key(self) -> Path:
        return self.certificates / "service-account.key"

    @property
    def kubeconfig(self) -> Path:
        return self.root / "kubeconfig"

    @property
    def logs(self) -> Path:
        """One log file for each server."""
        return self.root / "logs"

    @property
    def audit_log(self) -> Path:
        return self.logs / "audit.log"


def etcd_args(layout: Layout, client_port: int, peer_port: int) -> list[str]:
    client, peer = (f"http://{LOOPBACK}:{port}" for port in (client_port, peer_port))
    return [
        f"--data-dir={layout.root / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        # The data need not survive a power cut, and fsync is most of the cost of a small write.
        "--unsafe-no-fsync",
        "--log-level=warn",
        "--quota-backend-bytes=4294967296",
    ]


def apiserver_args(layout: Layout, options: Options, port: int, etcd_port: int) -> list[str]:
    arguments = [
        f"--etcd-servers=http://{LOOPBACK}:{etcd_port}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={layout.certificates}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        f"--service-account-key-file={layout.service_account_key}",
        f"--service-account-signing-key-file={layout.service_account_key}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--endpoint-reconciler-type=none",
        # No controller creates service accounts or removes the taint of a new node here.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition",
    ]
    if options.feature_gates:
        gates = (f"{name}={str(on).lower()}" for name, on in options.feature_gates.items())
        arguments.append(f"--feature-gates={','.join(gates)}")
    if options.runtime_config:
        settings = (f"{name}={value}" for name, value in options.runtime_config.items())
        arguments.append(f"--runtime-config={','.join(settings)}")
    if options.audit:
        # Blocking, so that a crash loses nothing; a size in MB that is never reached, so that it never rotates.
        arguments += [
            f"--audit-policy-file={AUDIT_POLICY}",
            f"--audit-log-path={layout.audit_log}",
            "--audit-log-mode=blocking",
            "--audit-log-maxsize=4096",
        ]
    return [*arguments, *options.apiserver_args]


def kwok_args(layout: Layout, stages: Sequence[Path], port: int) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--manage-all-nodes",
        *(f"--config={path}" for path in stages),
        f"--server-address={LOOPBACK}:{port}",
        # An address reserved for documentation: no packet sent to a node by mistake reaches a host.
        "--node-ip=192.0.2.1",
        "--cidr=10.64.0.1/10",
        # Nothing reads the nodes' leases here, and renewing them is 500 writes/s at 5,000 nodes.
        "--node-lease-duration-seconds=0",
    ]


def kube_controller_manager_args(layout: Layout) -> list[str]:
    return [
        f"--kubeconfig={layout.kubeconfig}",
        "--leader-elect=false",
        f"--service-account-private-key-file={layout.service_account_key}",
        f"--root-ca-file={layout.apiserver_certificate}",
        # kwok renews no leases and reports a status every five minutes, so silence does not make a node NotReady.
        "--node-monitor-grace-period=24h",
        # The default of 20 requests a second is less than what tests with hundreds of pods need.
        "--kube-api-qps=1000",
        "--kube-api-burst=2000",
    ]


def secure_args(layout: Layout, certificates: Path, port: int) -> list[str]:
    """Return the flags by which kube-scheduler and kube-controller-manager serve HTTPS."""
    return [
        f"--authentication-kubeconfig={layout.kubeconfig}",
        f"--authorization-kubeconfig={layout.kubeconfig}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={port}",
        f"--cert-dir={certificates}",
    ]
