"""An installed release, started in place of the kubelet: command line and service account of its Deployment.

The Deployment's pod itself cannot be used: no container runs on the nodes of this control plane.
"""

from __future__ import annotations

import http.client
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from hack.controlplane.api_client import ApiClient
from hack.controlplane.credentials import User, write_kubeconfig, write_secret
from hack.controlplane.launcher import ControlPlane, ControlPlaneError
from hack.controlplane.probes import LOOPBACK, free_port
from hack.controlplane.processes import Process

_GRANT_SECONDS = 120.0  # the bindings take effect once and stay: the limit is for failures, not for slow machines
_POLL_SECONDS = 0.05
_PROBED = (("", "nodes", False), ("apps", "controllerrevisions", True))


@dataclass
class Account:
    """A service account of a control plane.

    Attributes:
        kubeconfig: The kubeconfig that was written last.
    """

    plane: ControlPlane
    namespace: str
    name: str
    token: str = field(init=False)
    kubeconfig: Path = field(init=False)

    def __post_init__(self) -> None:
        self.token = self.plane.kubectl("create", "token", self.name, f"--namespace={self.namespace}").strip()

    @property
    def user(self) -> str:
        """User name, as in the audit log."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def wait_until_granted(self) -> None:
        """Wait until the API server applies both role bindings, which takes it a moment.

        Raises:
            ControlPlaneError: It does not within two minutes.
        """
        deadline = time.monotonic() + _GRANT_SECONDS
        with ApiClient(self.plane) as api:
            for group, resource, namespaced in _PROBED:
                namespace = self.namespace if namespaced else ""
                attributes = {"verb": "list", "group": group, "resource": resource, "namespace": namespace}
                while not api.is_allowed(self.user, resourceAttributes=attributes):
                    if time.monotonic() > deadline:
                        raise ControlPlaneError(f"{self.name} may not list {resource}; look at its role bindings")
                    time.sleep(_POLL_SECONDS)

    def write_kubeconfig(self, path: Path, through: Path | None = None) -> Path:
        """Write a kubeconfig for the account with its namespace as the default, as a pod has it.

        Args:
            through: Kubeconfig of a proxy in front of the API server; None for the API server itself.
        """
        if through is None:
            authority = (self.plane.state_dir / "certs" / "apiserver.crt").read_text()
            write_kubeconfig(path, self.plane.url, authority, User(self.name, token=self.token))
        config = yaml.safe_load((through or path).read_text())
        config["contexts"][0]["context"]["namespace"] = self.namespace
        config["users"][0]["user"] = {"token": self.token}
        write_secret(path, yaml.safe_dump(config))
        self.kubeconfig = path
        return path


def expanded_arguments(container: Mapping[str, Any], pod_address: str = LOOPBACK) -> list[str]:
    """Return the arguments of a container with its variables substituted, as a kubelet passes them.

    Args:
        container: Container of a pod's spec; each of its variables is the address of the pod.
    """
    arguments = list(container["args"])
    for variable in container.get("env", ()):
        assert variable["valueFrom"]["fieldRef"]["fieldPath"] == "status.podIP", variable
        arguments = [argument.replace(f"$({variable['name']})", pod_address) for argument in arguments]
    return arguments


@dataclass(frozen=True)
class InstalledOperator:
    """The process that the kubelet would start for a Deployment of the chart, read from the API server."""

    plane: ControlPlane
    namespace: str
    name: str

    def account(self) -> Account:
        return Account(self.plane, self.namespace, self._pod()["serviceAccountName"])

    def start(
        self, command: Sequence[str], directory: Path, flags: Sequence[str] = (), env: Mapping[str, str] | None = None
    ) -> tuple[Process, str]:
        """Start the process with its service account, and wait until its server is ready.

        Args:
            command: Program of this host in place of the image's.
            directory: New directory for its files.
            flags: Further flags, which win over those of the Deployment.

        Returns:
            The process and the URL of its server.
        """
        kubeconfig, arguments = self.prepared(directory)
        return start_operator(self.plane, kubeconfig, [*command, *arguments], flags, env)

    def prepared(self, directory: Path) -> tuple[Path, list[str]]:
        """Write the files of the process to a new directory; return its kubeconfig and its arguments."""
        directory.mkdir()
        account = self.account()
        account.wait_until_granted()
        return account.write_kubeconfig(directory / "kubeconfig"), self.arguments(directory)

    def arguments(self, directory: Path) -> list[str]:
        """Return the container's arguments; the mounted ConfigMap is written to a directory of this host."""
        pod = self._pod()
        (container,) = pod["containers"]
        (volume,) = [one for one in pod["volumes"] if "configMap" in one]
        (mount,) = [one["mountPath"] for one in container["volumeMounts"] if one["name"] == volume["name"]]
        for name, text in self._get(f"configmap/{volume['configMap']['name']}")["data"].items():
            (directory / name).write_text(text)
        return [argument.replace(mount, str(directory)) for argument in expanded_arguments(container)]

    def _pod(self) -> dict[str, Any]:
        pod: dict[str, Any] = self._get(f"deployment/{self.name}")["spec"]["template"]["spec"]
        return pod

    def _get(self, what: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            self.plane.kubectl("get", what, f"--namespace={self.namespace}", "--output=json")
        )
        return found


def start_operator(
    plane: ControlPlane,
    kubeconfig: Path,
    command: Sequence[str],
    flags: Sequence[str] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[Process, str]:
    """Start a command of the operator on loopback; return its process and the URL of its server, which is ready."""
    port = free_port()
    own = ["--kubeconfig", str(kubeconfig), "--serve-address", f"{LOOPBACK}:{port}", *flags]
    process = plane.start_program("bayplan", [*command, *own], lambda: bool(_served_by(port)), env)
    return process, _served_by(port)


def _served_by(port: int) -> str:
    """Return the URL of the operator's server; "" before it is ready."""
    for server in (f"https://{LOOPBACK}:{port}", f"http://{LOOPBACK}:{port}"):
        try:
            with urllib.request.urlopen(f"{server}/readyz", timeout=1, context=any_certificate()) as answer:  # noqa: S310 - loopback
                if answer.status == http.client.OK:
                    return server
        except (urllib.error.URLError, OSError):
            continue
    return ""


def any_certificate() -> ssl.SSLContext:
    """Return a context for the operator's certificate, which is self-signed."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context
