"""Runs ``bayplan explain`` in both modes: against a running operator, and offline."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.api_client import ApiClient
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.manifests import Manifest
from tests.support.operator_process import OperatorProcess


@dataclass
class ExplainCommand:
    """``bayplan explain`` for the objects of a control plane.

    Args:
        operator: Running operator.
    """

    plane: ControlPlane
    operator: OperatorProcess

    def online(self, target: str) -> dict[str, Any]:
        """Return the explanation by the operator."""
        return self._run(target, f"--server={self.operator.url}")

    def offline(self, target: str) -> dict[str, Any]:
        """Return the explanation by a scheduling cycle in memory, on objects that are read from the API server."""
        return self._run(target, "--offline", f"--kubeconfig={self.plane.kubeconfig}")

    def wait(self, pod: str, condition: str) -> None:
        """Wait until kubectl reports a condition of a pod."""
        self.plane.kubectl("wait", f"pod/{pod}", f"--for={condition}", "--timeout=60s")

    def replace(self, manifests: Iterable[Manifest]) -> None:
        """Delete objects, and create them again as they were."""
        documents = "\n---\n".join(map(json.dumps, manifests))
        self.plane.kubectl("delete", "--grace-period=0", "--force", "-f", "-", input=documents)
        self.plane.kubectl("create", "-f", "-", input=documents)

    @staticmethod
    def _run(target: str, *options: str) -> dict[str, Any]:
        result = CliRunner().invoke(bayplan, ["explain", target, *options, "-o", "json"])
        assert result.exit_code == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document


@contextmanager
def explained(plane: ControlPlane, objects: Iterable[Manifest], log: Path) -> Iterator[ExplainCommand]:
    """Create these objects on an empty control plane, and run an operator."""
    with ApiClient(plane) as api:
        install_crds(plane)
        for manifest in objects:
            api.create(manifest)
        with OperatorProcess(plane.kubeconfig, log) as operator:
            operator.start()
            yield ExplainCommand(plane, operator)
            operator.terminate()
