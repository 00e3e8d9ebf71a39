"""Both ways in which ``bayplan explain`` answers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from bayplan.cli import bayplan
from click.testing import CliRunner

from hack.controlplane.launcher import ControlPlane
from tests.support.operator_process import OperatorProcess


@dataclass
class ExplainCommand:
    """Asks a running operator, or the API server without it.

    Args:
        plane: The control plane.
        operator: The operator.
    """

    plane: ControlPlane
    operator: OperatorProcess

    def online(self, asked: str) -> dict[str, Any]:
        """Ask the operator."""
        return self._explained(asked, f"--server={self.operator.url}")

    def offline(self, asked: str) -> dict[str, Any]:
        """Read the cluster and decide in memory."""
        return self._explained(asked, "--offline", f"--kubeconfig={self.plane.kubeconfig}")

    def wait(self, pod: str, condition: str) -> None:
        """Wait for a condition of a pod."""
        self.plane.kubectl("wait", f"pod/{pod}", f"--for={condition}", "--timeout=60s")

    @staticmethod
    def _explained(asked: str, *options: str) -> dict[str, Any]:
        result = CliRunner().invoke(bayplan, ["explain", asked, *options, "-o", "json"])
        assert result.exit_code == 0, result.stderr
        document: dict[str, Any] = json.loads(result.stdout)
        return document
