"""Sums of a gang's requests and of free amounts, at the extremes of int64."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup
from scheduler_core.model.pod_requests import LARGEST_CAPACITY, LARGEST_REQUEST
from scheduler_core.placement.reservations import Plan, Reservation, Slot
from scheduler_core.plugins.coscheduling import missing_resources
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.tables import table

KEY = GroupKey(GroupSource.BAYPLAN, "default", "train")
EDGES = st.sampled_from([0, 1, 2**53, 2**61, LARGEST_CAPACITY, LARGEST_REQUEST, 2**62, 2**63 - 1])


@given(st.lists(st.tuples(EDGES, st.lists(EDGES, max_size=3), st.lists(EDGES, max_size=3)), min_size=1, max_size=5))
@example([(2**63 - 1, [], [])] * 5)
@example([(2**53, [1], [2**63 - 1, 2**63 - 1, 2**63 - 1])])
def test_free_amounts_of_the_cluster(nodes: list[tuple[int, list[int], list[int]]]) -> None:
    """The amount that the group lacks in the cluster is exact; requests of its own members count as free."""
    table = columns(
        [node(f"n{row}", allocatable={"memory": str(capacity)}) for row, (capacity, _, _) in enumerate(nodes)]
    )
    own: list[PodInfo] = []
    free = 0
    for row, (capacity, others, own_amounts) in enumerate(nodes):
        for number, amount in enumerate((*others, *own_amounts)):
            info = table.compile_pod(pod(f"p{row}-{number}", requests={"memory": str(amount)}))
            table.add_pod(info, row)
            own += [info] if number >= len(others) else []
        taken = sum(min(amount, LARGEST_REQUEST) for amount in others)
        free += max(0, min(capacity, LARGEST_CAPACITY) - taken)
    wanted = PodGroup(KEY, "uid", 0, min_resources={"memory": free + 1})
    assert missing_resources(wanted, table, own) == {"memory": 1}
    assert not missing_resources(PodGroup(KEY, "uid", 0, min_resources={"memory": free}), table, own)


@table("leaving, fits", ("some", 2, False), ("all", 3, True))
def test_a_reservation_behind_enormous_pods(leaving: int, fits: bool) -> None:
    """The gang fits once all enormous pods are deleted, and the remaining capacity beside it is exact."""
    table = columns([node("a", allocatable={"memory": "4Gi", "pods": "110"})])
    running = [table.compile_pod(pod(f"r{number}", requests={"memory": "4E"})) for number in range(3)]
    for info in running:
        table.add_pod(info, 0)
    member = table.compile_pod(pod("member", requests={"memory": "1Gi"}))
    plan = Plan((Slot(member, "kind", "a"),), frozenset(info.uid for info in running[:leaving]))
    reservation = Reservation(KEY, "uid", 0, plan, table)
    assert reservation.fits_then() is fits
    assert not reservation.fits_now()
    beside, beyond = (table.compile_pod(pod(name, requests={"memory": name})) for name in ("3Gi", "4Gi"))
    assert (not len(reservation.refused_rows(beside, NominatedPods()))) is fits
    assert reservation.refused_rows(beyond, NominatedPods()).tolist() == [0]


def test_a_reservation_with_enormous_nominated_pods() -> None:
    """Nominated pods whose requests exceed int64 in sum leave no capacity for other pods."""
    table = columns([node("a", allocatable={"memory": "4Gi", "pods": "110"})])
    nominator = NominatedPods()
    for number in range(4):
        nominator.nominate(table.compile_pod(pod(f"n{number}", requests={"memory": "9E"})), "a")
    member = table.compile_pod(pod("member", requests={"memory": "1Gi"}))
    reservation = Reservation(KEY, "uid", 0, Plan((Slot(member, "kind", "a"),), frozenset()), table)
    small = table.compile_pod(pod("small", requests={"memory": "1Gi"}))
    assert reservation.refused_rows(small, NominatedPods()).tolist() == []
    assert reservation.refused_rows(small, nominator).tolist() == [0]
