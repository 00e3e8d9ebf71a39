"""DefaultPreemption: who may, where, whom, and in which words."""

from collections.abc import Sequence
from datetime import UTC, datetime

import pytest

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.framework.cluster_events import Action, ClusterEvent, Hint, Resource
from scheduler_core.framework.status import Code
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.workloads import PodDisruptionBudget
from scheduler_core.plugins.default_preemption import DefaultPreemption, after_pod_deletion
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.preemption import PreemptionWorld, budget, started

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
BY_SCHEDULER = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")
BY_API = PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI")
WEB = {"app": "web"}


def runs(name: str, on: str = "a", priority: int = 0, cpu: str = "1", *, start: int = 0, app: str = "") -> Pod:
    labels = {"app": app} if app else {}
    return pod(name, node_name=on, priority=priority, requests={"cpu": cpu}, start_time=started(start), labels=labels)


def wants(cpu: str, priority: int = 10, policy: str = "", nominated: str = "") -> Pod:
    return pod("wants", priority=priority, requests={"cpu": cpu}, preemption_policy=policy, nominated_node=nominated)


FULL = [runs("p0", start=0), runs("p1", start=1), runs("p2", priority=5, start=2), runs("p3", priority=20, start=3)]


def victims(pods: Sequence[Pod], wanted: Pod, budgets: Sequence[PodDisruptionBudget] = ()) -> tuple[list[str], int]:
    preview = PreemptionWorld([node("a")], pods, budgets).preview(wanted)
    assert preview is not None
    (candidate,) = preview.candidates
    return [info.pod.metadata.name for info in candidate.victims], candidate.pdb_violations


@pytest.mark.parametrize(
    ("wanted", "leave"),
    [
        pytest.param(wants("1"), ["p1"], id="the-youngest-of-the-lowest"),
        pytest.param(wants("2"), ["p0", "p1"], id="both-of-the-lowest"),
        pytest.param(wants("3"), ["p2", "p0", "p1"], id="all-of-lower-priority-most-important-first"),
        pytest.param(wants("1", priority=1), ["p1"], id="barely-higher"),
    ],
)
def test_the_least_important_leave(wanted: Pod, leave: list[str]) -> None:
    """The most important come back first, the longest running among equals."""
    assert victims(FULL, wanted) == (leave, 0)


@pytest.mark.parametrize(
    ("pods", "budgets", "expected"),
    [
        pytest.param(
            [runs("p0", start=0, app="web", cpu="2"), runs("p1", start=1, cpu="2")],
            [budget("b", WEB, 0)],
            (["p1"], 0),
            id="protected-comes-back-first",
        ),
        pytest.param(
            [runs("p0", start=0, app="web", cpu="2"), runs("p1", start=1, app="web", cpu="2")],
            [budget("b", WEB, 1)],
            (["p0"], 0),
            id="the-allowed-one-is-the-more-important",
        ),
        pytest.param(
            [runs("p0", start=0, app="web", cpu="2"), runs("p1", start=1, app="web", cpu="2")],
            [budget("b", WEB, 0)],
            (["p1"], 1),
            id="no-way-around",
        ),
        pytest.param(
            [runs("p0", start=0, app="web", cpu="2"), runs("p1", start=1, app="web", cpu="2")],
            [budget("b", WEB, 0, disrupted=["p1"])],
            (["p1"], 0),
            id="disrupted-already",
        ),
        pytest.param(
            [runs("p0", start=0, app="web", cpu="2"), runs("p1", start=1, app="web", cpu="2")],
            [budget("b", WEB, 0, namespace="shop")],
            (["p1"], 0),
            id="of-another-namespace",
        ),
        pytest.param(
            [runs("p0", start=0, app="web", cpu="4", priority=1), runs("p1", on="gone", app="web")],
            [budget("b", WEB, 1), budget("c", WEB, 0)],
            (["p0"], 1),
            id="one-budget-of-two",
        ),
    ],
)
def test_budgets(pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], expected: tuple[list[str], int]) -> None:
    """Pods beyond what their budgets allow, counted by importance, come back before all others."""
    assert victims(pods, wants("2"), budgets) == expected


def test_a_violated_budget_leaves_later_ones_as_they_are() -> None:
    """The second pod, which only the second budget protects, may be evicted: the first pod did not use it up."""
    both = runs("p0", priority=3, cpu="2", app="web")
    one = pod("p1", priority=2, node_name="a", requests={"cpu": "2"}, labels={"tier": "web"})
    both.metadata.labels["tier"] = "web"
    budgets = [budget("b", WEB, 0), budget("c", {"tier": "web"}, 1)]
    assert victims([both, one], wants("4"), budgets) == (["p0", "p1"], 1)


def test_victims_of_both_kinds_are_ordered_by_importance() -> None:
    """However they were chosen."""
    pods = [runs("p0", priority=1, cpu="2", app="web"), runs("p1", priority=3, cpu="2")]
    assert victims(pods, wants("4"), [budget("b", WEB, 0)]) == (["p1", "p0"], 1)


def test_takes_the_least_harmful_node() -> None:
    """Of two nodes, the one whose victim is less important."""
    world = PreemptionWorld([node("a"), node("b")], [runs("p0", "a", 5, "4"), runs("p1", "b", 4, "4")])
    result = world.post_filter(wants("2"))
    assert (result.status.code, result.nominated_node) == (Code.SUCCESS, "b")
    said = "preemption: found a potential placement for pod on node b, preempting 1 victims"
    assert result.status.reasons == (said,)
    assert [deletion.name for deletion in world.writer.deletions] == ["p1"]


def test_a_nominated_pod_keeps_its_room() -> None:
    """What was freed for a pod of no lower priority is not taken by this one."""
    nominated = pod("nominated", priority=10, requests={"cpu": "2"}, nominated_node="a")
    assert victims([*FULL, nominated], wants("1")) == (["p2", "p0", "p1"], 0)


@pytest.mark.parametrize(
    ("wanted", "pods", "message"),
    [
        pytest.param(
            wants("1", policy="Never"), FULL, "preemption: not eligible due to preemptionPolicy=Never.", id="never"
        ),
        pytest.param(
            wants("1", nominated="a"),
            [
                *FULL[1:],
                pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_SCHEDULER]),
            ],
            "preemption: not eligible due to a terminating pod on the nominated node.",
            id="victims-on-their-way",
        ),
    ],
)
def test_who_may_not(wanted: Pod, pods: Sequence[Pod], message: str) -> None:
    """A pod that must wait keeps its nomination."""
    result = PreemptionWorld([node("a")], pods).post_filter(wanted)
    assert (result.status.code, result.status.message) == (Code.UNSCHEDULABLE, message)
    assert result.nominated_node is None


@pytest.mark.parametrize(
    "ending",
    [
        pytest.param(pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED), id="by-anyone"),
        pytest.param(
            pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_API]), id="by-the-api"
        ),
        pytest.param(pod("e", node_name="a", requests={"cpu": "1"}, conditions=[BY_SCHEDULER]), id="not-ending"),
        pytest.param(
            pod("e", node_name="a", priority=10, requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_SCHEDULER]),
            id="of-no-lower-priority",
        ),
    ],
)
def test_only_its_own_kind_of_victims_is_waited_for(ending: Pod) -> None:
    """A pod that ends for another reason on the nominated node does not keep it from preempting."""
    result = PreemptionWorld([node("a")], [*FULL[1:], ending]).post_filter(wants("1", nominated="a"))
    assert (result.status.code, result.nominated_node) == (Code.SUCCESS, "a")


def test_a_hopeless_nominated_node_is_not_waited_for() -> None:
    """The node was cordoned meanwhile: another one is looked for."""
    ending = pod("e", node_name="a", requests={"cpu": "4"}, deleted=DELETED, conditions=[BY_SCHEDULER])
    world = PreemptionWorld([node("a", unschedulable=True), node("b")], [ending, runs("p0", "b", cpu="4")])
    assert world.post_filter(wants("1", nominated="a")).nominated_node == "b"


def test_says_why_it_does_not_help() -> None:
    """Counts are over all nodes, including those that were not tried; the nomination is cleared."""
    nodes = [node("a"), node("b"), node("c", unschedulable=True), node("d")]
    pods = [runs("p0", "a", 10, "4"), runs("p1", "b", 20, "3"), runs("p2", "b", 0, "1"), runs("p3", "d", 10, "4")]
    result = PreemptionWorld(nodes, pods).post_filter(wants("2"))
    assert (result.status.code, result.nominated_node) == (Code.UNSCHEDULABLE, "")
    assert result.status.message == (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_where_no_node_can_be_helped() -> None:
    """Nothing is tried."""
    result = PreemptionWorld([node("a")], FULL).post_filter(wants("64"))
    assert result.status.message == ("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


@pytest.mark.parametrize(
    ("percentage", "absolute", "found"),
    [
        pytest.param(10, 100, 40, id="all-of-few"),
        pytest.param(50, 1, 20, id="a-share"),
        pytest.param(10, 30, 30, id="at-least"),
        pytest.param(0, 1, 1, id="one"),
    ],
)
def test_looks_for_enough_candidates(percentage: int, absolute: int, found: int) -> None:
    """The larger of a share of the nodes that may be helped and a number."""
    names = [f"n{index}" for index in range(40)]
    world = PreemptionWorld([node(name) for name in names], [runs(f"p{name}", name, cpu="4") for name in names])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute)
    preview = world.preview(wants("1"), DefaultPreemption(args, world.handle))
    assert preview is not None
    assert len(preview.candidates) == found


def test_goes_on_until_one_violates_no_budget() -> None:
    """Candidates that violate budgets do not end the search by their number."""
    names = [f"n{index}" for index in range(40)]
    pods = [runs(f"p{name}", name, cpu="4", app="" if name == "n7" else "web") for name in names]
    world = PreemptionWorld([node(name) for name in names], pods, [budget("b", WEB, 0)])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=2)
    preview = world.preview(wants("1"), DefaultPreemption(args, world.handle))
    assert preview is not None
    assert preview.result.nominated_node == "n7"
    assert len(preview.candidates) <= 3


def test_the_order_of_nodes_does_not_matter() -> None:
    """Where not all nodes are looked at, names and the seed say which ones."""
    names = [f"n{index}" for index in range(40)]
    pods = [runs(f"p{name}", name, cpu="4") for name in names]
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=3)
    found = []
    for order in (names, names[::-1]):
        world = PreemptionWorld([node(name) for name in order], pods)
        preview = world.preview(wants("1"), DefaultPreemption(args, world.handle))
        assert preview is not None
        found.append([candidate.node_name for candidate in preview.candidates])
    assert found[0] == found[1]


def test_each_preemption_begins_elsewhere() -> None:
    """So that not always the same nodes give way."""
    names = [f"n{index}" for index in range(40)]
    world = PreemptionWorld([node(name) for name in names], [runs(f"p{name}", name, cpu="4") for name in names])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)
    world.plugin = DefaultPreemption(args, world.handle)
    assert len({world.post_filter(wants("1")).nominated_node for _ in range(8)}) > 1


def test_a_preview_changes_nothing() -> None:
    """It says what the next preemption would do, as often as it is asked."""
    world = PreemptionWorld([node("a")], FULL)
    first, second = world.preview(wants("1")), world.preview(wants("1"))
    assert first == second
    assert first is not None
    assert [info.pod.metadata.name for info in first.evicted] == ["p1"]
    assert (world.writer.deletions, world.writer.events, world.writer.patches) == ([], [], [])


def test_events() -> None:
    """A pod's going opens the gate; whether it helps is for others to say."""
    (registration,) = DefaultPreemption(DefaultPreemptionArgs(), FakeHandle()).events_to_register()
    assert registration.event == ClusterEvent(Resource.ASSIGNED_POD, Action.DELETE)
    assert registration.hint is after_pod_deletion
    assert after_pod_deletion(pod(), runs("gone"), None) is Hint.SKIP
