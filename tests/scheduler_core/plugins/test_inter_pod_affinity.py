"""InterPodAffinity: its filter by required terms, its scores by weighted terms, and its queueing hints."""

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.errors import PluginError
from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.affinity import (
    Affinity,
    LabelSelector,
    PodAffinity,
    PodAffinityTerm,
    Requirement,
    WeightedPodAffinityTerm,
)
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity, after_node_change, after_pod_change
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.affinities import affinity_to, anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plain_pod_affinity import PlainCluster, plain_normalized, plain_rejection, plain_score
from tests.support.plain_selectors import EXPRESSIONS, POD_LABELS
from tests.support.plugin_calls import filter_codes, normalized_scores, row_codes
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
        "terms-of-one-key",
        pod(affinity=anti_affinity_to(term("web"), term("db"))),
        [pod("w", node_name="a1", labels={"app": "web"}), pod("d", node_name="b1", labels={"app": "db"})],
        [ANTI_AFFINITY, ANTI_AFFINITY, ANTI_AFFINITY, 0],
    ),
    (
        "anti-affinity-of-an-existing-pod-outside-all-domains",
        pod(labels={"app": "web"}),
        [pod("d", node_name="bare", affinity=anti_affinity_to(term("web")))],
        "Skip",
    ),
)
def test_filter(incoming: Pod, placed: list[Pod], codes: list[int] | str) -> None:
    """PreFilter skips the pod if neither it nor an existing pod has a term that excludes a node."""
    assert filter_result(incoming, cluster(*placed)) == codes


LABELLED = {"team-a": {"team": "a"}, "team-b": {"team": "b"}, "default": {}}
TEAM_A = LabelSelector(match_labels={"team": "a"})
NOT_TEAM_A = LabelSelector(match_expressions=(Requirement("team", "NotIn", ("a",)),))


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


Scored = tuple[list[int], list[int]]


def scored(
    incoming: Pod, placed: list[Pod], args: InterPodAffinityArgs | None = None, rows: Rows = ALL_ROWS
) -> Scored | str:
    """Return raw and normalized scores, or PreScore's status name if it is not Success."""
    filled = columns(NODES, placed)
    return normalized_scores(InterPodAffinity(args, FakeHandle(nodes=filled)), incoming, filled, rows)


WEB = pod("w", node_name="a1", labels={"app": "web"})
DB = pod("d", node_name="b1", labels={"app": "db"})


@table(
    "incoming, placed, expected",
    ("no-preferred-terms", pod(), [WEB], "Skip"),
    ("no-matching-pods", pod(affinity=affinity_to(preferred=[(5, term("web"))])), [DB], "Skip"),
    (
        "matching-pod-outside-all-domains",
        pod(affinity=affinity_to(preferred=[(5, term("web"))])),
        [pod("o", node_name="bare", labels={"app": "web"})],
        "Skip",
    ),
)
def test_pods_without_effective_preferences_skip_the_score(
    incoming: Pod, placed: list[Pod], expected: Scored | str
) -> None:
    """PreScore skips the pod if no weight would be added to a domain."""
    assert scored(incoming, placed) == expected


def test_equal_scores_are_all_zero() -> None:
    """If all raw scores are equal, the normalized scores are 0."""
    incoming = pod(affinity=affinity_to(preferred=[(5, term("web"))]))
    assert scored(incoming, [WEB], rows=np.array([0, 1])) == ([5, 5], [0, 0])


def test_only_scored_rows_are_normalized() -> None:
    """The scores of other nodes do not affect the normalization."""
    incoming = pod(affinity=affinity_to(preferred=[(5, term("web")), (3, term("web", "host"))]))
    assert scored(incoming, [WEB], rows=np.array([1, 2])) == ([5, 0], [100, 0])


WITH_REQUIRED = pod("o", node_name="b1", affinity=affinity_to("web"))
WITH_PREFERRED = pod("l", node_name="a1", affinity=affinity_to(preferred=[(4, term("web"))]))


@table(
    "args, incoming, expected",
    ("hard", InterPodAffinityArgs(hard_pod_affinity_weight=9), pod(labels={"app": "web"}), [4, 4, 9, 0]),
    ("no-hard", InterPodAffinityArgs(hard_pod_affinity_weight=0), pod(labels={"app": "web"}), [4, 4, 0, 0]),
    (
        "preferred-terms-of-existing-pods-ignored",
        InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True),
        pod(labels={"app": "web"}),
        None,
    ),
    (
        "preferred-terms-of-existing-pods-count-with-own-terms",
        InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True),
        pod(labels={"app": "web"}, affinity=affinity_to(preferred=[(1, term("none"))])),
        [4, 4, 1, 0],
    ),
)
def test_args(args: InterPodAffinityArgs, incoming: Pod, expected: list[int] | None) -> None:
    """The args hardPodAffinityWeight and ignorePreferredTermsOfExistingPods change the scores."""
    found = scored(incoming, [WITH_REQUIRED, WITH_PREFERRED], args)
    assert (None if found == "Skip" else found[0]) == expected


def test_an_invalid_term_is_an_error() -> None:
    """PreScore returns Error for an invalid term if the profile does not enable PreFilter."""
    broken = PodAffinityTerm("zone", LabelSelector(match_expressions=(Requirement("a", "Near"),)))
    assert scored(pod(affinity=affinity_to(preferred=[(1, broken)])), []) == "Error"


def test_normalization_of_no_rows() -> None:
    """normalize() accepts an empty array."""
    plugin = InterPodAffinity(None, FakeHandle())
    info = columns([]).compile_pod(pod())
    assert len(plugin.normalize(CycleState(), info, np.empty(0, dtype=np.int64))) == 0


WITH_AFFINITY = pod("me", labels={"app": "me"}, affinity=affinity_to("web"))
BOUND_WEB = pod("o", node_name="n", labels={"app": "web"})
BROKEN = pod("me", affinity=affinity_to(term(LabelSelector(match_expressions=(Requirement("a", "Near"),)))))


WITH_ANTI_AFFINITY = pod("me", labels={"app": "me"}, affinity=anti_affinity_to("web"))
BOUND_DB = pod("o", node_name="n", labels={"app": "db"})
WAITING_WEB = pod("o", labels={"app": "web"})


@table(
    "waiting, old, new, hint",
    ("affinity-matching-pod-without-a-node", WITH_AFFINITY, None, WAITING_WEB, Hint.SKIP),
    (
        "affinity-matching-pod-nominated",
        WITH_AFFINITY,
        None,
        pod("o", nominated_node="n", labels={"app": "web"}),
        Hint.QUEUE,
    ),
    ("affinity-pod-matches-now", WITH_AFFINITY, BOUND_DB, BOUND_WEB, Hint.QUEUE),
    ("anti-affinity-pod-no-longer-matches", WITH_ANTI_AFFINITY, BOUND_WEB, BOUND_DB, Hint.QUEUE),
    ("invalid-terms", BROKEN, None, BOUND_WEB, Hint.QUEUE),
    ("not-a-pod", WITH_AFFINITY, None, node(), Hint.QUEUE),
)
def test_pod_hint(waiting: Pod, old: object | None, new: object | None, hint: Hint) -> None:
    """A pod change requeues if it may satisfy affinity, or may end a conflict with anti-affinity."""
    assert after_pod_change(waiting, old, new) is hint


ZONE_A, ZONE_B, BARE = node("n", labels={"zone": "a"}), node("n", labels={"zone": "b"}), node("n")


@table(
    "waiting, old, new, hint",
    ("the-key-is-added", WITH_AFFINITY, BARE, ZONE_A, Hint.QUEUE),
    ("another-domain", WITH_AFFINITY, ZONE_A, ZONE_B, Hint.QUEUE),
    ("the-key-is-removed", WITH_AFFINITY, ZONE_A, BARE, Hint.SKIP),
    ("invalid-terms", BROKEN, ZONE_A, ZONE_A, Hint.QUEUE),
    ("not-a-change", WITH_AFFINITY, ZONE_A, None, Hint.QUEUE),
)
def test_node_hint(waiting: Pod, old: Node | None, new: Node | None, hint: Hint) -> None:
    """A node change requeues if the node's topology domain may satisfy the pod's terms."""
    assert after_node_change(waiting, old, new) is hint


# -- laws: results for all rows equal those for single nodes, and a dry run equals the real change ---------------------


_CODES = {"": 0, "affinity": 3, "anti-affinity": 2, "existing": 1}
_NAMESPACES = st.sampled_from(["default", "m", "n"])
_NODE_LABELS = st.dictionaries(st.sampled_from(["zone", "host"]), st.sampled_from(["", "1", "2"]))
_SELECTORS = st.none() | st.builds(LabelSelector, POD_LABELS, st.lists(EXPRESSIONS, max_size=1).map(tuple))
_TERMS = st.builds(
    PodAffinityTerm,
    st.sampled_from(["zone", "host", "rack"]),
    _SELECTORS,
    st.lists(_NAMESPACES, max_size=2).map(tuple),
    _SELECTORS,
)
_WEIGHTED = st.builds(WeightedPodAffinityTerm, st.integers(1, 100), _TERMS)
_POD_AFFINITIES = st.none() | st.builds(
    PodAffinity, st.lists(_TERMS, max_size=2).map(tuple), st.lists(_WEIGHTED, max_size=2).map(tuple)
)
_AFFINITIES = st.builds(Affinity, st.none(), _POD_AFFINITIES, _POD_AFFINITIES)
_PODS = st.tuples(_NAMESPACES, POD_LABELS, _AFFINITIES)
_NODES = st.lists(_NODE_LABELS, min_size=1, max_size=4)
_KNOWN_NAMESPACES = st.dictionaries(_NAMESPACES, POD_LABELS)
_PodParts = tuple[str, dict[str, str], Affinity]


def _pod(name: str, parts: _PodParts, node_name: str = "") -> Pod:
    namespace, labels, affinity = parts
    return pod(name, namespace=namespace, labels=labels, affinity=affinity, node_name=node_name)


def _filled(cluster: PlainCluster) -> NodeColumns:
    filled = columns(cluster.nodes, cluster.pods)
    for name, labels in cluster.namespaces.items():
        filled.namespaces.assign(name, labels)
    return filled


@st.composite
def _clusters(draw: st.DrawFn) -> PlainCluster:
    nodes = [node(f"n{number}", labels=labels) for number, labels in enumerate(draw(_NODES))]
    names = st.sampled_from([each.metadata.name for each in nodes])
    placed = draw(st.lists(st.tuples(_PODS, names), max_size=6))
    pods = [_pod(f"p{number}", parts, name) for number, (parts, name) in enumerate(placed)]
    return PlainCluster(nodes, pods, draw(_KNOWN_NAMESPACES))


@given(cluster=_clusters(), parts=_PODS)
def test_filter_equals_the_plain_form(cluster: PlainCluster, parts: _PodParts) -> None:
    """The code of each node equals that of the reference function."""
    incoming, filled = _pod("incoming", parts), _filled(cluster)
    plugin = InterPodAffinity(None, FakeHandle(nodes=filled))
    expected = [_CODES[plain_rejection(incoming, each, cluster)] for each in cluster.nodes]
    assert row_codes(plugin, filled.compile_pod(incoming), filled) == expected


@given(cluster=_clusters(), parts=_PODS, hard_weight=st.sampled_from([0, 1, 10]))
def test_score_equals_the_plain_form(cluster: PlainCluster, parts: _PodParts, hard_weight: int) -> None:
    """Raw and normalized scores equal the reference function; if PreScore skips, all scores are 0."""
    incoming, filled = _pod("incoming", parts), _filled(cluster)
    plugin = InterPodAffinity(InterPodAffinityArgs(hard_pod_affinity_weight=hard_weight), FakeHandle(nodes=filled))
    info, state = filled.compile_pod(incoming), CycleState()
    expected = [plain_score(incoming, each, cluster, hard_weight) for each in cluster.nodes]
    if plugin.pre_score(state, info, filled, ALL_ROWS).is_skip:
        assert expected == [0] * len(cluster.nodes)
        return
    raw = plugin.score(state, info, filled, ALL_ROWS)
    assert raw.tolist() == expected
    assert plugin.normalize(state, info, raw).tolist() == plain_normalized(expected)


@given(cluster=_clusters(), parts=_PODS, data=st.data())
def test_a_dry_run_equals_a_new_count(cluster: PlainCluster, parts: _PodParts, data: st.DataObject) -> None:
    """AddPod and RemovePod lead to the same codes as a new PreFilter after the change."""
    filled = _filled(cluster)
    plugin, info, state = (
        InterPodAffinity(None, FakeHandle(nodes=filled)),
        filled.compile_pod(_pod("me", parts)),
        CycleState(),
    )
    if plugin.pre_filter(state, info, filled).status.is_skip:
        return
    dry_run = state.clone()
    before = row_codes(plugin, info, filled, state)
    placed = [(other, row) for row, pods in enumerate(filled.pods) for other in pods.values()]
    for other, row in placed:
        if data.draw(st.booleans()):
            filled.remove_pod(other)
            assert plugin.remove_pod(dry_run, info, other, filled, row).is_success
    for number, added in enumerate(data.draw(st.lists(_PODS, max_size=2))):
        other, row = filled.compile_pod(_pod(f"new{number}", added)), data.draw(st.integers(0, filled.size - 1))
        filled.add_pod(other, row)
        assert plugin.add_pod(dry_run, info, other, filled, row).is_success
    assert row_codes(plugin, info, filled, dry_run) == row_codes(plugin, info, filled)
    assert row_codes(plugin, info, filled, state) == before
