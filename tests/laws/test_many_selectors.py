"""Law: a pod with hundreds of selectors stops neither the event loop nor other pods, and takes no memory per node.

Each selector of a pod is compared with all pods, and each term of a running pod applies to other pods.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from scheduler_core.model.affinity import LabelSelector, PodAffinityTerm, Requirement
from scheduler_core.model.pod import TopologySpreadConstraint
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.step_counter import SLICE_STEPS
from tests.support.affinities import anti_affinity_to, term
from tests.support.builders import PodFields, node, pod
from tests.support.scheduling import Rig, default_rig

HOST = "kubernetes.io/hostname"
SELECTORS = 100


def _selectors() -> list[LabelSelector]:
    return [LabelSelector(match_expressions=(Requirement("app", "NotIn", (f"w{each}",)),)) for each in range(SELECTORS)]


def _terms(selectors: list[LabelSelector]) -> tuple[PodAffinityTerm, ...]:
    return tuple(term(each, HOST) for each in selectors)


def _preferred_anti_affinity() -> PodFields:
    return {"affinity": anti_affinity_to(preferred=[(1, each) for each in _terms(_selectors())])}


def _required_anti_affinity() -> PodFields:
    return {"affinity": anti_affinity_to(*_terms(_selectors()))}


def _hard_spread() -> PodFields:
    return {"spread": [TopologySpreadConstraint(9, HOST, "DoNotSchedule", each) for each in _selectors()]}


def _soft_spread() -> PodFields:
    return {"spread": [TopologySpreadConstraint(9, HOST, "ScheduleAnyway", each) for each in _selectors()]}


FIELDS: dict[str, Callable[[], PodFields]] = {
    "preferred anti-affinity": _preferred_anti_affinity,
    "required anti-affinity": _required_anti_affinity,
    "hard spread": _hard_spread,
    "soft spread": _soft_spread,
}


def _made(pods: int, nodes: int = 20, **options: Any) -> Rig:
    made = default_rig(
        *(node(f"n{each}", labels={HOST: f"n{each}"}) for each in range(nodes)), options=SchedulerOptions(**options)
    )
    made.add(*(pod(f"v{each}", node_name=f"n{each % nodes}", labels={"app": "a"}) for each in range(pods)))
    return made


@pytest.mark.parametrize("name", FIELDS)
async def test_the_event_loop_runs_while_selectors_are_compared_with_all_pods(name: str) -> None:
    """The steps of the comparisons are counted, and divide the cycle into slices."""
    made = _made(1400)
    slices = 0

    def count() -> None:
        nonlocal slices
        slices += 1

    made.add(pod("p", **FIELDS[name]()))
    made.context.steps.on_slice_end = count
    made.decide()
    least = SELECTORS * 1400 // 7
    assert made.context.steps.spent >= 0.9 * least
    assert slices >= 0.8 * least // SLICE_STEPS


@pytest.mark.parametrize("name", FIELDS)
async def test_a_pod_that_exceeds_the_limit_is_given_up_and_others_are_bound(name: str) -> None:
    """The attempt ends at the limit, with the reason; counts that were completed are kept for the next attempt."""
    made = _made(1400, attempt_steps=8_000)
    made.add(pod("p", **FIELDS[name]()))
    async with made.running():
        await made.until(lambda: bool(made.writer.patches))
        assert "steps" in made.condition.message
        assert "p" not in made.bound
        made.add(pod("other"))
        await made.until(lambda: "other" in made.bound)
        # A pod that was given up is tried again after five minutes, if no event requeues it.
        for _ in range(15):
            made.clock.advance(60)
            for _ in range(20):
                await made.clock.sleep(0)
        assert ("p" in made.bound) is (name != "required anti-affinity"), "each attempt compares some selectors"


async def test_a_dry_run_does_not_change_which_counts_are_stored() -> None:
    """What a dry run counts is dropped with the next change of a pod, and live attempts are charged as without it."""
    made, fields = _made(700), _required_anti_affinity()
    made.add(pod("p", **fields))
    index, steps = made.columns.pod_index, made.context.steps
    terms = made.columns.compile_pod(pod("q", **fields)).terms.required_anti
    with steps.dry_run():
        found = [index.query(term.query) for term in terms[:40]]
        assert [index.query(term.query) for term in terms[:40]] == found, "they are stored within the dry run"
    assert int(found[0].total.sum()) == 700
    made.decide()
    assert steps.spent >= 0.9 * SELECTORS * 700 // 7
    made.add(pod("v", node_name="n0", labels={"app": "a"}))
    with steps.dry_run():
        assert int(index.query(terms[0].query).total.sum()) == 701


@pytest.mark.parametrize("is_required", [True, False])
async def test_the_event_loop_runs_while_terms_of_running_pods_are_compared(is_required: bool) -> None:
    """Terms that do not match divide the cycle into slices too; the pod is not charged for what others run."""
    made, slices = _made(0), 0

    def count() -> None:
        nonlocal slices
        slices += 1

    for number in range(200):
        wanted = [LabelSelector(match_expressions=(Requirement(f"k{number}-{each}", "Exists"),)) for each in range(120)]
        terms = _terms(wanted)
        anti = anti_affinity_to(*terms) if is_required else anti_affinity_to(preferred=[(1, each) for each in terms])
        made.add(pod(f"t{number}", node_name=f"n{number % 20}", affinity=anti))
    made.add(pod("p"))
    made.context.steps.on_slice_end = count
    made.decide()
    assert slices >= 0.8 * 200 * 120 // 8 // SLICE_STEPS
    assert made.context.steps.spent < 1000


async def test_terms_of_running_pods_take_memory_by_pods_and_not_by_nodes() -> None:
    """A term that few pods have takes as much memory in a cluster of 4,000 nodes as in one of 100."""

    def peak(nodes: int) -> int:
        made = _made(0, nodes)
        tracemalloc.start()
        try:
            for number in range(10):
                selectors = [LabelSelector(match_labels={f"k{each}": f"v{number}"}) for each in range(SELECTORS)]
                made.add(pod(f"t{number}", node_name=f"n{number}", affinity=anti_affinity_to(*_terms(selectors))))
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # fills what is cached for all schedulers
    assert peak(4000) <= 1.5 * peak(100)
