"""Sources of the profiles: custom resources, or one KubeSchedulerConfiguration.

Bayplan's own PodGroups are read only together with custom resources. The operator calls in this order:

    read() (again when a standby becomes the leader) ─▶ activate() ─▶ tasks() run ─▶ watches() run, too ─▶ finish()
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from bayplan.configuration.configuration_file import RunConfiguration, build_profiles
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.kube.credentials import ConfiguredAccess
from bayplan.kube.custom_resources import ControllerRevisions, CustomResources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.timing import Backoff
from bayplan.profiles.custom_resource_lists import GROUPS, PROFILES, ResourceLists
from bayplan.profiles.desired_profiles import ProfileOwnership
from bayplan.profiles.initial_profiles import InitialProfiles, read_initial_profiles
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.unserved_pods import UnservedPods
from bayplan.resources.conditions import ConditionState
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings.operator_settings import Settings, revision_namespace
from scheduler_core.errors import ClusterWriteError
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

INITIAL_PROFILES = "initial profiles"
"""Name of the task that ends after it has created them."""


class ProfileSource(Protocol):
    """The operator's interface to a source of profiles."""

    async def read(self) -> None:
        """Read what the first cycle needs, however long it takes; may be called again before that cycle."""

    def obstacle(self) -> str:
        """Return why the profiles cannot be read; "" if no attempt has failed."""

    def activate(self) -> None:
        """Make the profiles live."""

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return what runs beside the cycles until cancelled."""

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the watches, which run until cancelled."""

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """Return the number of reconciles by resource and result."""

    def conditions(self) -> Iterable[ConditionState]:
        """Yield the conditions of profiles and plugin configurations, as last written."""

    def readings(self) -> Iterable[ProfileReading] | None:
        """Yield what is known about each SchedulerProfile; None if the profiles are not custom resources."""

    async def finish(self) -> None:
        """Write the last statuses."""


@dataclass(frozen=True, slots=True)
class ResourcePorts:
    """The ports that custom resources are read by, and the receiver of PodGroups.

    Attributes:
        make_review: Makes the review of the admission webhook; called in a thread, because it imports modules.
    """

    connection: ApiConnection
    access: ConfiguredAccess
    groups: BayplanGroups
    clock: Clock
    served: ProfileOwnership
    statuses_due: asyncio.Event = field(default_factory=asyncio.Event)
    on_served_elsewhere: Callable[[], None] = lambda: None
    make_review: Callable[[], Any] | None = None


class CustomResourceProfiles:
    """SchedulerProfiles and PluginConfigs, and PodGroups beside them, from the API server.

    Raises:
        ConfigError: The file of initial profiles is invalid.
    """

    def __init__(self, scheduler: Scheduler, ports: ResourcePorts, settings: Settings) -> None:
        clock = ports.clock
        resources = CustomResources(ports.connection)
        revisions = ControllerRevisions(ports.connection, revision_namespace(settings))
        self._ports = ports
        self._clock = clock
        self._webhook_settings = settings.webhook
        self._controller = ProfileController(
            scheduler,
            ControllerPorts(revisions, resources, clock, ports.statuses_due, ports.on_served_elsewhere),
            allow_default_scheduler=settings.allow_default_scheduler,
            served=ports.served,
        )
        self._lists = ResourceLists(PROFILES, resources, self._controller, clock)
        self._unserved = UnservedPods(scheduler.context, self._controller.readings)
        self._group_lists = ResourceLists(GROUPS, resources, ports.groups, clock)
        initial = [] if settings.initial_profiles is None else read_initial_profiles(Path(settings.initial_profiles))
        self._initial = InitialProfiles(ports.connection, clock, initial)

    async def read(self) -> None:
        """List the objects and the stored revisions.

        Returns without PodGroups if they cannot be listed: only pods that name one wait for them.
        """
        self._ports.groups.unlisted("the PodGroups of bayplan.dev have not been listed yet")
        await self._read_profiles()
        try:
            await self._group_lists.list_once()
        except ClusterWriteError as error:
            self._group_lists.log_failure(error)
            self._ports.groups.unlisted(f"the PodGroups of bayplan.dev cannot be listed: {error}")
            self._group_lists.request()

    async def _read_profiles(self) -> None:
        backoff = Backoff(0.5, 10.0)
        while True:
            try:
                await self._lists.list_once()
                await self._controller.history.load()
            except ClusterWriteError as error:
                self._lists.log_failure(error)
                await self._clock.sleep(backoff.next_delay())
            else:
                return

    def obstacle(self) -> str:
        return self._lists.last_failure

    def activate(self) -> None:
        self._controller.reconcile()

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Reconcile, write statuses, list periodically, and create the initial profiles."""
        return {
            "controller of profiles": self._controller.run(),
            "lists of profiles": self._lists.run(),
            "lists of groups": self._group_lists.run(),
            INITIAL_PROFILES: self._initial.run(),
            "reports of pods without a profile": self._unserved.run(),
        }

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Watch with kopf, which also serves the admission webhook."""
        return {"watch of custom resources": self._watch()}

    async def _watch(self) -> None:
        # Imported in a thread: pods are scheduled meanwhile.
        handlers = await asyncio.to_thread(import_module, "bayplan.profiles.kopf_handlers")
        profiles = handlers.Watched(self._controller, self._lists.request)
        groups = handlers.Watched(self._ports.groups, self._group_lists.request)
        watched = {SchedulerProfile: profiles, PluginConfig: profiles, PodGroup: groups}
        async with asyncio.TaskGroup() as group:
            webhook = await self._webhook(handlers, group)
            await handlers.KopfOperator(self._ports.access, watched, webhook).run(self._clock)

    async def _webhook(self, handlers: Any, group: asyncio.TaskGroup) -> Any:
        """Return the webhook of the settings, and keep its certificate valid; None for none."""
        settings, make_review = self._webhook_settings, self._ports.make_review
        if settings is None or make_review is None:
            return None
        given = Path(settings.tls_cert_file or ""), Path(settings.tls_private_key_file or "")

        async def files() -> tuple[Path, Path]:
            return given

        if settings.configuration is not None:
            certificates = await asyncio.to_thread(import_module, "bayplan.profiles.webhook_certificate")
            generated = certificates.GeneratedCertificate(self._ports.connection, self._clock, settings.configuration)
            group.create_task(generated.run())
            files = generated.files
        review = await asyncio.to_thread(make_review)
        plugin_configs, missing = partial(self._controller.bodies, PluginConfig), self._ports.groups.missing_references
        return handlers.Webhook(settings.host_and_port, files, review, plugin_configs, missing)

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """Return the controller's number of reconciles by resource and result."""
        return self._controller.reconciles

    def conditions(self) -> Iterable[ConditionState]:
        return self._controller.conditions()

    def readings(self) -> Iterable[ProfileReading]:
        return self._controller.readings()

    async def finish(self) -> None:
        try:
            await self._controller.publish(counts_too=True)
        except ClusterWriteError as error:
            log.warning("The last statuses could not be written; the next process writes them: %s", error)


class ConfiguredProfiles:
    """The profiles of one KubeSchedulerConfiguration, which never change.

    Raises:
        ConfigError: With every problem of every profile.
    """

    def __init__(self, scheduler: Scheduler, configuration: RunConfiguration) -> None:
        self._scheduler = scheduler
        self._instances = build_profiles(scheduler, configuration)
        for note in configuration.configuration.notes():
            log.warning("%s: %s", configuration.path, note)

    async def read(self) -> None:
        """Do nothing: the file is read already."""

    def obstacle(self) -> str:
        return ""

    def activate(self) -> None:
        self._scheduler.context.profiles.claim(instance.name for instance in self._instances)
        self._scheduler.activate(self._instances)
        log.info("Scheduling the pods of %s", ", ".join(instance.name for instance in self._instances))

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {}

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        return {}

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        return {}

    def conditions(self) -> Iterable[ConditionState]:
        return ()

    def readings(self) -> None:
        """Return None: there are no objects."""

    async def finish(self) -> None:
        """Do nothing: no object has a status."""
