"""Host ports in dry runs: preemption, queueing events and reservations."""

from __future__ import annotations

from scheduler_core.config.plugin_set_types import PluginConfig
from scheduler_core.explain.nearest_nodes import near_misses
from scheduler_core.explain_assembly import Explainers
from scheduler_core.framework.cluster_events import NODE_ADD
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod_group import GroupTopology
from tests.support.affinities import named, node_affinity
from tests.support.builders import node, pod
from tests.support.gang_preemption import add_gang, evicted, running_pod, small_node, with_pod_groups
from tests.support.gang_traffic import Traffic
from tests.support.gangs import group, members, settle
from tests.support.scheduling import profile, rig

PORT = 80


async def test_a_gang_preempts_on_a_node_whose_port_becomes_free() -> None:
    """A gang does not preempt on a node where a pod of higher priority uses the same port as the victim.

    kube-scheduler's dry run regards that port as free. With one candidate, such a node would hide the one that helps.
    """
    args = {"minCandidateNodesAbsolute": 1, "minCandidateNodesPercentage": 0}
    config = profile().model_copy(update={"plugin_config": (PluginConfig(name="DefaultPreemption", args=args),)})
    made = with_pod_groups(rig(defaults=default_plugins(), serve=False))
    made.serve(config)
    made.add(small_node("helps"), running_pod("victim", "helps", ports=[PORT]))
    for number in range(20):
        name = f"shared-{number}"
        made.add(small_node(name), running_pod(f"low-{number}", name, ports=[PORT]))
        made.add(running_pod(f"high-{number}", name, 50, ports=[PORT]))
    add_gang(made, *members(1, priority=10, ports=[PORT]), of=group(min_member=1))
    await settle(made)
    assert evicted(made) == {"victim"}


def test_a_node_that_is_added_again_has_its_pods() -> None:
    """A pod that is bound to a deleted node uses its host port there when the node is added again."""
    made = rig(defaults=default_plugins())
    made.add(node("other"), pod("bound", node_name="back", ports=[PORT]))
    wants = pod(ports=[PORT], affinity=node_affinity(named("back")))
    made.add(wants)
    (instance,) = made.context.profiles
    found = made.scheduler.cycles.examiner.examine(instance, made.context.cache.columns.compile_pod(wants))
    misses = near_misses(made.context.cache.columns, instance, found, 3)
    unblocking = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations).unblocking
    added = [each for each in unblocking.find(instance, found, misses) if each.event == NODE_ADD.name]
    assert [each.fits_on for each in added] == [None]


async def test_an_empty_node_has_room_for_one_member_with_a_host_port() -> None:
    """Capacity is reserved in the zone with one node for each member, not in zones with one large node."""
    traffic = Traffic()
    for zone in "abcde":
        traffic.nodes({zone: 8}, labels={"zone": zone})
    for name in ("x", "y"):
        traffic.nodes({name: 2}, labels={"zone": "last"})
        traffic.add_running(name, 2)
    traffic.gang("big", 2, 2, topology=GroupTopology("zone"), member={"ports": [PORT]})
    assert (await traffic.reserve("big")).reservation == "zone=last"
