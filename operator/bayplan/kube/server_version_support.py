"""What the API server lacks, compared with the newest release of Kubernetes that Bayplan supports.

Looked up at the start and periodically, because API servers are upgraded while the operator runs. Nothing depends on
the result: each part of the operator handles what is not served, and this module reports it in one place.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from bayplan.kube.http.api_discovery import discovered, served_resources
from bayplan.kube.http.connection import ApiConnection
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

SUPPORTED_RELEASES = ("1.37", "1.36", "1.35")
"""Minor versions of Kubernetes that Bayplan is tested with, newest first."""

LOOKUP_SECONDS = 300.0
"""Interval between lookups."""

_RETRY_SECONDS = 30.0
_PAGED_LISTS = "lists by watch (feature gate WatchList): lists are read in pages"


class _Api(Struct, frozen=True):
    """API that older servers lack.

    Attributes:
        consequence: What does not work without it.
        older: Versions that are read instead.
    """

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
        is_supported: Whether Bayplan is tested with this minor version.
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
    """Looks up the API server's version and APIs, and logs them when they change.

    Args:
        reads_pages: Returns whether the API server has refused to stream a list.

    Attributes:
        support: Result of the last lookup.
    """

    def __init__(self, connection: ApiConnection, reads_pages: Callable[[], bool], clock: Clock) -> None:
        self._connection = connection
        self._reads_pages = reads_pages
        self._clock = clock
        self.support = ServerSupport()

    async def run(self) -> None:
        """Look up periodically until cancelled."""
        while True:
            try:
                await self.look_up()
            except SchedulerCoreError as error:
                log.debug("the version of the API server cannot be determined: %s", error)
                await self._clock.sleep(_RETRY_SECONDS)
            else:
                await self._clock.sleep(LOOKUP_SECONDS)

    async def look_up(self) -> None:
        """Look up once.

        Raises:
            ClusterWriteError: A request failed, or its response cannot be decoded.
        """
        version = await discovered(self._connection, "/version", _Version) or _Version()
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
