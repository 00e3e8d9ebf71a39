"""Where the profiles come from: custom resources, or one KubeSchedulerConfiguration.

Owns what differs between the two ways to run: what is read before the first cycle, what goes on beside the cycles, what
is written at the end. Bayplan's own PodGroups come with custom resources only. It must not know when: the composition
root calls in order.

    read() (again when a standby becomes the leader) ─▶ activate() ─▶ tasks() run ─▶ finish()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct

from bayplan.gangs.bayplan_groups import BayplanGroups
from bayplan.kube.backoff import Backoff
from bayplan.kube.cluster_access import ConfiguredAccess
from bayplan.kube.connection import ApiConnection
from bayplan.kube.controller_revisions import ControllerRevisions
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube_configuration import RunConfiguration, build_profiles
from bayplan.profile_controller import ControllerPorts, ProfileController
from bayplan.resource_lists import GROUPS, PROFILES, ResourceLists
from bayplan.resources.conditions import ConditionState
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings import Settings, revision_namespace
from scheduler_core.errors import ClusterWriteError
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

if TYPE_CHECKING:
    from bayplan.handlers import Watchers

log = logging.getLogger(__name__)


class ProfileSource(Protocol):
    """What the operator needs of either."""

    async def read(self) -> None:
        """Read what the first cycle needs, however long it takes; may be called again before it."""

    def activate(self) -> None:
        """Make the profiles live."""

    def tasks(self, taken: Callable[[], None]) -> Mapping[str, Coroutine[Any, Any, None]]:
        """What runs beside the cycles until cancelled; ``taken`` is told when signal handlers were replaced."""

    def extenders_changed(self) -> None:
        """The state of an extender has changed."""

    def serves(self, scheduler_name: str) -> bool | None:
        """Whether this process serves a name; None where no process does that is known of."""

    def when_elsewhere(self, told: Callable[[], None]) -> None:
        """Have it told when a name has become one that another process serves, or is that no more."""

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """How often what was made so, by resource and result."""

    def conditions(self) -> Iterable[ConditionState]:
        """Conditions of profiles and plugin configurations, as they are written."""

    async def finish(self) -> None:
        """Write what is left to be told."""


class ResourcePorts(Struct, frozen=True):
    """What custom resources are read by, and who takes the groups among them.

    Attributes:
        connection: To the API server.
        access: Credentials, for kopf's own connection.
        groups: Takes PodGroups.
        clock: The time.
    """

    connection: ApiConnection
    access: ConfiguredAccess
    groups: BayplanGroups
    clock: Clock


class CustomResourceProfiles:
    """SchedulerProfiles and PluginConfigs, and PodGroups beside them, as they change.

    Args:
        scheduler: Makes and runs the profiles.
        ports: Where objects come from, and where the groups go.
        settings: Of the operator.
    """

    def __init__(self, scheduler: Scheduler, ports: ResourcePorts, settings: Settings) -> None:
        clock = ports.clock
        resources = CustomResources(ports.connection)
        revisions = ControllerRevisions(ports.connection, revision_namespace(settings))
        self._ports = ports
        self._clock = clock
        self._controller = ProfileController(
            scheduler,
            ControllerPorts(revisions, resources, clock),
            allow_default_scheduler=settings.allow_default_scheduler,
            selection=settings.selection,
        )
        self._lists = ResourceLists(PROFILES, resources, self._controller, clock)
        self._group_lists = ResourceLists(GROUPS, resources, ports.groups, clock)

    async def read(self) -> None:
        """List the objects and the kept revisions.

        Returns without PodGroups if these cannot be listed: only pods that name one wait for them.
        """
        self._ports.groups.unlisted("the PodGroups of bayplan.dev have not been listed yet")
        await self._read_profiles()
        try:
            await self._group_lists.take()
        except ClusterWriteError as error:
            self._group_lists.tell(error)
            self._ports.groups.unlisted(f"the PodGroups of bayplan.dev cannot be listed: {error}")
            self._group_lists.ask()

    async def _read_profiles(self) -> None:
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                await self._lists.take()
                await self._controller.history.load()
            except ClusterWriteError as error:
                self._lists.tell(error)
                await self._clock.sleep(backoff.next_delay())
            else:
                return

    def activate(self) -> None:
        """Reconcile for the first time."""
        self._controller.reconcile()

    def tasks(self, taken: Callable[[], None]) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Reconcile and tell, list now and then, and watch."""

        def spawned() -> None:
            taken()
            self._lists.ask()
            self._group_lists.ask()

        watchers: Watchers = {
            SchedulerProfile: self._controller,
            PluginConfig: self._controller,
            PodGroup: self._ports.groups,
        }
        return {
            "controller of profiles": self._controller.run(),
            "lists of profiles": self._lists.run(),
            "lists of groups": self._group_lists.run(),
            "watch of custom resources": _watch(self._ports, watchers, spawned),
        }

    def extenders_changed(self) -> None:
        """Write it into the statuses of the profiles that it belongs to."""
        self._controller.publish_soon()

    def serves(self, scheduler_name: str) -> bool | None:
        """Whether this process serves a name; None where no process does."""
        return self._controller.serves(scheduler_name)

    def when_elsewhere(self, told: Callable[[], None]) -> None:
        """Have it told when other names are served elsewhere."""
        self._controller.on_elsewhere = told

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """How often the controller made what so."""
        return self._controller.reconciles

    def conditions(self) -> Iterable[ConditionState]:
        """Those of the controller's objects."""
        return self._controller.conditions()

    async def finish(self) -> None:
        """Write the last statuses."""
        try:
            await self._controller.publish(counts_too=True)
        except ClusterWriteError as error:
            log.warning("The last statuses could not be written; the next process writes them: %s", error)


async def _watch(ports: ResourcePorts, watchers: Watchers, spawned: Callable[[], None]) -> None:
    """Watch the custom resources with kopf, which is imported in a thread: pods are scheduled meanwhile."""
    handlers = await asyncio.to_thread(import_module, "bayplan.handlers")
    await handlers.watch_custom_resources(ports.access, watchers, ports.clock, spawned)


class ConfiguredProfiles:
    """The profiles of one KubeSchedulerConfiguration, which never change.

    Args:
        scheduler: Makes and runs the profiles.
        configuration: The file.

    Raises:
        ConfigError: With every problem of every profile.
    """

    def __init__(self, scheduler: Scheduler, configuration: RunConfiguration) -> None:
        self._scheduler = scheduler
        self._instances = build_profiles(scheduler, configuration)

    async def read(self) -> None:
        """Nothing: the file was read before."""

    def activate(self) -> None:
        """Make the profiles live."""
        self._scheduler.activate(self._instances)
        log.info("Scheduling the pods of %s", ", ".join(instance.name for instance in self._instances))

    def tasks(self, taken: Callable[[], None]) -> Mapping[str, Coroutine[Any, Any, None]]:
        """None: nothing changes."""
        del taken
        return {}

    def extenders_changed(self) -> None:
        """Nothing: no object carries a status, and the log has told it."""

    def serves(self, scheduler_name: str) -> bool | None:
        """Of other processes nothing is known."""
        del scheduler_name
        return None

    def when_elsewhere(self, told: Callable[[], None]) -> None:
        """Nothing: that never changes."""
        del told

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """None: nothing changes."""
        return {}

    def conditions(self) -> Iterable[ConditionState]:
        """None: there are no objects."""
        return ()

    async def finish(self) -> None:
        """Nothing: no object carries a status."""
