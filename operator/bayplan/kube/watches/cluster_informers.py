"""The informers of all resources that the scheduler reads, each delivering to its feed.

The first cycle starts when all of them are synced. A resource that not every cluster serves joins when it is served,
and the first cycle does not wait for it.
"""

from __future__ import annotations

import asyncio
import dataclasses
import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

from msgspec.structs import replace

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import NOT_SERVED, OPTIONAL, REQUIRED, DeviceApi
from bayplan.kube.watches.informer import Informer, InformerOptions, Resource
from bayplan.kube.watches.watch_stream import KubeObject, WatchOutages
from scheduler_core.errors import ClusterWriteError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.metrics.histogram import Histogram, exponential_bounds
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.storage import (
    CsiDriver,
    CsiNode,
    CsiStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from scheduler_core.model.workloads import (
    Namespace,
    PodDisruptionBudget,
    ReplicaSet,
    ReplicationController,
    Service,
    StatefulSet,
)
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 30.0
"""Interval between lookups of the API."""

_FIRST_LOOKUP_SECONDS = 1.0

_NOT_LISTED = "the resource claims and devices of the cluster are not listed yet"


class DeviceInformers:
    """Watches claims, classes, slices and taint rules from when they are served; ``api`` receives the version."""

    def __init__(
        self,
        connection: ApiConnection,
        informers: ClusterInformers,
        feed: DeviceFeed,
        clock: Clock,
        api: DeviceApi | None = None,
    ) -> None:
        self._api = DeviceApi() if api is None else api
        self._connection = connection
        self._informers = informers
        self._feed = feed
        self._clock = clock
        self._listed: set[str] = set()
        self._watched: set[str] = set()
        feed.expect_lists(_NOT_LISTED)

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            while True:
                served = await self._served()
                if served is not None:
                    self._begin(served, tasks)
                is_complete = self._watched >= {*REQUIRED, *OPTIONAL}
                # Pods with resource claims are gated until the first lookup succeeds.
                delay = LOOKUP_SECONDS if served is not None or is_complete else _FIRST_LOOKUP_SECONDS
                await self._clock.sleep(delay)

    def _begin(self, served: dict[str, str], tasks: asyncio.TaskGroup) -> None:
        if not served and not self._watched:
            self._feed.withhold(NOT_SERVED)
            return
        for resource, kind in {**REQUIRED, **OPTIONAL}.items():
            if resource in served and resource not in self._watched:
                self._watched.add(resource)
                sink = FeedSink(
                    self._feed.added,
                    self._feed.updated,
                    self._feed.deleted,
                    partial(self._synced, resource),
                    partial(self._not_listed, resource),
                    self._feed.unreadable,
                )
                informer = self._informers.begin(resource, served[resource], kind, sink)
                tasks.create_task(informer.run())

    def _synced(self, resource: str) -> None:
        self._listed.add(resource)
        # Devices would count as free while the claims that use them are not listed.
        if self._listed >= self._watched and self._listed >= REQUIRED.keys():
            self._feed.withhold("")

    def _not_listed(self, resource: str, trouble: str) -> None:
        if resource not in self._listed:
            version = self._api.path.removeprefix("/apis/")
            self._feed.withhold(f"the {resource} of {version} cannot be listed: {trouble}")

    async def _served(self) -> dict[str, str] | None:
        """Return the path of each resource that is served; None if that cannot be determined."""
        try:
            return await self._api.paths(self._connection)
        except ClusterWriteError as error:
            log.debug("It cannot be determined whether resource.k8s.io is served: %s", error)
            return None


_MOST_NAMED = 10
"""Objects that a warning names."""

_NODES = "nodes"
_PODS = "pods"
# A dozen watches are a small load: they retry sooner than the half minute that suits a thousand kubelets.
INFORMER_OPTIONS = InformerOptions(backoff_maximum_seconds=5.0)

WORKLOADS: Mapping[str, type[KubeObject]] = {
    "/api/v1/namespaces": Namespace,
    "/api/v1/services": Service,
    "/api/v1/replicationcontrollers": ReplicationController,
    "/apis/apps/v1/replicasets": ReplicaSet,
    "/apis/apps/v1/statefulsets": StatefulSet,
    "/apis/policy/v1/poddisruptionbudgets": PodDisruptionBudget,
}
"""Struct of each collection that the workload feed receives."""

STORAGE: Mapping[str, type[KubeObject]] = {
    "/api/v1/persistentvolumes": PersistentVolume,
    "/api/v1/persistentvolumeclaims": PersistentVolumeClaim,
    "/apis/storage.k8s.io/v1/storageclasses": StorageClass,
    "/apis/storage.k8s.io/v1/csinodes": CsiNode,
    "/apis/storage.k8s.io/v1/csidrivers": CsiDriver,
    "/apis/storage.k8s.io/v1/csistoragecapacities": CsiStorageCapacity,
    "/apis/storage.k8s.io/v1/volumeattachments": VolumeAttachment,
}
"""Struct of each collection that the storage feed receives."""

T = TypeVar("T", bound=KubeObject)


class _Feed(Protocol):
    """The interface that the workload feed and the storage feed share."""

    @property
    def added(self) -> Callable[[Any], None]: ...
    @property
    def updated(self) -> Callable[[Any, Any], None]: ...
    @property
    def deleted(self) -> Callable[[Any], None]: ...
    @property
    def unreadable(self) -> Callable[[Any, str], None]: ...


@dataclass(frozen=True, slots=True)
class FeedSink(Generic[T]):
    """Handlers of one resource's events.

    Attributes:
        on_synced: Called when the first list is complete.
        on_unreadable: Called with an object that cannot be decoded and the reason, see the feeds; None to keep the
            last version that could be.
    """

    on_add: Callable[[T], None]
    on_update: Callable[[T, T], None]
    on_delete: Callable[[T], None]
    on_synced: Callable[[], None] = lambda: None
    on_trouble: Callable[[str], None] = lambda _: None
    on_unreadable: Callable[[T, str], None] | None = None


ARRIVAL_BOUNDS = exponential_bounds(0.25, 2, 12)
"""Buckets in seconds from a pod's creation: 0.25 s to 8 min."""


class PodArrivals:
    """Histogram of the delay with which new pods reach the scheduler; up to one second of a delay is not lag.

    Args:
        clock: Its wall time is compared with the API server's.
        is_listed: Returns whether the first list is complete; pods of the first list may be old and do not count.

    Attributes:
        seconds: Delays between the creation and the arrival of pods that had no node and came after the first list.
    """

    def __init__(self, clock: Clock, is_listed: Callable[[], bool]) -> None:
        self._clock = clock
        self._is_listed = is_listed
        self.seconds = Histogram(ARRIVAL_BOUNDS)

    def counting(self, add: Callable[[Pod], None]) -> Callable[[Pod], None]:
        """Wrap ``add`` so that each pod is counted first."""

        def counted(pod: Pod) -> None:
            created = pod.metadata.creation_timestamp
            if created is not None and not pod.spec.node_name and self._is_listed():
                # From the creation, because a watch event has no time; the timestamp is in whole seconds. The clocks of
                # the API server and of the operator may differ, so a negative delay counts as zero.
                self.seconds.observe(max(0.0, (self._clock.wall() - created).total_seconds()))
            add(pod)

        return counted


class ClusterInformers:
    """All informers, by the plural of their resource.

    Args:
        readiness: Has one condition for each informer that the first cycle waits for, and shows which error blocks it.
        options: Options of all informers; with a seed, each informer has another one.

    Attributes:
        by_resource: Every informer, nodes and pods first.
        synced: Set when every first list is complete.
    """

    def __init__(
        self,
        connection: ApiConnection,
        scheduler: Scheduler,
        clock: Clock,
        readiness: Readiness | None = None,
        *,
        options: InformerOptions = INFORMER_OPTIONS,
    ) -> None:
        self._connection = connection
        self._clock = clock
        self._suspension = scheduler.context.suspension
        self._options = options
        self._outages = WatchOutages(clock)
        self._readiness = readiness or Readiness(())
        self._readiness.warn_by(self.warnings)
        self._readiness.fail_if_stale(self.stale)
        self._joined_later: set[str] = set()
        self.synced = asyncio.Event()
        self.by_resource: dict[str, Informer[Any]] = {}
        feed: PodAndNodeFeed = scheduler.feed
        synced = partial(self._kind_synced, _NODES)
        nodes = FeedSink(
            feed.node_added, feed.node_updated, feed.node_deleted, synced, on_unreadable=feed.node_unreadable
        )
        self.nodes: Informer[Node] = self._informer("/api/v1/nodes", scheduler.decoded.node, nodes)
        # A function, because the informer of pods is made below: its sink counts the arrivals.
        self.arrivals = PodArrivals(clock, lambda: self.pods.synced)
        added = self.arrivals.counting(feed.pod_added)
        synced = partial(self._kind_synced, _PODS)
        pods = FeedSink(added, feed.pod_updated, feed.pod_deleted, synced, on_unreadable=feed.pod_unreadable)
        self.pods: Informer[Pod] = self._informer("/api/v1/pods", scheduler.decoded.pod, pods)
        # Whether or not a live profile enables the plugins that read it, so that an edited profile never waits for a
        # list.
        self._watch(WORKLOADS, scheduler.workload_feed)
        self._watch(STORAGE, scheduler.storage_feed)
        for kind in scheduler.decoded.kinds:
            self._watch({kind.path: kind.struct}, scheduler.declared_feeds[kind.path])

    def warnings(self, names_all: bool) -> list[str]:
        """Return which objects cannot be decoded, or were not processed, so that what depends on them fails closed."""
        found = []
        for resource, informer in self:
            shown = {key: each.reason for key, each in informer.unreadable.items() if names_all or key[0] == "/"}
            first = [f"{key.removeprefix('/')}: {reason}" for key, reason in sorted(shown.items())[:_MOST_NAMED]]
            count = len(informer.unreadable)
            if count:
                names = f" ({'; '.join(first)})" if first else ""
                found.append(f"{resource}: {count} cannot be decoded, and what depends on them fails closed{names}")
            undelivered = informer.undelivered.keys
            if undelivered:
                named = [key.removeprefix("/") for key in undelivered if names_all or key[0] == "/"][:_MOST_NAMED]
                names = f" ({', '.join(named)})" if named else ""
                found.append(f"{resource}: {len(undelivered)} changes failed to be processed and are retried{names}")
        return found

    def stale(self) -> list[str]:
        """Return the resources that the first cycle waits for and that are stale, with the reasons."""
        # A resource that not every cluster serves may be withdrawn, which its own feed handles.
        found = ((resource, informer.staleness) for resource, informer in self if resource not in self._joined_later)
        return [f"{resource} are stale: {reason}" for resource, reason in found if reason]

    def __iter__(self) -> Iterator[tuple[str, Informer[Any]]]:
        return iter(self.by_resource.items())

    # -- resources of other receivers ---------------------------------------------------------------------------

    def watch(self, path: str, kind: type[T], sink: FeedSink[T]) -> Informer[T]:
        """Watch one more resource; call this before the informers run. ``on_synced`` of the sink is called too."""
        return self._join(self._name(path), path, kind, sink)

    def begin(self, resource: str, path: str, kind: type[T], sink: FeedSink[T]) -> Informer[T]:
        """Make the informer of a resource that not every cluster serves; the caller runs it at any time."""
        self._joined_later.add(resource)
        return self._join(resource, path, kind, sink)

    def _join(self, resource: str, path: str, kind: type[T], sink: FeedSink[T]) -> Informer[T]:
        def synced() -> None:
            sink.on_synced()
            self._kind_synced(resource)

        joined = dataclasses.replace(sink, on_synced=synced)
        return self._informer(path, kind, joined, resource)

    def _watch(self, kinds: Mapping[str, type[KubeObject]], feed: _Feed) -> None:
        for path, kind in kinds.items():
            name = self._name(path)
            synced = partial(self._kind_synced, name)
            self._informer(
                path, kind, FeedSink(feed.added, feed.updated, feed.deleted, synced, on_unreadable=feed.unreadable)
            )

    def _name(self, path: str) -> str:
        """Return the plural, or the whole path if another API group has the same plural."""
        plural = path.rpartition("/")[2]
        return path if plural in self.by_resource else plural

    def _informer(self, path: str, kind: type[T], sink: FeedSink[T], resource: str = "") -> Informer[T]:
        name, options = resource or self._name(path), self._options
        if options.seed is not None:
            options = replace(options, seed=options.seed + len(self.by_resource))
        informer: Informer[T] = Informer(
            self._connection,
            Resource(path),
            kind,
            sink,
            self._clock,
            options=options,
            outages=self._outages,
            deferral=self._suspension,
        )
        self.by_resource[name] = informer
        if name not in self._joined_later:
            self._readiness.require(_condition(name), lambda: informer.last_error)
        return informer

    def _kind_synced(self, resource: str) -> None:
        self._readiness.fulfil(_condition(resource))
        # A pod whose claim or namespace is not known yet would be decided wrongly.
        if all(informer.synced for name, informer in self if name not in self._joined_later):
            self.synced.set()


def _condition(resource: str) -> str:
    return f"{resource} are being listed"
