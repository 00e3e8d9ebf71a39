"""The informers of Dynamic Resource Allocation, which not every cluster serves.

Pods with resource claims are gated until claims, classes and slices are listed: which devices are in use is not known
before. Other pods never wait for these lists. DeviceTaintRules are watched where ``resource.k8s.io/v1`` has them, from
Kubernetes 1.37 on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

from bayplan.kube.http.api_discovery import served_resources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.watches.cluster_informers import ClusterInformers, FeedSink
from scheduler_core.errors import ClusterWriteError
from scheduler_core.feeds.object_feed import DeviceFeed
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.devices import DeviceClass, DeviceTaintRule, ResourceSlice
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

LOOKUP_SECONDS = 30.0
"""Interval between lookups of the API."""

_FIRST_LOOKUP_SECONDS = 1.0

API = "/apis/resource.k8s.io/v1"

CLAIMS = "resourceclaims"

REQUIRED: Mapping[str, type[Any]] = {
    "deviceclasses": DeviceClass,
    "resourceslices": ResourceSlice,
    CLAIMS: ResourceClaim,
}
"""Struct of each collection that must be listed before claims are allocated."""

OPTIONAL: Mapping[str, type[Any]] = {"devicetaintrules": DeviceTaintRule}
"""Struct of each collection that older servers lack."""

_NOT_SERVED = "the API server does not serve resource.k8s.io/v1"
_NOT_LISTED = "the resource claims and devices of the cluster are not listed yet"


class DeviceInformers:
    """Watches claims, classes, slices and taint rules from when they are served.

    Args:
        connection: Connection to the API server.
        informers: Makes the informers, and shows their state.
        feed: Receives the objects.
        clock: Source of time.
    """

    def __init__(self, connection: ApiConnection, informers: ClusterInformers, feed: DeviceFeed, clock: Clock) -> None:
        self._connection = connection
        self._informers = informers
        self._feed = feed
        self._clock = clock
        self._listed: set[str] = set()
        self._watched: set[str] = set()
        feed.withhold(_NOT_LISTED)

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

    def _begin(self, served: frozenset[str], tasks: asyncio.TaskGroup) -> None:
        if not served >= REQUIRED.keys() and not self._watched:
            self._feed.withhold(_NOT_SERVED)
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
                )
                informer = self._informers.begin(resource, f"{API}/{resource}", kind, sink)
                tasks.create_task(informer.run())

    def _synced(self, resource: str) -> None:
        self._listed.add(resource)
        if self._listed >= self._watched and self._listed >= REQUIRED.keys():
            self._feed.withhold("")

    def _not_listed(self, resource: str, trouble: str) -> None:
        if resource not in self._listed:
            self._feed.withhold(f"the {resource} of resource.k8s.io/v1 cannot be listed: {trouble}")

    async def _served(self) -> frozenset[str] | None:
        """Return the resources of the API; None if that cannot be determined."""
        try:
            return await served_resources(self._connection, API)
        except ClusterWriteError as error:
            log.debug("It cannot be determined whether resource.k8s.io/v1 is served: %s", error)
            return None
