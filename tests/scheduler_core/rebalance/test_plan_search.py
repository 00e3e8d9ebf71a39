"""Plans of moves in small clusters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.devices import (
    AllocationResult,
    ClaimConsumer,
    DeviceAllocation,
    DeviceRequestResult,
    ResourceClaim,
    ResourceClaimStatus,
)
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.movable_pod import EmptyDir, HostPath, LocalVolume
from scheduler_core.model.pod import EphemeralVolumeSource, Pod, TopologySpreadConstraint
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.model.selectors import equality_matcher
from scheduler_core.model.workloads import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from scheduler_core.rebalance.requests import (
    Consolidate,
    Defragment,
    Drain,
    Limits,
    MakeRoom,
    Objective,
    PlanState,
    RebalanceRequest,
    Scope,
    Spread,
)
from tests.support.builders import pod
from tests.support.devices import DRIVER, claim, device, exactly, slice_of, using
from tests.support.gang_devices import device_rig, owned, report
from tests.support.gang_preemption import add_gang, running_pod, small_node, terminating_pod
from tests.support.gangs import LABEL, group, key, members
from tests.support.rebalancing import movable, moves_of, planned
from tests.support.recording_claim_writer import RecordingClaimWriter
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table

CONSOLIDATE = RebalanceRequest(Consolidate())


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with three nodes of four CPUs."""
    return gang_rig(*(small_node(name, 4, pool=name) for name in "abc"))


def with_owner(of: Pod, uid: str) -> Pod:
    """Return a pod whose controller has a UID, which users may write as they like."""
    owners = tuple(replace(owner, uid=uid) for owner in of.metadata.owner_references)
    return replace(of, metadata=replace(of.metadata, owner_references=owners))


def budget(allowed: int, name: str = "budget") -> PodDisruptionBudget:
    """Return a budget of all pods with the label ``app=web``."""
    spec = PodDisruptionBudgetSpec(LabelSelector({"app": "web"}))
    return PodDisruptionBudget(ObjectMeta(name, "default"), spec, PodDisruptionBudgetStatus(allowed))


def test_nodes_are_emptied_into_the_fullest_others(cluster: Rig) -> None:
    """The node with the fewest pods is emptied; its pods go where most is requested."""
    cluster.add(movable("p", "a"), running_pod("q", "b", cpus=2), running_pod("r", "c", cpus=1))
    plan = planned(cluster, CONSOLIDATE)
    assert moves_of(plan) == {"p": ("a", "b")}
    assert plan.gain.emptied == ("a",)
    assert plan.state is PlanState.COMPLETE


def test_large_nodes_are_emptied_first(cluster: Rig) -> None:
    """With two moves a node of eight CPUs with two pods is emptied, and not a node of two CPUs with one pod."""
    cluster.add(small_node("large", 8), small_node("little", 2))
    cluster.add(movable("p", "little"), movable("q1", "large"), movable("q2", "large"), running_pod("r", "a", cpus=1))
    plan = planned(cluster, RebalanceRequest(Consolidate(), limits=Limits(moves=2)))
    assert plan.gain.emptied == ("large",)


def test_a_node_is_emptied_completely_or_not_at_all(cluster: Rig) -> None:
    """If one pod of a node has no other node, the others stay: moving them gains nothing."""
    cluster.add(movable("small", "a"), movable("large", "a", 3), running_pod("q", "b", cpus=2))
    plan = planned(cluster, CONSOLIDATE)
    assert not plan.moves
    assert plan.reason == "none gains anything"


def test_empty_nodes_get_no_pods(cluster: Rig) -> None:
    """A pod is not moved from one node to an empty one."""
    cluster.add(movable("p", "a"))
    assert not planned(cluster, CONSOLIDATE).moves


def test_each_pod_is_moved_once(cluster: Rig) -> None:
    """A pod whose first target is emptied as well is moved to its last node at once."""
    cluster.add(small_node("d", 8))
    cluster.add(movable("p", "a"), movable("q1", "b", 2), movable("q2", "b", 1), running_pod("r", "d", cpus=2))
    plan = planned(cluster, CONSOLIDATE)
    assert moves_of(plan) == {"p": ("a", "d"), "q1": ("b", "d"), "q2": ("b", "d")}
    assert set(plan.gain.emptied) == {"a", "b"}


@table(
    "left, reason",
    ("no-controller", movable("p", "a", of=""), "no controller"),
    ("long-owner", with_owner(movable("p", "a"), "u" * 65), "longer than 64 characters"),
    ("many-requests", movable("p", "a", requests={f"example.com/r{n}": "0" for n in range(501)}), "more than 500"),
    ("daemon-set", movable("p", "a", of="DaemonSet"), "static pod"),
    ("static-pod", movable("p", "a", of="Node"), "static pod"),
    ("safe-to-evict", movable("p", "a", marks={"safe_to_evict": "false"}), "safe-to-evict"),
    ("empty-dir", movable("p", "a", local=[LocalVolume("v", empty_dir=EmptyDir())]), "local volumes"),
    ("host-path", movable("p", "a", local=[LocalVolume("v", host_path=HostPath())]), "local volumes"),
    ("ephemeral", movable("p", "a", local=[LocalVolume("v", ephemeral=EphemeralVolumeSource())]), "local volumes"),
    ("gang", movable("p", "a", labels={LABEL: "train"}), "member of a gang"),
    ("critical", movable("p", "a", priority=2_000_000_000), "critical"),
    ("profile", movable("p", "a", scheduler_name="other"), "no profile"),
    ("not-decoded", running_pod("p", "a"), "no controller"),
    ("terminating", terminating_pod(movable("p", "a")), "terminates"),
)
def test_pods_that_are_left_alone(cluster: Rig, left: Pod, reason: str) -> None:
    """Such a pod stays on a node that is drained, with the reason; terminating pods and those of nodes do not count."""
    cluster.add(left, running_pod("q", "b"))
    plan = planned(cluster, RebalanceRequest(Drain(frozenset("a"))))
    assert not plan.moves
    counts = "static" not in reason and "terminates" not in reason
    assert (reason in plan.left.get("default/p", "")) is counts


_BARE = "it has no controller that replaces it"
_NO_ROOM = "no other node has room for it, with the moves before"
_LIMITS = "the limits of the plan allow no further moves"
_WEB = {"app": "web"}
_SOFT = (TopologySpreadConstraint(1, "pool", "ScheduleAnyway", LabelSelector(_WEB)),)


@table(
    "objective, pods, limits, left",
    (
        "consolidate: no room",
        Consolidate(),
        [movable("p", "a", 3), movable("q", "b", 3)],
        Limits(),
        {"p": _NO_ROOM, "q": _NO_ROOM},
    ),
    (
        "consolidate: limits",
        Consolidate(),
        [*(movable(name, "a") for name in "pq"), *(movable(name, "b") for name in "rs")],
        Limits(moves=1),
        dict.fromkeys("pqrs", _LIMITS),
    ),
    (
        "defragment",
        Defragment("cpu", 4000),
        [running_pod("p", "a", cpus=2), movable("q", "b", 3), running_pod("r", "c", cpus=2)],
        Limits(),
        {"p": _BARE, "q": _NO_ROOM, "r": _BARE},
    ),
    (
        "spread",
        Spread(),
        [movable(name, "a", spread=_SOFT, labels=_WEB, of="") for name in "pqr"],
        Limits(),
        dict.fromkeys("pqr", _BARE),
    ),
    (
        "gang",
        MakeRoom(key()),
        [running_pod("p", "a"), running_pod("q", "b"), movable("r", "c")],
        Limits(),
        {"p": _BARE, "q": _BARE},
    ),
)
def test_pods_that_had_to_move(
    cluster: Rig, objective: Objective, pods: list[Pod], limits: Limits, left: dict[str, str]
) -> None:
    """Each objective reports the pods that had to move for more gain, and why they are left alone."""
    cluster.add(*pods)
    add_gang(cluster, *members(2, requests={"cpu": "4"}), of=group(min_member=2))
    plan = planned(cluster, RebalanceRequest(objective, limits=limits))
    assert {name.removeprefix("default/"): why for name, why in plan.left.items()} == left
    assert not plan.moves


def test_no_pod_had_to_move_for_a_gang_that_fits(cluster: Rig) -> None:
    """Room for a gang is all that a plan of this objective gains, so that no pod is left alone."""
    fragmented(cluster)
    cluster.add(small_node("e", 4), running_pod("bare", "e"))
    plan = planned(cluster, RebalanceRequest(MakeRoom(key())))
    assert plan.gain.fits
    assert not plan.left


def devices_of_two_nodes() -> tuple[Rig, RecordingClaimWriter, Pod]:
    """Return a cluster whose nodes a and b have a device each, and a pod on node a that is to use that of node a."""
    made, writer = device_rig()
    report(made, writer, *(small_node(name, 4) for name in "ab"))
    report(made, writer, *(slice_of([device("d0")], node=name, name=f"slice-{name}") for name in "ab"))
    return made, writer, movable("p", "a", namespace="ns")


def test_a_pod_with_a_claim_from_a_template_is_moved() -> None:
    """Its replacement has a claim of its own, with devices of the other node; without such devices it stays."""
    made, writer, claiming = devices_of_two_nodes()
    report(made, writer, allocated(owned(claiming, exactly("r")), "a", claiming))
    report(made, writer, using(claiming, templates={"gpu": "claim-of-p"}))
    drain = RebalanceRequest(Drain(frozenset("a")))
    assert moves_of(planned(made, drain)) == {"p": ("a", "b")}
    other = pod("other", node_name="b", namespace="ns")
    report(made, writer, allocated(claim(exactly("r"), name="other"), "b", other), using(other, "other"))
    plan = planned(made, drain)
    assert not plan.moves
    assert plan.left == {"ns/p": "no other node has room for it, with the moves before"}


def shared(claiming: Pod) -> Pod:
    """Return a pod whose claim exists without it."""
    return using(claiming, "claim-of-p")


def own(claiming: Pod) -> Pod:
    """Return a pod whose claim is created from a template."""
    return using(claiming, templates={"gpu": "claim-of-p"})


@table(
    "uses, others, pool",
    ("by-name", shared, (), "a"),
    ("another-user", own, ("other",), "a"),
    ("not-created", lambda claiming: using(claiming, templates={"gpu": "x"}), (), "a"),
    ("of-several-nodes", own, (), "fabric"),
)
def test_claims_that_do_not_end_with_their_pod(uses: Callable[[Pod], Pod], others: Sequence[str], pool: str) -> None:
    """A pod is left alone if its claim is used by others, is not known, or has devices that other nodes can use."""
    made, writer, claiming = devices_of_two_nodes()
    report(made, writer, slice_of([device("d0")], node="", pool="fabric", name="fabric", allNodes=True))
    claim_of_pod = allocated(owned(claiming, exactly("r")), pool, claiming)
    users = (*claim_of_pod.status.reserved_for, *(ClaimConsumer("pods", each, each) for each in others))
    report(made, writer, replace(claim_of_pod, status=replace(claim_of_pod.status, reserved_for=users)))
    report(made, writer, uses(claiming))
    assert "resource claims that do not end" in planned(made, RebalanceRequest(Drain(frozenset("a")))).left["ns/p"]


def allocated(of: ResourceClaim, pool: str, user: Pod) -> ResourceClaim:
    """Return a claim that has device d0 of a pool and is reserved for a pod."""
    result = DeviceRequestResult("r", DRIVER, pool, "d0")
    consumer = ClaimConsumer("pods", user.metadata.name, user.metadata.uid)
    return replace(of, status=ResourceClaimStatus(AllocationResult(DeviceAllocation((result,))), (consumer,)))


@table(
    "fields",
    ("allowed", {"marks": {"safe_to_evict": "true"}, "local": [LocalVolume("v", empty_dir=EmptyDir())]}),
    ("memory", {"local": [LocalVolume("v", empty_dir=EmptyDir("Memory"))]}),
)
def test_volumes_that_may_be_lost(cluster: Rig, fields: dict[str, Any]) -> None:
    """A pod with local volumes is moved if its annotation allows it, or if they are in memory."""
    cluster.add(movable("p", "a", **fields))
    assert planned(cluster, RebalanceRequest(Drain(frozenset("a")))).moves


@table(
    "budgets, count",
    ("allows", [budget(1)], 1),
    ("allows-none", [budget(0)], 0),
    ("several", [budget(1), budget(1, "other")], 0),
)
def test_disruption_budgets(cluster: Rig, budgets: list[PodDisruptionBudget], count: int) -> None:
    """A pod is moved only if the API server would allow its eviction."""
    cluster.add(movable("p", "a", labels={"app": "web"}))
    for each in budgets:
        cluster.scheduler.workload_feed.added(each)
    assert len(planned(cluster, RebalanceRequest(Drain(frozenset("a")))).moves) == count


@table(
    "scope, count",
    ("all", Scope(), 1),
    ("profiles", Scope(profiles=frozenset({"other"})), 0),
    ("namespaces", Scope(namespaces=frozenset({"other"})), 0),
    ("own-namespace", Scope(namespaces=frozenset({"default"})), 1),
    ("pods", Scope(pods=equality_matcher({"app": "db"})), 0),
    ("nodes", Scope(nodes=equality_matcher({"pool": "b"})), 0),
    ("own-node", Scope(nodes=equality_matcher({"pool": "a"})), 1),
)
def test_the_scope(cluster: Rig, scope: Scope, count: int) -> None:
    """Only pods and nodes of the scope are considered."""
    cluster.add(movable("p", "a", labels={"app": "web"}), running_pod("q", "b", cpus=2))
    assert len(planned(cluster, RebalanceRequest(Consolidate(), scope)).moves) == count


@table(
    "limits, emptied",
    ("no-limit", Limits(), {"a", "b"}),
    ("moves", Limits(moves=1), {"a"}),
    ("no-moves", Limits(moves=0), set()),
    ("cost", Limits(cost=6), {"a"}),
)
def test_limits(cluster: Rig, limits: Limits, emptied: set[str]) -> None:
    """Moves and costs stay within the limits; a move costs 1 and the deletion cost of its pod."""
    cluster.add(movable("p", "a"), movable("q1", "b", marks={"deletion_cost": "5"}), movable("q2", "b"))
    cluster.add(running_pod("r", "c", cpus=1))
    plan = planned(cluster, RebalanceRequest(Consolidate(), limits=limits))
    assert set(plan.gain.emptied) == emptied
    assert plan.cost == len(plan.moves) + (5 if "b" in emptied else 0)


def test_a_drain_moves_what_has_room(cluster: Rig) -> None:
    """Pods that fit on no other node stay, with the reason."""
    cluster.add(movable("p", "a"), movable("q", "a", 3), running_pod("r", "b", cpus=3), running_pod("s", "c", cpus=2))
    plan = planned(cluster, RebalanceRequest(Drain(selector=equality_matcher({"pool": "a"}))))
    assert moves_of(plan).keys() == {"p"}
    assert plan.left == {"default/q": "no other node has room for it, with the moves before"}
    assert plan.gain.emptied == ()


def test_filters_of_the_profile_count(cluster: Rig) -> None:
    """A destination is a node that all filters accept with the earlier moves: one pod of each per node."""
    spread = TopologySpreadConstraint(1, "pool", "DoNotSchedule", LabelSelector({"app": "web"}))
    pods = [movable(f"p{number}", name, spread=(spread,), labels={"app": "web"}) for number, name in enumerate("abc")]
    cluster.add(*pods)
    plan = planned(cluster, CONSOLIDATE)
    assert not plan.moves


def test_the_spread_of_pods(cluster: Rig) -> None:
    """Pods go from the domain with the most pods to the one with the least, until maxSkew holds."""
    soft = TopologySpreadConstraint(1, "pool", "ScheduleAnyway", LabelSelector({"app": "web"}))
    cluster.add(*(movable(f"p{number}", "a", spread=(soft,), labels={"app": "web"}) for number in range(4)))
    plan = planned(cluster, RebalanceRequest(Spread()))
    assert sorted(target for _, target in moves_of(plan).values()) == ["b", "c"]
    assert plan.gain.excess == (3, 0)


def test_pieces_of_a_resource(cluster: Rig) -> None:
    """Pods leave the node that lacks the least for a piece, and go where no whole piece is used."""
    cluster.add(movable("p", "a", 1), running_pod("q", "b", cpus=3), running_pod("r", "c", cpus=2))
    plan = planned(cluster, RebalanceRequest(Defragment("cpu", 4000)))
    assert moves_of(plan) == {"p": ("a", "b")}
    assert plan.gain.pieces == (0, 1)


def test_no_piece_is_freed_in_exchange_for_another(cluster: Rig) -> None:
    """A pod is not moved into a whole free piece."""
    cluster.add(movable("p", "a", 2), running_pod("q", "b", cpus=3))
    plan = planned(cluster, RebalanceRequest(Defragment("cpu", 4000)))
    assert not plan.moves
    assert plan.gain.pieces == (1, 1)


def test_a_resource_that_no_node_offers(cluster: Rig) -> None:
    assert planned(cluster, RebalanceRequest(Defragment("example.com/gpu", 8))).reason == "no node offers the resource"


def fragmented(cluster: Rig) -> None:
    """Add a gang whose two members need a whole node each, and pods that leave two CPUs on each node."""
    cluster.add(small_node("d", 4))
    cluster.add(*(movable(f"p{number}", name, 2) for number, name in enumerate("abcd")))
    add_gang(cluster, *members(2, requests={"cpu": "4"}), of=group(min_member=2))


def test_room_for_a_gang(cluster: Rig) -> None:
    """As few pods as possible are moved, so that the quorum fits."""
    fragmented(cluster)
    plan = planned(cluster, RebalanceRequest(MakeRoom(key())))
    assert plan.gain.fits is True
    assert len(plan.moves) == 2
    sources = {move.source for move in plan.moves}
    assert len(sources) == 2
    assert sources.isdisjoint(move.target for move in plan.moves)


def test_no_unneeded_pod_is_moved(cluster: Rig) -> None:
    """Only the pods whose room a member needs leave their node."""
    cluster.add(movable("small", "a"), movable("large", "a", 2), running_pod("q", "b", cpus=2))
    cluster.add(running_pod("r", "c", cpus=4))
    add_gang(cluster, *members(1, requests={"cpu": "3"}), of=group(min_member=1))
    plan = planned(cluster, RebalanceRequest(MakeRoom(key())))
    assert moves_of(plan) == {"large": ("a", "b")}


def test_room_in_one_domain(cluster: Rig) -> None:
    """The moves make room in a domain that the gang requires."""
    made = gang_rig(*(small_node(name, 2, zone=zone) for name, zone in zip("abcd", "xxyy", strict=True)))
    made.add(movable("p", "a"), running_pod("q", "c"), running_pod("r", "d"))
    add_gang(made, *members(2, requests={"cpu": "2"}), of=group(min_member=2, topology=GroupTopology("zone")))
    assert moves_of(planned(made, RebalanceRequest(MakeRoom(key())))).keys() == {"p"}


@table(
    "pods, least, reason",
    ("fits-already", members(2), 2, "fits without moves"),
    ("does-not-fit", members(2, requests={"cpu": "9"}), 2, "does not fit, even after moves"),
    ("no-quorum", members(1), 2, "no quorum that waits"),
)
def test_no_room_is_made(cluster: Rig, pods: list[Pod], least: int, reason: str) -> None:
    """A plan without moves has the reason."""
    cluster.add(movable("p", "a", 2))
    add_gang(cluster, *pods, of=group(min_member=least))
    plan = planned(cluster, RebalanceRequest(MakeRoom(key())))
    assert not plan.moves
    assert plan.reason == f"gang default/train {'has ' if 'quorum' in reason else ''}{reason}"


def test_an_unknown_gang(cluster: Rig) -> None:
    """The reason names the group."""
    assert planned(cluster, RebalanceRequest(MakeRoom(key("x")))).reason == "there is no PodGroup default/x"


@table(
    "objective, limit",
    ("consolidate", Consolidate(), 30),
    ("drain", Drain(frozenset("a")), 30),
    ("gang", MakeRoom(key()), 30),
    ("defragment", Defragment("cpu", 4000), 30),
    ("spread", Spread(), 1),
)
def test_a_search_that_is_given_up(cluster: Rig, objective: Objective, limit: int) -> None:
    """The plan has this state, and nothing stays moved."""
    fragmented(cluster)
    plan = planned(cluster, RebalanceRequest(objective), limit=limit)
    assert plan.state is PlanState.GAVE_UP
    assert "given up" in plan.reason


def test_a_pod_that_is_not_decoded_is_left_alone(cluster: Rig) -> None:
    """A pod without decoded annotations and volumes may forbid its eviction."""
    known = movable("p", "a")
    cluster.add(replace(known, spec=pod("p", node_name="a").spec))
    left = planned(cluster, RebalanceRequest(Drain(frozenset("a")))).left
    assert "were not read" in left["default/p"]
