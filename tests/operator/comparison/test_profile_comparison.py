"""Tests of the comparison of two profiles on one cluster in memory."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import yaml
from bayplan.comparison import (
    Change,
    ComparedProfile,
    Comparison,
    PodSelection,
    Reschedule,
    compare,
    parse_label_query,
)
from bayplan.simulation.admission import AdmittedCluster, admit
from bayplan.simulation.cluster_files import ClusterFiles, Place, Placed, read_cluster_files
from bayplan.simulation.memory_cluster import installed_plugins
from bayplan.simulation.simulation import SimulationOptions
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.errors import ConfigError
from tests.support.manifests import Manifest, profile_manifest
from tests.support.presence import present

PACK: Manifest = {
    "pluginConfig": [{"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}],
    "plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesBalancedAllocation"}]}},
}


def node(name: str, cpu: str = "4", zone: str = "", **spec: Any) -> Manifest:
    labels = {"topology.kubernetes.io/zone": zone} if zone else {}
    status = {"capacity": {"cpu": cpu, "memory": "16Gi", "pods": "10"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": status,
    }


def pod(name: str, cpu: str = "1", *, on: str = "", **fields: Any) -> Manifest:
    spec = {
        "schedulerName": fields.pop("profile", "batch"),
        "containers": [{"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}],
        **fields.pop("spec", {}),
    }
    if on:
        spec["nodeName"] = on
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "shop", **fields}, "spec": spec}


def cluster_of(tmp_path_factory: Any, *objects: Manifest) -> AdmittedCluster:
    path = tmp_path_factory.mktemp("cluster") / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects))
    return admit(read_cluster_files([str(path)]))


def profile(spec: Manifest, title: str = "", name: str = "batch") -> ComparedProfile:
    return ComparedProfile(title or name, Placed(profile_manifest(name, spec), Place("test", 0)))


def compare_profiles(
    cluster: AdmittedCluster, after: Manifest, state: str = "no", *, before: Manifest | None = None, **query: str
) -> Comparison:
    """Compare two profiles, by default the default profile with *after*, whatever the name of *after*."""
    selection = PodSelection(Reschedule(state), query.get("namespace", ""), parse_label_query(query.get("labels", "")))
    sides = profile(before or {}, "old"), profile(after, "new", name="candidate")
    return compare(cluster, sides, selection, SimulationOptions(), installed_plugins())


def changes_of(comparison: Comparison) -> dict[str, tuple[Change, str, str, str]]:
    return {
        each.name: (each.change, each.runs_on or "", each.before.node or "", each.after.node or "")
        for each in comparison.differences
    }


@pytest.fixture
def files(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return a function that admits objects."""
    return lambda *objects: cluster_of(tmp_path_factory, *objects)


def test_a_pending_pod_moves(files: Any) -> None:
    """A pending pod moves if the other profile packs, although the other profile has another name."""
    cluster = files(node("a"), node("b"), pod("runs", "2", on="a"), pod("new"))
    found = compare_profiles(cluster, PACK)
    assert changes_of(found) == {"new": (Change.MOVES, "", "b", "a")}
    assert (found.summary.pending, found.summary.rescheduled) == (1, 0)
    assert (found.before.moved_running_pods, found.after.moved_running_pods) == (0, 0)
    assert (found.before.empty_nodes, found.after.empty_nodes) == (0, 1)


def test_a_pod_that_moves_has_the_reason_of_its_decision(files: Any) -> None:
    """The reason has the scores at the decision, without the pods that were decided later."""
    cluster = files(node("a"), node("b"), pod("runs", "2", on="a"), pod("new"), pod("next", "500m"))
    reasons = {each.name: each.reason for each in compare_profiles(cluster, PACK).differences}
    # CPU and memory have weight 1, and no request of memory counts as 200 MB: (75 + 2) / 2 on a, (25 + 1) / 2 on b.
    assert reasons["new"] == "NodeResourcesFit scores a 38, b 13"


def test_a_pod_whose_old_node_is_rejected_has_the_filter_as_reason(files: Any) -> None:
    """If the second profile rejects the old node, the reason is that of the plugin that rejects it."""
    cluster = files(node("a"), node("b", unschedulable=True), pod("runs", "2", on="a"), pod("new"))
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}, {"name": "TaintToleration"}]}}}
    (found,) = compare_profiles(cluster, {}, before=lenient).differences
    assert (found.before.node, found.after.node) == ("b", "a")
    assert found.reason == "NodeUnschedulable rejects b: node(s) were unschedulable"


def test_feasibility_changes(files: Any) -> None:
    """A pod that no longer fits or fits now is a difference with the reason of its PodScheduled condition."""
    cluster = files(node("a"), pod("large", "9"))
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeResourcesFit"}]}}}
    found = compare_profiles(cluster, {}, before=lenient)
    assert changes_of(found) == {"large": (Change.NO_LONGER_FITS, "", "a", "")}
    assert "Insufficient cpu" in present(found.differences[0].after.reason)
    assert changes_of(compare_profiles(cluster, lenient)) == {"large": (Change.FITS_NOW, "", "", "a")}


def test_another_reason_is_a_difference(files: Any) -> None:
    """A pod that is infeasible under both profiles differs if the reasons differ."""
    cluster = files(node("a", unschedulable=True), pod("large", "9"))
    lenient = {"plugins": {"multiPoint": {"disabled": [{"name": "NodeUnschedulable"}]}}}
    assert changes_of(compare_profiles(cluster, lenient)) == {"large": (Change.OTHER_REASON, "", "", "")}


def test_running_pods_from_the_empty_state(files: Any) -> None:
    """From the empty state all selected pods leave their nodes, and moves are counted from their present nodes."""
    cluster = files(node("a"), node("b"), pod("one", on="a"), pod("two", on="b"))
    found = compare_profiles(cluster, PACK, "empty")
    assert (found.summary.pending, found.summary.rescheduled) == (0, 2)
    assert found.after.moved_running_pods == 1
    assert found.after.empty_nodes == 1
    assert found.before.empty_nodes == 0


def test_running_pods_from_the_present_state(files: Any) -> None:
    """From the present state each pod is restarted while the others run."""
    cluster = files(node("a"), node("b"), pod("one", on="a"), pod("two", on="b"))
    found = compare_profiles(cluster, PACK, "present")
    # The first pod moves to the node of the second; the second, restarted next, stays there.
    assert changes_of(found)["one"] == (Change.MOVES, "a", "a", "b")
    assert found.after.moved_running_pods == 1
    assert found.after.empty_nodes == 1


def test_a_restarted_pod_frees_its_own_requests(files: Any) -> None:
    """A restarted pod that is feasible only on its present node stays there."""
    cluster = files(node("a", "2"), node("b", "1"), pod("large", "2", on="a"))
    found = compare_profiles(cluster, PACK, "present")
    assert (found.differences, found.after.moved_running_pods, found.after.scheduled) == ((), 0, 1)


@pytest.mark.parametrize("state", ["empty", "present"])
def test_pods_that_are_not_rescheduled(files: Any, state: str) -> None:
    """Unselected pods and pods that cannot be restarted stay on their nodes."""
    owned, static = (
        [{"apiVersion": "v1", "kind": kind, "name": "a", "uid": "a", "controller": True}]
        for kind in ("DaemonSet", "Node")
    )
    web = {"app": "web"}
    claims = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "c"}]}
    cluster = files(
        node("a", "16"),
        pod("agent", on="a", ownerReferences=owned, labels=web),
        pod("static", on="a", ownerReferences=static, labels=web),
        pod("ends", on="a", deletionTimestamp="2026-01-01T00:00:00Z", labels=web),
        pod("device", on="a", spec=claims, labels=web),
        pod("foreign", on="a", profile="other", labels=web),
        pod("unlabelled", on="a"),
        pod("web", on="a", labels=web),
    )
    found = compare_profiles(cluster, PACK, state, namespace="shop", labels="app in (web, api)")
    assert found.summary.rescheduled == 1
    assert [notice.partition(": ")[2] for notice in found.notices if "stay" in notice] == [
        "they are being deleted",
        "they are static pods",
        "they belong to DaemonSets",
        "they have resource claims",
    ]
    assert compare_profiles(cluster, PACK, state, namespace="elsewhere").summary.rescheduled == 0


def test_members_of_a_gang_restart_together(files: Any) -> None:
    """The members of a gang are restarted together, because one by one they could not meet its quorum."""
    group = {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": "train", "namespace": "shop"},
    }
    members = [pod(f"m{number}", on="a", labels={"bayplan.dev/pod-group": "train"}) for number in range(2)]
    cluster = files(node("a"), node("b"), {**group, "spec": {"minMember": 2}}, *members)
    found = compare_profiles(cluster, PACK, "present")
    assert (found.summary.rescheduled, found.before.scheduled, found.after.scheduled) == (2, 2, 2)


def test_preemption_under_one_profile_only(files: Any) -> None:
    """A running pod that only one profile preempts is a difference."""
    priority = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "high"}, "value": 9}
    cluster = files(
        priority, node("a"), pod("victim", "4", on="a"), pod("new", "4", spec={"priorityClassName": "high"})
    )
    never = {"plugins": {"multiPoint": {"disabled": [{"name": "DefaultPreemption"}]}}}
    assert changes_of(compare_profiles(cluster, never)) == {
        "victim": (Change.SPARED, "a", "", "a"),
        "new": (Change.NO_LONGER_FITS, "", "a", ""),
    }
    assert changes_of(compare_profiles(cluster, {}, before=never))["victim"] == (Change.PREEMPTED, "a", "a", "")


def test_packing_figures(files: Any) -> None:
    """The shares of unusable resources and the imbalance are computed from free amounts and requests."""
    cluster = files(node("a", "4", "x"), node("b", "5", "y"), pod("runs", "1", on="a"), pod("new", "3500m", on="b"))
    side = compare_profiles(cluster, {}, "present").before
    assert side.resources["cpu"].unusable_share_of_free == pytest.approx((0 + 1) / 2)
    assert side.resources["cpu"].imbalance == pytest.approx(abs(1 / 4 - 3.5 / 5) / 2)
    assert side.zone_skew == 0
    assert side.resources["cpu"].requested == 4500


def test_a_cluster_without_pods_of_the_profile(files: Any) -> None:
    """A notice reports that no pod was compared."""
    found = compare_profiles(files(node("a"), pod("foreign", profile="other")), PACK)
    assert found.notices == ("there is no pending pod with schedulerName batch, and no running one is decided again",)


def test_an_invalid_profile_is_rejected(files: Any) -> None:
    """The problem of an invalid profile names its place."""
    with pytest.raises(ConfigError, match=r"test \(SchedulerProfile batch\): spec\.plugins\.score\.enabled"):
        compare_profiles(files(node("a"), pod("new")), {"plugins": {"score": {"enabled": [{"name": "Nope"}]}}})


PODS = st.lists(
    st.tuples(st.sampled_from(["100m", "1", "2500m", "5"]), st.sampled_from(["", "n0", "n1", "n2"])), max_size=12
)
SIZES = st.lists(st.sampled_from(["2", "4", "8"]), min_size=3, max_size=3)


@settings(max_examples=25, deadline=None)
@given(
    pods=PODS,
    sizes=st.lists(st.sampled_from(["2", "4", "8"]), min_size=3, max_size=3),
    state=st.sampled_from(Reschedule),
)
def test_equal_profiles_have_no_differences(pods: list[tuple[str, str]], sizes: list[str], state: Reschedule) -> None:
    """Equal profiles decide equally for every cluster and every selection of pods."""
    files = ClusterFiles()
    nodes = [node(f"n{number}", size) for number, size in enumerate(sizes)]
    bodies = [*nodes, *(pod(f"p{number}", cpu, on=on) for number, (cpu, on) in enumerate(pods))]
    decoded = files.decoded
    for body in bodies:
        if body["kind"] == "Node":
            files.nodes.append(Placed(msgspec.convert(body, decoded.node), Place("law", 0)))
        else:
            files.pods.append(Placed(msgspec.convert(body, decoded.pod), Place("law", 0)))
    found = compare_profiles(admit(files), {}, state.value)
    assert found.differences == ()
    assert msgspec.structs.replace(found.before, profile="") == msgspec.structs.replace(found.after, profile="")
    assert found.before.moved_running_pods == found.after.moved_running_pods
