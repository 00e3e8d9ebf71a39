"""What the API server serves: discovery, the version of ``resource.k8s.io`` that is used, and the server's version."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from bayplan.kube.http.connection import ApiConnection, ApiRequest, Lane
from bayplan.kube.http.deep_json import ObjectJsonDecoder
from scheduler_core.errors import ClusterWriteError, NotFoundError, SchedulerCoreError
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

T = TypeVar("T")


class _Resource(Struct, frozen=True, gc=False):
    name: str


class _Resources(Struct, frozen=True, gc=False):
    resources: list[_Resource] | None = None


async def served_resources(connection: ApiConnection, path: str) -> frozenset[str]:
    """Return the plural names, such as ``podgroups``, of a version of an API group; none if it is not served."""
    found = await discovered(connection, path, _Resources)
    return frozenset(each.name for each in (found.resources if found is not None else None) or ())


async def discovered(connection: ApiConnection, path: str, kind: type[T]) -> T | None:
    """Return the decoded response to a GET; None if there is no such path."""
    try:
        return ObjectJsonDecoder(kind).decode(await connection.request(ApiRequest("GET", path, lane=Lane.READS)))
    except NotFoundError:
        return None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ClusterWriteError(f"GET {path}: the response cannot be decoded: {error}") from error


DEVICE_GROUP = "resource.k8s.io"

# The fields that the structs of v1 name have the same form in v1beta2, the only version of Kubernetes 1.33.
DEVICE_VERSIONS = ("v1", "v1beta2")
"""In order of preference."""

NOT_SERVED = "the API server serves neither resource.k8s.io/v1 nor resource.k8s.io/v1beta2"

CLAIMS = "resourceclaims"

REQUIRED: Mapping[str, type[Any]] = {
    "deviceclasses": DeviceClass,
    "resourceslices": ResourceSlice,
    CLAIMS: ResourceClaim,
}
"""Struct of each collection that must be listed before claims are allocated."""

OPTIONAL: Mapping[str, type[Any]] = {"devicetaintrules": DeviceTaintRule}
"""Struct of each collection that older servers lack."""


class DeviceApi:
    """The version that is used; its path, such as ``/apis/resource.k8s.io/v1``, is final when anything was read."""

    def __init__(self) -> None:
        self.path = _path(DEVICE_VERSIONS[0])
        self._is_found = False

    async def paths(self, connection: ApiConnection) -> dict[str, str]:
        """Look up which collections are served.

        The required ones are all of one version, the newest that has them. An optional one may be of an older version.

        Returns:
            Path by resource; empty if no version has the required ones.
        """
        found: dict[str, str] = {}
        for path in map(_path, DEVICE_VERSIONS):
            served = await served_resources(connection, path)
            # A version that is served later is not used: objects have been read in the one that was found first.
            if not found and served >= REQUIRED.keys() and (path == self.path or not self._is_found):
                self.path, self._is_found = path, True
                found = {name: f"{path}/{name}" for name in REQUIRED}
            if found:
                # Kubernetes 1.36 has DeviceTaintRules in v1beta2 only.
                found |= {name: f"{path}/{name}" for name in served & OPTIONAL.keys() - found.keys()}
                if found.keys() >= OPTIONAL.keys():
                    break
        return found


def _path(version: str) -> str:
    return f"/apis/{DEVICE_GROUP}/{version}"


SUPPORTED_RELEASES = ("1.37", "1.36", "1.35")
"""Minor versions of Kubernetes that Bayplan is tested with, newest first."""

LOOKUP_SECONDS = 300.0
"""Interval between lookups."""

_RETRY_SECONDS = 30.0
_PAGED_LISTS = "lists by watch (feature gate WatchList): lists are read in pages"


class _Api(Struct, frozen=True):
    """API that older servers lack, and what does not work without it."""

    version: str
    resource: str
    consequence: str
    older: tuple[str, ...] = ()


_NEWER_APIS = (
    _Api(
        "scheduling.k8s.io/v1beta1",
        "podgroups",
        "pods with spec.schedulingGroup wait unless the server has an older version of this API that Bayplan reads",
    ),
    _Api(
        "resource.k8s.io/v1",
        "resourceclaims",
        "there are no devices for pods with resource claims",
        older=("resource.k8s.io/v1beta2",),
    ),
)


class ServerSupport(Struct, frozen=True, rename="camel"):
    """API server as far as its version matters.

    Attributes:
        version: Its version, such as v1.37.1; "" if it is not known.
        group_versions: PodGroups and CompositePodGroups of other APIs that are read, by resource and version, such as
            podgroups.scheduling.k8s.io/v1beta1.
    """

    version: str = ""
    is_supported: bool = True
    missing: tuple[str, ...] = ()
    group_versions: tuple[str, ...] = ()


class _Version(Struct, frozen=True, rename="camel"):
    git_version: str = ""
    major: str = ""
    minor: str = ""


class ServerWatch:
    """Looks up the API server's version and APIs, and logs them when they change."""

    def __init__(self, connection: ApiConnection, reads_pages: Callable[[], bool], clock: Clock) -> None:
        self._connection = connection
        self._reads_pages = reads_pages
        self._clock = clock
        self.support = ServerSupport()

    async def run(self) -> None:
        while True:
            try:
                await self.look_up()
            except SchedulerCoreError as error:
                log.debug("the version of the API server cannot be determined: %s", error)
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._clock.sleep(LOOKUP_SECONDS)

    async def look_up(self) -> None:
        """Look up once; raises ClusterWriteError if a request failed, or its response cannot be decoded."""
        version = await discovered(self._connection, "/version", _Version) or _Version()
        # Some providers append a plus sign to the minor version.
        release = f"{version.major}.{version.minor.rstrip('+')}"
        missing = [
            f"{api.resource} of {api.version}: {api.consequence}" for api in _NEWER_APIS if not await self._serves(api)
        ]
        if self._reads_pages():
            missing.append(_PAGED_LISTS)
        found = ServerSupport(version.git_version, release in SUPPORTED_RELEASES, tuple(missing))
        if found != self.support:
            self.support = found
            _report(found)

    async def _serves(self, api: _Api) -> bool:
        for version in (api.version, *api.older):
            if api.resource in await served_resources(self._connection, f"/apis/{version}"):
                return True
        return False


def _report(found: ServerSupport) -> None:
    lacks = f"; it does not have {'; nor '.join(found.missing)}" if found.missing else ""
    if found.is_supported:
        log.info("The API server is Kubernetes %s%s", found.version, lacks)
        return
    tested = ", ".join(SUPPORTED_RELEASES)
    log.warning("The API server is Kubernetes %s, Bayplan is tested with %s%s", found.version, tested, lacks)
