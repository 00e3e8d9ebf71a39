"""A Permit plugin that is installed beside the operator under test, by an entry point.

Owns three labels. A pod with ``approval: needed`` waits, for ``approval-seconds``; a pod with ``approval: gives`` that
comes to Permit allows all that wait, one with ``approval: denies`` rejects them. Why other pods decide: a test can make
pods and nothing else inside the operator's process.
"""

from __future__ import annotations

from pathlib import Path

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PermitPlugin, PermitResult
from scheduler_core.framework.status import Code, Status
from scheduler_core.snapshot.pod_info import PodInfo


class Approval(PermitPlugin):
    """Makes pods wait for another pod's word."""

    name = "Approval"

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Wait, or speak for those that wait."""
        del state, node_name
        labels = pod.pod.metadata.labels
        part = labels.get("approval")
        if part == "needed":
            return PermitResult(Status(Code.WAIT), float(labels.get("approval-seconds", "60")))
        if part in {"gives", "denies"}:
            for waiting in list(self.handle.waiting_pods):
                if part == "gives":
                    waiting.allow(self.name)
                else:
                    waiting.reject(self.name, f"{pod.pod.metadata.name} says no")
        return PermitResult()


def install(directory: Path) -> Path:
    """Write the metadata of a distribution that brings the plugin.

    Args:
        directory: Where to; to be put on the path.

    Returns:
        The same directory.
    """
    metadata = directory / "approval_plugin-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: approval-plugin\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[bayplan.plugins]\napproval = {__name__}:Approval\n")
    return directory
