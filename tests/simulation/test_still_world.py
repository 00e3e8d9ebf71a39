"""Law: in a world that is otherwise still, no more victims are evicted than are needed.

Watches show evictions, conditions, nominations and binds late, as an API server under load does. kube-scheduler v1.37.1
evicts the needed victims if its watches are prompt; between the response to a deletion and its watch event it may evict
others.
"""

from __future__ import annotations

from collections import Counter

import pytest

from scheduler_core.feeds.pod_and_node_feed import PodAndNodeFeed
from scheduler_core.feeds.pod_versions import AcceptedDeletions
from scheduler_core.framework.gang_preemptor import EvictionLimits
from scheduler_core.framework.nominator import NominatedPods
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.plugins import default_preemption
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.planted_bugs import Bug, Original, _patched, _replaced
from tests.simulation.still_world import run_still_world
from tests.support.tables import table

SEEDS = 12


@pytest.mark.parametrize("seed", range(SEEDS))
@table(
    "source, gang_size",
    ("pods", None, 1),
    ("gangs-of-one", GroupSource.BAYPLAN, 1),
    ("gangs", GroupSource.BAYPLAN, 3),
    ("native-gangs", GroupSource.NATIVE, 3),
)
def test_no_more_victims_than_needed(seed: int, source: GroupSource | None, gang_size: int) -> None:
    """One victim is evicted for each preemptor, none twice, and all preemptors are bound."""
    run = run_still_world(seed, source=source, gang_size=gang_size)
    assert run.bound == run.needed
    assert len(run.evicted) == run.needed
    assert max(Counter(run.evicted).values()) == 1


@pytest.mark.parametrize("seed", range(SEEDS))
@table(
    "source, gang_size",
    ("pods", None, 1),
    ("gangs", GroupSource.BAYPLAN, 2),
    ("native-gangs", GroupSource.NATIVE, 2),
)
def test_no_budget_is_violated(seed: int, source: GroupSource | None, gang_size: int) -> None:
    """With ``neverViolateDisruptionBudgets`` evictions end at the budget, also before it shows the earlier ones."""
    allowed = seed % 4
    run = run_still_world(seed, source=source, gang_size=gang_size, allowed=allowed)
    assert len(run.evicted) <= allowed
    assert len(run.evicted) == min(run.needed, allowed - allowed % gang_size)
    assert run.bound == len(run.evicted)


def test_evictions_that_the_budget_does_not_show_must_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the planted bug that terminating pods do not count, some run violates the budget."""
    monkeypatch.setattr(EvictionLimits, "_leaving", property(lambda _: [], lambda *_: None), raising=False)
    runs = (run_still_world(seed, allowed=1) for seed in range(SEEDS))
    assert any(len(run.evicted) > 1 for run in runs)


def _seen_late(original: Original) -> Original:
    def completed(self: AcceptedDeletions, pod: Pod) -> Pod:
        found: Pod = original(self, pod)
        self.ended(pod.metadata.uid)
        return found

    return completed


def _by_status(original: Original) -> Original:
    def decide(self: NominatedPods, pod: PodInfo, node_name: str | None) -> None:
        original(self, pod, pod.pod.status.nominated_node_name if node_name is None else node_name)

    return decide


def _without_nominator(original: Original) -> Original:
    return lambda pod, nodes, diagnosis, _, **given: original(pod, nodes, diagnosis, "", **given)


BUGS: dict[str, Bug] = {
    "an evicted pod terminates only when the watch shows it": _replaced(
        PodAndNodeFeed, "deletion_accepted", lambda *_: None
    ),
    "a version from before the deletion undoes it": _patched(AcceptedDeletions, "completed", _seen_late),
    "a preemptor keeps only a nomination that its status shows": _patched(NominatedPods, "decide", _by_status),
    "a preemptor may preempt until its status shows the nomination": _patched(
        default_preemption, "why_not_eligible", _without_nominator
    ),
}
"""Planted bugs by the defect that they cause."""


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_breaks_the_law(name: str) -> None:
    """With each of these bugs, some run evicts more pods than are needed."""
    with BUGS[name]():
        runs = (run_still_world(seed) for seed in range(4 * SEEDS))
        assert any(len(run.evicted) > run.needed for run in runs)
