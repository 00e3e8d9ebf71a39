"""Ports and feeds whose calls a :class:`scheduler_core.recording.recorder.Recorder` records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, cast

from scheduler_core.config.profile_config import Extender
from scheduler_core.cycle.failure_handler import FAILED_SCHEDULING
from scheduler_core.model.pod import Pod
from scheduler_core.ports import (
    Binding,
    ClaimWriter,
    ClusterWriter,
    Event,
    ExtenderClient,
    PodDeletion,
    PodStatusPatch,
    SearchProcesses,
    StorageWriter,
)
from scheduler_core.recording import record_entries as entries
from scheduler_core.recording.recorder import WRITER, Recorder
from scheduler_core.recording.replayed_input import RecordedInput

T = TypeVar("T")

UPDATED = ("pod_updated", "node_updated", "updated")


class LastDelivered:
    """The objects of one feed as they were delivered last, by kind, namespace and name."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Any] = {}

    def find(self, like: Any) -> Any:
        """Return the object with the kind, namespace and name of another one; None if there is none."""
        return self.objects.get(_key(like))

    def delivered(self, method: str, args: Sequence[Any]) -> None:
        """Store the object of a call, or drop it if its deletion was delivered."""
        if not args or not hasattr(args[-1], "metadata"):
            return
        if method.endswith("deleted"):
            self.objects.pop(_key(args[-1]), None)
        else:
            self.objects[_key(args[-1])] = args[-1]


def _key(shown: Any) -> tuple[str, str, str]:
    meta = shown.metadata
    return type(shown).__name__, meta.namespace, meta.name


def record_feed(recorder: Recorder, name: str, feed: Any, methods: Iterable[str]) -> None:
    """Record the calls of these methods of a feed, under its name in the record.

    The methods of the object are replaced, because the scheduler and others have references to it.
    """
    last = LastDelivered()
    for method in methods:
        setattr(feed, method, _recorded(recorder, last, (name, method), getattr(feed, method)))


def _recorded(
    recorder: Recorder, last: LastDelivered, name: tuple[str, str], call: Callable[..., T]
) -> Callable[..., T]:
    method = name[1]
    is_update = method in UPDATED

    def recorded(*args: Any) -> T:
        if recorder.is_inside or not recorder.is_recording:
            return call(*args)
        objects = recorder.objects
        if is_update and last.find(args[0]) is args[0]:
            # None is the object as it was delivered last.
            encoded: tuple[entries.Content, ...] = (objects.content(None), objects.change(*args))
        else:
            encoded = tuple(map(objects.content, args))
        recorder.write(entries.Fed(*name, encoded))
        last.delivered(method, args)
        return recorder.inside(call, *args)

    return recorded


Record = Recorder | RecordedInput
"""What records the calls of ports, or answers them as recorded and compares decisions."""


class RecordedWriter:
    """Writer of the cluster; implements :class:`scheduler_core.ports.ClusterWriter`. Without a writer it replays."""

    def __init__(self, writer: ClusterWriter | None, record: Record) -> None:
        self._writer = cast("ClusterWriter", writer)
        self._record = record

    async def bind(self, binding: Binding) -> None:
        await self._record.answered(WRITER, lambda: self._writer.bind(binding))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        found: Pod | None = await self._record.answered(WRITER, lambda: self._writer.read_pod(namespace, name))
        return found

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Queue a patch; a nomination, or its end, is a decision."""
        if patch.nominated_node_name is not None:
            self._record.decided(_written(self._record, "nominate", (patch.uid, patch.nominated_node_name)))
        if self._writer is not None:
            self._writer.patch_pod_status(patch)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        done = self._record.deletion(done)
        self._record.decided(entries.Evicted(f"{deletion.namespace}/{deletion.name}", deletion.uid))
        if self._writer is not None:
            self._writer.delete_pod(deletion, done)

    def record(self, event: Event) -> None:
        """Queue an event; that of a failed attempt is a decision."""
        if event.reason == FAILED_SCHEDULING:
            pod, profile = event.regarding, event.reporting_controller
            self._record.decided(entries.Rejected(f"{pod.namespace}/{pod.name}", pod.uid, profile, event.note))
        if self._writer is not None:
            self._writer.record(event)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedPort:
    """Writer of volumes or claims, or client of an extender: all methods are coroutines. Without a port it replays.

    Attributes that are not methods, such as the state of a client, are those of the port. *extender* is the name of the
    extender's port; "" for a writer, whose calls are decisions.
    """

    _port: StorageWriter | ClaimWriter | ExtenderClient | None
    _record: Record
    _extender: str = ""

    async def close(self) -> None:
        if self._port is not None:
            await cast("ExtenderClient", self._port).close()

    def __getattr__(self, method: str) -> Any:
        call = None if self._port is None else getattr(self._port, method)
        if self._port is not None and not callable(call):
            return call
        record, port = self._record, f"{self._extender}{method}" if self._extender else WRITER

        async def recorded(*args: Any) -> Any:
            if not self._extender:
                record.decided(_written(record, method, args))
            return await record.answered(port, lambda: cast("Any", call)(*args))

        return recorded


def _written(record: Record, method: str, args: tuple[Any, ...]) -> entries.Wrote:
    return entries.Wrote(method, tuple(map(record.objects.content, args)))


@dataclass(frozen=True, slots=True)
class RecordedProcesses:
    """Copies of this process whose results are recorded; implements :class:`scheduler_core.ports.SearchProcesses`.

    Without processes it replays: no copy is made, and the results are those of the record.
    """

    _processes: SearchProcesses | None
    _record: Record

    def fork(self, done: Callable[[bytes | None], None]) -> Callable[[bytes | None], NoReturn] | None:
        """Start a copy of this process."""
        done = self._record.search_ended(done)
        return None if self._processes is None else self._processes.fork(done)

    def stop(self) -> None:
        if self._processes is not None:
            self._processes.stop()


def recorded_extenders(
    make: Callable[[str, Extender], ExtenderClient | None], record: Record
) -> Callable[[str, Extender], ExtenderClient]:
    """Return a function that creates clients of recorded instances, and clients that replay in place of None."""

    def make_recorded(scheduler_name: str, extender: Extender) -> ExtenderClient:
        client: Any = make(scheduler_name, extender)
        return RecordedPort(client, record, record.next_extender()) if record.is_building else client

    return make_recorded
