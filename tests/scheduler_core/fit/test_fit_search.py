"""Answers to "would it fit?" in small clusters."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from scheduler_core.dry_run_assembly import fit_search
from scheduler_core.fit.fit_search import FitAnswer, FitVerdict
from scheduler_core.fit.requests import FitRequest, NodeTemplate
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupTopology
from scheduler_core.model.taints import Taint
from tests.support.builders import pod
from tests.support.device_preemption import pending, shared_by_two
from tests.support.devices import allocated_claim, claim, device, device_class, exactly, slice_of, using, with_meta
from tests.support.gang_preemption import add_gang, running_pod, small_node, terminating_pod
from tests.support.gangs import group, members
from tests.support.presence import present
from tests.support.scheduler_state import scheduler_state
from tests.support.scheduling import Rig, default_rig, gang_rig
from tests.support.tables import table

ZONE = GroupTopology("zone")


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with two nodes of two CPUs in one zone, and a third one in another."""
    return gang_rig(small_node("a", zone="x"), small_node("b", zone="x"), small_node("c", zone="y"))


def answer(made: Rig, *pods: Pod, limit: int | None = None, **fields: Any) -> FitAnswer:
    """Answer a request, and assert that nothing is changed."""
    search = fit_search(made.context, made.scheduler.reservations)
    before = scheduler_state(made.scheduler)
    found = search.answer(FitRequest(pods=pods, **fields), limit)
    after = scheduler_state(made.scheduler)
    assert after == before
    return found


def nodes_of(found: FitAnswer) -> dict[str, str]:
    """Return the node of each pod by its name."""
    names = {info.uid: info.pod.metadata.name for info in found.infos}
    return {names[uid]: node for uid, node in present(found.chosen).nodes.items() if uid in names}


def cpus(count: int) -> dict[str, str]:
    return {"cpu": str(count)}


def test_pods_count_on_their_nodes(cluster: Rig) -> None:
    """Each pod of a request takes room from those after it."""
    pods = [pod(f"p{number}", requests=cpus(2)) for number in range(3)]
    assert sorted(nodes_of(answer(cluster, *pods)).values()) == ["a", "b", "c"]
    assert answer(cluster, *pods, pod("more", requests=cpus(1))).verdict is FitVerdict.IMPOSSIBLE


def test_no_evictions_are_searched_for_pods_that_never_fit(cluster: Rig) -> None:
    """A bound is read before the long search with evictions, also if that would be given up."""
    cluster.add(*(running_pod(f"v-{name}", name) for name in "abc"))
    pods = [pod(f"p{number}", requests=cpus(1), priority=10) for number in range(7)]
    without, evicting = (answer(cluster, *pods, may_evict=may_evict) for may_evict in (False, True))
    assert without.verdict is evicting.verdict is FitVerdict.IMPOSSIBLE
    assert evicting.steps == without.steps
    assert answer(cluster, *pods[:4], may_evict=True).verdict is FitVerdict.FITS_AFTER_EVICTIONS


def test_a_gang_in_its_domain(cluster: Rig) -> None:
    """A gang that requires one domain gets nodes of it, and the answer names it."""
    found = answer(cluster, *members(4), groups=(group(min_member=4, topology=ZONE),))
    assert list(present(found.chosen).domains.values()) == ["zone=x"]
    assert set(nodes_of(found).values()) == {"a", "b"}


def test_an_impossible_topology(cluster: Rig) -> None:
    """A domain that is too small even when it is empty is a proof, whatever runs elsewhere."""
    found = answer(cluster, *members(5), groups=(group(min_member=5, topology=ZONE),))
    assert found.verdict is FitVerdict.IMPOSSIBLE
    assert "no domain of zone has room for 5 members even without other pods" in found.reason


@table("zone, count", ("the-largest-domain-grows", "x", 1), ("a-new-domain", "new", 3))
def test_the_least_number_of_new_nodes(cluster: Rig, zone: str, count: int) -> None:
    """New nodes count for the domain that their label names."""
    template = NodeTemplate(small_node("tpl", zone=zone))
    found = answer(cluster, *members(5), groups=(group(min_member=5, topology=ZONE),), template=template, max_new=5)
    assert found.verdict is FitVerdict.FITS_WITH_NEW_NODES
    assert found.least_new_nodes == count
    assert present(found.chosen).new_nodes == tuple(f"tpl-new-{number}" for number in range(1, count + 1))


def test_too_few_new_nodes_are_allowed(cluster: Rig) -> None:
    """The answer has the proved bound if the maximum is below it."""
    template = NodeTemplate(small_node("tpl", zone="new"))
    found = answer(cluster, *members(5), groups=(group(min_member=5, topology=ZONE),), template=template, max_new=2)
    assert (found.verdict, found.least_new_nodes) == (FitVerdict.DOES_NOT_FIT, 3)


def test_a_template_that_takes_no_pod(cluster: Rig) -> None:
    """A pod that neither a present node nor one of the template takes is impossible."""
    template = NodeTemplate(small_node("tpl", 2))
    found = answer(cluster, pod("p", requests=cpus(3)), template=template, max_new=2)
    assert found.verdict is FitVerdict.IMPOSSIBLE
    assert "pod default/p fits on no node, whatever runs there" in found.reason


def test_evictions(cluster: Rig) -> None:
    """A pod of higher priority fits after the eviction of the least harmful victims."""
    cluster.add(*(running_pod(f"v-{name}-{number}", name) for name in "abc" for number in range(2)))
    found = answer(cluster, pod("p", requests=cpus(2), priority=5))
    assert found.verdict is FitVerdict.FITS_AFTER_EVICTIONS
    (node_name,) = nodes_of(found).values()
    assert [info.node_name for info in present(found.chosen).victims] == [node_name] * 2
    assert answer(cluster, pod("p", requests=cpus(2), priority=5), may_evict=False).after_evictions is None


def test_evictions_of_the_holders_of_a_device() -> None:
    """A pod fits after the eviction of all holders of a claim, if its profile evicts pods for their devices."""
    verdicts = {}
    for devices in (False, True):
        made, _, _ = shared_by_two(devices=devices)
        found = answer(made, pending("new", "new"), claims=(claim(exactly("r"), name="new"),))
        verdicts[devices] = found.verdict
        if devices:
            assert [info.pod.metadata.name for info in present(found.chosen).victims] == ["v0", "v1"]
    assert verdicts == {False: FitVerdict.DOES_NOT_FIT, True: FitVerdict.FITS_AFTER_EVICTIONS}


def test_members_that_wait_already(cluster: Rig) -> None:
    """A request may complete a gang of the cluster: its waiting members are placed with those of the request."""
    add_gang(cluster, *members(2), of=group(min_member=4))
    found = answer(cluster, *members(4)[2:])
    assert found.verdict is FitVerdict.FITS_NOW
    assert len(present(found.chosen).nodes) == 4
    assert nodes_of(found).keys() == {"train-2", "train-3"}


@table(
    "pods, text",
    ("quorum", members(3), "minMember is 4, and 3 members exist with those of the request"),
    ("profile", [pod("p", scheduler_name="none")], 'no profile serves schedulerName "none"'),
    ("scheduling-gate", [pod("p", gates=("wait",))], "wait"),
    ("group", members(1, "other"), "no valid PodGroup default/other"),
)
def test_pods_that_are_not_tried(cluster: Rig, pods: list[Pod], text: str) -> None:
    """A pod that the queue would hold back is reported with the reason, and no nodes are added for it."""
    template = NodeTemplate(small_node("tpl"))
    found = answer(cluster, *pods, groups=(group(min_member=4),), template=template, max_new=3)
    assert found.verdict is FitVerdict.DOES_NOT_FIT
    assert found.now is not None
    assert [text in each.message for each in found.now.unplaced] == [True]
    assert found.with_new_nodes is None


def test_the_limit_of_steps(cluster: Rig) -> None:
    """A dry run that reaches its limit is given up, and nothing stays assumed."""
    found = answer(cluster, *members(4), groups=(group(min_member=4),), limit=100)
    assert found.verdict is FitVerdict.GAVE_UP
    assert found.reason.startswith("dry run given up after ")


def test_a_node_as_template(cluster: Rig) -> None:
    """A copy of a node has its daemons, its own name, and no taints that describe the state of the node."""
    daemon = running_pod("agent", "d")
    owned = (OwnerReference("DaemonSet", "agent", "uid", "apps/v1", controller=True),)
    daemon = replace(daemon, metadata=replace(daemon.metadata, owner_references=owned))
    tainted = _with_taints(
        small_node("d", 2, zone="x"), Taint("node.kubernetes.io/not-ready", "NoSchedule"), Taint("team", "NoSchedule")
    )
    cluster.add(tainted, daemon, running_pod("other", "d"))
    columns = cluster.context.cache.columns
    template = present(NodeTemplate.of_node(columns, "d"))
    made, pods = next(template.copies(columns))
    assert made.metadata.name == made.metadata.labels["kubernetes.io/hostname"] == "d-new-1"
    assert [taint.key for taint in made.spec.taints] == ["team"]
    assert [info.pod.metadata.name for info in pods] == ["agent-d-new-1"]
    assert NodeTemplate.of_node(columns, "missing") is None


def _with_taints(given: Node, *taints: Taint) -> Node:
    return replace(given, spec=replace(given.spec, taints=taints))


def test_daemons_take_room_of_new_nodes() -> None:
    """The bound and the trials count the daemons of the template."""
    made = default_rig(small_node("a", 2))
    daemon = running_pod("agent", "a")
    owned = (OwnerReference("DaemonSet", "agent", "uid", "apps/v1", controller=True),)
    made.add(replace(daemon, metadata=replace(daemon.metadata, owner_references=owned)))
    template = NodeTemplate.of_node(made.columns, "a")
    pods = [pod(f"p{number}", requests=cpus(1)) for number in range(3)]
    found = answer(made, *pods, template=template, max_new=5)
    assert (found.verdict, found.least_new_nodes) == (FitVerdict.FITS_WITH_NEW_NODES, 2)


def test_terminating_pods_are_awaited(cluster: Rig) -> None:
    """Pods that already terminate are no victims of a gang."""
    cluster.add(terminating_pod(running_pod("v-c", "c", cpus=2)))
    found = answer(cluster, *members(6, priority=5), groups=(group(min_member=6, priority=5),))
    assert found.verdict is FitVerdict.FITS_AFTER_EVICTIONS
    assert [info.pod.metadata.name for info in present(found.chosen).awaited] == ["v-c"]
    assert present(found.chosen).victims == []


def test_a_claim_that_exists(cluster: Rig) -> None:
    """A claim of the cluster keeps its devices, although the request has one of the same name."""
    devices = cluster.context.cache.columns.devices
    devices.assign(device_class())
    devices.assign(slice_of([device("gpu-0"), device("gpu-1")], node="a"))
    devices.assign(allocated_claim({"device": "gpu-0", "pool": "a"}))
    written = with_meta(claim(exactly("gpu"), name="held"), uid="written")
    users = [
        using(pod(name, namespace="ns", requests=cpus(1)), claimed) for name, claimed in (("p", "held"), ("q", "new"))
    ]
    found = answer(cluster, *users, claims=(written, claim(exactly("gpu"), name="new")))
    assert nodes_of(found) == {"p": "a", "q": "a"}
    assert devices.claims.get("ns/held") is not None
    assert (
        answer(cluster, *users, claims=(claim(exactly("gpu", count=2), name="new"),)).verdict is FitVerdict.DOES_NOT_FIT
    )


@table(
    "on_other_node, verdict",
    ("slices-of-the-node", False, FitVerdict.FITS_WITH_NEW_NODES),
    ("pool-with-a-slice-of-another-node", True, FitVerdict.DOES_NOT_FIT),
)
def test_copies_have_the_devices_of_their_node(cluster: Rig, on_other_node: bool, verdict: FitVerdict) -> None:
    """A copy has the devices of the node, none of which is in use; an incomplete pool serves no claim."""
    devices = cluster.context.cache.columns.devices
    devices.assign(device_class())
    devices.assign(slice_of([device("gpu-0")], node="a", count=1 + on_other_node))
    if on_other_node:
        devices.assign(slice_of([device("gpu-1")], node="b", pool="a", name="second", count=2))
    devices.assign(allocated_claim({"device": "gpu-0", "pool": "a"}, {"device": "gpu-1", "pool": "a"}))
    made = using(pod("p", namespace="ns", requests=cpus(1)), "c0")
    template = NodeTemplate.of_node(cluster.context.cache.columns, "a")
    found = answer(cluster, made, claims=(claim(exactly("gpu")),), template=template, max_new=2)
    assert found.verdict is verdict
    if found.with_new_nodes is not None:
        assert found.with_new_nodes.new_nodes == ("a-new-1",)
