"""Ports and feeds whose calls a :class:`scheduler_core.recording.recorder.Recorder` records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

from scheduler_core.config.profile_config import Extender
from scheduler_core.cycle.failure_handler import FAILED_SCHEDULING
from scheduler_core.feeds.object_feed import DeclaredFeed, DeviceFeed, ObjectFeed
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.feeds.pod_group_feed import GroupFeed
from scheduler_core.feeds.workload_feed import WorkloadFeed
from scheduler_core.model.pod import Pod
from scheduler_core.ports import (
    Binding,
    ClaimWriter,
    ClusterWriter,
    Event,
    ExtenderClient,
    PodDeletion,
    PodStatusPatch,
    StorageWriter,
)
from scheduler_core.recording.object_types import Content, ObjectTypes
from scheduler_core.recording.record_entries import (
    Deleted,
    Evicted,
    Fed,
    Rejected,
    Wrote,
    error_arguments,
    error_name,
)
from scheduler_core.recording.recorder import Recorder

WRITER = "writer"
_UPDATED = ("pod_updated", "node_updated", "updated")
_KEPT: Content = ("", cast("Any", None))

PODS, GROUPS, STORAGE, DEVICES, WORKLOADS = "pods", "groups", "storage", "devices", "workloads"
FEED_METHODS: Mapping[str, tuple[str, ...]] = {
    PODS: (
        "pod_added",
        "pod_updated",
        "pod_deleted",
        "node_added",
        "node_updated",
        "node_deleted",
        "pod_unreadable",
        "node_unreadable",
    ),
    GROUPS: ("serve", "withhold", "ignore", "group_changed", "group_deleted", "group_refused"),
    STORAGE: ("added", "updated", "deleted", "unreadable"),
    DEVICES: ("added", "updated", "deleted", "unreadable", "withhold", "expect_lists"),
    WORKLOADS: ("added", "updated", "deleted", "unreadable"),
}
"""Methods of each feed; that of a declared kind is named by the path of the kind and has the methods of storage."""

Feed = PodAndNodeFeed | GroupFeed | ObjectFeed[Any] | DeviceFeed | WorkloadFeed | DeclaredFeed


class LastDelivered:
    """The objects of one feed as they were delivered last, by kind, namespace and name."""

    def __init__(self) -> None:
        self._objects: dict[tuple[str, str, str], Any] = {}

    def find(self, like: Any) -> Any:
        """Return the object with the kind, namespace and name of another one; None if there is none."""
        return self._objects.get(_key(like))

    def named(self, kind: str, namespace: str, name: str) -> Any:
        """Return an object by the name of its type, its namespace and its name; None if there is none."""
        return self._objects.get((kind, namespace, name))

    def delivered(self, method: str, shown: Any) -> None:
        """Store an object that was delivered, or drop one whose deletion was."""
        if not hasattr(shown, "metadata"):
            return
        if method.endswith("deleted"):
            self._objects.pop(_key(shown), None)
        else:
            self._objects[_key(shown)] = shown


def _key(shown: Any) -> tuple[str, str, str]:
    meta = shown.metadata
    return type(shown).__name__, meta.namespace, meta.name


def record_feed(recorder: Recorder, name: str, feed: Feed) -> None:
    """Record the calls of a feed.

    The methods of the object are replaced, because the scheduler and others have references to it.

    Args:
        recorder: The recorder.
        name: Name of the feed in the record.
        feed: The feed.
    """
    last = LastDelivered()
    for method in FEED_METHODS.get(name, FEED_METHODS[STORAGE]):
        setattr(feed, method, _recorded(recorder, last, name, method, getattr(feed, method)))


def _recorded(
    recorder: Recorder, last: LastDelivered, name: str, method: str, call: Callable[..., None]
) -> Callable[..., None]:
    is_update = method in _UPDATED

    def recorded(*args: Any) -> None:
        if recorder.is_inside or not recorder.is_recording:
            call(*args)
            return
        content = recorder.objects.content
        if is_update and last.find(args[0]) is args[0]:
            encoded: tuple[Content, ...] = (_KEPT, recorder.objects.change(*args))
        else:
            encoded = tuple(content(each) for each in args)
        recorder.write(Fed(name, method, encoded))
        last.delivered(method, args[-1])
        recorder.inside(call, *args)

    return recorded


class RecordedWriter:
    """Writer of the cluster; implements :class:`scheduler_core.ports.ClusterWriter`.

    Args:
        writer: The writer.
        recorder: The recorder.
    """

    def __init__(self, writer: ClusterWriter, recorder: Recorder) -> None:
        self._writer = writer
        self._recorder = recorder

    async def bind(self, binding: Binding) -> None:
        """Bind a pod."""
        await self._recorder.answered(WRITER, self._writer.bind(binding))

    async def read_pod(self, namespace: str, name: str) -> Pod | None:
        """Read a pod."""
        return await self._recorder.answered(WRITER, self._writer.read_pod(namespace, name))

    def patch_pod_status(self, patch: PodStatusPatch) -> None:
        """Queue a patch; a nomination is a decision."""
        nomination = nomination_of(patch, self._recorder.objects)
        if nomination is not None:
            self._recorder.write(nomination)
        self._writer.patch_pod_status(patch)

    def delete_pod(self, deletion: PodDeletion, done: Callable[[Exception | None], None]) -> None:
        """Queue a deletion."""
        recorder = self._recorder
        number = recorder.ports.next_call(WRITER)
        recorder.write(Evicted(f"{deletion.namespace}/{deletion.name}", deletion.uid))

        def recorded(outcome: Exception | None) -> None:
            if outcome is None:
                recorder.write(Deleted(number, "", recorder.objects.content(None)))
            else:
                recorder.write(Deleted(number, error_name(outcome), error_arguments(outcome)))
            recorder.inside(done, outcome)

        self._writer.delete_pod(deletion, recorded)

    def record(self, event: Event) -> None:
        """Queue an event."""
        if event.reason == FAILED_SCHEDULING:
            self._recorder.write(rejection(event))
            self._recorder.decisions += 1
        self._writer.record(event)


def rejection(event: Event) -> Rejected:
    """Return the decision of which an event informs."""
    pod = event.regarding
    return Rejected(f"{pod.namespace}/{pod.name}", pod.uid, event.reporting_controller, event.note)


def nomination_of(patch: PodStatusPatch, types: ObjectTypes) -> Wrote | None:
    """Return the decision to nominate a node, or to end a nomination; None for another patch."""
    if patch.nominated_node_name is None:
        return None
    return written(types, "nominate", (patch.uid, patch.nominated_node_name))


class RecordedPort:
    """Writer of volumes or claims, or client of an extender: all methods are coroutines.

    Attributes that are not methods, such as the state of a client, are those of the port.

    Args:
        port: The port.
        recorder: The recorder.
        extender: Name of the extender's port; "" for a writer, whose calls are decisions.
    """

    def __init__(
        self, port: StorageWriter | ClaimWriter | ExtenderClient, recorder: Recorder, extender: str = ""
    ) -> None:
        self._port = port
        self._recorder = recorder
        self._extender = extender

    async def close(self) -> None:
        """Close a client, which is no input."""
        await cast("ExtenderClient", self._port).close()

    def __getattr__(self, method: str) -> Any:
        call, recorder = getattr(self._port, method), self._recorder
        if not callable(call):
            return call

        async def recorded(*args: Any) -> Any:
            if not self._extender:
                recorder.write(written(recorder.objects, method, args))
                return await recorder.answered(WRITER, call(*args))
            return await recorder.answered(f"{self._extender}{method}", call(*args))

        return recorded


def written(types: ObjectTypes, method: str, args: tuple[Any, ...]) -> Wrote:
    """Return the decision to write something."""
    return Wrote(method, tuple(types.content(each) for each in args))


def recorded_extenders(
    make: Callable[[str, Extender], ExtenderClient], recorder: Recorder
) -> Callable[[str, Extender], ExtenderClient]:
    """Return a function that creates clients whose answers are recorded."""

    def make_recorded(scheduler_name: str, extender: Extender) -> ExtenderClient:
        client = make(scheduler_name, extender)
        if not recorder.is_building:
            return client
        return cast("ExtenderClient", RecordedPort(client, recorder, recorder.ports.next_extender()))

    return make_recorded
