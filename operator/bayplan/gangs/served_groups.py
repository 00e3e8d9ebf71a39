"""PodGroups of an API that not every cluster serves.

The API is looked up periodically, because it is often installed after the scheduler, by the user who deploys the first
gang, and there is no event for it that every account may watch. Until its first list is complete, the pods that name
one of its groups are gated, with the reason in each of these states:

    unknown --not served, only in unsupported versions, forbidden, server unavailable--> looked up again
       |                                                                                      |
       +--served--> listing --first list complete--> watching <------------served------------+

There is no way back: deleting a CustomResourceDefinition deletes its objects, each reported as deleted, and pods that
still name one wait as for any missing group.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from bayplan.gangs.accepted_groups import AcceptedGroups, GroupObserver, GroupSink, ObservedGroup
from bayplan.gangs.group_models import NativeGroup, SchedulerPluginsGroup
from bayplan.gangs.group_translation import from_native, from_scheduler_plugins
from bayplan.kube.backoff import Backoff
from bayplan.kube.http.api_errors import UnauthorizedError
from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 30.0
"""Interval between lookups of an API that is not served."""

_PLURAL = "podgroups"
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 10.0


class GroupObject(Protocol):
    """Decoded PodGroup of any API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Metadata of the object."""

    @property
    def spec(self) -> object:
        """Spec of the object."""

    @property
    def status(self) -> dict[str, Any]:
        """Status as received."""


T = TypeVar("T", bound=GroupObject)
D = TypeVar("D")


class GroupApi(Struct, Generic[T], frozen=True):
    """API of PodGroups.

    Attributes:
        source: API group.
        versions: Supported versions, newest first; the first that is served is read.
        kind: Type that its objects are decoded to.
        translate: Translates an object to the core's model; raises ConfigError.
        remedy: What to do if pods name its groups and the API is not served.
    """

    source: GroupSource
    versions: tuple[str, ...]
    kind: type[T]
    translate: Callable[[T], PodGroup]
    remedy: str


SCHEDULER_PLUGINS_API = GroupApi(
    GroupSource.SCHEDULER_PLUGINS,
    ("v1alpha1",),
    SchedulerPluginsGroup,
    from_scheduler_plugins,
    "install the CustomResourceDefinition podgroups.scheduling.x-k8s.io, or turn off Bayplan's feature gate "
    "CompatiblePodGroups to ignore the label",
)
NATIVE_API = GroupApi(
    GroupSource.NATIVE,
    ("v1alpha2",),
    NativeGroup,
    from_native,
    "enable it in the API server (--runtime-config, and feature gate GenericWorkload), or turn off Bayplan's feature "
    "gate CompatiblePodGroups to ignore spec.schedulingGroup",
)


class _Version(Struct, frozen=True, gc=False):
    version: str


class _Group(Struct, frozen=True, gc=False):
    versions: list[_Version] | None = None


class _ServedResource(Struct, frozen=True, gc=False):
    name: str


class _ServedResources(Struct, frozen=True, gc=False):
    resources: list[_ServedResource] | None = None


_GROUP = msgspec.json.Decoder(_Group)
_SERVED = msgspec.json.Decoder(_ServedResources)


class FoundVersions(Struct, frozen=True):
    """Versions in which an API server serves PodGroups of one API.

    Attributes:
        read: Version to read; empty if no supported version is served.
        others: Unsupported versions that are served; looked up only if ``read`` is empty.
    """

    read: str = ""
    others: tuple[str, ...] = ()


async def find_versions(connection: ApiConnection, api: GroupApi[Any]) -> FoundVersions:
    """Look up the versions in which the PodGroups of an API are served.

    Args:
        connection: Connection to the API server.
        api: The API; its versions are in the order of preference.

    Returns:
        The served versions; none if the API server does not serve the API.

    Raises:
        ClusterWriteError: The request failed, or the response cannot be decoded.
    """
    path = f"/apis/{api.source.value}"
    for version in api.versions:
        if await _serves_groups(connection, f"{path}/{version}"):
            return FoundVersions(version)
    group = await _discovered(connection, path, _GROUP)
    versions = [each.version for each in (group.versions if group is not None else None) or ()]
    others = [each for each in versions if each not in api.versions]
    return FoundVersions(others=tuple([each for each in others if await _serves_groups(connection, f"{path}/{each}")]))


async def _serves_groups(connection: ApiConnection, path: str) -> bool:
    served = await _discovered(connection, path, _SERVED)
    return served is not None and any(resource.name == _PLURAL for resource in served.resources or ())


async def _discovered(connection: ApiConnection, path: str, decoder: msgspec.json.Decoder[D]) -> D | None:
    try:
        return decoder.decode(await connection.request(ApiRequest("GET", path, lane=Lane.READS)))
    except NotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise ClusterWriteError(f"GET {path}: the response cannot be decoded: {error}") from error


def why_absent(api: GroupApi[Any], found: FoundVersions) -> str:
    """Return why no PodGroup of an API can be read, and what to do.

    Args:
        api: The API.
        found: Versions that the API server serves.
    """
    group, read = api.source.value, " or ".join(api.versions)
    if found.others:
        return (
            f"the API server serves PodGroups of {group} in {', '.join(found.others)}, and this version of Bayplan "
            f"reads {read} only; upgrade Bayplan or serve {group}/{read}"
        )
    return f"the API server serves no PodGroups of {group}/{read}; {api.remedy}"


def why_refused(api: GroupApi[Any], error: ClusterWriteError) -> str:
    """Return why it cannot be determined whether an API is served, and what to do.

    Args:
        api: The API.
        error: Error of the request.
    """
    text = f"cannot determine whether {api.source.value} is served: {error}"
    return (
        f"{text}; allow this account to read discovery (ClusterRole system:discovery)" if _is_refused(error) else text
    )


class ServedGroups(Generic[T]):
    """Groups of one API, which may be served only later.

    Args:
        api: The API.
        connection: Connection to the API server.
        informers: Informers that watch the objects.
        sink: Receives the accepted groups.
        clock: Source of time.

    Attributes:
        version: Version that is read; empty while none is served.
        resource: Name of its informer.
        settled: Set when the objects are listed, or when it is known why they cannot be.
    """

    def __init__(
        self,
        api: GroupApi[T],
        connection: ApiConnection,
        informers: ClusterInformers,
        sink: GroupSink,
        clock: Clock,
        *,
        observer: GroupObserver | None = None,
    ) -> None:
        self._api = api
        self._connection = connection
        self._informers = informers
        self._sink = sink
        self._clock = clock
        self._accepted = AcceptedGroups(sink, observer)
        self._latest: dict[GroupKey, T] = {}
        self._reason = ""
        self._is_listed = False
        self.version = ""
        self.resource = f"{_PLURAL}.{api.source.value}"
        self.settled = asyncio.Event()

    @property
    def source(self) -> GroupSource:
        """API group."""
        return self._api.source

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """Problems of the objects whose current spec is invalid."""
        return self._accepted.problems

    def latest(self, key: GroupKey) -> T | None:
        """Return the newest received version of an object, valid or not."""
        return self._latest.get(key)

    async def run(self) -> None:
        """Look up the API until it is served, then watch it until cancelled."""
        self.version = await self._found()
        path = f"/apis/{self.source.value}/{self.version}/{_PLURAL}"
        sink = FeedSink(self._added, self._updated, self._deleted, self._listed)
        informer = self._informers.begin(self.resource, path, self._api.kind, sink)
        informer.on_trouble = self._not_listed
        await informer.run()

    # -- lookup -------------------------------------------------------------------------------------------------

    async def _found(self) -> str:
        """Wait until a supported version is served and return it."""
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        while True:
            delay = LOOKUP_SECONDS
            try:
                found = await find_versions(self._connection, self._api)
            except ClusterWriteError as error:
                self._withhold(why_refused(self._api, error), logging.WARNING)
                if not _is_refused(error):
                    delay = backoff.next_delay()
            else:
                if found.read:
                    return found.read
                backoff.reset()
                self._withhold(why_absent(self._api, found), logging.INFO)
            await self._clock.sleep(delay)

    def _withhold(self, reason: str, level: int) -> None:
        if reason != self._reason:
            log.log(level, "Pods that name a PodGroup of %s are gated: %s", self.source.value, reason)
        self._reason = reason
        self._sink.withhold(self.source, reason)
        self.settled.set()

    def _not_listed(self, trouble: str) -> None:
        if not self._is_listed:
            self._withhold(f"the PodGroups of {self.source.value} cannot be listed: {trouble}", logging.WARNING)

    def _listed(self) -> None:
        self._is_listed = True
        log.info("Listed the PodGroups of %s/%s", self.source.value, self.version)
        self._sink.serve(self.source)
        self.settled.set()

    # -- objects ------------------------------------------------------------------------------------------------

    def _added(self, new: T) -> None:
        key = self._key(new)
        self._latest[key] = new
        observed = ObservedGroup(key, new.metadata.uid, new.metadata.generation, new.status)
        try:
            group = self._api.translate(new)
        except ConfigError as error:
            self._accepted.reject(observed, error)
        else:
            self._accepted.accept(observed, group)

    def _updated(self, old: T, new: T) -> None:
        if old.spec == new.spec and old.metadata.generation == new.metadata.generation:
            # Only the status has changed, in most cases written by this process.
            self._latest[self._key(new)] = new
        else:
            self._added(new)

    def _deleted(self, deleted: T) -> None:
        key = self._key(deleted)
        self._latest.pop(key, None)
        self._accepted.delete(key)

    def _key(self, group: T) -> GroupKey:
        return GroupKey(self._api.source, group.metadata.namespace, group.metadata.name)


def _is_refused(error: ClusterWriteError) -> bool:
    """Return whether the account lacks the permission, so that an early retry does not help."""
    return isinstance(error, ForbiddenError) and not isinstance(error, UnauthorizedError)
