"""The informers of Dynamic Resource Allocation, which not every cluster serves.

Pods with resource claims are gated until claims, classes and slices are listed: which devices are in use is not known
before. So are pods with extended resources that no node offers, until it is known whether devices provide these. Other
pods never wait for these lists. DeviceTaintRules are watched where they are served.
"""

from __future__ import annotations

import asyncio
import logging
from functools import partial

from bayplan.kube.device_api import NOT_SERVED, OPTIONAL, REQUIRED, DeviceApi
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from scheduler_core.errors import ClusterWriteError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 30.0
"""Interval between lookups of the API."""

_FIRST_LOOKUP_SECONDS = 1.0

_NOT_LISTED = "the resource claims and devices of the cluster are not listed yet"


class DeviceInformers:
    """Watches claims, classes, slices and taint rules from when they are served.

    Args:
        informers: Makes the informers, and shows their state.
        api: Receives the version that is served; the writer of claims uses it.
    """

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
        """Look the API up and watch what is served, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                served = await self._served()
                if served is not None:
                    self._begin(served, tasks)
                is_complete = self._watched >= {*REQUIRED, *OPTIONAL}
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
