"""Permit plugin that is installed next to the operator under test, by an entry point.

A pod with label ``approval: needed`` waits for ``approval-seconds``. A pod with ``approval: gives`` at Permit allows
all waiting pods, one with ``approval: denies`` rejects them, so that a test controls the plugin by creating pods.
"""

from __future__ import annotations

from pathlib import Path

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult
from scheduler_core.framework.status import Code, Status
from scheduler_core.snapshot.pod_info import PodInfo


class Approval(PermitPlugin):
    """Lets pods wait at Permit until another pod allows or rejects them."""

    name = "Approval"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Let the pod wait, or allow or reject the waiting pods."""
        labels = pod.pod.metadata.labels
        approval = labels.get("approval")
        if approval == "needed":
            return PermitResult(Status(Code.WAIT), float(labels.get("approval-seconds", "60")))
        if approval in {"gives", "denies"}:
            for waiting in list(self.handle.waiting_pods):
                if approval == "gives":
                    waiting.allow(self.name)
                else:
                    waiting.reject(self.name, f"rejected by {pod.pod.metadata.name}")
        return PermitResult()


def install(directory: Path) -> Path:
    """Write the metadata of a distribution with the plugin's entry point.

    Args:
        directory: Directory that the test adds to the import path.

    Returns:
        The directory.
    """
    metadata = directory / "approval_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: approval-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[bayplan.plugins]\napproval = {__name__}:Approval\n")
    return directory
