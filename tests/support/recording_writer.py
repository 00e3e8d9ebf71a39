"""A cluster that writes down what it is asked to change.

Owns a :class:`scheduler_core.ports.ClusterWriter` in memory. It changes no state but its own lists: a test that wants
a watch to confirm a bind says so itself.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Event, PodDeletion, PodStatusPatch


@dataclass
class RecordingWriter:
    """Everything asked of it, in order.

    Attributes:
        pods: What :meth:`read_pod` finds, by ``namespace/name``.
        bind_failures: Errors that the next binds raise, one each, before binds succeed.
        delete_failure: What deletions end with; None for success.
        read_failure: What reading a pod raises; None for success.
        unreadable: Pods that cannot be read, by ``namespace/name``.
        bindings: Binds that succeeded.
        attempted: Binds that were asked for, failed ones among them.
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
        """Let the next binds fail, one with each of ``failures``."""
        self.bind_failures.extend(failures)

    async def bind(self, binding: Binding) -> None:
        """Record the binding, or fail if the test says so."""
        self.attempted.append(binding)
        if self.bind_failures:
            raise self.bind_failures.pop(0)
        self.bindings.append(binding)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Look among :attr:`pods`."""
        if self.read_failure is not None:
            raise self.read_failure
        if f"{namespace}/{name}" in self.unreadable:
            raise ServerUnavailableError("away")
        return self.pods.get(f"{namespace}/{name}")

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Note the patch; nothing is merged."""
        self.patches.append(patch)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Note the deletion and answer at once."""
        self.deletions.append(deletion)
        done(self.delete_failure)

    def record(self, event: Event) -> None:
        """Note the event; nothing is merged."""
        self.events.append(event)
