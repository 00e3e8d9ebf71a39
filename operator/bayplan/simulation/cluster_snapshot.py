"""A scheduler loaded once from a cluster, for commands that dry-run decisions.

Lists what the operator watches, validates the custom resources as the operator does, and writes nothing: the writes of
its scheduler end in a cluster in memory.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from bayplan.gangs.group_listing import list_groups
from bayplan.kube.custom_resources import CustomResources
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.system_clock import SystemClock
from bayplan.kube.watches.cluster_informers import STORAGE, WORKLOADS
from bayplan.kube.watches.device_informers import API as DEVICE_API
from bayplan.kube.watches.device_informers import OPTIONAL as OPTIONAL_DEVICES
from bayplan.kube.watches.device_informers import REQUIRED as REQUIRED_DEVICES
from bayplan.kube.watches.object_lists import list_objects
from bayplan.profiles.desired_profiles import desired_state
from bayplan.profiles.plugin_config_validation import PluginConfigValidation
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.scheduler_profile import SchedulerProfile
from bayplan.simulation.memory_cluster import MemoryCluster
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError, ForbiddenError, NotFoundError
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import DEFAULT_SCHEDULER_NAME, Pod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler import Scheduler, SchedulerOptions


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
    """List a cluster.

    Args:
        connection: Connection to its API server.
        options: The scheduler's settings.

    Returns:
        The snapshot. A resource that may not be listed, other than nodes and pods, is left out with a notice.

    Raises:
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
        ConfigError: The profiles contradict each other.
        RegistryError: An installed plugin cannot be used.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    snapshot = ClusterSnapshot(Scheduler(SystemClock(), MemoryCluster(), options, registry))
    scheduler = snapshot.scheduler
    await _read_profiles(connection, snapshot)
    for path, kind in WORKLOADS.items():
        for shown in await _listed(connection, path, kind, snapshot):
            scheduler.workload_feed.added(shown)
    for path, kind in STORAGE.items():
        for shown in await _listed(connection, path, kind, snapshot):
            scheduler.storage_feed.added(shown)
    await _read_devices(connection, snapshot)
    for declared in scheduler.decoded.kinds:
        for shown in await _listed(connection, declared.path, declared.struct, snapshot):
            scheduler.declared_feeds[declared.path].added(shown)
    snapshot.notices += await list_groups(connection, scheduler.group_feed)
    nodes, unreadable_nodes = await list_objects(connection, "/api/v1/nodes", scheduler.decoded.node)
    pods, unreadable_pods = await list_objects(connection, "/api/v1/pods", scheduler.decoded.pod)
    _note_unreadable(snapshot, "nodes", unreadable_nodes)
    _note_unreadable(snapshot, "pods", unreadable_pods)
    for node in nodes:
        scheduler.feed.node_added(node)
    for pod in pods:
        snapshot.pods[pod.key] = pod
        scheduler.feed.pod_added(pod)
    return snapshot


async def _read_devices(connection: ApiConnection, snapshot: ClusterSnapshot) -> None:
    """Read claims and devices; pods with claims are gated if one of the collections cannot be listed."""
    feed = snapshot.scheduler.device_feed
    for plural, kind in {**REQUIRED_DEVICES, **OPTIONAL_DEVICES}.items():
        try:
            objects, unreadable = await list_objects(connection, f"{DEVICE_API}/{plural}", kind)
        except NotFoundError:
            if plural in REQUIRED_DEVICES:
                feed.withhold("the API server does not serve resource.k8s.io/v1")
                return
            continue
        except ForbiddenError as error:
            snapshot.notices.append(f"{plural} cannot be listed; pods with resource claims are gated: {error}")
            feed.withhold(f"{plural} cannot be listed")
            continue
        _note_unreadable(snapshot, plural, unreadable)
        for shown in objects:
            feed.added(shown)


async def _listed(connection: ApiConnection, path: str, kind: Any, snapshot: ClusterSnapshot) -> list[Any]:
    plural = path.rpartition("/")[2]
    try:
        objects, unreadable = await list_objects(connection, path, kind)
    except (ForbiddenError, NotFoundError) as error:
        snapshot.notices.append(f"{plural} cannot be listed; decisions are made as if there were none: {error}")
        return []
    _note_unreadable(snapshot, plural, unreadable)
    return objects


def _note_unreadable(snapshot: ClusterSnapshot, plural: str, count: int) -> None:
    if count:
        snapshot.notices.append(f"{count} of the {plural} cannot be read and are left out")


async def _read_profiles(connection: ApiConnection, snapshot: ClusterSnapshot) -> None:
    resources = CustomResources(connection)
    try:
        configs, _ = await resources.list(PluginConfig.definition.plural)
        profiles, _ = await resources.list(SchedulerProfile.definition.plural)
    except NotFoundError:
        snapshot.notices.append("Bayplan's custom resources are not installed; the default profile is used")
        instance = snapshot.scheduler.build(ProfileConfig(scheduler_name=DEFAULT_SCHEDULER_NAME))
        snapshot.scheduler.activate([instance])
        return
    state = desired_state(
        profiles, configs, PluginConfigValidation(snapshot.scheduler.registry), allow_default_scheduler=True
    )
    instances: list[FrameworkInstance] = []
    for profile in state.profiles:
        problems = list(profile.problems)
        if profile.config is not None and not problems:
            try:
                instances.append(snapshot.scheduler.build(profile.config, profile.args))
            except ConfigError as error:
                problems += [profile.located(problem) for problem in error.problems]
        if problems:
            reasons = "; ".join(str(problem) for problem in problems)
            snapshot.notices.append(
                f"profile {profile.meta.name} is invalid and ignored (the operator may run an older one): {reasons}"
            )
    snapshot.scheduler.activate(instances)
