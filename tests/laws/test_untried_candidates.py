"""Gang preemption tries a changed node for a further member only if that can be less harmful; the plan is the same.

Small clusters without PodDisruptionBudgets, in which pods of several priorities and start times run, and members of few
classes preempt: with the bound on harm, and with a plugin that tries every changed node.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace

from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.gang_preemptor import GangPreemptor
from scheduler_core.model.pod import PodStatus
from scheduler_core.placement.victims import GangPlan
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gang_preemption import add_gang
from tests.support.gangs import group, member, previewed
from tests.support.scheduling import gang_rig

_BEGAN = datetime(2026, 1, 1, tzinfo=UTC)
_CLUSTERS = 80


def _plan(seed: int) -> GangPlan | None:
    draw = random.Random(seed)
    made = gang_rig()
    names = [f"n{number}" for number in range(draw.randint(3, 10))]
    made.add(*(node(name, allocatable={"cpu": "4", "pods": "9"}) for name in names))
    priorities = draw.choice([[0], [0, 1], [0, 0, 0, 2, 3]])
    for name in names:
        for number in range(draw.randint(1, 5)):
            cpu = f"{draw.choice([500, 1000, 1000, 1500])}m"
            running = pod(
                f"{name}-{number}",
                node_name=name,
                priority=draw.choice(priorities),
                requests={"cpu": cpu},
                start_time=_BEGAN + timedelta(minutes=draw.randint(0, 3)),
            )
            if draw.random() < 0.2:
                running = replace(running, status=PodStatus())
            made.add(running)
    sizes = draw.choice([[1000], [700, 1500], [600, 900, 1200]])
    wanted = draw.randint(2, 12)
    members = [
        member(f"m{number}", requests={"cpu": f"{sizes[number % len(sizes)]}m"}, priority=4) for number in range(wanted)
    ]
    add_gang(made, *members, of=group(min_member=wanted))
    plan = previewed(made).plan
    made.queue.close()
    return plan


def _described(plan: GangPlan | None) -> object:
    if plan is None:
        return None
    return list(plan.nodes.items()), [info.key for info in plan.victims], plan.rejected_by


def test_the_plan_is_that_of_trying_every_changed_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes and victims, in their order, are the same; the bound rules nodes out, and does not rule out others."""
    bound, verdicts = DefaultPreemption.may_be_better, Counter[bool]()

    def counted(self: DefaultPreemption, pods: Sequence[PodInfo], best: PreemptionCandidate) -> bool:
        verdict = bound(self, pods, best)
        verdicts[verdict] += 1
        return verdict

    plans = 0
    for seed in range(_CLUSTERS):
        monkeypatch.setattr(DefaultPreemption, "may_be_better", counted)
        found = _described(_plan(seed))
        monkeypatch.setattr(DefaultPreemption, "may_be_better", GangPreemptor.may_be_better)
        assert found == _described(_plan(seed)), f"seed {seed}"
        plans += found is not None
    assert plans > _CLUSTERS // 4
    assert min(verdicts[True], verdicts[False]) > _CLUSTERS // 4
