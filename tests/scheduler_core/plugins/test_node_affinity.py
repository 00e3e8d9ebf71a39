"""NodeAffinity: node selectors, required and preferred terms, and addedAffinity."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from scheduler_core.config.plugin_args import NodeAffinityArgs, read_args
from scheduler_core.framework.cluster_events import Hint
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization, PodReads, PreFilterResult, Reads, Reuse
from scheduler_core.framework.status import Code
from scheduler_core.model.affinity import Affinity, NodeSelector, NodeSelectorTerm, Requirement
from scheduler_core.model.affinity import NodeAffinity as PodNodeAffinity
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.node_affinity import NodeAffinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from tests.support.affinities import named, node_affinity
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import codes_or_none, raw_scores
from tests.support.presence import present
from tests.support.tables import table

Args = Mapping[str, Any]

NODES = [
    node("n0", labels={"zone": "a", "cpus": "4"}),
    node("n1", labels={"zone": "b", "cpus": "16", "disk": "ssd"}),
    node("n2", labels={"disk": "ssd"}),
]
MISMATCH = 2


def labels(*requirements: tuple[str, str, list[str]]) -> NodeSelectorTerm:
    return NodeSelectorTerm(tuple(Requirement(key, operator, tuple(values)) for key, operator, values in requirements))


def requiring(*terms: NodeSelectorTerm, name: str = "pod", selector: Mapping[str, str] | None = None) -> Pod:
    affinity = Affinity(PodNodeAffinity(required=NodeSelector(terms)))
    return pod(name, affinity=affinity, node_selector=selector or {})


def preferring(*terms: tuple[int, NodeSelectorTerm]) -> Pod:
    return pod(affinity=node_affinity(preferred=terms))


def plugin(args: Args | None = None, nodes: NodeColumns | None = None) -> NodeAffinity:
    handle = FakeHandle() if nodes is None else FakeHandle(nodes=nodes)
    return NodeAffinity(read_args("NodeAffinity", NodeAffinityArgs, args or {}), handle)


def added(key: str, value: str, weight: int = 0) -> Args:
    expression = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
    if weight:
        preferred = [{"weight": weight, "preference": expression}]
        return {"addedAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
    required = {"nodeSelectorTerms": [expression]}
    return {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


def pre_filtered(incoming: Pod, args: Args | None = None) -> PreFilterResult:
    nodes = columns(NODES)
    return plugin(args).pre_filter(CycleState(), nodes.compile_pod(incoming), nodes)


def filtered(incoming: Pod, args: Args | None = None, rows: Rows = ALL_ROWS) -> list[int] | None:
    nodes = columns(NODES)
    return codes_or_none(plugin(args, nodes), incoming, nodes, rows)


def scored(incoming: Pod, args: Args | None = None, rows: Rows = ALL_ROWS) -> list[int]:
    nodes = columns(NODES)
    return raw_scores(plugin(args, nodes), incoming, nodes, rows)


# -- PreFilter --------------------------------------------------------------------------------------------------


@table(
    "incoming, args, skipped",
    ("no-requirements", pod(), None, True),
    ("preferred-terms-only", preferring((1, labels(("zone", "Exists", [])))), None, True),
    ("node-selector", pod(node_selector={"zone": "a"}), None, False),
    ("required-without-terms", requiring(), None, False),
    ("added", pod(), added("zone", "a"), False),
    ("added-preference-only", pod(), added("zone", "a", weight=1), True),
)
def test_pre_filter_skips_pods_without_requirements(incoming: Pod, args: Args | None, skipped: bool) -> None:
    """PreFilter ignores preferred terms."""
    assert pre_filtered(incoming, args).status.is_skip is skipped


@table("terms", ("two-names-at-once", [("n0",), ("n1",)]), ("no-name", [()]))
def test_pre_filter_rejects_conflicting_names(terms: list[tuple[str, ...]]) -> None:
    """A term that no node name satisfies is rejected as unresolvable."""
    term = NodeSelectorTerm(match_fields=tuple(Requirement("metadata.name", "In", values) for values in terms))
    status = pre_filtered(requiring(term)).status
    assert status.code is Code.UNSCHEDULABLE_AND_UNRESOLVABLE
    assert status.reasons == ("pod affinity terms conflict",)


def test_a_conflicting_term_is_ignored_if_others_match() -> None:
    """Terms are alternatives, so that a conflicting term only removes itself."""
    conflict = NodeSelectorTerm(match_fields=named("n0").match_fields + named("n1").match_fields)
    assert pre_filtered(requiring(conflict, named("n2"))).node_names == frozenset({"n2"})


# -- Filter -----------------------------------------------------------------------------------------------------


@table("rows", ("two", [0, 2]), ("one", [1]), ("none", []))
def test_codes_of_selected_rows_equal_those_of_all_rows(rows: list[int]) -> None:
    """A row's code does not depend on the other rows."""
    terms = [labels(("cpus", "Gt", ["4"])), named("n2"), labels(("disk", "DoesNotExist", []))]
    for term in terms:
        whole = filtered(requiring(term)) or []
        assert filtered(requiring(term), rows=np.array(rows, dtype=np.intp)) == [whole[row] for row in rows]


@table(
    "incoming, codes",
    ("pod-without-requirements", pod(), [1, 0, 0]),
    ("added-affinity-is-checked-first", pod(node_selector={"zone": "b"}), [1, 0, 2]),
    ("added-and-own-affinity-conflict", requiring(labels(("zone", "In", ["a"]))), [1, 2, 2]),
)
def test_added_affinity_has_its_own_code(incoming: Pod, codes: list[int]) -> None:
    """Nodes that addedAffinity excludes have a code of their own."""
    assert filtered(incoming, added("disk", "ssd")) == codes


def test_filter_without_pre_filter() -> None:
    """Filter works in a profile that does not enable PreFilter."""
    nodes = columns(NODES)
    instance = plugin(nodes=nodes)
    codes = present(instance.filter(CycleState(), nodes.compile_pod(pod(node_selector={"zone": "a"})), nodes, ALL_ROWS))
    assert codes.dtype == np.int16
    assert codes.tolist() == [0, MISMATCH, MISMATCH]
    assert instance.filter(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS) is None


# -- Score ------------------------------------------------------------------------------------------------------

SSD = labels(("disk", "Exists", []))
ZONED = labels(("zone", "Exists", []))


def test_pre_score_skips_without_preferred_terms() -> None:
    """PreScore skips if neither the pod nor the profile has preferred terms."""
    nodes = columns(NODES)
    incoming = nodes.compile_pod(requiring(SSD))
    assert plugin().pre_score(CycleState(), incoming, nodes, ALL_ROWS).is_skip
    assert plugin(added("zone", "a", weight=1)).pre_score(CycleState(), incoming, nodes, ALL_ROWS).is_success


@table(
    "terms, args, scores",
    ("one-term", [(5, SSD)], None, [0, 5, 5]),
    ("weights-add-up", [(5, SSD), (7, ZONED)], None, [7, 12, 5]),
    ("equal-terms", [(5, SSD), (5, SSD)], None, [0, 10, 10]),
    ("empty-terms-match-nothing", [(5, NodeSelectorTerm()), (1, named("n0"))], None, [1, 0, 0]),
    ("only-an-empty-term", [(5, NodeSelectorTerm())], None, [0, 0, 0]),
    ("weight-0-is-not-compiled", [(0, labels(("x", "Gt", ["y"]))), (1, SSD)], None, [0, 1, 1]),
    ("added", [(5, SSD)], added("zone", "a", weight=2), [2, 5, 5]),
    ("added-alone", [], added("zone", "a", weight=2), [2, 0, 0]),
)
def test_score(terms: list[tuple[int, NodeSelectorTerm]], args: Args | None, scores: list[int]) -> None:
    """The raw score is the sum of the weights of the matching terms."""
    assert scored(preferring(*terms), args) == scores
    assert scored(preferring(*terms), args, np.array([0, 2])) == [scores[0], scores[2]]


def test_an_invalid_preferred_term_is_an_error() -> None:
    """PreScore returns Error with the invalid key."""
    nodes = columns(NODES)
    incoming = nodes.compile_pod(preferring((1, labels(("cpus", "Gt", ["many"]))), (1, SSD)))
    status = plugin().pre_score(CycleState(), incoming, nodes, ALL_ROWS)
    assert status.code is Code.ERROR
    assert '"cpus"' in status.message


def test_score_without_pre_score() -> None:
    """Score works in a profile that does not enable PreScore."""
    nodes = columns(NODES)
    incoming = nodes.compile_pod(preferring((5, SSD)))
    assert plugin(nodes=nodes).score(CycleState(), incoming, nodes, ALL_ROWS).tolist() == [0, 5, 5]
    assert plugin(nodes=nodes).score(CycleState(), nodes.compile_pod(pod()), nodes, ALL_ROWS).tolist() == [0, 0, 0]


# -- declarations and events ------------------------------------------------------------------------------------


def test_declarations() -> None:
    """Args model, reuse and normalization are declared as the runtime expects."""
    assert NodeAffinity.args_model is NodeAffinityArgs
    assert NodeAffinity.reuse == Reuse(filter=Reads.NODE, score=Reads.NODE, pod=PodReads.NOTHING, prepares_once=True)
    assert NodeAffinity.normalization is Normalization.MAX


IN_A = node(labels={"zone": "a"})
IN_B = node(labels={"zone": "b"})
INVALID = labels(("zone", "Gt", ["x"]))


@table(
    "waiting, args, old, new, hint",
    ("added-and-matches", requiring(ZONED), None, None, IN_A, Hint.QUEUE),
    ("added-and-does-not-match", pod(node_selector={"zone": "a"}), None, None, IN_B, Hint.SKIP),
    ("matches-now", pod(node_selector={"zone": "a"}), None, IN_B, IN_A, Hint.QUEUE),
    ("matched-before", requiring(ZONED), None, IN_B, IN_A, Hint.SKIP),
    ("excluded-by-the-profile", pod(), added("zone", "a"), None, IN_B, Hint.SKIP),
    ("allowed-by-the-profile", pod(), added("zone", "a"), None, IN_A, Hint.QUEUE),
    ("invalid-term-is-requeued", requiring(INVALID), None, None, IN_A, Hint.QUEUE),
    (
        "invalid-term-but-excluded-by-the-selector",
        requiring(INVALID, selector={"zone": "b"}),
        None,
        None,
        IN_A,
        Hint.SKIP,
    ),
    ("invalid-term-but-matched-before", requiring(INVALID, ZONED), None, IN_B, IN_A, Hint.SKIP),
    ("not-a-node", pod(), None, None, pod(), Hint.QUEUE),
)
def test_hint(waiting: Pod, args: Args | None, old: object, new: object, hint: Hint) -> None:
    """A pod is requeued if the node matches and did not match before."""
    assert plugin(args).after_node_change(waiting, old, new) is hint
