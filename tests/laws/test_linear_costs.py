"""Law: the cost of an event or a cycle grows at most linearly with every size that a user controls.

Each row is one size. Its cost is counted at a size and at four times that size, in calls of Python and C functions, in
executed lines, which also show loops that call nothing, and in the peak of the allocated memory, which also shows
arrays of one element for each pair. A cost that grows with the square of the size would be 16 times as high.
"""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, NamedTuple, Unpack

from scheduler_core.config.profile_config import Extender, ProfileConfig
from scheduler_core.dry_run_assembly import Explainers
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Container, ContainerPort, TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology, PodGroup
from scheduler_core.model.taints import Toleration
from scheduler_core.placement.requests import PlacementRequest
from scheduler_core.placement.reservations import conflicting_rows
from scheduler_core.ports import ExtenderVerdict
from scheduler_core.scheduler import SchedulerPorts
from tests.support.affinities import anti_affinity_to, term
from tests.support.builders import PodFields, node, pod
from tests.support.columns import columns
from tests.support.gang_preemption import running_pod, small_node
from tests.support.gangs import add_groups, composite_group, gang_of, group, leaf_group, member, members
from tests.support.node_reservations import Reservations
from tests.support.preemption import budget
from tests.support.presence import present
from tests.support.scheduling import DEFAULT_NAME, Rig, RigFields, default_rig
from tests.support.scripted_extender import ScriptedExtender
from tests.support.storage import capacity, claim, csi_driver, mounts, storage_class, volume
from tests.support.tables import table

GROWTH = 4
TOLERATED = 1.4
"""How much steeper than linear a cost may grow, for sorting and for rehashing."""

Act = Callable[[], Awaitable[object]]
"""What is measured; its inputs are prepared."""


class Cost(NamedTuple):
    """What an act costs; memory is the peak of what it allocates, in bytes."""

    calls: int
    lines: int
    memory: int


@dataclass
class Counter:
    """Counts calls while :meth:`note` is the profile function, and lines while :meth:`trace` is the trace function."""

    calls: int = 0
    lines: int = 0

    def note(self, _: FrameType, event: str, __: object) -> None:
        """Count a call of a Python or C function."""
        self.calls += event in {"call", "c_call"}

    def trace(self, _: FrameType, event: str, __: object) -> Callable[..., Any]:
        """Count an executed line."""
        self.lines += event == "line"
        return self.trace


async def _cost(prepare: Callable[[int], Act], size: int) -> Cost:
    calls, memory = await _calls_and_memory(prepare(size))
    return Cost(calls, await _lines(prepare(size)), memory)


async def _calls_and_memory(act: Act) -> tuple[int, int]:
    counter = Counter()
    gc.collect()
    gc.disable()
    tracemalloc.start()
    sys.setprofile(counter.note)
    try:
        await act()
        sys.setprofile(None)
        return counter.calls, tracemalloc.get_traced_memory()[1]
    finally:
        sys.setprofile(None)
        tracemalloc.stop()
        gc.enable()


async def _lines(act: Act) -> int:
    """Return the executed lines; none while a debugger or the measurement of coverage has the trace function."""
    counter, before = Counter(), sys.gettrace()
    if before is not None:
        return 0
    sys.settrace(counter.trace)
    try:
        await act()
    finally:
        sys.settrace(None)
    return counter.lines


def _made(**fields: Unpack[RigFields]) -> Rig:
    return default_rig(groups=GroupSource, **fields)


def _big_node() -> object:
    return node("big", allocatable={"cpu": "100k", "memory": "100Ti", "pods": "100k"})


async def _settle(made: Rig) -> None:
    async with made.running():
        await made.scheduler.until_idle()


# -- trees of groups ------------------------------------------------------------------------------------------------


def _chain(made: Rig, size: int) -> None:
    add_groups(made, *(composite_group(f"c{each}", 1, f"c{each - 1}" if each else "") for each in range(size)))


def _deep_tree(size: int) -> Act:
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        _chain(made, size)
        add_groups(made, leaf_group("deep", f"c{size - 1}"))
        made.add(pod("deep-0", group="deep"))
        await _settle(made)
        assert made.bound == {"deep-0": "big"}

    return act


def _deep_tree_without_room(size: int) -> Act:
    made = _made()
    made.add(node("small", allocatable={"cpu": "1", "pods": "5"}))
    _chain(made, size)
    add_groups(made, leaf_group("deep", f"c{size - 1}"))
    made.add(pod("deep-0", group="deep", requests={"cpu": "2"}))

    async def act() -> None:
        await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type] # the entry of the tree
        assert "minCount (1) cannot be satisfied" in made.condition.message

    return act


def _root_of_deep_tree(size: int) -> Act:
    """The root is created last."""
    made = _made()
    add_groups(made, leaf_group("deep", f"c{size - 1}"))
    made.add(pod("deep-0", group="deep"))
    add_groups(made, *(composite_group(f"c{each}", 1, f"c{each - 1}") for each in range(1, size)))

    async def act() -> None:
        add_groups(made, composite_group("c0", 1))
        assert len(made.queue.gangs.forest.trees) == 1

    return act


def _circle(size: int) -> Act:
    """The last group makes a chain of parents a circle, below which are as many gangs."""
    made = _made()
    _chain(made, size)
    add_groups(made, *(leaf_group(f"leaf{each}", f"c{each}") for each in range(size)))
    for each in range(size):
        made.add(pod(f"p{each}", group=f"leaf{each}"))

    async def act() -> None:
        add_groups(made, composite_group("c0", 1, f"c{size - 1}"))
        assert not made.queue.gangs.forest.trees

    return act


def _wide_tree(size: int) -> Act:
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        add_groups(made, composite_group("root", size))
        add_groups(made, *(leaf_group(f"leaf{each}", "root") for each in range(size)))
        made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))
        await _settle(made)
        assert len(made.bound) == size

    return act


def _wide_tree_deleted(size: int) -> Act:
    made = _made()
    add_groups(made, composite_group("root", size), *(leaf_group(f"leaf{each}", "root") for each in range(size)))
    made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))

    async def act() -> None:
        made.scheduler.group_feed.group_deleted(composite_group("root").key)
        assert not made.queue.gangs.forest.trees

    return act


def _comb(size: int) -> Act:
    """A chain of groups with one gang below each."""
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node

    async def act() -> None:
        _chain(made, size)
        add_groups(made, *(leaf_group(f"leaf{each}", f"c{each}") for each in range(size)))
        made.add(*(pod(f"p{each}", group=f"leaf{each}", requests={"cpu": "1m"}) for each in range(size)))
        await _settle(made)
        assert len(made.bound) == size

    return act


# -- topology domains -----------------------------------------------------------------------------------------------


def _hosts(size: int, **fields: object) -> Rig:
    made = _made()
    labels = [{"kubernetes.io/hostname": f"n{each}"} for each in range(size)]
    made.add(*(node(f"n{each}", labels=label, **fields) for each, label in enumerate(labels)))  # type: ignore[arg-type]
    return made


async def _cycle_of_gang(made: Rig) -> None:
    await made.scheduler.cycles.gangs.schedule(made.pop())  # type: ignore[arg-type] # the entry of the gang


def _one_node_domains(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, group(min_member=2, topology=GroupTopology("kubernetes.io/hostname")))
    made.add(*members(2, node_selector={"gpu": "yes"}))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert f"the nearest of {size} domains tried" in made.condition.message

    return act


def _one_node_domains_of_a_tree(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, composite_group("root", 1, topology=GroupTopology("kubernetes.io/hostname", is_required=True)))
    add_groups(made, leaf_group("leaf", "root", 2))
    made.add(*(pod(f"p{each}", group="leaf", node_selector={"gpu": "yes"}) for each in range(2)))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert f"0/{size} placements are available" in made.condition.message

    return act


def _explained_one_node_domains(size: int) -> Act:
    made = _hosts(size)
    add_groups(made, group(min_member=2, topology=GroupTopology("kubernetes.io/hostname")))
    made.add(*members(2, node_selector={"gpu": "yes"}))

    async def act() -> None:
        gang, (instance,) = gang_of(made), made.context.profiles
        explainers = Explainers(made.context, made.scheduler.cycles, made.scheduler.reservations)
        present(gang.entry)
        found = explainers.gangs.examine(PlacementRequest.of(gang, instance), gang, 3)
        assert found.tried == size

    return act


# -- preemption of gangs --------------------------------------------------------------------------------------------


def _full_cluster(nodes: int, victims: int, priorities: Callable[[int], int] = lambda _: 0) -> Rig:
    """Return a scheduler with nodes whose CPUs are used up by pods that a gang may evict."""
    made = _hosts(nodes, allocatable={"cpu": f"{victims}", "memory": "1Ti", "pods": "100k"})
    for number in range(nodes):
        made.add(*(running_pod(f"v{number}-{each}", f"n{number}", priorities(each)) for each in range(victims)))
    return made


def _preempting(made: Rig, cpus: Sequence[int], topology: GroupTopology | None = None, *, finds: bool = False) -> Act:
    """Return a cycle of a gang whose members, of these CPUs, preempt; unless *finds*, no node fits the last one."""
    add_groups(made, group("high", len(cpus), priority=5000, topology=topology))
    for number, cpu in enumerate(cpus):
        selector = {} if finds or number < len(cpus) - 1 else {"gpu": "yes"}
        requests = {"cpu": f"{cpu}m"}
        made.add(member(f"m{number}", "high", priority=5000, requests=requests, node_selector=selector))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert ("preempting: " in made.condition.message) is finds

    return act


def _distinct_preemptors(size: int) -> Act:
    return _preempting(_full_cluster(4, 60), [500 + each for each in range(size)])


def _equal_preemptors(size: int) -> Act:
    return _preempting(_full_cluster(4, 60), [500] * size)


def _distinct_preemptors_that_find_victims(size: int) -> Act:
    return _preempting(_full_cluster(4, 60), [500 + each for each in range(size)], finds=True)


def _native_preemptors(size: int) -> Act:
    made = _full_cluster(4, 60)
    key = GroupKey(GroupSource.NATIVE, "default", "high")
    add_groups(made, PodGroup(key, "uid", size, priority=5000, is_uniform=True))
    for each in range(size):
        made.add(pod(f"m{each}", group="high", priority=5000, requests={"cpu": f"{500 + each}m"}))

    async def act() -> None:
        await _cycle_of_gang(made)
        assert "preempting: " in made.condition.message

    return act


def _nodes_of_victims(size: int) -> Act:
    return _preempting(_full_cluster(size, 4), [500, 501, 502, 503])


def _victims_on_a_node(size: int) -> Act:
    return _preempting(_full_cluster(2, size), [500, 501, 502, 503])


def _priorities_of_victims(size: int) -> Act:
    return _preempting(_full_cluster(2, size, lambda each: each), [500, 501, 502, 503], finds=True)


def _budgets(size: int) -> Act:
    made = _full_cluster(2, 20)
    for each in range(size):
        made.columns.disruption_budgets.assign(budget(f"b{each}", {"app": f"b{each}"}, 1))
    return _preempting(made, [500, 501, 502, 503])


def _one_node_domains_of_victims(size: int) -> Act:
    return _preempting(_full_cluster(size, 4), [500, 500], GroupTopology("kubernetes.io/hostname"))


# -- fields of pods and nodes ---------------------------------------------------------------------------------------


def _one_pod(*nodes: Node, **fields: Unpack[PodFields]) -> Act:
    made = _made()
    made.add(*nodes)

    async def act() -> None:
        made.add(pod("p", **fields))
        made.decide()

    return act


def _taints(size: int) -> Act:
    return _one_pod(*(node(f"n{each}", taints=[f"k{key}:NoSchedule" for key in range(size)]) for each in range(3)))


def _own_taints(size: int) -> Act:
    """Each node has a taint of its own, so each has its own reason."""
    return _one_pod(*(node(f"n{each}", taints=[f"k{each}:NoSchedule"]) for each in range(size)))


def _tolerations(size: int) -> Act:
    return _one_pod(
        *(node(f"n{each}", taints=["a:NoSchedule"]) for each in range(3)),
        tolerations=[Toleration(key=f"k{each}", operator="Exists") for each in range(size)],
    )


def _tolerations_and_own_taints(size: int) -> Act:
    """Each node has a taint of its own, and the pod tolerates other values of its key."""
    return _one_pod(
        *(node(f"n{each}", taints=[f"team=a{each}:NoSchedule"]) for each in range(size)),
        tolerations=[Toleration(key="team", operator="Equal", value=f"b{each}") for each in range(size)],
    )


def _spread_constraints(size: int) -> Act:
    """The API server allows any number of different topology keys."""
    labels = {f"k{each}": "a" for each in range(size)}
    constraints = [
        TopologySpreadConstraint(1, f"k{each}", "DoNotSchedule", LabelSelector(match_labels={"app": "web"}))
        for each in range(size)
    ]
    return _one_pod(*(node(f"n{each}", labels=labels) for each in range(3)), spread=constraints)


def _affinity_terms(size: int) -> Act:
    labels = {f"k{each}": "a" for each in range(size)}
    return _one_pod(
        *(node(f"n{each}", labels=labels) for each in range(3)),
        affinity=anti_affinity_to(*(term("web", f"k{each}") for each in range(size))),
    )


def _node_selector(size: int) -> Act:
    labels = {f"k{each}": "a" for each in range(size)}
    return _one_pod(*(node(f"n{each}", labels=labels) for each in range(3)), node_selector=labels)


def _host_ports(size: int) -> Act:
    return _one_pod(*(node(f"n{each}") for each in range(3)), ports=range(1, size + 1))


def _addresses(size: int, first: int = 0) -> list[ContainerPort]:
    """Return one port at as many addresses; the API server compares port and address together."""
    numbers = range(first, first + size)
    return [ContainerPort(80, 80, host_ip=f"10.0.{each // 250}.{each % 250}") for each in numbers]


def _addresses_of_a_port(size: int) -> Act:
    """Another pod uses the port at as many other addresses."""
    made = _made()
    made.add(*(node(f"n{each}") for each in range(3)))
    made.add(pod("running", node_name="n0", ports=_addresses(size, first=size)))

    async def act() -> None:
        made.add(pod("p", ports=_addresses(size)))
        assert made.decide() is not None

    return act


def _ports_beside_a_member(size: int) -> Act:
    """A pod and a member of a gang with a reservation have as many ports, at different addresses."""
    nodes = columns([node("n0")])
    running, waiting = (nodes.compile_pod(pod(name, ports=_addresses(size, first))) for name, first in _BOTH)

    async def act() -> None:
        assert not len(conflicting_rows(running, {"n0": [waiting]}, [waiting], nodes))

    return act


_BOTH = (("running", 0), ("waiting", 5_000))


def _claims(size: int) -> Act:
    return _one_pod(*(node(f"n{each}") for each in range(3)), volumes=mounts(*(f"c{each}" for each in range(size))))


def _owners(size: int) -> Act:
    owners = [OwnerReference("ReplicaSet", f"r{each}", f"u{each}", "apps/v1") for each in range(size)]
    return _one_pod(*(node(f"n{each}") for each in range(3)), owners=owners)


def _containers(size: int) -> Act:
    containers = [Container(f"c{each}", image=f"image-{each}") for each in range(size)]
    return _one_pod(*(node(f"n{each}") for each in range(3)), containers=containers)


def _gates(size: int) -> Act:
    made = _made()

    async def act() -> None:
        made.add(pod("p", gates=[f"example.com/g{each}" for each in range(size)]))

    return act


# -- objects that change ------------------------------------------------------------------------------------------


def _changed_node(size: int, many: Callable[[int, str], Node]) -> Act:
    """A node is added, and all of its elements are exchanged while a pod waits."""
    made = _made()
    made.add(pod("p", requests={"cpu": "100"}))

    async def act() -> None:
        before, after = many(size, "a"), many(size, "b")
        made.scheduler.feed.node_added(before)
        made.scheduler.feed.node_updated(before, after)
        made.scheduler.feed.node_deleted(after)

    return act


def _labels_of_a_node(size: int) -> Act:
    return _changed_node(
        size, lambda count, kind: node("n", labels={f"{kind}{each}": f"v{each}" for each in range(count)})
    )


def _taints_of_a_node(size: int) -> Act:
    return _changed_node(
        size, lambda count, kind: node("n", taints=[f"{kind}{each}:NoSchedule" for each in range(count)])
    )


def _images_of_a_node(size: int) -> Act:
    return _changed_node(size, lambda count, kind: node("n", images={f"{kind}{each}": 1 for each in range(count)}))


def _resources_of_a_node(size: int) -> Act:
    return _changed_node(
        size, lambda count, kind: node("n", allocatable={f"example.com/{kind}{each}": "1" for each in range(count)})
    )


def _pods_of_a_node(size: int) -> Act:
    made = _made()
    made.add(_big_node())  # type: ignore[arg-type] # a node
    made.add(pod("p", requests={"cpu": "200k"}))
    made.decide()

    async def act() -> None:
        running = [pod(f"r{each}", node_name="big", labels={"app": f"a{each}"}) for each in range(size)]
        made.add(*running)
        for each in running:
            made.scheduler.feed.pod_deleted(each)

    return act


def _volumes_for_a_claim(size: int) -> Act:
    made = _made()
    made.add(*(node(f"n{each}", labels={"zone": f"z{each}"}) for each in range(3)))
    made.scheduler.storage_feed.added(storage_class())
    made.scheduler.storage_feed.added(claim("data"))
    made.add(pod("p", volumes=mounts("data")))

    async def act() -> None:
        for each in range(size):
            made.scheduler.storage_feed.added(volume(f"pv{each}", on={"zone": ["elsewhere"]}))
        made.decide()

    return act


def _capacities(size: int) -> Act:
    made = _made()
    made.add(*(node(f"n{each}", labels={"zone": f"z{each}"}) for each in range(3)))
    made.scheduler.storage_feed.added(storage_class(provisioner="csi"))
    made.scheduler.storage_feed.added(csi_driver("csi"))
    made.scheduler.storage_feed.added(claim("data"))
    made.add(pod("p", volumes=mounts("data")))

    async def act() -> None:
        for each in range(size):
            made.scheduler.storage_feed.added(capacity(f"c{each}", "local", "1Gi", on={"zone": f"z{each}"}))
        made.decide()

    return act


# -- extenders ------------------------------------------------------------------------------------------------------


def _node_reservations(size: int) -> Act:
    """Room is held again after a restart, and then compared with the cluster each second."""
    made = default_rig(*(small_node(f"n{number}") for number in range(size)))
    world = Reservations(made)
    for number in range(size):
        world.store_held(f"room-{number}", f"n{number}")
    world.replace_controller()

    async def act() -> None:
        for _ in range(4):
            await world.controller.look()
        assert len(made.scheduler.reservations.held) == size

    return act


def _own_reasons(names: Sequence[str]) -> ExtenderVerdict:
    """Reject each node with its own reason."""
    return ExtenderVerdict((), {name: f"node {name} has {each} MiB left" for each, name in enumerate(names)}, {})


def _reasons(size: int) -> Act:
    client = ScriptedExtender(on_filter=_own_reasons)
    made = _made(serve=False, ports=SchedulerPorts(make_extender=lambda *_: client))
    extenders = (Extender(url_prefix="http://127.0.0.1:1", filter_verb="filter"),)
    made.serve(ProfileConfig(scheduler_name=DEFAULT_NAME, extenders=extenders))
    made.add(*(node(f"n{each}") for each in range(size)), pod("p"))

    async def act() -> None:
        assert await made.scheduler.cycles.extended.schedule(made.pop()) is None
        assert made.condition.message.count("MiB left") == size

    return act


@table(
    "prepare, size",
    ("depth-of-a-tree", _deep_tree, 300),
    ("node-reservations", _node_reservations, 50),
    ("depth-of-an-infeasible-tree", _deep_tree_without_room, 300),
    ("depth-of-a-tree-whose-root-is-created-last", _root_of_deep_tree, 300),
    ("length-of-a-circle-of-parents", _circle, 100),
    ("gangs-below-one-group", _wide_tree, 25),
    ("gangs-below-a-deleted-group", _wide_tree_deleted, 50),
    ("depth-of-a-tree-with-a-gang-at-each-level", _comb, 25),
    ("domains-of-one-node", _one_node_domains, 100),
    ("domains-of-one-node-for-a-tree", _one_node_domains_of_a_tree, 100),
    ("domains-of-one-node-explained", _explained_one_node_domains, 100),
    ("different-members-that-preempt-in-vain", _distinct_preemptors, 10),
    ("equal-members-that-preempt-in-vain", _equal_preemptors, 10),
    ("different-members-that-preempt", _distinct_preemptors_that_find_victims, 10),
    ("members-of-a-native-group-that-preempt", _native_preemptors, 10),
    ("nodes-with-victims", _nodes_of_victims, 12),
    ("victims-on-a-node", _victims_on_a_node, 12),
    ("priorities-of-victims", _priorities_of_victims, 12),
    ("disruption-budgets", _budgets, 25),
    ("domains-of-one-node-with-victims", _one_node_domains_of_victims, 25),
    ("taints-of-a-node", _taints, 50),
    ("nodes-with-their-own-taints", _own_taints, 50),
    ("tolerations", _tolerations, 50),
    ("tolerations-and-nodes-with-their-own-taints", _tolerations_and_own_taints, 50),
    ("spread-constraints", _spread_constraints, 20),
    ("affinity-terms", _affinity_terms, 20),
    ("labels-of-a-node-selector", _node_selector, 50),
    ("host-ports", _host_ports, 50),
    ("addresses-of-a-host-port", _addresses_of_a_port, 100),
    ("host-ports-beside-a-member", _ports_beside_a_member, 100),
    ("claims", _claims, 50),
    ("owner-references", _owners, 50),
    ("containers", _containers, 50),
    ("scheduling-gates", _gates, 50),
    ("labels-of-a-node", _labels_of_a_node, 100),
    ("taints-of-a-changed-node", _taints_of_a_node, 100),
    ("images-of-a-node", _images_of_a_node, 100),
    ("resources-of-a-node", _resources_of_a_node, 100),
    ("pods-of-a-node", _pods_of_a_node, 100),
    ("volumes-for-a-claim", _volumes_for_a_claim, 50),
    ("storage-capacities", _capacities, 50),
    ("reasons-of-an-extender", _reasons, 100),
)
async def test_costs_grow_at_most_linearly(prepare: Callable[[int], Act], size: int) -> None:
    """At four times the size, there are at most about four times as many calls, lines and allocated bytes."""
    await prepare(2)()
    few, many = await _cost(prepare, size), await _cost(prepare, size * GROWTH)
    assert many.calls <= few.calls * GROWTH * TOLERATED, f"{few} at {size}, {many} at {size * GROWTH}"
    assert many.lines <= few.lines * GROWTH * TOLERATED, f"{few} at {size}, {many} at {size * GROWTH}"
    assert many.memory <= few.memory * GROWTH * TOLERATED + 2**20, f"{few} at {size}, {many} at {size * GROWTH}"
