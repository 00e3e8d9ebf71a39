"""PodGroups of an API that not every cluster serves.

The API is looked for again and again, because it is often installed after the scheduler, by the user who deploys the
first gang, and no event reports it that every account may watch. Until its first list is complete the pods that name
one of its groups are held back, with the reason in each of these states:

    unknown --not served, in no version that is read, refused, server away--> looked for again
       |                                                                          |
       +--served--> listing --first list complete--> watching <------served-------+

There is no way back: a CustomResourceDefinition that is deleted takes its objects along, each reported as deleted, and
pods that still name one wait for it as they do for any group that is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any, Generic, Protocol, TypeVar

import msgspec
from msgspec import Struct

from bayplan.cluster_informers import ClusterInformers, FeedSink
from bayplan.gangs.group_models import NativeGroup, SchedulerPluginsGroup
from bayplan.gangs.group_translation import from_native, from_scheduler_plugins
from bayplan.gangs.handed_groups import GroupObserver, GroupTaker, HandedGroups, ShownForm
from bayplan.kube.api_errors import UnauthorizedError
from bayplan.kube.backoff import Backoff
from bayplan.kube.connection import ApiConnection, ApiRequest, Lane
from scheduler_core.errors import ClusterWriteError, ConfigError, ForbiddenError, NotFoundError, Problem
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

LOOK_SECONDS = 30.0
"""Between two looks for an API that is not served."""

_PLURAL = "podgroups"
_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 10.0


class ShownGroup(Protocol):
    """A decoded PodGroup of any API."""

    @property
    def metadata(self) -> ObjectMeta:
        """Its metadata."""

    @property
    def spec(self) -> object:
        """Its spec."""

    @property
    def status(self) -> dict[str, Any]:
        """Its status as it is shown."""


T = TypeVar("T", bound=ShownGroup)
D = TypeVar("D")


class GroupApi(Struct, Generic[T], frozen=True):
    """An API of PodGroups.

    Attributes:
        source: Its group.
        versions: Versions of it that are known, the newest first; the first that is served is read.
        kind: What its objects are decoded as.
        translate: Makes the core's model of one; raises ConfigError.
        remedy: What to do where pods name its groups and it is not served.
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
    """The versions in which an API server serves PodGroups of one API.

    Attributes:
        read: The version to read; empty if none is served that is known.
        others: Versions that are served and not known, looked for only if ``read`` is empty.
    """

    read: str = ""
    others: tuple[str, ...] = ()


async def find_versions(connection: ApiConnection, api: GroupApi[Any]) -> FoundVersions:
    """Ask in which versions the PodGroups of an API are served.

    Args:
        connection: To the API server.
        api: The API; its versions are preferred in their order.

    Returns:
        What is served; nothing if the API server does not know the API.

    Raises:
        ClusterWriteError: The API server could not be asked, or its answer cannot be read.
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
        raise ClusterWriteError(f"GET {path}: the answer cannot be read: {error}") from error


def why_absent(api: GroupApi[Any], found: FoundVersions) -> str:
    """Return why no PodGroup of an API can be read, and what to do, for the pods that name one.

    Args:
        api: The API.
        found: What the API server serves.
    """
    group, read = api.source.value, " or ".join(api.versions)
    if found.others:
        return (
            f"the API server serves PodGroups of {group} in {', '.join(found.others)}, and this version of Bayplan "
            f"reads {read} only; upgrade Bayplan or serve {group}/{read}"
        )
    return f"the API server serves no PodGroups of {group}/{read}; {api.remedy}"


def why_refused(api: GroupApi[Any], error: ClusterWriteError) -> str:
    """Return why it is not known whether an API is served, and what to do.

    Args:
        api: The API.
        error: How the API server answered.
    """
    text = f"cannot learn whether {api.source.value} is served: {error}"
    return (
        f"{text}; allow this account to read discovery (ClusterRole system:discovery)" if _is_refused(error) else text
    )


class ServedGroups(Generic[T]):
    """The groups of one API, from the moment it is served.

    Args:
        api: The API.
        connection: To the API server.
        informers: Watch the objects.
        taker: Is told what is in force.
        clock: Time.

    Attributes:
        version: The version that is read; empty as long as none is served.
        resource: The name among the informers.
        settled: Set when the objects are known, or it is known why they are not.
    """

    def __init__(
        self,
        api: GroupApi[T],
        connection: ApiConnection,
        informers: ClusterInformers,
        taker: GroupTaker,
        clock: Clock,
    ) -> None:
        self._api = api
        self._connection = connection
        self._informers = informers
        self._taker = taker
        self._clock = clock
        self._handed = HandedGroups(taker)
        self._shown: dict[GroupKey, T] = {}
        self._reason = ""
        self._is_listed = False
        self.version = ""
        self.resource = f"{_PLURAL}.{api.source.value}"
        self.settled = asyncio.Event()

    @property
    def source(self) -> GroupSource:
        """The API's group."""
        return self._api.source

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """What is wrong with objects whose present form is not in force."""
        return self._handed.problems

    @property
    def observers(self) -> list[GroupObserver]:
        """Who is told of every form that was judged."""
        return self._handed.observers

    def shown(self, key: GroupKey) -> T | None:
        """The newest known form of an object, whether it is in force or not."""
        return self._shown.get(key)

    async def run(self) -> None:
        """Look for the API until it is served, then watch; until cancelled."""
        self.version = await self._found()
        path = f"/apis/{self.source.value}/{self.version}/{_PLURAL}"
        sink = FeedSink(self._came, self._changed, self._went, self._listed)
        informer = self._informers.begin(self.resource, path, self._api.kind, sink)
        informer.on_trouble = self._not_listed
        await informer.run()

    # -- looking ------------------------------------------------------------------------------------------------

    async def _found(self) -> str:
        """Return the version that is served, once one is."""
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        while True:
            delay = LOOK_SECONDS
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
            log.log(level, "Pods that name a PodGroup of %s are held back: %s", self.source.value, reason)
        self._reason = reason
        self._taker.withhold(self.source, reason)
        self.settled.set()

    def _not_listed(self, trouble: str) -> None:
        if not self._is_listed:
            self._withhold(f"the PodGroups of {self.source.value} cannot be listed: {trouble}", logging.WARNING)

    def _listed(self) -> None:
        self._is_listed = True
        log.info("PodGroups of %s/%s are known", self.source.value, self.version)
        self._taker.serve(self.source)
        self.settled.set()

    # -- objects ------------------------------------------------------------------------------------------------

    def _came(self, shown: T) -> None:
        key = self._key(shown)
        self._shown[key] = shown
        form = ShownForm(key, shown.metadata.uid, shown.metadata.generation, shown.status)
        try:
            group = self._api.translate(shown)
        except ConfigError as error:
            self._handed.refuse(form, error)
        else:
            self._handed.accept(form, group)

    def _changed(self, old: T, shown: T) -> None:
        if old.spec == shown.spec and old.metadata.generation == shown.metadata.generation:
            # A status that was written, most often by this process.
            self._shown[self._key(shown)] = shown
        else:
            self._came(shown)

    def _went(self, gone: T) -> None:
        key = self._key(gone)
        self._shown.pop(key, None)
        self._handed.forget(key)

    def _key(self, shown: T) -> GroupKey:
        return GroupKey(self._api.source, shown.metadata.namespace, shown.metadata.name)


def _is_refused(error: ClusterWriteError) -> bool:
    """Whether the account has no right to ask, which asking again does not change."""
    return isinstance(error, ForbiddenError) and not isinstance(error, UnauthorizedError)
