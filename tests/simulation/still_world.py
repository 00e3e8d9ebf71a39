"""A cluster in which only the scheduler acts: full nodes, and preemptors that each need one of them.

Nothing is created, changed or deleted but the victims and unrelated pods, whose deletions requeue the preemptors.
Watches show the operator's own writes late. So each preemptor needs one victim, and one victim is evicted for it.
With a budget for all victims, the disruption controller changes its status up to a second after a deletion.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass

from msgspec.structs import replace

from scheduler_core.config.profile_config import PreemptionSettings
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, SchedulingGroup
from scheduler_core.model.pod_group import POD_GROUP_LABELS, GroupKey, GroupSource, PodGroup
from tests.simulation import cluster_objects
from tests.simulation.api_server import BUDGETS, NAMESPACE, NAMESPACES, NODES, PODS, ApiServer
from tests.simulation.cluster_objects import APPS
from tests.simulation.controllers import Controllers
from tests.simulation.fault_counts import FaultCounts
from tests.simulation.ledger import RunState
from tests.simulation.network import Network, WatchLag
from tests.simulation.operator_process import OperatorProcess, ProcessOptions
from tests.simulation.pod_groups import PodGroups
from tests.simulation.profiles import PROFILES, preemption_settings
from tests.simulation.virtual_loop import VirtualLoop, virtual_time
from tests.support.builders import node, pod

_PRIORITY = 100
_UNRELATED = 60
_END_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class StillRun:
    """Result of a run.

    Attributes:
        needed: Number of victims that the preemptors need.
        evicted: Names of the victims that were deleted, each as often as it was deleted.
        bound: Number of preemptors that were bound.
        trace: Events, one a line.
    """

    needed: int
    evicted: tuple[str, ...]
    bound: int
    trace: tuple[str, ...]


def run_still_world(
    seed: int, *, source: GroupSource | None = None, gang_size: int = 1, allowed: int | None = None
) -> StillRun:
    """Run a seed until every preemptor had the time to be bound.

    Args:
        seed: Seed of everything random.
        source: API of the preemptors' PodGroups; None for single pods.
        gang_size: Number of members of a gang, all of which are required.
        allowed: Disruptions of victims that a budget allows, which the profiles never violate; None for no budget.
    """
    with virtual_time(seed) as loop:
        result = loop.run_until_complete(_StillWorld(loop, seed, allowed).run(source, gang_size))
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        return result


class _StillWorld:
    def __init__(self, loop: VirtualLoop, seed: int, allowed: int | None) -> None:
        self._loop = loop
        self._allowed = allowed
        self._rng = rng = random.Random(f"{seed}/still world")
        self._server = server = ApiServer()
        counts = FaultCounts()
        lag = WatchLag(random.Random(f"{seed}/watch lag"), always=True)
        self._network = Network(loop, server, counts, random.Random(f"{seed}/network"), lag)
        self._controllers = Controllers(loop, server, counts, seed)
        self._groups = PodGroups(self._network.log)
        self._evicted: list[str] = []
        end_later: Callable[[Pod], None] = server.on_deletion

        def deleted(victim: Pod) -> None:
            if victim.metadata.name.startswith("victim"):
                self._evicted.append(victim.metadata.name)
                if allowed is not None:
                    loop.call_later(rng.random(), self._put_budget)
            end_later(victim)

        server.on_deletion = deleted
        server.on_bound = lambda bound, _: self._controllers.run(bound)
        state = RunState(
            server, counts, {}, self._network.log, self._raise, loop.time, {}, {}, self._groups, lambda _: None
        )
        self._process = OperatorProcess(
            loop,
            self._network,
            state,
            ProcessOptions(
                1,
                seed,
                0.0,
                bind_limit=rng.choice((2, 8, 32)),
                preemption=PreemptionSettings(
                    delay_seconds=preemption_settings(seed).delay_seconds,
                    never_violate_disruption_budgets=allowed is not None,
                ),
            ),
        )

    @staticmethod
    def _raise(problem: str) -> None:
        raise AssertionError(problem)

    def _put_budget(self) -> None:
        assert self._allowed is not None
        budget = cluster_objects.budget(APPS[0], max(0, self._allowed - len(self._evicted)))
        self._server.put(BUDGETS, budget)

    async def run(self, source: GroupSource | None, gang_size: int) -> StillRun:
        rng = self._rng
        gangs = rng.randrange(2, 8)
        needed = gangs * gang_size
        node_count = needed + rng.randrange(1, needed + 2)
        server = self._server
        server.put(NAMESPACES, cluster_objects.namespace())
        if self._allowed is not None:
            self._put_budget()
        for number in range(node_count):
            server.put(NODES, node(f"n{number}", allocatable={"cpu": "1", "memory": "1Gi", "pods": "10"}))
            server.put(PODS, self._running(f"victim-{number}", f"n{number}", "1"))
        server.put(NODES, node("other", allocatable={"cpu": "900m", "memory": "1Gi", "pods": "100"}))
        for number in range(_UNRELATED):
            server.put(PODS, self._running(f"other-{number}", "other", "10m"))
        for kind in ("delete", "patch"):
            for _ in range(2 * needed):
                self._network.arm(kind, rng.choice(("", "", "slow", "response lost")), 1)
        self._process.start(dict.fromkeys(PROFILES, "default"))
        await asyncio.sleep(2.0)
        for gang in range(gangs):
            for index in range(gang_size):
                at = 3.0 * rng.random()
                self._loop.call_later(at, self._create, f"p{gang}-{index}", source, f"g{gang}", gang_size)
        for number in range(_UNRELATED):
            self._loop.call_later(10.0 * rng.random(), server.delete_pod, f"other-{number}")
        await asyncio.sleep(_END_SECONDS)
        self._process.kill()
        bound = sum(bool(each.spec.node_name) for each in server.pods() if each.metadata.name.startswith("p"))
        return StillRun(needed, tuple(self._evicted), bound, tuple(self._network.trace))

    def _running(self, name: str, node_name: str, cpu: str) -> Pod:
        made = pod(
            name,
            uid=self._server.new_uid(name),
            requests={"cpu": cpu},
            node_name=node_name,
            priority=0,
            labels={"app": APPS[0]} if name.startswith("victim") else {},
        )
        return replace(made, status=replace(made.status, phase="Running"))

    def _create(self, name: str, source: GroupSource | None, group: str, size: int) -> None:
        made = pod(name, uid=self._server.new_uid(name), requests={"cpu": "1"}, priority=_PRIORITY)
        made = replace(made, spec=replace(made.spec, scheduler_name=PROFILES[0]))
        if source is not None:
            key = GroupKey(source, NAMESPACE, group)
            if key not in self._groups.objects:
                self._groups.put(PodGroup(key, self._groups.new_uid(key), size, generation=1, priority=_PRIORITY))
            made = _member(made, source, group)
        self._server.put(PODS, made)


def _member(made: Pod, source: GroupSource, group: str) -> Pod:
    if source is GroupSource.NATIVE:
        return replace(made, spec=replace(made.spec, scheduling_group=SchedulingGroup(group)))
    meta: ObjectMeta = made.metadata
    return replace(made, metadata=replace(meta, labels={**meta.labels, POD_GROUP_LABELS[source]: group}))
