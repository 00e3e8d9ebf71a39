"""Sources of the profiles: custom resources, or one KubeSchedulerConfiguration.

Bayplan's own PodGroups are read only together with custom resources. The operator calls in this order:

    read() (again when a standby becomes the leader) ─▶ activate() ─▶ tasks() run ─▶ watches() run, too ─▶ finish()

Custom resources are listed beside kopf's watch: scheduling starts after the first list, and kopf does not report what
was deleted while its watch was interrupted. The leader creates the profiles of the setting ``initialProfiles`` if they
do not exist, because Helm cannot install an object together with the definition of its kind. The next upgrade adopts
them: they have the labels and annotations of the release, and the field manager is the tool's.
"""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import msgspec
import yaml

from bayplan.configuration.configuration_file import RunConfiguration, build_profiles
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.kube.credentials import ConfiguredAccess
from bayplan.kube.custom_resources import ControllerRevisions, CustomResources
from bayplan.kube.http.api_request import APPLY_PATCH, ApiRequest, InvalidRequestError, Lane, path_part
from bayplan.kube.http.connection import METADATA_ONLY, ApiConnection
from bayplan.kube.timing import Backoff
from bayplan.profiles.desired_profiles import ProfileOwnership
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.profiles.profile_status import ProfileReading
from bayplan.profiles.unserved_pods import UnservedPods
from bayplan.resources.conditions import ConditionState
from bayplan.resources.missing_references import missing_profiles
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.object_store import ListReceiver, ObjectReceiver
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import API_VERSION, GROUP, VERSION, CustomResource
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.settings.feature_gates import GATE_OF_KIND, FeatureGates, how_to_turn_on
from bayplan.settings.operator_settings import Settings, revision_namespace
from bayplan.texts import yaml_documents
from scheduler_core.errors import ClusterWriteError, ConfigError, NotFoundError, Problem
from scheduler_core.ports import Clock
from scheduler_core.scheduler import Scheduler

log = logging.getLogger(__name__)

INITIAL_PROFILES = "initial profiles"
"""Name of the task that ends after it has created them."""


class ProfileSource(ABC):
    """The operator's interface to a source of profiles; by default one that never changes and has no objects."""

    async def read(self) -> None:  # noqa: B027 - nothing to read
        """Read what the first cycle needs, however long it takes; may be called again before that cycle."""

    def obstacle(self) -> str:
        """Return why the profiles cannot be read; "" if no attempt has failed."""
        return ""

    @abstractmethod
    def activate(self) -> None:
        """Make the profiles live."""

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return what runs beside the cycles until cancelled."""
        return {}

    def watches(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        """Return the watches, which run until cancelled."""
        return {}

    def reconciles(self) -> Mapping[tuple[str, str], int]:
        """Return the number of reconciles by resource and result."""
        return {}

    def conditions(self) -> Iterable[ConditionState]:
        """Return the conditions of profiles and plugin configurations, as last written."""
        return ()

    def readings(self) -> Iterable[ProfileReading] | None:
        """Return what is known about each SchedulerProfile; None if the profiles are not custom resources."""
        return None

    async def finish(self) -> None:  # noqa: B027 - no statuses
        """Write the last statuses."""


@dataclass(frozen=True, slots=True)
class ResourcePorts:
    """The ports that custom resources are read by, and the receiver of PodGroups.

    Attributes:
        make_review: Makes the review of the admission webhook; called in a thread, because it imports modules.
        reservations: Receiver of NodeReservations; None without the feature gate.
    """

    connection: ApiConnection
    access: ConfiguredAccess
    groups: BayplanGroups
    clock: Clock
    served: ProfileOwnership
    statuses_due: asyncio.Event = field(default_factory=asyncio.Event)
    on_served_elsewhere: Callable[[], None] = lambda: None
    make_review: Callable[[], Any] | None = None
    reservations: ObjectReceiver | None = None


class CustomResourceProfiles(ProfileSource):
    """SchedulerProfiles, PluginConfigs and PodGroups; raises ConfigError if the initial profiles are invalid."""

    def __init__(self, scheduler: Scheduler, ports: ResourcePorts, settings: Settings) -> None:
        clock = ports.clock
        resources = CustomResources(ports.connection)
        revisions = ControllerRevisions(ports.connection, revision_namespace(settings))
        self._ports = ports
        self._clock = clock
        self._webhook_settings = settings.webhook
        self._gates = FeatureGates(settings.feature_gates)
        self._controller = ProfileController(
            scheduler,
            ControllerPorts(revisions, resources, clock, ports.statuses_due, ports.on_served_elsewhere),
            allow_default_scheduler=settings.allow_default_scheduler,
            served=ports.served,
        )
        self._lists = ResourceLists(PROFILES, resources, self._controller, clock)
        self._unserved = UnservedPods(scheduler.context, self._controller.readings)
        self._group_lists = ResourceLists(GROUPS, resources, ports.groups, clock)
        self._reservation_lists = (
            None if ports.reservations is None else ResourceLists(RESERVATIONS, resources, ports.reservations, clock)
        )
        initial = [] if settings.initial_profiles is None else read_initial_profiles(Path(settings.initial_profiles))
        self._initial = InitialProfiles(ports.connection, clock, initial)

    async def read(self) -> None:
        """List the objects and the stored revisions; for PodGroups that cannot be listed only their pods wait."""
        self._ports.groups.unlisted("the PodGroups of bayplan.dev have not been listed yet")
        backoff = Backoff(0.5, 10.0)
        while await self._lists.attempt(self._controller.history.load) is not None:
            await self._clock.sleep(backoff.next_delay())
        error = await self._group_lists.attempt()
        if error is not None:
            self._ports.groups.unlisted(f"the PodGroups of bayplan.dev cannot be listed: {error}")
            self._group_lists.request()
        lists = self._reservation_lists
        if lists is not None and await lists.attempt() is not None:
            lists.request()

    def obstacle(self) -> str:
        return self._lists.last_failure

    def activate(self) -> None:
        self._controller.reconcile()

    def tasks(self) -> Mapping[str, Coroutine[Any, Any, None]]:
        lists = self._reservation_lists
        return {
            **({} if lists is None else {"lists of reservations": lists.run()}),
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
        if self._reservation_lists is not None:
            watched[NodeReservation] = handlers.Watched(self._ports.reservations, self._reservation_lists.request)
        async with asyncio.TaskGroup() as group:
            others = tuple(kind for kind in (NodeReservation, RebalancePlan) if kind not in watched)
            webhook = await self._webhook(handlers, group, others)
            await handlers.KopfOperator(self._ports.access, watched, webhook).run(self._clock)

    async def _webhook(self, handlers: Any, group: asyncio.TaskGroup, others: tuple[type[CustomResource], ...]) -> Any:
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
        plugin_configs = partial(self._controller.bodies, PluginConfig)
        return handlers.Webhook(settings.host_and_port, files, review, plugin_configs, self._missing, others)

    def _missing(self, resource: CustomResource) -> Sequence[Problem]:
        """Return warnings: names in an object that do not exist, and a feature gate without which it has no effect."""
        groups, kind = self._ports.groups, resource.definition.kind
        if isinstance(resource, PodGroup):
            return groups.missing_references(resource)
        gate, found = GATE_OF_KIND.get(kind), list[Problem]()
        if gate is not None and not self._gates.is_on(gate):
            found.append(Problem("", f"{kind} has no effect: its feature gate {gate} is off; {how_to_turn_on(gate)}"))
        # With a selection, other processes may serve other profiles.
        profiles = [] if self._ports.served.selection is not None else self._controller.bodies(SchedulerProfile)
        if isinstance(resource, NodeReservation):
            found += groups.missing_of_reservation(resource, profiles)
        elif isinstance(resource, RebalancePlan):
            found += missing_profiles(resource.spec.scope.profiles, profiles)
        return found

    def reconciles(self) -> Mapping[tuple[str, str], int]:
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


class ConfiguredProfiles(ProfileSource):
    """The profiles of one KubeSchedulerConfiguration; raises ConfigError with every problem of all of them."""

    def __init__(self, scheduler: Scheduler, configuration: RunConfiguration) -> None:
        self._scheduler = scheduler
        self._instances = build_profiles(scheduler, configuration)
        for note in configuration.configuration.notes():
            log.warning("%s: %s", configuration.path, note)

    def activate(self) -> None:
        self._scheduler.context.profiles.claim(instance.name for instance in self._instances)
        self._scheduler.activate(self._instances)
        log.info("Scheduling the pods of %s", ", ".join(instance.name for instance in self._instances))


_FIRST_BACKOFF_SECONDS = 0.5
_LONGEST_BACKOFF_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Listed:
    """The kinds to list, in the order in which they are listed, and how often."""

    what: str
    kinds: tuple[type[CustomResource], ...]
    seconds: float


PROFILES = Listed("profiles", (PluginConfig, SchedulerProfile), 15.0)
# There may be thousands of PodGroups, and a missed deletion leaves only a group that no pod names.
GROUPS = Listed("PodGroups", (PodGroup,), 60.0)
RESERVATIONS = Listed("NodeReservations", (NodeReservation,), 60.0)


class ListReader(Protocol):
    """Interface for listing custom resources; see :class:`bayplan.kube.custom_resources.CustomResources`."""

    async def list(self, plural: str) -> tuple[list[dict[str, Any]], str]: ...


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
        for kind in self._listed.kinds:
            bodies, version = await self._reader.list(kind.definition.plural)
            self._taker.listed(kind, bodies, version)
        self._last_failure = ""

    async def attempt(self, then: Callable[[], Awaitable[None]] | None = None) -> ClusterWriteError | None:
        """List once, and then call a function; log and return the error if one of them fails."""
        try:
            await self.list_once()
            if then is not None:
                await then()
        except ClusterWriteError as error:
            self.log_failure(error)
            return error
        return None

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
            if await self.attempt() is None:
                backoff.reset()
                delay = self._listed.seconds
            else:
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


_MANAGED_BY = "app.kubernetes.io/managed-by"
_FIELD_MANAGER = "bayplan"
_FIRST_CREATION_SECONDS, _LONGEST_CREATION_SECONDS = 0.5, 30.0


def read_initial_profiles(path: Path) -> list[dict[str, Any]]:
    """Read a file of named SchedulerProfiles; raises ConfigError if it cannot be read, or has other objects."""
    try:
        found = [one for one in yaml_documents.load_all(path.read_text(encoding="utf-8")) if one is not None]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError([Problem("initialProfiles", f"{path} cannot be read: {error}")]) from error
    kind = (API_VERSION, SchedulerProfile.definition.kind)
    for index, one in enumerate(found):
        if not isinstance(one, dict) or (one.get("apiVersion"), one.get("kind")) != kind or not _name(one):
            problem = f"document {index + 1} of {path} must be a SchedulerProfile of {API_VERSION} with metadata.name"
            raise ConfigError([Problem("initialProfiles", problem)])
    return found


class InitialProfiles:
    """Creation of profiles; an existing profile is never changed."""

    def __init__(self, connection: ApiConnection, clock: Clock, profiles: list[dict[str, Any]]) -> None:
        self._connection = connection
        self._clock = clock
        self._profiles = profiles

    async def run(self) -> None:
        """Create those that do not exist; a profile that the API server rejects is logged and left out."""
        for profile in self._profiles:
            await self._create(profile)

    async def _create(self, profile: dict[str, Any]) -> None:
        backoff, last = Backoff(_FIRST_CREATION_SECONDS, _LONGEST_CREATION_SECONDS), ""
        while True:
            try:
                await self._create_unless_present(profile)
            except InvalidRequestError as error:
                log.error(  # noqa: TRY400 - the message of the API server is enough
                    "SchedulerProfile %s of initialProfiles is invalid; correct it: %s", _name(profile), error
                )
            except ClusterWriteError as error:
                # A refusal may end, too: a new role binding takes effect after a moment.
                if str(error) != last:
                    last = str(error)
                    log.warning("Cannot create SchedulerProfile %s, retrying: %s", _name(profile), last)
                await self._clock.sleep(backoff.next_delay())
                continue
            return

    async def _create_unless_present(self, profile: dict[str, Any]) -> None:
        path = f"/apis/{GROUP}/{VERSION}/{SchedulerProfile.definition.plural}/{path_part(_name(profile))}"
        try:
            await self._connection.request(ApiRequest("GET", path, lane=Lane.READS, accept=METADATA_ONLY))
        except NotFoundError:
            manager = (profile["metadata"].get("labels") or {}).get(_MANAGED_BY, _FIELD_MANAGER).lower()
            body = msgspec.json.encode(profile)
            params = (("fieldManager", manager),)
            await self._connection.request(
                ApiRequest("PATCH", path, body, content_type=APPLY_PATCH, params=params, accept=METADATA_ONLY)
            )
            log.info("Created SchedulerProfile %s", _name(profile))


def _name(profile: dict[str, Any]) -> str:
    return str(yaml_documents.value_at(profile, "metadata", "name") or "")
