"""Implementation of the core's :class:`scheduler_core.ports.ClusterWriter` on an API server.

A bind is sent at once, other writes go through the dispatcher, and no PodScheduled=False follows the bind of its pod.

    running --stop()--> draining (no new binds; binds in flight end, the queue is flushed) --grace over--> stopped
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.writes.api_dispatcher import (
    POD_STATUS_PATCH,
    ApiDispatcher,
    DispatcherOptions,
    ObjectKey,
    Rank,
    Write,
    WriteMetrics,
)
from bayplan.kube.writes.event_recorder import EventRecorder
from bayplan.kube.writes.pod_writes import POD_SCHEDULED, Binder, PodLookup, PodWrites, merged, read_pod
from scheduler_core.errors import NotFoundError, ServerUnavailableError
from scheduler_core.model.pod import Pod
from scheduler_core.ports import Binding, Clock, Event, PodDeletion, PodStatusPatch

_logger = logging.getLogger(__name__)

_DELETION_TRIES = 6


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """Bounds of the writer; the connection's pool for binds should be as large as ``bind_limit``."""

    bind_limit: int = 32
    request_seconds: float = 10.0
    dispatcher: DispatcherOptions = field(default_factory=DispatcherOptions)
    pod_lookup: PodLookup | None = None


class KubeWriter:
    """Writer of binds, status patches, deletions and events; the connection stays open when the writer stops."""

    def __init__(self, connection: ApiConnection, options: WriterOptions, clock: Clock) -> None:
        self._connection = connection
        self._seconds = options.request_seconds
        self._pressure = max(options.bind_limit // 4, 2)
        self._running = False
        self._idle = asyncio.Event()
        self._idle.set()
        self._binds = 0
        self._pod_writes = PodWrites(connection, clock, options.pod_lookup, options.request_seconds)
        self.calls = WriteMetrics(clock)
        self.binder = Binder(connection, options.bind_limit, options.request_seconds, self.calls)
        self.dispatcher = ApiDispatcher(options.dispatcher, clock, self._bind_pressure)
        self.events = EventRecorder(connection, self.dispatcher, clock, options.request_seconds)

    async def start(self) -> None:
        """Accept binds from now on; needs the running loop."""
        self._running = True

    async def stop(self, grace_seconds: float) -> None:
        """Let binds in flight end and flush the queue, for at most ``grace_seconds``; then send nothing more."""
        self._running = False
        loop = asyncio.get_running_loop()
        deadline = loop.time() + grace_seconds
        try:
            async with asyncio.timeout_at(deadline):
                await self._idle.wait()
        except TimeoutError:
            _logger.warning("Stopping with %d binds without a response; the next leader reads them", self._binds)
        await asyncio.sleep(0)  # let the task that waited for the last bind record its event
        self.events.close()
        await self.dispatcher.drain(deadline - loop.time())
        await self.dispatcher.close()

    @property
    def pending_binds(self) -> int:
        return self.binder.waiting + self.binder.in_flight

    async def bind(self, binding: Binding) -> None:
        """Bind a pod, after dropping the queued patches of its status; see :class:`ClusterWriter`."""
        if not self._running:
            raise ServerUnavailableError(
                f"Pod {binding.namespace}/{binding.name} was not bound: this process stops; its successor binds it."
            )
        key = _pod_key(binding)
        self._binds += 1
        self._idle.clear()
        bound = False
        try:
            # Within the try: the hold is in effect even if this wait is cancelled.
            await self.dispatcher.hold(key)
            await self.binder.bind(binding)
            bound = True
        finally:
            self._binds -= 1
            if not self._binds:
                self._idle.set()
            self.dispatcher.release(key, bound=bound)

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod from the API server; see :class:`ClusterWriter`."""
        return await read_pod(self._connection, namespace, name, seconds=self._seconds)

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Queue a patch; a later one of the same pod is merged into it."""
        self.dispatcher.submit(_StatusWrite(self._pod_writes, self.calls, patch))

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Queue a deletion; ``done`` is called with its outcome."""
        self.dispatcher.submit(_DeletionWrite(self._pod_writes, deletion, done))

    def record(self, event: Event) -> None:
        self.events.record(event)

    def _bind_pressure(self) -> bool:
        # The connection counts the writes of claims, too, because binds wait for them.
        return self.binder.waiting > 0 or self._connection.pending_binds >= self._pressure


class _StatusWrite(Write):
    __slots__ = ("_calls", "_pod_writes", "patch")

    def __init__(self, pod_writes: PodWrites, calls: WriteMetrics, patch: PodStatusPatch) -> None:
        super().__init__(_pod_key(patch), Rank.PATCH, None)
        self._calls = calls
        self._pod_writes = pod_writes
        self.patch = patch
        self.outlives_bind = patch.condition is not None and patch.condition.type != POD_SCHEDULED

    def absorb(self, later: Write) -> bool:
        # A patch that is merged into one that outlives the bind would not be dropped at the bind.
        if not isinstance(later, _StatusWrite) or self.outlives_bind:
            return False
        both = merged(self.patch, later.patch)
        if both is None:
            return False
        self.patch = both
        return True

    async def carry_out(self) -> None:
        with self._calls.of(POD_STATUS_PATCH):
            await self._pod_writes.patch_status(self.patch)


class _DeletionWrite(Write):
    __slots__ = ("_deletion", "_done", "_gone", "_pod_writes")

    def __init__(self, pod_writes: PodWrites, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        super().__init__(_pod_key(deletion), Rank.DELETION, _DELETION_TRIES)
        self._pod_writes = pod_writes
        self._deletion = deletion
        self._done = done
        self._gone: NotFoundError | None = None

    async def carry_out(self) -> None:
        try:
            await self._pod_writes.delete(self._deletion)
        except NotFoundError as gone:
            # Reported at the end, but no failure of the write: the pod was gone before.
            self._gone = gone

    def ended(self, error: Exception | None) -> None:
        self._done(self._gone if error is None else error)


def _pod_key(pod: Binding | PodStatusPatch | PodDeletion) -> ObjectKey:
    return ("Pod", pod.namespace, pod.name, pod.uid)
