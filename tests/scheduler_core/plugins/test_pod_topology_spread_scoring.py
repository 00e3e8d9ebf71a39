"""PodTopologySpread's scores, and its default constraints."""

import math

import numpy as np

from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.config.plugin_args import TopologySpreadConstraint as ConfiguredConstraint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Status
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta, OwnerReference
from scheduler_core.model.pod import Pod, TopologySpreadConstraint
from scheduler_core.model.workloads import LabelPairsSpec, LabelSelectorSpec, ReplicaSet, Service
from scheduler_core.plugins.pod_topology_spread import PodTopologySpread
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import normalized_scores
from tests.support.tables import table

HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"
NODES = [
    node("a1", labels={ZONE: "a", HOST: "a1"}),
    node("a2", labels={ZONE: "a", HOST: "a2"}),
    node("b1", labels={ZONE: "b", HOST: "b1"}),
    node("lone", labels={HOST: "lone"}),
]
WEB = LabelSelector(match_labels={"app": "web"})
Scored = tuple[list[int], list[int]]


def soft(
    key: str = ZONE, skew: int = 1, selector: LabelSelector | None = WEB, **fields: str
) -> TopologySpreadConstraint:
    """Return a preferred constraint over web pods."""
    return TopologySpreadConstraint(skew, key, "ScheduleAnyway", selector, node_taints_policy=fields.get("taints"))


def web(name: str, where: str = "") -> Pod:
    return pod(name, node_name=where, labels={"app": "web"})


def scored(
    subject: Pod, filled: NodeColumns, args: PodTopologySpreadArgs | None = None, rows: Rows = ALL_ROWS
) -> Scored | str:
    """Return raw and normalized scores, or PreScore's status name if it is not Success."""
    return normalized_scores(PodTopologySpread(args, FakeHandle(nodes=filled)), subject, filled, rows)


def rounded(number: float) -> int:
    return math.floor(number + 0.5)


LOG3, LOG4, LOG5, LOG6 = (math.log(number) for number in (3, 4, 5, 6))
PLACED = [web("p", "a1"), web("q", "a1"), web("r", "a2"), web("s", "b1")]


@table(
    "constraints, expected",
    ("none", [], "Skip"),
    ("required-constraints-only", [TopologySpreadConstraint(topology_key=ZONE, label_selector=WEB)], "Skip"),
)
def test_scores(constraints: list[TopologySpreadConstraint], expected: Scored | str) -> None:
    """Fewer matching pods lead to a higher score; nodes without every key have score 0."""
    assert scored(pod(spread=constraints), columns(NODES, PLACED)) == expected


def test_only_domains_of_feasible_nodes_count() -> None:
    """The weight depends on the domains of feasible nodes; pods on all nodes of a domain count."""
    found = scored(pod(spread=[soft()]), columns(NODES, PLACED), rows=np.array([0]))
    assert found == ([rounded(3 * LOG3)], [100])


def test_tainted_nodes_are_scored() -> None:
    """With taints honored, pods on tainted nodes do not count, but the node has its zone's score."""
    tainted = node("a1", labels={ZONE: "a", HOST: "a1"}, taints=["t:NoSchedule"])
    filled = columns([tainted, *NODES[1:]], PLACED)
    found = scored(pod(spread=[soft(taints="Honor")]), filled)
    assert found == ([1, 1, 1, 0], [100, 100, 100, 0])


def with_service(filled: NodeColumns) -> NodeColumns:
    """Return the columns with a Service that selects web pods."""
    filled.workloads.assign(Service(ObjectMeta("s", namespace="default"), LabelPairsSpec({"app": "web"})))
    return filled


def test_system_defaults_do_not_require_all_keys() -> None:
    """A node without a zone label is scored by its host and counts as one more zone."""
    found = scored(web("me"), with_service(columns(NODES, PLACED)))
    host, zone = [2 * LOG6 + 2, LOG6 + 2, LOG6 + 2, 2.0], [3 * LOG5 + 4, 3 * LOG5 + 4, LOG5 + 4, 0.0]
    raw = [rounded(one + other) for one, other in zip(host, zone, strict=True)]
    assert found == (raw, [(max(raw) + min(raw) - each) * 100 // max(raw) for each in raw])


def test_a_node_without_a_zone_counts_in_the_zone_of_empty_name() -> None:
    """As in kube-scheduler, pods on nodes without a zone label count in the zone with the empty name."""
    nodes = [node("e", labels={ZONE: "", HOST: "e"}), node("n", labels={HOST: "n"})]
    found = scored(web("me"), with_service(columns(nodes, [web("p", "n"), web("q", "n")])))
    assert found[0] == [rounded((2 + 0 * LOG4) + (2 * LOG3 + 4)), rounded(2 * LOG4 + 2)]


def test_infeasible_nodes_without_a_zone_count_in_the_zone_of_empty_name() -> None:
    """Pods on infeasible nodes without a zone label count too."""
    nodes = [node("e", labels={ZONE: "", HOST: "e"}), node("n", labels={HOST: "n"})]
    filled = with_service(columns(nodes, [web("p", "n"), web("q", "n")]))
    found = scored(web("me"), filled, rows=np.array([0]))
    assert found[0] == [rounded((2 + 0 * LOG3) + (2 * LOG3 + 4))]


LISTED = ConfiguredConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="ScheduleAnyway")
HARD = ConfiguredConstraint(max_skew=1, topology_key=ZONE, when_unsatisfiable="DoNotSchedule")


@table(
    "subject, args, expected",
    (
        "listed-constraints-require-the-key",
        web("me"),
        PodTopologySpreadArgs(default_constraints=(LISTED,), defaulting_type="List"),
        ([4, 4, 1, 0], [25, 25, 100, 0]),
    ),
    ("an-empty-list", web("me"), PodTopologySpreadArgs(defaulting_type="List"), "Skip"),
    ("no-service-or-owner-selects-the-pod", pod("me", labels={"app": "db"}), PodTopologySpreadArgs(), "Skip"),
    (
        "own-constraints-replace-the-defaults",
        pod("me", labels={"app": "web"}, spread=[TopologySpreadConstraint(topology_key=ZONE)]),
        PodTopologySpreadArgs(),
        "Skip",
    ),
)
def test_defaults(subject: Pod, args: PodTopologySpreadArgs, expected: Scored | str) -> None:
    """Default constraints apply to pods without constraints that a service or an owner selects."""
    assert scored(subject, with_service(columns(NODES, PLACED)), args) == expected


def codes_with_required_default(filled: NodeColumns, subject: Pod) -> list[int] | Status:
    """Return the codes under a required default constraint, or PreFilter's status."""
    args = PodTopologySpreadArgs(default_constraints=(HARD,), defaulting_type="List")
    plugin, state, info = PodTopologySpread(args, FakeHandle(nodes=filled)), CycleState(), filled.compile_pod(subject)
    status = plugin.pre_filter(state, info, filled).status
    codes = None if status.is_skip else plugin.filter(state, info, filled, ALL_ROWS)
    return status if codes is None else codes.tolist()


def test_required_default_constraints() -> None:
    """A required default constraint filters by the selector of the pod's owner."""
    filled = columns(NODES[:3], [web("p", "a1")])
    owner = OwnerReference("ReplicaSet", "r", api_version="apps/v1", controller=True)
    filled.workloads.assign(ReplicaSet(ObjectMeta("r", namespace="default"), LabelSelectorSpec(WEB)))
    subject = pod("me", labels={"app": "web"}, owners=[owner])
    assert codes_with_required_default(filled, subject) == [1, 1, 0]
    found = codes_with_required_default(filled, pod("me", labels={"app": "web"}))
    assert isinstance(found, Status)
    assert found.is_skip
