"""Law of long cycles: a pod at the limits of admission without devices stops neither the event loop nor other pods.

What runs between two turns of the event loop is counted in calls, as in :mod:`tests.laws.test_long_searches`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Unpack

import pytest

from scheduler_core.model.affinity import NodeSelectorTerm, PodAffinityTerm, Requirement
from scheduler_core.model.pod import Container, Pod, TopologySpreadConstraint
from scheduler_core.model.taints import Toleration
from scheduler_core.scheduler import SchedulerOptions
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
