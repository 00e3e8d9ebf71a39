"""What the tests of the chart know of an installed release: its service account, as a pod would use it.

Owns the account's token and kubeconfig, and the wait until its rights hold. It must not know the chart's objects.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from hack.controlplane.credentials import User, write_kubeconfig, write_secret
from hack.controlplane.launcher import ControlPlane

_GRANT_SECONDS = 20.0
_PROBED = (("", "nodes", False), ("apps", "controllerrevisions", True))


@dataclass
class Account:
    """A service account of a control plane.

    Args:
        plane: The control plane.
        namespace: The account's namespace.
        name: The account's name.

    Attributes:
        token: Its bearer token.
        kubeconfig: That was written last.
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
        """Its name as the audit log has it."""
        return f"system:serviceaccount:{self.namespace}:{self.name}"

    def wait_until_granted(self) -> None:
        """Wait until the API server has taken notice of both bindings, which it does in its own time."""
        deadline = time.monotonic() + _GRANT_SECONDS
        command = ("create", "--filename=-", "--output=jsonpath={.status.allowed}")
        for group, resource, namespaced in _PROBED:
            namespace = self.namespace if namespaced else ""
            attributes = {"verb": "list", "group": group, "resource": resource, "namespace": namespace}
            review = {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": {"user": self.user, "resourceAttributes": attributes},
            }
            while self.plane.kubectl(*command, input=json.dumps(review)) != "true":
                assert time.monotonic() < deadline, f"{self.name} may not list {resource}"

    def write_kubeconfig(self, path: Path, through: Path | None = None) -> Path:
        """Write its kubeconfig, with its own namespace as a pod would find it.

        Args:
            path: Where.
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
