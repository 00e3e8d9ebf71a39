"""Law of extreme numbers: any numbers that the API admits in an object leave the results for other pods exact.

No attempt ends in an internal error, with or without cached results, and no pod is assigned to a node without capacity.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from scheduler_core.model.affinity import Affinity, Requirement
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST
from scheduler_core.model.storage import StorageObject
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import RowSums
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.scheduling import default_rig
from tests.support.storage import capacity, claim, csi_driver, csi_node, mounts, storage_class, volume

INT64_MAX, INT32_MAX = 2**63 - 1, 2**31 - 1
EDGES = [0, 1, 2**31, 2**53, 2**57, 2**62 - 2, 2**62 - 1, 2**62, INT64_MAX]
RESOURCES = ("memory", "ephemeral-storage", "example.com/gpu")
AMOUNTS = st.dictionaries(st.sampled_from(RESOURCES), st.sampled_from(EDGES))
ORDINARY = {"memory": 2**30, "ephemeral-storage": 2**20}


async def outcomes(
    nodes: Sequence[Node], running: Sequence[Pod], waiting: Sequence[Pod], *, caches_results: bool
) -> list[str]:
    """Schedule pods in order and return the node of each, "" for none; pods without a node are deleted."""
    made = default_rig(*nodes, *running, options=SchedulerOptions(reuses_results=caches_results))
    found = []
    for each in waiting:
        made.add(each)
        found.append(await made.attempt())
        if not found[-1]:
            assert made.condition.reason == "Unschedulable", made.writer.events[-1].note
            made.scheduler.feed.pod_deleted(each)
    made.queue.close()
    return found


def decided(nodes: Sequence[Node], running: Sequence[Pod], waiting: Sequence[Pod]) -> list[str]:
    """Return the outcomes, which must be equal with and without cached results."""
    found = asyncio.run(outcomes(nodes, running, waiting, caches_results=True))
    assert found == asyncio.run(outcomes(nodes, running, waiting, caches_results=False))
    return found


def ordinary(count: int, **fields: object) -> list[Pod]:
    """Return small pods of one class; cached results are used from the second pod on."""
    return [pod(f"ordinary-{number}", labels={"app": "a"}, **fields) for number in range(count)]  # type: ignore[arg-type]


def cluster(count: int = 4, **fields: object) -> list[Node]:
    """Return nodes in two zones."""
    named = [
        (f"n{number}", {"zone": "ab"[number % 2], "kubernetes.io/hostname": f"n{number}"}) for number in range(count)
    ]
    return [node(name, labels=labels, **fields) for name, labels in named]  # type: ignore[arg-type]


# -- requests -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Load:
    """A node's allocatable amounts, and the requests of pods that are bound to it."""

    allocatable: Mapping[str, int]
    bound: Sequence[Mapping[str, int]]


LOADS = st.lists(st.builds(Load, AMOUNTS, st.lists(AMOUNTS, max_size=4)), min_size=1, max_size=3)
LARGE_LOADS = [
    Load(dict.fromkeys(RESOURCES, 2**37), ({},)),
    Load(dict.fromkeys(RESOURCES, 2**37), ({"memory": INT64_MAX},)),
]


def _text(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: str(amount) for name, amount in amounts.items()}


@given(LOADS, st.lists(AMOUNTS, max_size=4))
@example(LARGE_LOADS, [])
@example([Load({"memory": INT64_MAX}, ({"memory": INT64_MAX}, {"memory": INT64_MAX}))], [{"memory": 2**53}] * 2)
def test_requests(loads: list[Load], requested: list[Mapping[str, int]]) -> None:
    """A pod is assigned to a node if and only if its exact requests fit.

    A pod may stay without a node if the sum is above the largest capacity that is stored.
    """
    nodes = [
        node(f"n{number}", allocatable={"cpu": "8", "pods": str(INT64_MAX), **_text(load.allocatable)})
        for number, load in enumerate(loads)
    ]
    running = [
        pod(f"r{number}-{index}", node_name=f"n{number}", requests=_text(amounts))
        for number, load in enumerate(loads)
        for index, amounts in enumerate(load.bound)
    ]
    requests = [*requested, *[ORDINARY] * 3]
    waiting = [pod(f"w{number}", requests=_text(amounts)) for number, amounts in enumerate(requests)]
    used = [{name: sum(each.get(name, 0) for each in load.bound) for name in RESOURCES} for load in loads]
    for amounts, chosen in zip(requests, decided(nodes, running, waiting), strict=True):
        fitting = [
            number
            for number, load in enumerate(loads)
            if all(
                not amount or used[number][name] + amount <= load.allocatable.get(name, 0)
                for name, amount in amounts.items()
            )
        ]
        if chosen:
            row = int(chosen[1:])
            assert row in fitting
            for name, amount in amounts.items():
                used[row][name] += amount
        else:
            assert all(
                any(used[number][name] + amount > LARGEST_CAPACITY for name, amount in amounts.items())
                for number in fitting
            )


@given(st.lists(AMOUNTS, min_size=1, max_size=6), st.permutations(range(6)))
def test_sums_are_restored(requests: list[Mapping[str, int]], order: list[int]) -> None:
    """After additions and removals in any order, columns and dry-run sums equal the clamped exact sums."""
    nodes = columns([node("other"), node("full")])
    infos = [nodes.compile_pod(pod(f"p{number}", requests=_text(each))) for number, each in enumerate(requests)]
    row, rows = nodes.row_of("full"), np.array([nodes.row_of("full")], dtype=np.intp)
    sums = RowSums(nodes, rows)
    present: list[PodInfo] = []

    def check() -> None:
        for column in range(len(nodes.requested)):
            exact = sum(dict(info.accounted).get(column, 0) for info in present)
            assert nodes.exact_requested(column, row) == exact
            expected = min(exact, LARGEST_REQUEST)
            assert nodes.requested.item(column, row) == RowSums(nodes, rows).requested(column).item() == expected
            assert sums.requested(column).item() == expected

    for info in infos:
        nodes.add_pod(info, row)
        sums.add([(0, info)])
        present.append(info)
        check()
    sums = RowSums(nodes, rows)
    for number in order:
        if number < len(infos):
            nodes.remove_pod(infos[number])
            sums.remove([(0, infos[number])])
            present.remove(infos[number])
            check()
    assert not nodes.requested.any()
    assert not nodes.nonzero_requested.any()


# -- other fields -----------------------------------------------------------------------------------------------


@settings(max_examples=25)
@given(st.lists(st.sampled_from(EDGES), min_size=1, max_size=3), st.integers(1, 3))
@example([INT64_MAX], 1)
@example([2**62, 2**62, 2**62], 3)
def test_images(sizes: list[int], containers: int) -> None:
    """Pods are scheduled with images of any size on all nodes."""
    names = [f"i{number}:1" for number in range(len(sizes))]
    nodes = cluster(images=dict(zip(names, sizes, strict=True)))
    images = [container(name=f"c{number}", image=names[number % len(names)]) for number in range(containers)]
    assert all(decided(nodes, [], ordinary(3, containers=images)))


@settings(max_examples=25)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([-INT32_MAX - 1, -1, 0, 10**9, INT32_MAX]),
            st.sampled_from([None, datetime(1, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)]),
        ),
        min_size=4,
        max_size=12,
    ),
    st.sampled_from([-INT32_MAX - 1, 0, INT32_MAX]),
)
def test_priorities_and_start_times(running: list[tuple[int, datetime | None]], priority: int) -> None:
    """A preemption among pods of any priorities and start times has equal outcomes with and without cached results."""
    full = [
        pod(
            f"r{number}",
            node_name=f"n{number % 4}",
            requests={"cpu": "1"},
            priority=of,
            start_time=started or datetime(2026, 1, 1, tzinfo=UTC),
        )
        for number, (of, started) in enumerate(running)
    ]
    decided(cluster(allocatable={"cpu": "1", "pods": "3"}), full, ordinary(2, requests={"cpu": "1"}, priority=priority))


@settings(max_examples=25)
@given(
    st.sampled_from([1, 2, INT32_MAX]),
    st.sampled_from([None, 1, INT32_MAX]),
    st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    st.sampled_from(["zone", "kubernetes.io/hostname", "absent"]),
)
def test_spread(skew: int, domains: int | None, when: str, key: str) -> None:
    """Pods are scheduled with any skew and any number of domains, unless no domain can satisfy the constraint."""
    minimum = domains if when == "DoNotSchedule" else None
    constraint = TopologySpreadConstraint(skew, key, when, app("a"), min_domains=minimum)
    found = decided(cluster(), [pod("r", labels={"app": "a"}, node_name="n1")], ordinary(4, spread=[constraint]))
    may_fail = when == "DoNotSchedule" and (key == "absent" or minimum == INT32_MAX)
    assert may_fail or all(found)


@settings(max_examples=30)
@given(st.sampled_from([1, 100]), st.sampled_from([1, 100]), st.integers(1, 40))
def test_weights(nodes_weight: int, pods_weight: int, terms: int) -> None:
    """Pods are scheduled with many preferred terms of the largest weights."""
    pod_terms = [(pods_weight, term("a", key)) for key in ("zone", "kubernetes.io/hostname") for _ in range(terms)]
    affinity = Affinity(
        node_affinity(preferred=[(nodes_weight, Requirement("zone", "In", ("a",)))] * terms).node_affinity,
        affinity_to(preferred=pod_terms[:terms]).pod_affinity,
        anti_affinity_to(preferred=pod_terms).pod_anti_affinity,
    )
    assert all(decided(cluster(), [], ordinary(4, affinity=affinity)))


@settings(max_examples=20)
@given(st.lists(st.sampled_from([1, 80, 65535]), min_size=1, max_size=3, unique=True))
def test_host_ports(ports: list[int]) -> None:
    """With the lowest and highest host ports, each node runs one pod, and the fifth pod has no node."""
    assert decided(cluster(), [], ordinary(5, ports=ports)).count("") == 1


DRIVER = "disk.example.com"


@settings(max_examples=25)
@given(
    st.lists(st.sampled_from(EDGES), max_size=3),
    st.sampled_from(EDGES[1:]),
    st.sampled_from([None, 0, 1, INT32_MAX]),
)
def test_provisioned_storage(capacities: list[int], requested: int, limit: int | None) -> None:
    """A claim is provisioned if a storage capacity is large enough and the CSI driver's limit is not 0."""
    made = default_rig()
    storage: list[StorageObject] = [storage_class("late", DRIVER), csi_driver(DRIVER), csi_node("n0", {DRIVER: limit})]
    storage += [capacity(f"c{number}", "late", str(size), on={}) for number, size in enumerate(capacities)]
    for shown in (*storage, claim(storage_class="late", size=str(requested))):
        made.scheduler.storage_feed.added(shown)
    made.add(node("n0"), pod("web", volumes=mounts("data")))
    assert (made.decide() is not None) is (limit != 0 and any(size >= requested for size in capacities))
    assert not made.writer.patches or made.condition.reason == "Unschedulable", made.writer.events[-1].note


@settings(max_examples=25)
@given(st.lists(st.sampled_from(EDGES[1:]), max_size=3), st.sampled_from(EDGES[1:]))
def test_static_volumes(sizes: list[int], requested: int) -> None:
    """A claim is bound if a volume is large enough."""
    made = default_rig()
    storage: list[StorageObject] = [storage_class("local"), claim(storage_class="local", size=str(requested))]
    storage += [volume(f"v{number}", size=str(size), storage_class="local") for number, size in enumerate(sizes)]
    for shown in storage:
        made.scheduler.storage_feed.added(shown)
    made.add(node("n0"), pod("web", volumes=mounts("data")))
    assert (made.decide() is not None) is any(size >= requested for size in sizes)
    assert not made.writer.patches or made.condition.reason == "Unschedulable", made.writer.events[-1].note
