"""InterPodAffinity's filter, by the required terms of the incoming pod and of existing pods."""

from collections.abc import Mapping
from datetime import UTC, datetime

import numpy as np
import pytest

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import Code
from scheduler_core.model.affinity import LabelSelector, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.affinities import affinity_to, anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import filter_codes
from tests.support.tables import table

NODES = [
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("bare"),
]
ALL_NAMESPACES = LabelSelector()
AFFINITY, ANTI_AFFINITY, EXISTING_ANTI_AFFINITY = 3, 2, 1


def cluster(*placed: Pod, namespaces: Mapping[str, Mapping[str, str]] | None = None) -> NodeColumns:
    """Return the nodes above with pods on them."""
    filled = columns(NODES, placed)
    for name, labels in (namespaces or {}).items():
        filled.namespaces.assign(name, labels)
    return filled


def filter_result(incoming: Pod, filled: NodeColumns, rows: Rows = ALL_ROWS) -> list[int] | str:
    """Return the code of each row, or PreFilter's status name if it is not Success."""
    return filter_codes(InterPodAffinity(None, FakeHandle(nodes=filled)), incoming, filled, rows)


@table(
    "incoming, placed, codes",
    ("no-terms", pod(), [pod("w", node_name="a1", labels={"app": "web"})], "Skip"),
    (
        "affinity-in-the-zone",
        pod(affinity=affinity_to(term("web"))),
        [pod("w", node_name="a1", labels={"app": "web"})],
        [0, 0, AFFINITY, AFFINITY],
    ),
    (
        "affinity-on-the-host",
        pod(affinity=affinity_to(term("web", "host"))),
        [pod("w", node_name="a1", labels={"app": "web"})],
        [0, AFFINITY, AFFINITY, AFFINITY],
    ),
    ("affinity-without-matching-pods", pod(affinity=affinity_to(term("web"))), [], [AFFINITY] * 4),
    (
        "first-pod-that-matches-its-own-term",
        pod(labels={"app": "web"}, affinity=affinity_to(term("web"))),
        [],
        [0, 0, 0, AFFINITY],
    ),
    (
        "first-pod-that-does-not-match-all-own-terms",
        pod(labels={"app": "web"}, affinity=affinity_to(term("web"), term("db"))),
        [],
        [AFFINITY] * 4,
    ),
    (
        "another-pod-matches",
        pod(labels={"app": "web"}, affinity=affinity_to(term("web"))),
        [pod("w", node_name="b1", labels={"app": "web"})],
        [AFFINITY, AFFINITY, 0, AFFINITY],
    ),
    (
        "matching-pod-outside-all-domains",
        pod(labels={"app": "web"}, affinity=affinity_to(term("web"))),
        [pod("w", node_name="bare", labels={"app": "web"})],
        [0, 0, 0, AFFINITY],
    ),
    (
        "one-pod-must-match-all-terms",
        pod(affinity=affinity_to(term("web"), term(LabelSelector({"tier": "front"})))),
        [
            pod("w", node_name="a1", labels={"app": "web"}),
            pod("f", node_name="a2", labels={"tier": "front"}),
            pod("wf", node_name="b1", labels={"app": "web", "tier": "front"}),
        ],
        [AFFINITY, AFFINITY, 0, AFFINITY],
    ),
    (
        "two-keys",
        pod(affinity=affinity_to(term("web"), term("web", "host"))),
        [pod("w", node_name="a1", labels={"app": "web"})],
        [0, AFFINITY, AFFINITY, AFFINITY],
    ),
    (
        "anti-affinity",
        pod(affinity=anti_affinity_to(term("web"))),
        [pod("w", node_name="a1", labels={"app": "web"})],
        [ANTI_AFFINITY, ANTI_AFFINITY, 0, 0],
    ),
    (
        "any-anti-affinity-term",
        pod(affinity=anti_affinity_to(term("web", "host"), term("db"))),
        [pod("w", node_name="a1", labels={"app": "web"}), pod("d", node_name="b1", labels={"app": "db"})],
        [ANTI_AFFINITY, 0, ANTI_AFFINITY, 0],
    ),
    (
        "terms-of-one-key",
        pod(affinity=anti_affinity_to(term("web"), term("db"))),
        [pod("w", node_name="a1", labels={"app": "web"}), pod("d", node_name="b1", labels={"app": "db"})],
        [ANTI_AFFINITY, ANTI_AFFINITY, ANTI_AFFINITY, 0],
    ),
    (
        "anti-affinity-of-an-existing-pod",
        pod(labels={"app": "web"}),
        [pod("d", node_name="b1", affinity=anti_affinity_to(term("web")))],
        [0, 0, EXISTING_ANTI_AFFINITY, 0],
    ),
    (
        "anti-affinity-of-an-existing-pod-outside-all-domains",
        pod(labels={"app": "web"}),
        [pod("d", node_name="bare", affinity=anti_affinity_to(term("web")))],
        "Skip",
    ),
    (
        "own-affinity-comes-first",
        pod(labels={"app": "web"}, affinity=affinity_to(term("db"))),
        [pod("d", node_name="a1", labels={"app": "db"}, affinity=anti_affinity_to(term("web", "host")))],
        [EXISTING_ANTI_AFFINITY, 0, AFFINITY, AFFINITY],
    ),
    (
        "own-anti-affinity-comes-second",
        pod(labels={"app": "web"}, affinity=anti_affinity_to(term("web"))),
        [pod("w", node_name="a1", labels={"app": "web"}, affinity=anti_affinity_to(term("web")))],
        [ANTI_AFFINITY, ANTI_AFFINITY, 0, 0],
    ),
    (
        "terminating-pods-count",
        pod(affinity=anti_affinity_to(term("web"))),
        [pod("w", node_name="a1", labels={"app": "web"}, deleted=datetime(2026, 1, 1, tzinfo=UTC))],
        [ANTI_AFFINITY, ANTI_AFFINITY, 0, 0],
    ),
    (
        "own-namespace-only",
        pod(affinity=anti_affinity_to(term("web"))),
        [pod("w", node_name="a1", namespace="other", labels={"app": "web"})],
        [0, 0, 0, 0],
    ),
    (
        "absent-selector",
        pod(affinity=anti_affinity_to(term(None))),
        [pod("w", node_name="a1", labels={"app": "web"})],
        [0, 0, 0, 0],
    ),
)
def test_filter(incoming: Pod, placed: list[Pod], codes: list[int] | str) -> None:
    """A node passes if affinity, own anti-affinity and the anti-affinity of existing pods are satisfied."""
    assert filter_result(incoming, cluster(*placed)) == codes


LABELLED = {"team-a": {"team": "a"}, "team-b": {"team": "b"}, "default": {}}
TEAM_A = LabelSelector(match_labels={"team": "a"})
NOT_TEAM_A = LabelSelector(match_expressions=(Requirement("team", "NotIn", ("a",)),))


@table(
    "anti_affinity, excluded",
    ("own", term("web", "host"), ["b1"]),
    ("named", term("web", "host", namespaces=("team-a",)), ["a1"]),
    ("selected", term("web", "host", selector=TEAM_A), ["a1"]),
    ("both", term("web", "host", namespaces=("team-b",), selector=TEAM_A), ["a1", "a2"]),
    ("all", term("web", "host", selector=ALL_NAMESPACES), ["a1", "a2", "b1"]),
    ("named-and-all", term("web", "host", namespaces=("team-a",), selector=ALL_NAMESPACES), ["a1", "a2", "b1"]),
    ("selected-without-the-label", term("web", "host", selector=NOT_TEAM_A), ["a2", "b1"]),
)
def test_namespaces(anti_affinity: PodAffinityTerm, excluded: list[str]) -> None:
    """A term selects pods of the pod's own namespace unless it names or selects other namespaces."""
    placed = [
        pod("w", node_name=name, namespace=namespace, labels={"app": "web"})
        for name, namespace in (("a1", "team-a"), ("a2", "team-b"), ("b1", "default"))
    ]
    codes = filter_result(pod(affinity=anti_affinity_to(anti_affinity)), cluster(*placed, namespaces=LABELLED))
    assert isinstance(codes, list)
    assert [NODES[row].metadata.name for row, code in enumerate(codes) if code] == excluded


@table(
    "selector, namespace, rejected",
    ("selected", TEAM_A, "team-a", True),
    ("not-selected", TEAM_A, "team-b", False),
    ("excluded", NOT_TEAM_A, "team-a", False),
    ("unknown-has-no-labels", NOT_TEAM_A, "unknown", True),
    ("unknown", TEAM_A, "unknown", False),
    ("all", ALL_NAMESPACES, "unknown", True),
)
def test_namespace_selectors_of_existing_pods(selector: LabelSelector, namespace: str, rejected: bool) -> None:
    """A term of an existing pod selects the incoming pod by the current labels of its namespace."""
    other = pod("d", node_name="b1", affinity=anti_affinity_to(term("web", selector=selector)))
    incoming = pod("p", namespace=namespace, labels={"app": "web"})
    expected = [0, 0, EXISTING_ANTI_AFFINITY, 0] if rejected else "Skip"
    assert filter_result(incoming, cluster(other, namespaces=LABELLED)) == expected


@table(
    "terms, codes",
    ("all", [term("web", selector=TEAM_A), term("web", selector=ALL_NAMESPACES)], [0, 0, AFFINITY, AFFINITY]),
    ("nothing-in-common", [term("web", selector=TEAM_A), term("web", namespaces=("team-b",))], [AFFINITY] * 4),
    ("named", [term("web", selector=TEAM_A), term("web", namespaces=("team-a", "x"))], [0, 0, AFFINITY, AFFINITY]),
    ("all-twice", [term("web", selector=ALL_NAMESPACES), term("web", selector=ALL_NAMESPACES)], [0, 0, 0, AFFINITY]),
    (
        "without-the-label-and-all",
        [term("web", selector=NOT_TEAM_A), term("web", namespaces=("x",), selector=ALL_NAMESPACES)],
        [AFFINITY, AFFINITY, 0, AFFINITY],
    ),
)
def test_namespaces_of_joined_terms(terms: list[PodAffinityTerm], codes: list[int]) -> None:
    """A pod satisfies several terms only if all of them select its namespace."""
    placed = [
        pod("w", node_name="a1", namespace="team-a", labels={"app": "web"}),
        pod("v", node_name="b1", namespace="team-b", labels={"app": "web"}),
    ]
    assert filter_result(pod(affinity=affinity_to(*terms)), cluster(*placed, namespaces=LABELLED)) == codes


def test_changed_namespace_labels() -> None:
    """Counts by namespace label are recomputed when labels change."""
    filled = cluster(pod("w", node_name="a1", namespace="x", labels={"app": "web"}), namespaces={"x": {}})
    incoming = pod(affinity=anti_affinity_to(term("web", selector=TEAM_A)))
    assert filter_result(incoming, filled) == [0, 0, 0, 0]
    filled.namespaces.assign("x", {"team": "a"})
    assert filter_result(incoming, filled) == [ANTI_AFFINITY, ANTI_AFFINITY, 0, 0]
    filled.namespaces.remove("x")
    assert filter_result(incoming, filled) == [0, 0, 0, 0]


def test_chosen_rows() -> None:
    """filter() returns codes of the requested rows only."""
    filled = cluster(pod("w", node_name="a1", labels={"app": "web"}))
    assert filter_result(pod(affinity=anti_affinity_to(term("web"))), filled, np.array([1, 2])) == [ANTI_AFFINITY, 0]


@table(
    "code, status, reason",
    ("affinity", AFFINITY, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "node(s) didn't match pod affinity rules"),
    ("anti-affinity", ANTI_AFFINITY, Code.UNSCHEDULABLE, "node(s) didn't match pod anti-affinity rules"),
    (
        "existing-anti-affinity",
        EXISTING_ANTI_AFFINITY,
        Code.UNSCHEDULABLE,
        "node(s) didn't satisfy existing pods anti-affinity rules",
    ),
)
def test_rejections(code: int, status: Code, reason: str) -> None:
    """Rejections by anti-affinity are resolvable by preemption; those by affinity are not."""
    found = InterPodAffinity(None, FakeHandle()).decode(CycleState(), columns([]).compile_pod(pod()), code)
    assert (found.code, found.reasons) == (status, (reason,))


def test_an_invalid_term_rejects_the_pod() -> None:
    """The rejection is unresolvable."""
    broken = PodAffinityTerm("zone", LabelSelector(match_expressions=(Requirement("a", "Near"),)))
    assert filter_result(pod(affinity=affinity_to(broken)), cluster()) == "UnschedulableAndUnresolvable"


def test_filter_without_pre_filter_raises() -> None:
    """A profile must enable the plugin at both extension points."""
    filled = cluster()
    plugin = InterPodAffinity(None, FakeHandle(nodes=filled))
    with pytest.raises(PluginError, match="enable the plugin"):
        plugin.filter(CycleState(), filled.compile_pod(pod()), filled, ALL_ROWS)


def test_dry_run_clones_are_independent() -> None:
    """A pod that is added to a clone does not count in the original, and vice versa."""
    filled = cluster(pod("w", node_name="a1", labels={"app": "web"}))
    plugin, state = InterPodAffinity(None, FakeHandle(nodes=filled)), CycleState()
    info = filled.compile_pod(pod(labels={"app": "db"}, affinity=anti_affinity_to(term("web"))))
    assert plugin.pre_filter(state, info, filled).status.is_success
    dry_run = state.clone()
    other = filled.compile_pod(pod("o", labels={"app": "web"}, affinity=anti_affinity_to(term("db", "host"))))
    assert plugin.add_pod(dry_run, info, other, filled, 2).is_success
    assert plugin.remove_pod(state, info, filled.pods[0]["uid-of-default-w"], filled, 0).is_success
    found = [plugin.filter(each, info, filled, ALL_ROWS) for each in (state, dry_run)]
    assert [None if codes is None else codes.tolist() for codes in found] == [
        [0] * 4,
        [ANTI_AFFINITY, ANTI_AFFINITY, ANTI_AFFINITY, 0],
    ]
