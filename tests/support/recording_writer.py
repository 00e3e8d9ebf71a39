"""In-memory :class:`scheduler_core.ports.ClusterWriter` that records writes.

It changes no other state: a test that needs the watch event of a bind reports it itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch


@dataclass
class RecordingWriter:
    """Record of all writes, in order.

    Attributes:
        pods: Pods that :meth:`read_pod` returns, by ``namespace/name``.
        bind_failures: Errors of the next binds, one for each.
        delete_failure: Error of every deletion; None for success.
        read_failure: Error of every read of a pod; None for success.
        unreadable: Pods whose read fails, by ``namespace/name``.
        bindings: Successful binds.
        attempted: All binds, including failed ones.
    """

    pods: dict[str, Pod] = field(default_factory=dict)
    bind_failures: list[ClusterWriteError] = field(default_factory=list)
    delete_failure: ClusterWriteError | None = None
    read_failure: ClusterWriteError | None = None
    unreadable: set[str] = field(default_factory=set)
    bindings: list[Binding] = field(default_factory=list)
    attempted: list[Binding] = field(default_factory=list)
    patches: list[PodStatusPatch] = field(default_factory=list)
    deletions: list[PodDeletion] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)

    def fail_binds(self, failures: Iterable[ClusterWriteError]) -> None:
        """Let the next binds fail, one with each error."""
        self.bind_failures.extend(failures)

    async def bind(self, binding: Binding) -> None:
        """Record the binding, or raise the next error."""
        self.attempted.append(binding)
        if self.bind_failures:
            raise self.bind_failures.pop(0)
        self.bindings.append(binding)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Return a pod of :attr:`pods`."""
        if self.read_failure is not None:
            raise self.read_failure
        if f"{namespace}/{name}" in self.unreadable:
            raise ServerUnavailableError("away")
        return self.pods.get(f"{namespace}/{name}")

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Record the patch."""
        self.patches.append(patch)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Record the deletion and call back immediately."""
        self.deletions.append(deletion)
        done(self.delete_failure)

    def record(self, event: Event) -> None:
        """Record the event."""
        self.events.append(event)
