"""A cluster that binds, refuses and loses answers as it is told, and knows the truth.

Owns which pod is bound where, whatever the scheduler has been told. Laws compare the two.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from scheduler_core.errors import ConflictError, NotFoundError, ServerUnavailableError, WriteTimeoutError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding
from tests.support.builders import pod
from tests.support.recording_writer import RecordingWriter

OUTCOMES = ("bound", "unavailable", "lost-but-bound", "lost-and-not-bound")


@dataclass
class FaultyServer(RecordingWriter):
    """The cluster.

    Attributes:
        outcome: What becomes of the next bind; one of ``OUTCOMES``.
        cpu: What the pods that exist ask for, by name.
        node_of: Where pods are bound, by name.
    """

    outcome: str = "bound"
    cpu: dict[str, int] = field(default_factory=dict)
    node_of: dict[str, str] = field(default_factory=dict)

    def as_seen(self, name: str) -> Pod:
        """A pod as a watch shows it."""
        return pod(name, requests={"cpu": self.cpu[name]}, node_name=self.node_of.get(name, ""))

    async def bind(self, binding: Binding) -> None:
        """Bind, refuse, or lose the answer."""
        name = binding.name
        if name not in self.cpu:
            raise NotFoundError(f"pod {name} is gone")
        if name in self.node_of:
            raise ConflictError(f"pod {name} is bound to {self.node_of[name]}")
        if self.outcome == "unavailable":
            raise ServerUnavailableError("away")
        if self.outcome != "lost-and-not-bound":
            self.node_of[name] = binding.node_name
        if self.outcome != "bound":
            raise WriteTimeoutError("no answer")

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """The truth."""
        return self.as_seen(name) if name in self.cpu else None
