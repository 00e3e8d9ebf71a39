"""DefaultPreemption: eligible pods, candidate nodes, victims, messages, and the eviction of the victims.

The PreEnqueue gate keeps the preemptor out of the queue until the eviction is finished.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.errors import ClusterWriteError
from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.status import Code
from scheduler_core.framework.waiting_pods import WaitingPod
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.model.workloads import PodDisruptionBudget
from scheduler_core.plugins.default_preemption import DefaultPreemption, after_pod_deletion
from scheduler_core.plugins.default_preemption.candidate_nodes import least_harmful
from scheduler_core.plugins.default_preemption.eviction import Evictions
from scheduler_core.ports import ObjectReference
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.preemption import DeferringWriter, PreemptionWorld, budget, started
from tests.support.presence import present
from tests.support.tables import table

DELETED = datetime(2026, 1, 1, tzinfo=UTC)
BY_SCHEDULER = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler")
BY_API = PodCondition("DisruptionTarget", "True", "EvictionByEvictionAPI")
WEB = {"app": "web"}


def running(name: str, on: str = "a", priority: int = 0, cpu: str = "1", *, start: int = 0, app: str = "") -> Pod:
    labels = {"app": app} if app else {}
    return pod(name, node_name=on, priority=priority, requests={"cpu": cpu}, start_time=started(start), labels=labels)


def preemptor(cpu: str, priority: int = 10, policy: str = "", nominated: str = "") -> Pod:
    return pod(
        "preemptor", priority=priority, requests={"cpu": cpu}, preemption_policy=policy, nominated_node=nominated
    )


FULL = [
    running("p0", start=0),
    running("p1", start=1),
    running("p2", priority=5, start=2),
    running("p3", priority=20, start=3),
]


def victims(pods: Sequence[Pod], incoming: Pod, budgets: Sequence[PodDisruptionBudget] = ()) -> tuple[list[str], int]:
    preview = present(PreemptionWorld([node("a")], pods, budgets).preview(incoming))
    (candidate,) = preview.candidates
    return [info.pod.metadata.name for info in candidate.victims], candidate.pdb_violations


@table(
    "incoming, expected",
    ("the-youngest-of-the-lowest-priority", preemptor("1"), ["p1"]),
    ("both-of-the-lowest-priority", preemptor("2"), ["p0", "p1"]),
    ("all-of-lower-priority-most-important-first", preemptor("3"), ["p2", "p0", "p1"]),
    ("priority-higher-by-one", preemptor("1", priority=1), ["p1"]),
)
def test_the_least_important_pods_are_victims(incoming: Pod, expected: list[str]) -> None:
    """Pods are reprieved in order of importance: by priority, then the longest running."""
    assert victims(FULL, incoming) == (expected, 0)


@table(
    "pods, budgets, expected",
    (
        "protected-pod-is-reprieved-first",
        [running("p0", start=0, app="web", cpu="2"), running("p1", start=1, cpu="2")],
        [budget("b", WEB, 0)],
        (["p1"], 0),
    ),
    (
        "the-more-important-pod-uses-the-allowed-disruption",
        [running("p0", start=0, app="web", cpu="2"), running("p1", start=1, app="web", cpu="2")],
        [budget("b", WEB, 1)],
        (["p0"], 0),
    ),
    (
        "violation-is-unavoidable",
        [running("p0", start=0, app="web", cpu="2"), running("p1", start=1, app="web", cpu="2")],
        [budget("b", WEB, 0)],
        (["p1"], 1),
    ),
    (
        "disruption-already-counted",
        [running("p0", start=0, app="web", cpu="2"), running("p1", start=1, app="web", cpu="2")],
        [budget("b", WEB, 0, disrupted=["p1"])],
        (["p1"], 0),
    ),
    (
        "budget-of-another-namespace",
        [running("p0", start=0, app="web", cpu="2"), running("p1", start=1, app="web", cpu="2")],
        [budget("b", WEB, 0, namespace="shop")],
        (["p1"], 0),
    ),
    (
        "one-budget-of-two",
        [running("p0", start=0, app="web", cpu="4", priority=1), running("p1", on="gone", app="web")],
        [budget("b", WEB, 1), budget("c", WEB, 0)],
        (["p0"], 1),
    ),
)
def test_budgets(pods: Sequence[Pod], budgets: Sequence[PodDisruptionBudget], expected: tuple[list[str], int]) -> None:
    """Pods that cannot be evicted without a budget violation, counted by importance, are reprieved first."""
    assert victims(pods, preemptor("2"), budgets) == expected


def test_a_violated_budget_does_not_reduce_later_ones() -> None:
    """The second pod may be evicted, because the first pod violated the first budget and did not use the second."""
    both = running("p0", priority=3, cpu="2", app="web")
    one = pod("p1", priority=2, node_name="a", requests={"cpu": "2"}, labels={"tier": "web"})
    both.metadata.labels["tier"] = "web"
    budgets = [budget("b", WEB, 0), budget("c", {"tier": "web"}, 1)]
    assert victims([both, one], preemptor("4"), budgets) == (["p0", "p1"], 1)


def test_victims_are_sorted_by_importance() -> None:
    """Victims with and without budget violations are sorted together."""
    pods = [running("p0", priority=1, cpu="2", app="web"), running("p1", priority=3, cpu="2")]
    assert victims(pods, preemptor("4"), [budget("b", WEB, 0)]) == (["p1", "p0"], 1)


def test_the_node_with_the_least_important_victim_is_nominated() -> None:
    """The node with the victim of lower priority is nominated, and the victim is deleted."""
    world = PreemptionWorld([node("a"), node("b")], [running("p0", "a", 5, "4"), running("p1", "b", 4, "4")])
    result = world.post_filter(preemptor("2"))
    assert (result.status.code, result.nominated_node) == (Code.SUCCESS, "b")
    message = "preemption: found a potential placement for pod on node b, preempting 1 victims"
    assert result.status.reasons == (message,)
    assert [deletion.name for deletion in world.writer.deletions] == ["p1"]


def test_resources_of_a_nominated_pod_are_reserved() -> None:
    """Resources that were freed for a nominated pod of equal or higher priority count as used."""
    nominated = pod("nominated", priority=10, requests={"cpu": "2"}, nominated_node="a")
    assert victims([*FULL, nominated], preemptor("1")) == (["p2", "p0", "p1"], 0)


@table(
    "incoming, pods, message",
    ("never", preemptor("1", policy="Never"), FULL, "preemption: not eligible due to preemptionPolicy=Never."),
    (
        "victims-are-terminating",
        preemptor("1", nominated="a"),
        [*FULL[1:], pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_SCHEDULER])],
        "preemption: not eligible due to a terminating pod on the nominated node.",
    ),
)
def test_ineligible_pods(incoming: Pod, pods: Sequence[Pod], message: str) -> None:
    """An ineligible pod is unschedulable, and its nomination does not change."""
    result = PreemptionWorld([node("a")], pods).post_filter(incoming)
    assert (result.status.code, result.status.message) == (Code.UNSCHEDULABLE, message)
    assert result.nominated_node is None


@table(
    "ending",
    ("deleted-without-a-condition", pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED)),
    ("evicted-by-the-api", pod("e", node_name="a", requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_API])),
    ("not-terminating", pod("e", node_name="a", requests={"cpu": "1"}, conditions=[BY_SCHEDULER])),
    (
        "equal-priority",
        pod("e", node_name="a", priority=10, requests={"cpu": "1"}, deleted=DELETED, conditions=[BY_SCHEDULER]),
    ),
)
def test_only_terminating_preemption_victims_block_preemption(ending: Pod) -> None:
    """A pod on the nominated node that is not a terminating preemption victim does not block preemption."""
    result = PreemptionWorld([node("a")], [*FULL[1:], ending]).post_filter(preemptor("1", nominated="a"))
    assert (result.status.code, result.nominated_node) == (Code.SUCCESS, "a")


def test_an_unresolvable_nominated_node_is_replaced() -> None:
    """If the nominated node was cordoned, another node is nominated."""
    ending = pod("e", node_name="a", requests={"cpu": "4"}, deleted=DELETED, conditions=[BY_SCHEDULER])
    world = PreemptionWorld([node("a", unschedulable=True), node("b")], [ending, running("p0", "b", cpu="4")])
    assert world.post_filter(preemptor("1", nominated="a")).nominated_node == "b"


def test_message_if_preemption_does_not_help() -> None:
    """The message counts all nodes, including those that were not dry-run; the nomination is cleared."""
    nodes = [node("a"), node("b"), node("c", unschedulable=True), node("d")]
    pods = [
        running("p0", "a", 10, "4"),
        running("p1", "b", 20, "3"),
        running("p2", "b", 0, "1"),
        running("p3", "d", 10, "4"),
    ]
    result = PreemptionWorld(nodes, pods).post_filter(preemptor("2"))
    assert (result.status.code, result.nominated_node) == (Code.UNSCHEDULABLE, "")
    assert result.status.message == (
        "preemption: 0/4 nodes are available: 1 Insufficient cpu, 1 Preemption is not helpful for scheduling, "
        "2 No preemption victims found for incoming pod."
    )


def test_no_candidate_nodes() -> None:
    """If the pod does not fit an empty node, no node is dry-run."""
    result = PreemptionWorld([node("a")], FULL).post_filter(preemptor("64"))
    assert result.status.message == ("preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling.")


@table(
    "percentage, absolute, found",
    ("absolute-above-the-number-of-nodes", 10, 100, 40),
    ("percentage", 50, 1, 20),
    ("absolute", 10, 30, 30),
    ("one", 0, 1, 1),
)
def test_number_of_candidates(percentage: int, absolute: int, found: int) -> None:
    """The number is the larger of minCandidateNodesPercentage and minCandidateNodesAbsolute."""
    names = [f"n{index}" for index in range(40)]
    world = PreemptionWorld([node(name) for name in names], [running(f"p{name}", name, cpu="4") for name in names])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=percentage, min_candidate_nodes_absolute=absolute)
    preview = present(world.preview(preemptor("1"), DefaultPreemption(args, world.handle)))
    assert len(preview.candidates) == found


def test_the_search_continues_until_a_candidate_violates_no_budget() -> None:
    """Candidates with budget violations do not count towards the number of candidates."""
    names = [f"n{index}" for index in range(40)]
    pods = [running(f"p{name}", name, cpu="4", app="" if name == "n7" else "web") for name in names]
    world = PreemptionWorld([node(name) for name in names], pods, [budget("b", WEB, 0)])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=2)
    preview = present(world.preview(preemptor("1"), DefaultPreemption(args, world.handle)))
    assert preview.result.nominated_node == "n7"
    assert len(preview.candidates) <= 3


def test_the_order_of_nodes_does_not_matter() -> None:
    """If not all nodes are dry-run, the selection depends on node names and the seed only."""
    names = [f"n{index}" for index in range(40)]
    pods = [running(f"p{name}", name, cpu="4") for name in names]
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=3)
    found = []
    for order in (names, names[::-1]):
        world = PreemptionWorld([node(name) for name in order], pods)
        preview = present(world.preview(preemptor("1"), DefaultPreemption(args, world.handle)))
        found.append([candidate.node_name for candidate in preview.candidates])
    assert found[0] == found[1]


def test_each_preemption_starts_at_another_node() -> None:
    """The start of the search is random, so that victims are not always on the same nodes."""
    names = [f"n{index}" for index in range(40)]
    world = PreemptionWorld([node(name) for name in names], [running(f"p{name}", name, cpu="4") for name in names])
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=1)
    world.plugin = DefaultPreemption(args, world.handle)
    assert len({world.post_filter(preemptor("1")).nominated_node for _ in range(8)}) > 1


def test_a_preview_changes_nothing() -> None:
    """preview() returns the result of the next preemption, evicts nothing, and can be repeated."""
    world = PreemptionWorld([node("a")], FULL)
    first, second = world.preview(preemptor("1")), world.preview(preemptor("1"))
    assert first == second
    assert first is not None
    assert [info.pod.metadata.name for info in first.evicted] == ["p1"]
    assert (world.writer.deletions, world.writer.events, world.writer.patches) == ([], [], [])


def test_hint() -> None:
    """The hint for a deleted pod returns Skip, as other plugins decide."""
    assert after_pod_deletion(pod(), running("gone"), None) is Hint.SKIP


class Victims(NamedTuple):
    violations: int
    pods: list[tuple[int, int]]
    """Priority, and minute of the start, of each victim."""


def chosen(*candidates: Victims) -> int:
    compiled = columns([node("a")], []).compile_pod
    made = [
        PreemptionCandidate(
            "a",
            tuple(compiled(pod(priority=priority, start_time=started(minute))) for priority, minute in each.pods),
            each.violations,
        )
        for each in candidates
    ]
    best = least_harmful(made, started(60))
    return [each is best for each in made].index(True)


@table(
    "worse, better",
    ("violations-first", Victims(1, [(0, 9)]), Victims(0, [(9, 0), (9, 0)])),
    ("then-highest-priority", Victims(0, [(5, 9)]), Victims(0, [(4, 0), (4, 0), (4, 0)])),
    ("then-sum", Victims(0, [(5, 9), (1, 9)]), Victims(0, [(5, 0), (0, 0)])),
    ("more-of-negative-priority-is-worse", Victims(0, [(-5, 9), (-6, 9)]), Victims(0, [(-5, 0)])),
    ("then-later-start-of-the-highest-priority", Victims(0, [(5, 1), (0, 9)]), Victims(0, [(5, 2), (0, 0)])),
    ("the-longest-running-counts", Victims(0, [(5, 1), (5, 9)]), Victims(0, [(5, 2), (5, 2)])),
)
def test_order_of_criteria(worse: Victims, better: Victims) -> None:
    """Each criterion decides only between candidates that are equal in all previous ones, in any order."""
    assert chosen(worse, better) == 1
    assert chosen(better, worse) == 0


def test_the_first_of_equals() -> None:
    """The first of several equal candidates is selected."""
    assert chosen(Victims(0, [(1, 1)]), Victims(0, [(0, 1)]), Victims(0, [(0, 1)])) == 1


def test_fewest_of_equal_sums() -> None:
    """If sums are equal because pods of the lowest priority add 0, the set with fewer victims is selected."""
    lowest = -(2**31)
    assert chosen(Victims(0, [(5, 0), (lowest, 0)]), Victims(0, [(5, 0)])) == 1


_CANDIDATES = st.builds(
    Victims,
    st.integers(0, 2),
    st.lists(st.tuples(st.sampled_from([-(2**31), -1, 0, 1, 2**31 - 1]), st.integers(0, 3)), min_size=1, max_size=4),
)


@given(st.lists(_CANDIDATES, min_size=1, max_size=6))
def test_equals_the_plain_form(candidates: list[Victims]) -> None:
    """The selected candidate is the first with the minimal cost."""

    def cost(candidate: Victims) -> tuple[int, ...]:
        highest = max(priority for priority, _ in candidate.pods)
        total = sum(priority + 2**31 for priority, _ in candidate.pods)
        longest = min(start for priority, start in candidate.pods if priority == highest)
        return candidate.violations, highest, total, len(candidate.pods), -longest

    costs = [cost(candidate) for candidate in candidates]
    assert chosen(*candidates) == costs.index(min(costs))


FAILURE = ClusterWriteError("no answer")
MESSAGE = "default-scheduler: preempting to accommodate a higher priority pod"


class Waiting(WaitingPod):
    """A pod that waits at Permit; ``is_over`` if the wait has already ended."""

    is_refused = False

    def __init__(self, info: PodInfo, *, is_over: bool = False) -> None:
        self.pod = info
        self.node_name = "a"
        self.is_over = is_over
        self.rejections: list[tuple[str, str]] = []

    def pending_plugins(self) -> list[str]:
        return []

    def allow(self, plugin: str) -> None:
        raise AssertionError(plugin)

    def reject(self, plugin: str, reason: str) -> bool:
        raise AssertionError((plugin, reason))

    def preempt(self, plugin: str, reason: str) -> bool:
        self.rejections.append((plugin, reason))
        return not self.is_over


@dataclass
class Stage:
    """A node with victims, and the evictions from it."""

    pods: list[Pod]
    writer: DeferringWriter = field(default_factory=DeferringWriter)

    def __post_init__(self) -> None:
        self.nodes = columns([node("a")], self.pods)
        self.handle = FakeHandle(nodes=self.nodes, writer=self.writer)
        self.evictions = Evictions(self.handle, "DefaultPreemption")
        self.preemptor = self.nodes.compile_pod(pod("preemptor", priority=10))
        self.victims = tuple(self.nodes.pods[0].values())

    def start(self) -> None:
        self.evictions.start(self.preemptor, PreemptionCandidate("a", self.victims))

    def is_preempting(self) -> bool:
        return self.evictions.is_preempting(self.preemptor)

    @property
    def deleted(self) -> list[str]:
        return [deletion.name for deletion in self.writer.deletions]

    def answer(self, name: str, fault: Exception | None = None) -> None:
        self.writer.pending_deletions.pop(name)(fault)


def victim(name: str, *, deleted: datetime | None = None) -> Pod:
    made = pod(name, node_name="a")
    return msgspec.structs.replace(made, metadata=msgspec.structs.replace(made.metadata, deletion_timestamp=deleted))


def test_a_victim_is_deleted_with_condition_and_event() -> None:
    """The deletion sets DisruptionTarget; the event names the preemptor and is recorded after the deletion."""
    stage = Stage([victim("v")])
    stage.start()
    (deletion,) = stage.writer.deletions
    assert (deletion.namespace, deletion.name, deletion.uid) == ("default", "v", "uid-of-default-v")
    assert deletion.condition == PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", MESSAGE)
    assert stage.writer.events == []
    stage.answer("v")
    (event,) = stage.writer.events
    assert (event.type, event.reason, event.action) == ("Normal", "Preempted", "Preempting")
    assert event.note == "Preempted by pod uid-of-default-preemptor on node a"
    assert event.reporting_controller == stage.handle.profile_name
    assert event.regarding == ObjectReference("Pod", "v", "default", "uid-of-default-v")
    assert event.related == ObjectReference("Pod", "preemptor", "default", "uid-of-default-preemptor")


@table("generation", ("same", 0), ("another-generation", 3))
def test_an_existing_condition_is_not_set_again(generation: int) -> None:
    """A condition that an earlier eviction attempt set is not written again."""
    made = victim("v")
    conditions = (PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", MESSAGE, generation),)
    stage = Stage([msgspec.structs.replace(made, status=msgspec.structs.replace(made.status, conditions=conditions))])
    stage.start()
    assert [deletion.condition for deletion in stage.writer.deletions] == [None]


def test_the_last_victim_is_deleted_after_the_others() -> None:
    """The gate is closed until the response to the last victim's deletion."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    assert stage.deleted == ["v0", "v1"]
    stage.answer("v1")
    assert stage.deleted == ["v0", "v1"]
    stage.answer("v0")
    assert stage.deleted == ["v0", "v1", "v2"]
    stage.answer("v2")
    assert not stage.is_preempting()
    assert stage.handle.activated == []


def test_a_gated_preemptor_is_activated_at_the_end() -> None:
    """A preemptor that PreEnqueue rejected is activated, because no later event need requeue it."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    assert stage.is_preempting()
    stage.answer("v0")
    assert stage.is_preempting()
    stage.answer("v1")
    assert stage.handle.activated == [stage.preemptor]


@table("is_gone", ("deleted", True), ("terminating", False))
def test_the_watch_event_of_the_last_victim_opens_the_gate(is_gone: bool) -> None:
    """The watch event may arrive before the response, and arrives only once."""
    stage = Stage([victim("v")])
    stage.start()
    assert stage.is_preempting()
    stage.nodes.remove_pod(stage.victims[0])
    if not is_gone:
        stage.nodes.add_pod(stage.nodes.compile_pod(victim("v", deleted=DELETED)), 0)
    assert not stage.is_preempting()


def test_the_watch_event_of_another_victim_does_not_open_the_gate() -> None:
    """The gate is closed until the last victim is evicted."""
    stage = Stage([victim("v0"), victim("v1")])
    stage.start()
    stage.nodes.remove_pod(stage.victims[0])
    assert stage.is_preempting()


def test_a_failed_deletion_cancels_that_of_the_last_victim() -> None:
    """The preemptor is activated, because no event may ever requeue it."""
    stage = Stage([victim("v0"), victim("v1"), victim("v2")])
    stage.start()
    stage.answer("v0", FAILURE)
    stage.answer("v1")
    assert stage.deleted == ["v0", "v1"]
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert [event.regarding.name for event in stage.writer.events] == ["v1"]


def test_a_failed_deletion_of_the_last_victim() -> None:
    """The preemptor is activated, and no event is recorded."""
    stage = Stage([victim("v")])
    stage.start()
    stage.answer("v", FAILURE)
    assert not stage.is_preempting()
    assert stage.handle.activated == [stage.preemptor]
    assert stage.writer.events == []


def test_terminating_victims_are_not_deleted() -> None:
    """If all victims are terminating, the gate is open and no nomination is cleared."""
    stage = Stage([victim("v", deleted=DELETED)])
    nominated = stage.nodes.compile_pod(pod("nominated", priority=1, nominated_node="a"))
    stage.handle.nominator.nominate(nominated, "a")
    stage.start()
    assert (stage.deleted, stage.is_preempting()) == ([], False)
    assert list(stage.handle.nominator.nominated_pods("a")) == [nominated]


def test_a_waiting_victim_is_rejected() -> None:
    """A victim that waits at Permit is rejected and not deleted."""
    stage = Stage([victim("v")])
    waiting = Waiting(stage.victims[0])
    stage.handle.waiting_pods.entries[stage.victims[0].uid] = waiting
    stage.start()
    assert waiting.rejections == [("DefaultPreemption", "preempted")]
    assert (stage.deleted, stage.is_preempting()) == ([], False)
    (event,) = stage.writer.events
    assert event.note == "Preempted by pod uid-of-default-preemptor on node a (in kube-scheduler memory)."


def test_a_victim_that_no_longer_waits_is_deleted() -> None:
    """A victim that no longer waits at Permit is deleted, because it is being bound."""
    stage = Stage([victim("v")])
    stage.handle.waiting_pods.entries[stage.victims[0].uid] = Waiting(stage.victims[0], is_over=True)
    stage.start()
    assert stage.deleted == ["v"]


def test_nominations_of_lower_priority_are_cleared() -> None:
    """Nominations for the node are cleared for pods of lower priority than the preemptor, and only for those."""
    stage = Stage([victim("v")])
    lower, equal = (
        stage.nodes.compile_pod(pod(name, priority=priority, nominated_node="a"))
        for name, priority in (("lower", 9), ("equal", 10))
    )
    unwritten = stage.nodes.compile_pod(pod("unwritten", priority=1))
    for info in (lower, equal, unwritten):
        stage.handle.nominator.nominate(info, "a")
    stage.start()
    assert list(stage.handle.nominator.nominated_pods("a")) == [equal]
    assert [(patch.name, patch.nominated_node_name) for patch in stage.writer.patches] == [("lower", "")]


def test_the_gate() -> None:
    """PreEnqueue rejects the preemptor until the preemption is finished, and accepts other pods."""
    full = [pod("v", node_name="a", requests={"cpu": "4"}, priority=1)]
    world = PreemptionWorld([node("a")], full)
    preemptor = pod("preemptor", priority=10, requests={"cpu": "1"})
    assert world.post_filter(preemptor).status.is_success
    gate = world.plugin.pre_enqueue(world.columns.compile_pod(preemptor))
    assert gate.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert gate.reasons == ("waiting for the preemption for this pod to be finished",)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(pod("other"))).is_success
    world.writer.pending_deletions["v"](None)
    assert world.plugin.pre_enqueue(world.columns.compile_pod(preemptor)).is_success


def test_two_profiles_do_not_share_their_preemptions() -> None:
    """Each plugin instance gates only its own preemptors."""
    stage = Stage([victim("v")])
    one, other = (DefaultPreemption(DefaultPreemptionArgs(), stage.handle) for _ in range(2))
    assert one.pre_enqueue(stage.preemptor).is_success
    assert other.pre_enqueue(stage.preemptor).is_success
