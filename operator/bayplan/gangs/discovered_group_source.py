"""PodGroups of an API that not every cluster serves.

The API is looked up periodically, because it is often installed after the scheduler, by the user who deploys the first
gang, and there is no event for it that every account may watch. It is also looked up while it is watched, because API
servers and CustomResourceDefinitions are upgraded, which replaces one version by another. Until a list is complete, the
pods that name one of its groups are gated, with the reason in each of these states:

    unknown --not served, only in unsupported versions, forbidden, server unavailable--> looked up again
       |                                                                                      |
       +--served--> listing --first list complete--> watching <------------served------------+
                       ^                                 |
                       +------- a newer version, another one, or none is served: gated again --+
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from msgspec import Struct

from bayplan.gangs.bayplan_group_source import AcceptedGroups, GroupObserver, GroupSink, ObservedGroup
from bayplan.gangs.group_translation import (
    COMPOSITE_VERSIONS,
    NATIVE_VERSIONS,
    NativeGroup,
    SchedulerPluginsGroup,
    UnsupportedGroupError,
    VolcanoGroup,
    from_composite,
    from_native,
    from_scheduler_plugins,
    from_volcano,
)
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.served_apis import discovered, served_resources
from bayplan.kube.timing import Backoff
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from bayplan.kube.watches.informer import Informer
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, Problem
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)


T = TypeVar("T", bound=NativeGroup | SchedulerPluginsGroup | VolcanoGroup)


@dataclass(frozen=True, slots=True)
class GroupApi(Generic[T]):
    """API of PodGroups.

    Attributes:
        translations: Translates an object of each supported version to the core's model, or raises ConfigError; newest
            version first. The first one that is served is read.
        remedy: What to do if pods name its groups and the API is not served.
    """

    source: GroupSource
    kind: type[T]
    translations: Mapping[str, Callable[[T], PodGroup | CompositePodGroup]]
    remedy: str


SCHEDULER_PLUGINS_API = GroupApi(
    GroupSource.SCHEDULER_PLUGINS,
    SchedulerPluginsGroup,
    {"v1alpha1": from_scheduler_plugins},
    "install the CustomResourceDefinition podgroups.scheduling.x-k8s.io, or turn off Bayplan's feature gate "
    "CompatiblePodGroups to ignore the label",
)
_NATIVE_REMEDY = (
    "enable it in the API server (--runtime-config, and feature gate GenericWorkload), or turn off Bayplan's feature "
    "gate CompatiblePodGroups to ignore spec.schedulingGroup"
)


def native_api(*, are_trees_read: bool, are_claims_read: bool = False) -> GroupApi[NativeGroup]:
    """Return the API of Kubernetes' own PodGroups.

    Args:
        are_trees_read: Whether CompositePodGroups are read too; if not, a PodGroup below one is not supported.
        are_claims_read: Whether PodGroups may have resource claims; if not, one with claims is not supported.
    """
    read = partial(from_native, are_trees_read=are_trees_read, are_claims_read=are_claims_read)
    translations = {version: partial(read, version=version) for version in NATIVE_VERSIONS}
    return GroupApi(GroupSource.NATIVE, NativeGroup, translations, _NATIVE_REMEDY)


def volcano_api(priority_of: Callable[[str], int | None]) -> GroupApi[VolcanoGroup]:
    """Return the API of Volcano's PodGroups; ``priority_of`` returns None for a class that does not exist."""
    return GroupApi(
        GroupSource.VOLCANO,
        VolcanoGroup,
        {"v1beta1": partial(from_volcano, priority_of=priority_of)},
        "install the CustomResourceDefinition podgroups.scheduling.volcano.sh, or turn off Bayplan's feature gate "
        "VolcanoPodGroups to ignore the annotation",
    )


NATIVE_API = native_api(are_trees_read=False)
COMPOSITE_API = GroupApi(
    GroupSource.COMPOSITE,
    NativeGroup,
    {version: partial(from_composite, version=version) for version in COMPOSITE_VERSIONS},
    "enable it in the API server (--runtime-config, and feature gates GenericWorkload, TopologyAwareWorkloadScheduling "
    "and CompositePodGroup), or create PodGroups without spec.parentCompositePodGroupName",
)


class _Version(Struct, frozen=True, gc=False):
    version: str


class _Group(Struct, frozen=True, gc=False):
    versions: list[_Version] | None = None


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
        api: The API; its versions are in order of preference.

    Raises:
        ClusterWriteError: The request failed, or the response cannot be decoded.
    """
    path, plural = f"/apis/{api.source.api_group}", api.source.plural
    for version in api.translations:
        if plural in await served_resources(connection, f"{path}/{version}"):
            return FoundVersions(version)
    group = await discovered(connection, path, _Group)
    versions = [each.version for each in (group.versions if group is not None else None) or ()]
    others = [each for each in versions if each not in api.translations]
    served = [each for each in others if plural in await served_resources(connection, f"{path}/{each}")]
    return FoundVersions(others=tuple(served))


def why_absent(api: GroupApi[Any], found: FoundVersions) -> str:
    """Return why no PodGroup of an API can be read, and what to do."""
    group, kind, read = api.source.api_group, api.source.kind, " or ".join(api.translations)
    if found.others:
        return (
            f"the API server serves {kind}s of {group} in {', '.join(found.others)}, and this version of Bayplan "
            f"reads {read} only; upgrade Bayplan or serve {group}/{read}"
        )
    return f"the API server serves no {kind}s of {group}/{read}; {api.remedy}"


def why_refused(api: GroupApi[Any], error: ClusterWriteError) -> str:
    """Return why it cannot be determined whether an API is served, and what to do."""
    text = f"cannot determine whether {api.source.value} is served: {error}"
    return f"{text}; allow this account to read discovery (ClusterRole system:discovery)" if is_refused(error) else text


def is_refused(error: ClusterWriteError) -> bool:
    """Return whether the account lacks the permission, so that an early retry does not help."""
    return isinstance(error, ForbiddenError)


LOOKUP_SECONDS = 30.0
"""Interval between lookups of an API."""

_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 10.0


class ServedGroups(Generic[T]):
    """Groups of one API, which may be served only later.

    Attributes:
        version: Version that is read; empty while none is served.
        settled: Set when the objects are listed for the first time, or when it is known why they cannot be.
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
        self._unseen: set[GroupKey] = set()
        self._reason = ""
        self._is_listed = False
        self.version = ""
        self._is_due = asyncio.Event()
        self.resource = f"{api.source.plural}.{api.source.api_group}"
        self.settled = asyncio.Event()

    @property
    def source(self) -> GroupSource:
        return self._api.source

    def latest(self, key: GroupKey) -> T | None:
        """Return the newest received version of an object, valid or not."""
        return self._latest.get(key)

    def translate_again(self) -> None:
        """Translate all groups again, because a PriorityClass that they may name has changed."""
        for latest in list(self._latest.values()):
            self._added(latest)

    async def run(self) -> None:
        """Look up the API until it is served, then watch it and follow its versions, until cancelled."""
        while True:
            self.version = await self._found()
            async with asyncio.TaskGroup() as tasks:
                watch = tasks.create_task(self._informer().run())
                found = await self._replacement()
                watch.cancel()
            self._withhold_replaced(found)

    def _informer(self) -> Informer[T]:
        path = f"/apis/{self.source.api_group}/{self.version}/{self.source.plural}"
        sink = FeedSink(self._added, self._updated, self._deleted, self._listed, self._not_listed, self._unreadable)
        return self._informers.begin(self.resource, path, self._api.kind, sink)

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
                if not is_refused(error):
                    delay = backoff.next_delay()
            else:
                if found.read:
                    return found.read
                backoff.reset()
                self._withhold(why_absent(self._api, found), logging.INFO)
            await self._clock.sleep(delay)

    async def _replacement(self) -> FoundVersions:
        """Wait until the version that is read is not the one to read any more, and return what is served."""
        absent_since: float | None = None
        while True:
            await self._next_lookup()
            try:
                found = await find_versions(self._connection, self._api)
            except ClusterWriteError as error:
                log.debug("It cannot be determined whether %s is served: %s", self.source.value, error)
                continue
            if found.read == self.version:
                absent_since = None
            elif found.read:
                return found
            else:
                # An API server that has just started serves CustomResourceDefinitions a moment later.
                now = self._clock.now()
                absent_since = now if absent_since is None else absent_since
                if now - absent_since >= LOOKUP_SECONDS:
                    return found

    async def _next_lookup(self) -> None:
        """Wait for the next lookup, or for trouble with the watch: its version may be gone."""
        timer = self._clock.call_later(LOOKUP_SECONDS, self._is_due.set)
        try:
            await self._is_due.wait()
        finally:
            timer.cancel()
            self._is_due.clear()

    def _withhold_replaced(self, found: FoundVersions) -> None:
        """Gate the members until the groups are listed in another version."""
        old, self.version = self.version, ""
        self._is_listed = False
        self._unseen.update(self._latest)
        if found.read:
            log.info("%ss of %s are read in %s instead of %s", self.source.kind, self.source.api_group, found.read, old)
            self._withhold(
                f"the {self.source.kind}s of {self.source.api_group}/{found.read} have not been listed yet",
                logging.INFO,
            )
        else:
            self._withhold(why_absent(self._api, found), logging.WARNING)

    def _withhold(self, reason: str, level: int) -> None:
        if reason != self._reason:
            relation = "are below" if self.source is GroupSource.COMPOSITE else "name"
            kind, group = self.source.kind, self.source.api_group
            log.log(level, "Pods that %s a %s of %s are gated: %s", relation, kind, group, reason)
        self._reason = reason
        self._sink.withhold(self.source, reason)
        self.settled.set()

    def _not_listed(self, trouble: str) -> None:
        self._is_due.set()
        if not self._is_listed:
            self._withhold(
                f"the {self.source.kind}s of {self.source.api_group} cannot be listed: {trouble}", logging.WARNING
            )

    def _listed(self) -> None:
        self._is_listed = True
        self._reason = ""
        for key in list(self._unseen):
            # It was deleted while another version was read.
            with self._sink.suspension.reporting_later_errors(partial(self._unseen.add, key)):
                self._latest.pop(key, None)
                self._accepted.delete(key)
            self._unseen.remove(key)
        log.info("Listed the %ss of %s/%s", self.source.kind, self.source.api_group, self.version)
        self._sink.serve(self.source)
        self.settled.set()

    # -- objects ------------------------------------------------------------------------------------------------

    def _added(self, new: T) -> None:
        key = self._key(new)
        self._latest[key] = new
        self._unseen.discard(key)
        observed = ObservedGroup(key, new.metadata.uid, new.metadata.generation, new.status, self.version)
        try:
            group = self._api.translations[self.version](new)
        except ConfigError as error:
            self._accepted.reject(observed, error)
        else:
            self._accepted.accept(observed, group)

    def _updated(self, old: T, new: T) -> None:
        # Volcano's definition has no status subresource, so that the generation counts writes of the status too.
        counts_specs = self.source is not GroupSource.VOLCANO
        if old.spec == new.spec and not (counts_specs and old.metadata.generation != new.metadata.generation):
            # Only the status has changed, in most cases written by this process.
            self._latest[self._key(new)] = new
        else:
            self._added(new)

    def _unreadable(self, shown: T, reason: str) -> None:
        """Hold back the members of a group that cannot be decoded, whatever its last version was."""
        if not reason:
            self._added(shown)
            return
        meta = shown.metadata
        problem = Problem("", f"it could not be decoded: {reason}; correct it or upgrade Bayplan")
        observed = ObservedGroup(self._key(shown), meta.uid, meta.generation, shown.status, self.version)
        self._accepted.hold(observed, UnsupportedGroupError([problem]))

    def _deleted(self, deleted: T) -> None:
        key = self._key(deleted)
        self._unseen.discard(key)
        self._latest.pop(key, None)
        self._accepted.delete(key)

    def _key(self, group: T) -> GroupKey:
        return GroupKey(self._api.source, group.metadata.namespace, group.metadata.name)
