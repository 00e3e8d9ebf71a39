"""Law of long cycles: a pod at the limits of admission without devices stops neither the event loop nor other pods.

What runs between two turns of the event loop is counted in calls, as in :mod:`tests.laws.test_long_searches`.

A pod with hundreds of selectors takes no memory per node, either. Each selector of a pod is compared with all pods, and
each term of a running pod applies to other pods.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any, Unpack

import pytest

from scheduler_core.model.affinity import LabelSelector, NodeSelectorTerm, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Container, Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.scheduler import SchedulerOptions
from scheduler_core.step_counter import SLICE_STEPS
from tests.laws.test_long_searches import MOST_CALLS, CallCounter
from tests.support.affinities import affinity_to, anti_affinity_to, app, node_affinity, term
from tests.support.builders import PodFields, node, pod
from tests.support.gang_preemption import running_pod
from tests.support.scheduling import Rig, default_rig

KEYS = 240
APP = app("web")


def _cluster(nodes: int, keys: int = 0, taints: int = 0, attempt_steps: int = 100_000) -> Rig:
    return default_rig(
        *(
            node(
                f"n{each}",
                labels={"number": f"{each}", **{f"k{key}": f"{each}" for key in range(keys)}},
                taints=[f"t{each}-{taint}:PreferNoSchedule" for taint in range(taints)],
                allocatable={"cpu": "8", "memory": "64Gi", "pods": "1k"},
            )
            for each in range(nodes)
        ),
        options=SchedulerOptions(attempt_steps=attempt_steps),
    )


Case = tuple[Rig, Pod]


def _costly(made: Rig, **fields: Unpack[PodFields]) -> Case:
    return made, pod("costly", **fields)


def _greater(number: int) -> Requirement:
    return Requirement("number", "Gt", (f"{number}",))


def _less(number: int) -> Requirement:
    return Requirement("number", "Lt", (f"{number}",))


def greater_than() -> Case:
    """Return a pod with 240 terms, each of which compares numbers."""
    return _costly(_cluster(1500), affinity=node_affinity(*(_greater(each) for each in range(KEYS))))


def greater_than_at_once() -> Case:
    """Return a pod with one term of 240 comparisons that all match."""
    at_once = NodeSelectorTerm(tuple(_less(5000 + each) for each in range(KEYS)))
    return _costly(_cluster(1500), affinity=node_affinity(at_once))


def preferred_comparisons() -> Case:
    """Return a pod that prefers nodes by 240 comparisons."""
    preferred = [(1, _greater(each)) for each in range(KEYS)]
    return _costly(_cluster(1500), affinity=node_affinity(preferred=preferred))


def listed_values() -> Case:
    """Return a pod that lists 20,000 values."""
    listed = Requirement("number", "In", tuple(f"{each}" for each in range(20_000)))
    return _costly(_cluster(300), affinity=node_affinity(listed))


def spread_keys(action: str = "DoNotSchedule") -> Case:
    """Return a pod that is spread over 240 topologies."""
    spread = [TopologySpreadConstraint(1, f"k{each}", action, APP) for each in range(KEYS)]
    return _costly(_cluster(300, KEYS), spread=spread, labels={"app": "web"})


def preferred_spread_keys() -> Case:
    """Return a pod that prefers to be spread over 240 topologies."""
    return spread_keys("ScheduleAnyway")


def _terms() -> tuple[PodAffinityTerm, ...]:
    return tuple(term(APP, f"k{each}") for each in range(KEYS))


def anti_affinity_keys() -> Case:
    """Return a pod with 240 terms of anti-affinity."""
    return _costly(_cluster(300, KEYS), affinity=anti_affinity_to(*_terms()))


def affinity_keys() -> Case:
    """Return a pod with 240 terms of affinity to itself."""
    return _costly(_cluster(300, KEYS), affinity=affinity_to(*_terms()), labels={"app": "web"})


def preferred_affinity_keys() -> Case:
    """Return a pod with 240 preferred terms of affinity, and pods that they select."""
    made = _cluster(300, KEYS)
    made.add(*(pod(f"w{each}", node_name=f"n{each}", labels={"app": "web"}) for each in range(100)))
    return _costly(made, affinity=affinity_to(preferred=[(1, each) for each in _terms()]))


def selector_keys() -> Case:
    """Return a pod whose node selector has 400 labels."""
    return _costly(_cluster(300, KEYS), node_selector={f"k{each}": "7" for each in range(400)})


def tolerations() -> Case:
    """Return a pod with 10,000 tolerations, and nodes whose taints all differ."""
    listed = [Toleration(key=f"x{each}", operator="Exists") for each in range(10_000)]
    return _costly(_cluster(1000, taints=30), tolerations=listed)


def host_ports() -> Case:
    """Return a pod with 10,000 host ports."""
    return _costly(_cluster(100), ports=range(1, 10_001))


def containers() -> Case:
    """Return a pod with 5,000 containers of different images."""
    return _costly(_cluster(100), containers=[Container(f"c{each}", image=f"image-{each}") for each in range(5000)])


def resources() -> Case:
    """Return a pod that requests 480 resources."""
    return _costly(_cluster(300), requests={f"example.com/r{each}": "1" for each in range(480)})


def preemptor() -> Case:
    """Return a pod that preempts on nodes with many pods, and is spread, so that each removal is evaluated."""
    made = default_rig(options=SchedulerOptions(attempt_steps=12_000))
    labels = [{"zone": f"z{each % 3}", "kubernetes.io/hostname": f"n{each}"} for each in range(150)]
    made.add(*(node(f"n{each}", labels=of, allocatable={"cpu": "41", "pods": "1k"}) for each, of in enumerate(labels)))
    made.add(*(running_pod(f"v{each}-{n}", f"n{each}", 0) for each in range(150) for n in range(40)))
    spread = [TopologySpreadConstraint(5, key, "DoNotSchedule", APP) for key in ("zone", "kubernetes.io/hostname")]
    return _costly(made, spread=spread, priority=1000, requests={"cpu": "20"}, labels={"app": "web"})


ROWS: dict[str, Callable[[], Case]] = {
    "terms that compare numbers": greater_than,
    "comparisons in one term": greater_than_at_once,
    "preferred comparisons": preferred_comparisons,
    "listed values": listed_values,
    "spread constraints": spread_keys,
    "preferred spread constraints": preferred_spread_keys,
    "anti-affinity": anti_affinity_keys,
    "affinity": affinity_keys,
    "preferred affinity": preferred_affinity_keys,
    "node selector": selector_keys,
    "tolerations": tolerations,
    "host ports": host_ports,
    "containers": containers,
    "resources": resources,
    "a preemptor": preemptor,
}


@pytest.mark.parametrize("name", ROWS)
async def test_no_step_of_the_loop_is_long(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """No step of the loop exceeds its bound, and the next pod is bound."""
    made, costly = ROWS[name]()
    made.add(costly, pod("plain"))
    counter = CallCounter()
    with counter.counting(monkeypatch):
        async with made.running():
            await made.scheduler.until_idle()
    assert counter.largest <= MOST_CALLS
    assert "plain" in made.bound


@pytest.mark.parametrize("name", ["terms that compare numbers", "comparisons in one term", "preferred comparisons"])
async def test_a_pod_over_its_limit_fails_alone(name: str) -> None:
    """A pod without devices that takes more steps than an attempt may is given up with the reason."""
    made, costly = ROWS[name]()
    made.context.steps.attempt_steps = 3000
    made.add(costly, pod("plain"))
    async with made.running():
        await made.scheduler.until_idle()
    assert set(made.bound) == {"plain"}
    assert made.place_of(costly) in ("unschedulable", "errorBackoff")
    (message,) = {each.condition.message for each in made.writer.patches if each.condition and each.name == "costly"}
    assert message.startswith("given up after 3000 steps of the search by plugin NodeAffinity")


async def test_a_preemptor_over_its_limit_uses_the_candidates_that_it_found() -> None:
    """A preemption that takes more steps than an attempt may chooses among the candidates until then."""
    made, costly = preemptor()
    made.add(costly)
    queued = made.pop()
    with made.context.steps.live_attempt():
        made.scheduler.cycles.pods.schedule(queued)
    assert made.context.steps.spent > made.context.steps.attempt_steps
    assert made.queue.nominator.node_of(costly.metadata.uid)


# -- pods with hundreds of selectors -----------------------------------------------------------------------------------


HOST = "kubernetes.io/hostname"
SELECTORS = 100


def _selectors() -> list[LabelSelector]:
    return [LabelSelector(match_expressions=(Requirement("app", "NotIn", (f"w{each}",)),)) for each in range(SELECTORS)]


def _selector_terms(selectors: list[LabelSelector]) -> tuple[PodAffinityTerm, ...]:
    return tuple(term(each, HOST) for each in selectors)


def _preferred_anti_affinity() -> PodFields:
    return {"affinity": anti_affinity_to(preferred=[(1, each) for each in _selector_terms(_selectors())])}


def _required_anti_affinity() -> PodFields:
    return {"affinity": anti_affinity_to(*_selector_terms(_selectors()))}


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
        terms = _selector_terms(wanted)
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
                made.add(
                    pod(f"t{number}", node_name=f"n{number}", affinity=anti_affinity_to(*_selector_terms(selectors)))
                )
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    peak(100)  # fills what is cached for all schedulers
    assert peak(4000) <= 1.5 * peak(100)
