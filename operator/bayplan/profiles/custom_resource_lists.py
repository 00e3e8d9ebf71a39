"""Lists of the custom resources beside kopf's watch.

Scheduling starts after the first list. kopf does not report what was deleted while its watch was interrupted, so a list
is requested whenever kopf lists; periodic lists handle again what failed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

from bayplan.kube.timing import Backoff
from bayplan.resources.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Listed:
    """The kinds to list, and how often.

    Attributes:
        kinds: In the order in which they are listed.
    """

    what: str
    kinds: tuple[type[CustomResource], ...]
    seconds: float


PROFILES = Listed("profiles", (PluginConfig, SchedulerProfile), 15.0)
# There may be thousands of PodGroups, and a missed deletion leaves only a group that no pod names.
GROUPS = Listed("PodGroups", (PodGroup,), 60.0)


class ListReader(Protocol):
    """Interface for listing custom resources; see :class:`bayplan.kube.custom_resources.CustomResources`."""

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        """Return all objects of a kind and the list's resource version."""


class ListReceiver(Protocol):
    """Receiver of lists.

    Implemented by :class:`bayplan.profiles.profile_controller.ProfileController` and, for PodGroups, by
    :class:`bayplan.gangs.bayplan_group_source.BayplanGroups`.
    """

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Replace all objects of a kind by a list."""


class ResourceLists:
    """Periodic lists of some kinds."""

    def __init__(self, listed: Listed, reader: ListReader, receiver: ListReceiver, clock: Clock) -> None:
        self._listed = listed
        self._reader = reader
        self._taker = receiver
        self._clock = clock
        self._wanted = asyncio.Event()
        self._last_failure = ""

    @property
    def last_failure(self) -> str:
        """Why the last list failed; "" if it succeeded."""
        return self._last_failure

    def request(self) -> None:
        self._wanted.set()

    async def list_once(self) -> None:
        """List all kinds once."""
        for kind in self._listed.kinds:
            bodies, version = await self._reader.list(kind.definition.plural)
            self._taker.listed(kind, bodies, version)
        self._last_failure = ""

    async def run(self) -> None:
        """List periodically and on request, until cancelled."""
        backoff, delay = Backoff(_FIRST_BACKOFF_SECONDS, _LONGEST_BACKOFF_SECONDS), self._listed.seconds
        while True:
            # A request also ends the wait after a failure: the API server may be back.
            timer = self._clock.call_later(delay, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                timer.cancel()
            self._wanted.clear()
            try:
                await self.list_once()
                backoff.reset()
                delay = self._listed.seconds
            except ClusterWriteError as error:
                self.log_failure(error)
                delay = backoff.next_delay()

    def log_failure(self, error: ClusterWriteError) -> None:
        """Log why a list failed, once for each reason."""
        text = str(error)
        if isinstance(error, NotFoundError):
            text = (
                f"Bayplan's custom resources are not installed in this cluster; install them with "
                f"`kubectl apply -f crds/`, then the operator continues by itself ({error})"
            )
        if text != self._last_failure:
            log.error("Cannot list %s, retrying: %s", self._listed.what, text)
        self._last_failure = text
