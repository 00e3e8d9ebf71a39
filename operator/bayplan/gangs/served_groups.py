"""PodGroups of an API that not every cluster serves.

Owns the search for the API and the objects once it is found. Must not know what the objects mean: a translation is
given. Why it is looked for again and again: the API is often installed after the scheduler, by who deploys the first
gang, and no event tells of it that every account may watch.

    unknown --not served--> absent --served, looked every 30 s--> watching
    unknown --served--> watching: labels count, objects are listed and watched

There is no way back: a CustomResourceDefinition that is taken away takes its objects along, each told as deleted, and
pods that still name one wait for it as they do for any group that is missing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
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


class GroupApi(Struct, Generic[T], frozen=True):
    """An API of PodGroups.

    Attributes:
        source: Its group.
        versions: Versions of it that are known, the newest first; the first that is served is read.
        kind: What its objects are decoded as.
        translate: Makes the core's model of one; raises ConfigError.
    """

    source: GroupSource
    versions: tuple[str, ...]
    kind: type[T]
    translate: Callable[[T], PodGroup]


SCHEDULER_PLUGINS_API = GroupApi(
    GroupSource.SCHEDULER_PLUGINS, ("v1alpha1",), SchedulerPluginsGroup, from_scheduler_plugins
)
NATIVE_API = GroupApi(GroupSource.NATIVE, ("v1alpha2",), NativeGroup, from_native)


class _ServedResource(Struct, frozen=True, gc=False):
    name: str


class _ServedResources(Struct, frozen=True, gc=False):
    resources: list[_ServedResource] | None = None


_SERVED = msgspec.json.Decoder(_ServedResources)


async def served_version(connection: ApiConnection, group: str, versions: Sequence[str], plural: str) -> str | None:
    """Ask which version of a group serves a resource.

    Args:
        connection: To the API server.
        group: The API group.
        versions: In the order of preference.
        plural: Of the resource.

    Returns:
        The first that does, None when none does.

    Raises:
        ClusterWriteError: The API server could not be asked, or answered what cannot be read.
    """
    for version in versions:
        path = f"/apis/{group}/{version}"
        try:
            answer = await connection.request(ApiRequest("GET", path, lane=Lane.READS))
            found = _SERVED.decode(answer)
        except NotFoundError:
            continue
        except msgspec.DecodeError as error:
            raise ClusterWriteError(f"GET {path}: the answer cannot be read: {error}") from error
        if any(resource.name == plural for resource in found.resources or ()):
            return version
    return None


class ServedGroups(Generic[T]):
    """The groups of one API, from the moment it is served.

    Args:
        api: The API.
        connection: To the API server.
        informers: Watch the objects, and hold the first cycle back until it is known whether there can be any.
        taker: Is told what is in force.
        clock: Time.

    Attributes:
        version: The version that is read; empty as long as none is served.
        resource: The name among the informers.
        on_served: Told when the API has begun to count.
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
        self._trouble = ""
        self.version = ""
        self.resource = f"{_PLURAL}.{api.source.value}"
        self.on_served: list[Callable[[GroupSource], None]] = []
        informers.expect(self.resource, lambda: self._trouble)

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
        source = self._api.source
        self._taker.serve(source)
        for told in self.on_served:
            told(source)
        log.info("PodGroups of %s/%s count from now on", source.value, self.version)
        path = f"/apis/{source.value}/{self.version}/{_PLURAL}"
        sink = FeedSink(self._came, self._changed, self._went)
        await self._informers.begin(self.resource, path, self._api.kind, sink).run()

    # -- looking ------------------------------------------------------------------------------------------------

    async def _found(self) -> str:
        """The version that is served, when one is."""
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS)
        while True:
            try:
                found = await served_version(self._connection, self._api.source.value, self._api.versions, _PLURAL)
            except ClusterWriteError as error:
                self._tell(error)
                if not _is_refused(error):
                    await self._clock.sleep(backoff.next_delay())
                    continue
                found = None
            else:
                self._trouble = ""
                backoff.reset()
            if found is not None:
                return found
            self._informers.absent(self.resource)
            await self._clock.sleep(LOOK_SECONDS)

    def _tell(self, error: ClusterWriteError) -> None:
        text = f"cannot learn whether {self._api.source.value} is served: {error}"
        if _is_refused(error):
            text += "; its PodGroups are left out until this account may read discovery (ClusterRole system:discovery)"
        if text != self._trouble:
            log.warning("%s", text)
        self._trouble = text

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
