"""InterPodAffinity's scores, by the weighted terms of the incoming pod and of existing pods."""

import numpy as np

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization
from scheduler_core.model.affinity import LabelSelector, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from tests.support.affinities import affinity_to, anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import normalized_scores
from tests.support.tables import table

NODES = [
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("bare"),
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
        "preferred-affinity-by-zone",
        pod(affinity=affinity_to(preferred=[(5, term("web"))])),
        [WEB],
        ([5, 5, 0, 0], [100, 100, 0, 0]),
    ),
    (
        "preferred-anti-affinity-by-host",
        pod(affinity=anti_affinity_to(preferred=[(5, term("web", "host"))])),
        [WEB],
        ([-5, 0, 0, 0], [0, 100, 100, 100]),
    ),
    (
        "weights-add-up-and-round-down",
        pod(affinity=affinity_to(preferred=[(5, term("web")), (3, term("web", "host")), (2, term("db"))])),
        [WEB, DB],
        ([8, 5, 2, 0], [100, 62, 25, 0]),
    ),
    (
        "preferred-affinity-of-an-existing-pod",
        pod(labels={"app": "web"}),
        [pod("o", node_name="b1", affinity=affinity_to(preferred=[(7, term("web"))]))],
        ([0, 0, 7, 0], [0, 0, 100, 0]),
    ),
    (
        "preferred-anti-affinity-of-an-existing-pod",
        pod(labels={"app": "web"}),
        [pod("o", node_name="b1", affinity=anti_affinity_to(preferred=[(7, term("web"))]))],
        ([0, 0, -7, 0], [100, 100, 0, 100]),
    ),
    (
        "required-affinity-of-an-existing-pod",
        pod(labels={"app": "web"}),
        [pod("o", node_name="b1", affinity=affinity_to("web"))],
        ([0, 0, 1, 0], [0, 0, 100, 0]),
    ),
    (
        "matching-pod-outside-all-domains",
        pod(affinity=affinity_to(preferred=[(5, term("web"))])),
        [pod("o", node_name="bare", labels={"app": "web"})],
        "Skip",
    ),
    (
        "domains-are-scored-separately",
        pod(affinity=affinity_to(preferred=[(1, term("web"))])),
        [WEB, pod("v", node_name="b1", labels={"app": "web"})],
        ([1, 1, 1, 0], [100, 100, 100, 0]),
    ),
)
def test_scores(incoming: Pod, placed: list[Pod], expected: Scored | str) -> None:
    """Each match of a term and a pod adds the term's weight to the domain of the existing pod."""
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


def test_own_normalization() -> None:
    """The plugin normalizes by minimum and maximum itself."""
    assert InterPodAffinity.normalization is Normalization.OWN


def test_normalization_of_no_rows() -> None:
    """normalize() accepts an empty array."""
    plugin = InterPodAffinity(None, FakeHandle())
    info = columns([]).compile_pod(pod())
    assert len(plugin.normalize(CycleState(), info, np.empty(0, dtype=np.int64))) == 0
