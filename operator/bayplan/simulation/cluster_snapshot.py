"""A scheduler loaded once from a cluster, for commands that dry-run decisions.

The custom resources are validated as the operator does, and nothing is written: the writes of the scheduler end in a
cluster in memory. Claims stay as they are, unlike in a simulation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from bayplan.gangs.group_sources import list_groups
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.served_apis import NOT_SERVED, OPTIONAL, REQUIRED, DeviceApi
from bayplan.kube.timing import SystemClock
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS
from bayplan.kube.watches.informer import list_objects
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.simulation.memory_cluster import MemoryCluster, installed_plugins
from bayplan.simulation.simulated_profiles import build_profiles
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import ForbiddenError, NotFoundError, Problem
from scheduler_core.framework.object_reads import DecodedTypes
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource, PodGroup
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from scheduler_core.snapshot.indexes.device_index import DeviceObject

LIVE = Place("the cluster", 0)
"""Place of an object that was listed."""


async def list_cluster(connection: ApiConnection, decoded: DecodedTypes) -> AdmittedCluster:
    """List a cluster.

    Args:
        decoded: Types that nodes, pods and declared kinds are decoded to.

    Returns:
        Its objects, with notices about what could not be read.

    Raises:
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
    """
    notices: list[str] = []
    profiles, configs, installed = await _list_profiles(connection, notices)
    surroundings = [each for path, kind in WORKLOADS.items() for each in await _listed(connection, path, kind, notices)]
    storage = [each for path, kind in STORAGE.items() for each in await _listed(connection, path, kind, notices)]
    devices, devices_withheld = await _list_devices(connection, notices)
    declared = [
        (kind.path, each)
        for kind in decoded.kinds
        for each in await _listed(connection, kind.path, kind.struct, notices)
    ]
    groups = _ListedGroups()
    notices += await list_groups(connection, groups)
    nodes, unreadable_nodes = await list_objects(connection, "/api/v1/nodes", decoded.node)
    pods, unreadable_pods = await list_objects(connection, "/api/v1/pods", decoded.pod)
    _note_unreadable(notices, "nodes", unreadable_nodes)
    _note_unreadable(notices, "pods", unreadable_pods)
    return AdmittedCluster(
        nodes=tuple(nodes),
        pods=tuple(pods),
        storage=tuple(storage),
        devices=tuple(devices),
        devices_withheld=devices_withheld,
        declared=tuple(declared),
        surroundings=tuple(surroundings),
        profiles=profiles,
        plugin_configs=configs,
        serves_default=not installed,
        groups=tuple(groups.known),
        refused_groups=tuple(groups.refused),
        withheld_groups=tuple(groups.withheld),
        notices=tuple(notices),
    )


class _ListedGroups:
    """A :class:`GroupSink` that stores groups for a scheduler that is built later."""

    def __init__(self) -> None:
        # Never on: no scheduler runs yet.
        self.suspension = Suspension()
        self.known: list[PodGroup | CompositePodGroup] = []
        self.refused: list[tuple[GroupKey, tuple[Problem, ...]]] = []
        self.withheld: list[tuple[GroupSource, str]] = []

    def serve(self, source: GroupSource) -> None:
        """Do nothing: an API that is not withheld is served."""

    def withhold(self, source: GroupSource, reason: str) -> None:
        self.withheld.append((source, reason))

    def group_changed(self, group: PodGroup | CompositePodGroup) -> None:
        self.known.append(group)

    def group_deleted(self, key: GroupKey) -> None:
        self.known = [each for each in self.known if each.key != key]

    def group_refused(self, key: GroupKey, problems: Iterable[Problem]) -> None:
        self.refused.append((key, tuple(problems)))


async def _list_profiles(
    connection: ApiConnection, notices: list[str]
) -> tuple[tuple[Placed[dict[str, Any]], ...], tuple[Placed[dict[str, Any]], ...], bool]:
    """Return SchedulerProfiles and PluginConfigs, and whether their CustomResourceDefinitions are installed."""
    resources = CustomResources(connection)
    try:
        configs, _ = await resources.list(PluginConfig.definition.plural)
        profiles, _ = await resources.list(SchedulerProfile.definition.plural)
    except NotFoundError:
        notices.append("Bayplan's custom resources are not installed; the default profile is used")
        return (), (), False
    return tuple(Placed(each, LIVE) for each in profiles), tuple(Placed(each, LIVE) for each in configs), True


async def _list_devices(connection: ApiConnection, notices: list[str]) -> tuple[list[DeviceObject], str]:
    """Return classes, slices and claims, and why they are not known; "" if they are."""
    paths = await DeviceApi().paths(connection)
    if not paths:
        return [], NOT_SERVED
    found: list[DeviceObject] = []
    withheld = ""
    for plural, path in paths.items():
        try:
            objects, unreadable = await list_objects(connection, path, {**REQUIRED, **OPTIONAL}[plural])
        except ForbiddenError as error:
            notices.append(f"{plural} cannot be listed; pods with resource claims are gated: {error}")
            withheld = f"{plural} cannot be listed"
            continue
        _note_unreadable(notices, plural, unreadable)
        found += objects
    return found, withheld


async def _listed(connection: ApiConnection, path: str, kind: Any, notices: list[str]) -> list[Any]:
    plural = path.rpartition("/")[2]
    try:
        objects, unreadable = await list_objects(connection, path, kind)
    except (ForbiddenError, NotFoundError) as error:
        notices.append(f"{plural} cannot be listed; decisions are made as if there were none: {error}")
        return []
    _note_unreadable(notices, plural, unreadable)
    return objects


def _note_unreadable(notices: list[str], plural: str, count: int) -> None:
    if count:
        notices.append(f"{count} of the {plural} cannot be read and are left out")


@dataclass(slots=True)
class ClusterSnapshot:
    """State of a cluster at one moment.

    Attributes:
        scheduler: Scheduler with the cluster's nodes, pods and profiles; it does not run.
        pods: Pods by ``namespace/name``.
        notices: What could not be read, in sentences.
    """

    scheduler: Scheduler
    pods: dict[str, Pod] = field(default_factory=dict)
    notices: list[str] = field(default_factory=list)


async def take_snapshot(connection: ApiConnection, options: SchedulerOptions) -> ClusterSnapshot:
    """List a cluster; resources that may not be listed, except nodes and pods, are left out with a notice."""
    scheduler = Scheduler(SystemClock(), MemoryCluster(), options, installed_plugins())
    cluster = await list_cluster(connection, scheduler.decoded)
    built = build_profiles(scheduler, cluster)
    scheduler.activate(built.instances)
    report_surroundings(scheduler, cluster)
    for stored in cluster.storage:
        scheduler.storage_feed.added(stored)
    for device_object in cluster.devices:
        scheduler.device_feed.added(device_object)
    for node in cluster.nodes:
        scheduler.feed.node_added(node)
    for pod in cluster.pods:
        scheduler.feed.pod_added(pod)
    notices = [*cluster.notices, *built.notices]
    return ClusterSnapshot(scheduler, {pod.key: pod for pod in cluster.pods}, notices)


def report_surroundings(scheduler: Scheduler, cluster: AdmittedCluster) -> None:
    """Report what decisions depend on besides nodes, pods, volumes and devices, and which objects are not known."""
    for group in cluster.groups:
        scheduler.group_feed.group_changed(group)
    for key, problems in cluster.refused_groups:
        scheduler.group_feed.group_refused(key, problems)
    withheld = dict(cluster.withheld_groups)
    for source in GroupSource:
        if source in withheld:
            scheduler.group_feed.withhold(source, withheld[source])
        else:
            # A group of this API that is not among the objects does not exist.
            scheduler.group_feed.serve(source)
    if cluster.devices_withheld:
        scheduler.device_feed.withhold(cluster.devices_withheld)
    for surrounding in cluster.surroundings:
        scheduler.workload_feed.added(surrounding)
    for path, declared in cluster.declared:
        scheduler.declared_feeds[path].added(declared)
