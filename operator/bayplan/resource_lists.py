"""Lists of the custom resources beside kopf's watch.

Owns the first list, before which nothing is scheduled, and the repeated ones, which tell of deletions that a watch
missed while it was away. It must not judge anything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any, Protocol

from msgspec import Struct

from bayplan.kube.backoff import Backoff
from bayplan.object_store import Body
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile
from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.ports import Clock

log = logging.getLogger(__name__)

_FIRST_BACKOFF_SECONDS = 1.0


class Listed(Struct, frozen=True):
    """What is listed, and how often.

    Attributes:
        what: The kinds in a word, for the log.
        kinds: In the order in which they are to be known.
        seconds: Between two lists.
    """

    what: str
    kinds: tuple[type[CustomResource], ...]
    seconds: float


PROFILES = Listed("profiles", (PluginConfig, SchedulerProfile), 15.0)
# Of these there may be thousands, and a deletion that was missed leaves a group that nobody names.
GROUPS = Listed("PodGroups", (PodGroup,), 60.0)


class ListReader(Protocol):
    """Lists custom resources; see :class:`bayplan.kube.custom_resources.CustomResources`."""

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]:
        """All objects of a kind, and the list's resource version."""


class ListTaker(Protocol):
    """Takes lists.

    See :class:`bayplan.profile_controller.ProfileController`, of PodGroups
    :class:`bayplan.gangs.bayplan_groups.BayplanGroups`.
    """

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """All objects of a kind, as a list tells them."""


class ResourceLists:
    """Lists of some kinds.

    Args:
        listed: The kinds.
        reader: Lists them.
        taker: Is told of them.
        clock: Time.
    """

    def __init__(self, listed: Listed, reader: ListReader, taker: ListTaker, clock: Clock) -> None:
        self._listed = listed
        self._reader = reader
        self._taker = taker
        self._clock = clock
        self._wanted = asyncio.Event()
        self._told = ""

    def ask(self) -> None:
        """Have the next list taken soon."""
        self._wanted.set()

    async def take(self) -> None:
        """List all kinds once.

        Raises:
            ClusterWriteError: One could not be listed.
        """
        for kind in self._listed.kinds:
            bodies, version = await self._reader.list(kind.definition.plural)
            self._taker.listed(kind, bodies, version)
        self._told = ""

    async def run(self) -> None:
        """List now and then and when asked, until cancelled."""
        backoff = Backoff(_FIRST_BACKOFF_SECONDS, self._listed.seconds)
        while True:
            timer = self._clock.call_later(self._listed.seconds, self._wanted.set)
            try:
                await self._wanted.wait()
            finally:
                timer.cancel()
            self._wanted.clear()
            try:
                await self.take()
                backoff.reset()
            except ClusterWriteError as error:
                self.tell(error)
                self._wanted.set()
                await self._clock.sleep(backoff.next_delay())

    def tell(self, error: ClusterWriteError) -> None:
        """Log why a list failed, once for each reason."""
        text = str(error)
        if isinstance(error, NotFoundError):
            text = (
                f"Bayplan's custom resources are not installed in this cluster; install them with "
                f"`kubectl apply -f crds/`, the operator goes on by itself then ({error})"
            )
        if text != self._told:
            log.error("Cannot list %s, trying again: %s", self._listed.what, text)
        self._told = text
