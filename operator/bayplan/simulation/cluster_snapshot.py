"""A scheduler loaded once from a cluster, for commands that dry-run decisions.

The custom resources are validated as the operator does, and nothing is written: the writes of the scheduler end in a
cluster in memory. Claims stay as they are, unlike in a simulation.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.timing import SystemClock
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.listed_cluster import list_cluster
from bayplan.simulation.memory_cluster import MemoryCluster
from bayplan.simulation.simulated_profiles import build_profiles
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
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

    Returns:
        The snapshot. A resource that may not be listed, other than nodes and pods, is left out with a notice.

    Raises:
        ClusterWriteError: Nodes, pods or profiles cannot be listed.
        RegistryError: An installed plugin cannot be used.
    """
    registry = in_tree_registry()
    registry.load_entry_points()
    scheduler = Scheduler(SystemClock(), MemoryCluster(), options, registry)
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
