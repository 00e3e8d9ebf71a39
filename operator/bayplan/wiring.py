"""Builds all parts of one process; each is complete when it is constructed, and none runs yet.

Two parts that use each other while the process runs are joined by a :class:`Late` reference; there are four such pairs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from bayplan.configuration.configuration_file import RunConfiguration
from bayplan.extenders.extender_clients import ClusterObjects, ExtenderClients
from bayplan.extenders.http_extender import CircuitOptions, HttpExtender
from bayplan.extenders.transport import AllowedFilesAndHosts
from bayplan.gangs.group_sources import GangAttempts, GroupSources, UsedApis
from bayplan.gangs.group_status import GroupStatusWrites, OtherProcesses
from bayplan.gangs.group_status_controller import GroupController, taken_room
from bayplan.gangs.helpful_node_search import HelpfulNodeSearch
from bayplan.gangs.owner_groups import OwnerGroups, owner_groups
from bayplan.introspection.cache_debugger import CacheDebugger
from bayplan.kube.credentials import ConfiguredAccess
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.leader_election import ElectionOptions, LeaderElection, LeaderEndpoint, WriteFence
from bayplan.kube.readiness import Readiness
from bayplan.kube.served_apis import DeviceApi, ServerWatch
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.cluster_informers import INFORMER_OPTIONS, ClusterInformers, DeviceInformers
from bayplan.kube.writes.claim_writes import ClaimWrites, StorageWrites
from bayplan.kube.writes.cluster_writer import KubeWriter, WriterOptions
from bayplan.process.copies import BackgroundDocuments, ForkedSearches
from bayplan.process.loop_liveness import SHADOW_CALL_SECONDS, LoopLiveness, PluginWatchdog
from bayplan.process.tracing import CycleTracer, tracer_of
from bayplan.profiles.desired_profiles import ProfileOwnership
from bayplan.profiles.profile_sources import ConfiguredProfiles, CustomResourceProfiles, ProfileSource, ResourcePorts
from bayplan.serving.deferred_server import DeferredServer, ServedParts
from bayplan.settings.feature_gates import (
    COMPATIBLE_POD_GROUPS,
    COMPOSITE_POD_GROUPS,
    DRA_WORKLOAD_RESOURCE_CLAIMS,
    KUEUE_ADMISSION_CHECK,
    NODE_RESERVATION,
    REBALANCE_PLAN,
    VOLCANO_POD_GROUPS,
    FeatureGates,
    with_gates,
)
from bayplan.settings.operator_settings import LeaderElectionSettings, Settings, revision_namespace
from scheduler_core.config.profile_config import Extender
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.metrics.attempt_reports import AttemptHistory
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey
from scheduler_core.scheduler import Scheduler, SchedulerOptions, SchedulerPorts

if TYPE_CHECKING:
    from bayplan.kueue.kueue_api import KueueAdmission
    from bayplan.rebalancing.plan_controller import RebalancePlanSource
    from bayplan.reservations.reservation_controller import ReservationController
    from bayplan.validation.admission_review import AdmissionReview
    from scheduler_core.recording.recorder import Recorder

PROFILES_READ = "profiles are being read"
SCHEDULER_STARTED = "the scheduler has not started"
_BINDS_PER_CONNECTION = 3

T = TypeVar("T")


class Late(Generic[T]):
    """Reference to a part that is built after a part that uses it."""

    def __init__(self) -> None:
        self._built: list[T] = []

    def __call__(self) -> T:
        """Return the part; called only while the process runs."""
        return self._built[0]

    def built(self, part: T) -> T:
        """Complete the reference, and return the part."""
        self._built.append(part)
        return part


@dataclass(frozen=True, slots=True)
class Parts:
    """All parts of one process.

    Attributes:
        owner_groups: None if no custom resources are read.
        kueue: None without the feature gate KueueAdmissionCheck.
        reservations: None without the feature gate NodeReservation, or custom resources.
        rebalancing: None without the feature gate RebalancePlan.
        profiles: Custom resources, or the file of ``--config``.
        presence: Holds the Lease without leader election; None with it, and with ``--config``, whose Lease may be that
            of kube-scheduler.
    """

    access: ConfiguredAccess
    clock: SystemClock
    connection: ApiConnection
    writer: KubeWriter
    scheduler: Scheduler
    tracer: CycleTracer | None
    watchdog: PluginWatchdog
    liveness: LoopLiveness
    readiness: Readiness
    informers: ClusterInformers
    devices: DeviceInformers
    extenders: ExtenderClients
    groups: GroupSources
    group_statuses: GroupController
    helpful_nodes: HelpfulNodeSearch
    owner_groups: OwnerGroups | None
    kueue: KueueAdmission | None
    reservations: ReservationController | None
    rebalancing: RebalancePlanSource | None
    profiles: ProfileSource
    debugger: CacheDebugger
    election: LeaderElection | None
    presence: LeaderElection | None
    http: DeferredServer | None
    server: ServerWatch
    recorder: Recorder | None


def build_parts(settings: Settings, access: ConfiguredAccess, configuration: RunConfiguration | None = None) -> Parts:
    """Build all parts, each from those before it."""
    cluster = _cluster(settings, access)
    core = _core(settings, cluster, configuration)
    groups = _groups(settings, cluster, core, configuration)
    profiles = _profiles(settings, cluster, core, groups, configuration)
    core.readiness.explain(PROFILES_READ, profiles.obstacle)
    server = ServerWatch(
        cluster.connection, lambda: any(informer.reads_pages for _, informer in core.informers), cluster.clock
    )
    rebalancing = _rebalancing(settings, cluster, core)
    shown = _Shown(groups.served, profiles, server, groups.sources, groups.reservations, rebalancing)
    election, http = _served(settings, cluster, core, shown)
    return Parts(
        access=access,
        clock=cluster.clock,
        connection=cluster.connection,
        writer=core.writer,
        scheduler=core.scheduler,
        tracer=core.tracer,
        watchdog=core.watchdog,
        liveness=LoopLiveness(settings.liveness_limit),
        readiness=core.readiness,
        informers=core.informers,
        devices=DeviceInformers(
            cluster.connection, core.informers, core.scheduler.device_feed, cluster.clock, cluster.device_api
        ),
        extenders=core.extenders,
        groups=groups.sources,
        group_statuses=groups.statuses,
        helpful_nodes=groups.helpful_nodes,
        owner_groups=groups.of_owners,
        kueue=_kueue(settings, cluster, core),
        reservations=groups.reservations,
        rebalancing=rebalancing,
        profiles=profiles,
        debugger=CacheDebugger(cluster.connection, core.scheduler),
        election=election,
        presence=None if configuration is not None else _presence(settings, cluster),
        server=server,
        http=http,
        recorder=core.recorder,
    )


@dataclass(frozen=True, slots=True)
class _Cluster:
    """The way to the API server; ``lease`` is None without leader election."""

    access: ConfiguredAccess
    gates: FeatureGates
    clock: SystemClock
    lease: ElectionOptions | None
    fence: WriteFence
    connection: ApiConnection
    device_api: DeviceApi


def _cluster(settings: Settings, access: ConfiguredAccess) -> _Cluster:
    clock, lease = SystemClock(), _lease_options(settings)
    fence = WriteFence(clock, "" if lease is None else lease.lease)
    connection = ApiConnection(access, _connection_options(settings), clock, fence.check)
    return _Cluster(access, FeatureGates(settings.feature_gates), clock, lease, fence, connection, DeviceApi())


@dataclass(frozen=True, slots=True)
class _Core:
    """The scheduler and its ports.

    ``statuses_due`` is set when statuses of profiles may have changed; ``attempts`` is None without the page.
    """

    scheduler: Scheduler
    writer: KubeWriter
    tracer: CycleTracer | None
    watchdog: PluginWatchdog
    readiness: Readiness
    informers: ClusterInformers
    extenders: ExtenderClients
    statuses_due: asyncio.Event
    recorder: Recorder | None
    attempts: AttemptHistory | None


def _core(settings: Settings, cluster: _Cluster, configuration: RunConfiguration | None) -> _Core:
    # The writer looks up pods in the informers, and extenders receive what informers have stored, while informers
    # deliver to the scheduler, which has the writer and makes the clients of extenders.
    late_informers, late_extenders = Late[ClusterInformers](), Late[ExtenderClients]()
    connection, clock = cluster.connection, cluster.clock

    def known_pod(namespace: str, name: str) -> Pod | None:
        return late_informers().pods.known.get(f"{namespace}/{name}")

    def make_extender(scheduler_name: str, extender: Extender) -> HttpExtender:
        return late_extenders().make(scheduler_name, extender)

    options = WriterOptions(bind_limit=settings.bind_concurrency, pod_lookup=known_pod)
    writer = KubeWriter(connection, options, clock)
    tracer, watchdog = tracer_of(settings.tracing, clock), PluginWatchdog(settings.plugin_time_budget)
    storage = StorageWrites(connection, options.request_seconds)
    claims = ClaimWrites(connection, options.request_seconds, cluster.device_api)
    shadow_watchdog = watchdog.shorter(SHADOW_CALL_SECONDS)
    attempts = AttemptHistory() if settings.serve_page else None
    ports = SchedulerPorts(
        storage,
        claims,
        tracer,
        watchdog,
        shadow_watchdog,
        make_extender,
        attempts=attempts,
        processes=ForkedSearches() if settings.search_in_background else None,
    )
    registry = in_tree_registry()
    registry.load_entry_points()
    recorder, core_options = None, _scheduler_options(settings, cluster.gates, configuration)
    if settings.record is None:
        scheduler = Scheduler(clock, writer, core_options, registry, ports=ports)
    else:
        # Imported here because most processes record nothing, and every module costs start-up time.
        from bayplan.recording import recorded_scheduler  # noqa: PLC0415

        scheduler, recorder = recorded_scheduler(settings, clock, writer, core_options, registry, ports=ports)
    if attempts is not None:
        GangAttempts(scheduler.context.queue.gangs, attempts, clock)
    readiness = Readiness((PROFILES_READ, SCHEDULER_STARTED))
    watches = msgspec.structs.replace(INFORMER_OPTIONS, stale_seconds=settings.max_watch_silence)
    informers = late_informers.built(ClusterInformers(connection, scheduler, clock, readiness, options=watches))
    statuses_due = asyncio.Event()
    extenders = late_extenders.built(
        ExtenderClients(
            ClusterObjects(connection, informers.nodes, informers.pods),
            clock,
            CircuitOptions(seed=settings.seed),
            _extender_bounds(settings) if configuration is None else None,
            on_change=statuses_due.set,
            write_fence=cluster.fence.check,
        )
    )
    return _Core(scheduler, writer, tracer, watchdog, readiness, informers, extenders, statuses_due, recorder, attempts)


@dataclass(frozen=True, slots=True)
class _Groups:
    """PodGroups, their statuses, those that are created for owners, and NodeReservations.

    Attributes:
        served: The profiles of this process.
    """

    sources: GroupSources
    statuses: GroupController
    helpful_nodes: HelpfulNodeSearch
    served: ProfileOwnership
    of_owners: OwnerGroups | None
    reservations: ReservationController | None


def _groups(settings: Settings, cluster: _Cluster, core: _Core, configuration: RunConfiguration | None) -> _Groups:
    # The controller reads the objects whose sources report to it.
    late_sources = Late[GroupSources]()

    def group_status(key: GroupKey) -> Mapping[str, Any] | None:
        return late_sources().status(key)

    connection, clock, served = cluster.connection, cluster.clock, ProfileOwnership(settings.selection)
    late_statuses = Late[GroupController]()
    helpful_nodes = HelpfulNodeSearch(
        core.scheduler, _documents(settings, core), clock, lambda key: late_statuses().mark(key)
    )
    statuses = GroupController(
        core.scheduler.context.queue.gangs,
        GroupStatusWrites(connection, core.writer.dispatcher),
        core.writer,
        clock,
        others=OtherProcesses(group_status, served.serves),
        new_nodes=helpful_nodes.of,
        taken=partial(taken_room, core.scheduler),
    )
    gates = cluster.gates
    apis = UsedApis(
        bayplan=configuration is None,
        others=gates.is_on(COMPATIBLE_POD_GROUPS),
        trees=gates.is_on(COMPOSITE_POD_GROUPS),
        claims=gates.is_on(DRA_WORKLOAD_RESOURCE_CLAIMS),
        volcano=gates.is_on(VOLCANO_POD_GROUPS),
    )
    sources = GroupSources(core.scheduler, core.informers, connection, clock, apis=apis, observer=statuses)
    of_owners = None
    if apis.bayplan:
        of_owners = owner_groups(core.scheduler, sources.bayplan, connection, core.informers, clock)
    reservations = None if configuration is not None else _reservations(settings, cluster, core)
    return _Groups(
        late_sources.built(sources), late_statuses.built(statuses), helpful_nodes, served, of_owners, reservations
    )


def _kueue(settings: Settings, cluster: _Cluster, core: _Core) -> KueueAdmission | None:
    if not cluster.gates.is_on(KUEUE_ADMISSION_CHECK):
        return None
    # Imported here because few processes answer Kueue, and the modules of dry runs cost start-up time.
    from bayplan.kueue.kueue_api import KueueAdmission  # noqa: PLC0415

    documents = _documents(settings, core)
    return KueueAdmission(core.scheduler, cluster.connection, core.informers, cluster.clock, documents)


def _documents(settings: Settings, core: _Core) -> BackgroundDocuments:
    return BackgroundDocuments(core.scheduler.context, ForkedSearches() if settings.search_in_background else None)


def _reservations(settings: Settings, cluster: _Cluster, core: _Core) -> ReservationController | None:
    if not cluster.gates.is_on(NODE_RESERVATION):
        return None
    # Imported here because the modules of dry runs cost start-up time.
    from bayplan.fit.room_search import FitDryRun  # noqa: PLC0415
    from bayplan.reservations.reservation_controller import (  # noqa: PLC0415
        ReservationController,
        ReservationWrites,
    )

    dry_run = FitDryRun(core.scheduler, _documents(settings, core))
    return ReservationController(core.scheduler, dry_run, ReservationWrites(cluster.connection), cluster.clock)


def _rebalancing(settings: Settings, cluster: _Cluster, core: _Core) -> RebalancePlanSource | None:
    if not cluster.gates.is_on(REBALANCE_PLAN):
        return None
    # Imported here because few processes make plans, and the modules cost start-up time.
    from bayplan.rebalancing.plan_controller import RebalancePlanSource  # noqa: PLC0415

    documents = _documents(settings, core)
    return RebalancePlanSource(core.scheduler, cluster.connection, core.informers, cluster.clock, documents)


def _profiles(
    settings: Settings, cluster: _Cluster, core: _Core, groups: _Groups, configuration: RunConfiguration | None
) -> ProfileSource:
    if configuration is not None:
        return ConfiguredProfiles(core.scheduler, configuration)
    resources = ResourcePorts(
        cluster.connection,
        cluster.access,
        groups.sources.bayplan,
        cluster.clock,
        groups.served,
        core.statuses_due,
        groups.statuses.reconcile_all,
        partial(_make_review, settings),
        groups.reservations,
    )
    return CustomResourceProfiles(core.scheduler, resources, settings)


def _make_review(settings: Settings) -> AdmissionReview:
    # Called in a thread when kopf has been imported; the rules need the modules of the simulation.
    from bayplan.validation.admission_review import AdmissionReview  # noqa: PLC0415

    return AdmissionReview(allow_default_scheduler=settings.allow_default_scheduler, selection=settings.selection)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What is served besides the core."""

    served: ProfileOwnership
    profiles: ProfileSource
    server: ServerWatch
    groups: GroupSources
    reservations: ReservationController | None
    rebalancing: RebalancePlanSource | None


def _served(
    settings: Settings, cluster: _Cluster, core: _Core, shown: _Shown
) -> tuple[LeaderElection | None, DeferredServer | None]:
    # The Lease announces the address of the server, which shows the holder of the Lease.
    late_http = Late[DeferredServer | None]()

    def own_endpoint() -> LeaderEndpoint | None:
        address, http = settings.advertise_address, late_http()
        return None if address is None or http is None else http.endpoint(address)

    election = None
    if cluster.lease is not None:
        election = LeaderElection(
            cluster.connection, cluster.lease, cluster.clock, cluster.fence, endpoint=own_endpoint
        )
    parts = ServedParts(
        scheduler=core.scheduler,
        informers=core.informers,
        readiness=core.readiness,
        connection=cluster.connection,
        clock=cluster.clock,
        writer=core.writer,
        extenders=core.extenders,
        gates=cluster.gates,
        profiles=shown.profiles,
        election=election,
        started=cluster.clock.now(),
        is_profiling_enabled=settings.enable_profiling,
        selector="" if settings.selection is None else settings.selection.text,
        serves=shown.served.serves,
        support=lambda: msgspec.structs.replace(shown.server.support, group_versions=shown.groups.versions()),
        attempts=core.attempts,
        background=_documents(settings, core),
        reservations=shown.reservations,
        plans=None if shown.rebalancing is None else shown.rebalancing.plans.plans,
    )
    address = settings.serve_host_and_port
    return election, late_http.built(None if address is None else DeferredServer(address, settings, parts))


def _lease_options(settings: Settings) -> ElectionOptions | None:
    if not settings.leader_election.leader_elect:
        return None
    return settings.leader_election.options(revision_namespace(settings), settings.selection)


def _presence(settings: Settings, cluster: _Cluster) -> LeaderElection | None:
    if cluster.lease is not None:
        return None
    options = settings.leader_election.options(revision_namespace(settings), settings.selection)
    if options.problems(""):
        # Durations matter only with leader election, where they are validated.
        options = LeaderElectionSettings(resource_name=options.name, resource_namespace=options.namespace).options("")
    # A fence of its own, which rejects nothing: this process schedules with and without the Lease.
    return LeaderElection(cluster.connection, options, cluster.clock, WriteFence(cluster.clock, options.lease))


def _extender_bounds(settings: Settings) -> AllowedFilesAndHosts:
    return AllowedFilesAndHosts(Path(settings.extender_files_directory), settings.allowed_extender_hosts)


def _connection_options(settings: Settings) -> ConnectionOptions:
    return ConnectionOptions(
        bind_connections=settings.bind_concurrency, qps=settings.client_qps, burst=settings.client_burst
    )


_CONTESTED_NODE_BACKOFF_SECONDS = 10.0


def _scheduler_options(
    settings: Settings, gates: FeatureGates, configuration: RunConfiguration | None
) -> SchedulerOptions:
    backoff = settings.contested_node_backoff
    if backoff is None:
        # A KubeSchedulerConfiguration decides as kube-scheduler, which does not avoid nodes.
        backoff = _CONTESTED_NODE_BACKOFF_SECONDS if configuration is None else 0.0
    options = SchedulerOptions(
        seed=settings.seed,
        percentage_of_nodes_to_score=settings.percentage_of_nodes_to_score,
        initial_backoff_seconds=float(settings.pod_initial_backoff_seconds),
        max_backoff_seconds=float(settings.pod_max_backoff_seconds),
        max_unschedulable_seconds=settings.pod_max_in_unschedulable_pods_duration,
        max_binding=_BINDS_PER_CONNECTION * settings.bind_concurrency,
        slow_cycle_seconds=settings.slow_cycle_threshold,
        gang_reservation_seconds=settings.gang_reservation_delay,
        foreign_gangs=settings.foreign_gangs,
        deletion_costs=True,
        contested_node_seconds=backoff,
    )
    return with_gates(options, gates)
