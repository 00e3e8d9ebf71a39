"""InterPodAffinity ranks nodes by the weighted terms that meet in their domains."""

import numpy as np
import pytest

from scheduler_core.config.plugin_args import InterPodAffinityArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Normalization
from scheduler_core.model.affinity import Affinity, LabelSelector, PodAffinity, PodAffinityTerm, Requirement
from scheduler_core.model.affinity import WeightedPodAffinityTerm as Weighted
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.inter_pod_affinity import InterPodAffinity
from scheduler_core.snapshot.node_columns import ALL_ROWS, Rows
from tests.support.builders import node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle

NODES = [
    node("a1", labels={"zone": "a", "host": "a1"}),
    node("a2", labels={"zone": "a", "host": "a2"}),
    node("b1", labels={"zone": "b", "host": "b1"}),
    node("bare"),
]
Scored = tuple[list[int], list[int]]


def term(app: str, key: str = "zone") -> PodAffinityTerm:
    return PodAffinityTerm(key, LabelSelector(match_labels={"app": app}))


def likes(*terms: Weighted) -> Affinity:
    return Affinity(pod_affinity=PodAffinity(preferred=terms))


def dislikes(*terms: Weighted) -> Affinity:
    return Affinity(pod_anti_affinity=PodAffinity(preferred=terms))


def scored(
    incoming: Pod, placed: list[Pod], args: InterPodAffinityArgs | None = None, rows: Rows = ALL_ROWS
) -> Scored | str:
    """Raw and normalised scores, or how PreScore ended it."""
    filled = columns(NODES, placed)
    plugin = InterPodAffinity(args, FakeHandle(nodes=filled))
    state, info = CycleState(), filled.compile_pod(incoming)
    status = plugin.pre_score(state, info, filled, rows)
    if not status.is_success:
        return status.code_name
    raw = plugin.score(state, info, filled, rows)
    assert raw.dtype == np.int64
    normalized = plugin.normalize(state, info, raw)
    return [int(each) for each in raw], [int(each) for each in normalized]


WEB = pod("w", node_name="a1", labels={"app": "web"})
DB = pod("d", node_name="b1", labels={"app": "db"})


@pytest.mark.parametrize(
    ("incoming", "placed", "expected"),
    [
        pytest.param(pod(), [WEB], "Skip", id="nobody-prefers-anything"),
        pytest.param(pod(affinity=likes(Weighted(5, term("web")))), [DB], "Skip", id="nobody-is-liked"),
        pytest.param(
            pod(affinity=likes(Weighted(5, term("web")))), [WEB], ([5, 5, 0, 0], [100, 100, 0, 0]), id="likes-a-zone"
        ),
        pytest.param(
            pod(affinity=dislikes(Weighted(5, term("web", "host")))),
            [WEB],
            ([-5, 0, 0, 0], [0, 100, 100, 100]),
            id="dislikes-a-host",
        ),
        pytest.param(
            pod(affinity=likes(Weighted(5, term("web")), Weighted(3, term("web", "host")), Weighted(2, term("db")))),
            [WEB, DB],
            ([8, 5, 2, 0], [100, 62, 25, 0]),
            id="weights-add-up-and-round-down",
        ),
        pytest.param(
            pod(labels={"app": "web"}),
            [pod("o", node_name="b1", affinity=likes(Weighted(7, term("web"))))],
            ([0, 0, 7, 0], [0, 0, 100, 0]),
            id="liked-by-another",
        ),
        pytest.param(
            pod(labels={"app": "web"}),
            [pod("o", node_name="b1", affinity=dislikes(Weighted(7, term("web"))))],
            ([0, 0, -7, 0], [100, 100, 0, 100]),
            id="disliked-by-another",
        ),
        pytest.param(
            pod(labels={"app": "web"}),
            [pod("o", node_name="b1", affinity=Affinity(pod_affinity=PodAffinity(required=(term("web"),))))],
            ([0, 0, 1, 0], [0, 0, 100, 0]),
            id="needed-by-another",
        ),
        pytest.param(
            pod(affinity=likes(Weighted(5, term("web")))),
            [pod("o", node_name="bare", labels={"app": "web"})],
            "Skip",
            id="outside-all-domains",
        ),
        pytest.param(
            pod(affinity=likes(Weighted(1, term("web")))),
            [WEB, pod("v", node_name="b1", labels={"app": "web"})],
            ([1, 1, 1, 0], [100, 100, 100, 0]),
            id="each-domain-for-itself",
        ),
    ],
)
def test_scores(incoming: Pod, placed: list[Pod], expected: Scored | str) -> None:
    """Every pair of a term and a pod that it means adds its weight to the domain of the placed one."""
    assert scored(incoming, placed) == expected


def test_equal_scores_are_all_zero() -> None:
    """Because nothing distinguishes the nodes."""
    incoming = pod(affinity=likes(Weighted(5, term("web"))))
    assert scored(incoming, [WEB], rows=np.array([0, 1])) == ([5, 5], [0, 0])


def test_chosen_rows_are_normalised_among_themselves() -> None:
    """Whatever the other nodes would score."""
    incoming = pod(affinity=likes(Weighted(5, term("web")), Weighted(3, term("web", "host"))))
    assert scored(incoming, [WEB], rows=np.array([1, 2])) == ([5, 0], [100, 0])


NEEDED = pod("o", node_name="b1", affinity=Affinity(pod_affinity=PodAffinity(required=(term("web"),))))
LIKED = pod("l", node_name="a1", affinity=likes(Weighted(4, term("web"))))


@pytest.mark.parametrize(
    ("args", "incoming", "expected"),
    [
        pytest.param(
            InterPodAffinityArgs(hard_pod_affinity_weight=9), pod(labels={"app": "web"}), [4, 4, 9, 0], id="hard"
        ),
        pytest.param(
            InterPodAffinityArgs(hard_pod_affinity_weight=0), pod(labels={"app": "web"}), [4, 4, 0, 0], id="no-hard"
        ),
        pytest.param(
            InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True),
            pod(labels={"app": "web"}),
            None,
            id="others-ignored",
        ),
        pytest.param(
            InterPodAffinityArgs(ignore_preferred_terms_of_existing_pods=True),
            pod(labels={"app": "web"}, affinity=likes(Weighted(1, term("none")))),
            [4, 4, 1, 0],
            id="others-count-beside-own-preferences",
        ),
    ],
)
def test_args(args: InterPodAffinityArgs, incoming: Pod, expected: list[int] | None) -> None:
    """The weight of required terms of others, and whether their terms count for a pod that prefers nothing."""
    found = scored(incoming, [NEEDED, LIKED], args)
    assert (None if found == "Skip" else found[0]) == expected


def test_a_term_that_cannot_be_read_is_an_error() -> None:
    """PreFilter finds it first, unless the profile leaves it out."""
    broken = PodAffinityTerm("zone", LabelSelector(match_expressions=(Requirement("a", "Near"),)))
    assert scored(pod(affinity=likes(Weighted(1, broken))), []) == "Error"


def test_own_normalisation() -> None:
    """Minimum to maximum is none of the framework's."""
    assert InterPodAffinity.normalization is Normalization.OWN


def test_no_rows_are_normalised_to_none() -> None:
    """There may be none to score."""
    plugin = InterPodAffinity(None, FakeHandle())
    info = columns([]).compile_pod(pod())
    assert len(plugin.normalize(CycleState(), info, np.empty(0, dtype=np.int64))) == 0
