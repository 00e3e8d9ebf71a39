"""Laws of shadow profiles.

A shadow with the spec of its live profile makes equal decisions. A shadow with any spec changes no live decision.
"""

from __future__ import annotations

from functools import partial
from random import Random

import pytest
from msgspec.structs import replace

from scheduler_core.config.profile_config import ProfileConfig, ShadowSettings
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.scheduler_options import SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.laws.twins.cluster_run import ClusterRun
from tests.laws.twins.opaque_plugins import OPAQUE_PLUGINS
from tests.laws.twins.random_clusters import random_node, random_profile
from tests.laws.twins.random_pods import PROFILES, random_pod_fields
from tests.laws.twins.twin import REAL, TINY, Bounds, Twin
from tests.support.builders import pod
from tests.support.scheduling import Rig, default_rig
from tests.support.tables import table

_DECISIONS = 150
_PODS_AT_ONCE = 150


def _pods_and_amounts(nodes: NodeColumns) -> list[object]:
    return [
        (
            name,
            [(info.uid, info.node_name, info.row) for info in nodes.pods[row].values()],
            nodes.requested[:, row].tolist(),
        )
        for row, name in enumerate(nodes.names)
    ]


class Shadowed(Twin):
    """A scheduler with a shadow for each of its profiles.

    Args:
        rng: Random generator for the specs of shadows; None for shadows with the spec of their live profile.
    """

    def __init__(self, bounds: Bounds, rng: Random | None = None) -> None:
        super().__init__(bounds)
        self._rng = rng
        self._wanted: dict[str, tuple[FrameworkInstance, ShadowSettings]] = {}
        self.compared = self.differed = 0
        self.problems: list[str] = []

    def serve(self, config: ProfileConfig) -> None:
        """Activate a profile, and a shadow of it."""
        super().serve(config)
        name = f"shadow-of-{config.scheduler_name}"
        spec = config if self._rng is None else random_profile(self._rng, config.scheduler_name)
        instance = self.scheduler.build(spec.model_copy(update={"scheduler_name": name}), is_shadow=True)
        self._wanted[name] = instance, ShadowSettings(config.scheduler_name)
        self._count()
        self.scheduler.shadows.serve(self._wanted)

    def pop(self, queued: QueuedPod) -> None:
        """Record the state before the decision."""
        self.scheduler.cycles.decided.begin(queued)

    async def decided(self) -> None:
        """Run the shadows, and check that the columns have not changed."""
        if len(self.scheduler.cycles.decided.pods) == 0:
            return
        before = _pods_and_amounts(self.rig.columns)
        await self.scheduler.shadows.compare()
        after = _pods_and_amounts(self.rig.columns)
        if before != after:
            self.problems.append("the columns changed")

    def _count(self) -> None:
        for shadow in self.scheduler.shadows:
            record = shadow.record
            self.compared += record.compared
            self.differed += record.differed
            self.problems += [str(each) for each in record.differences] if self._rng is None else []
            # Plugins of a random spec may fail although those of the live spec do not.
            self.problems += [record.last_error] if record.errors and self._rng is None else []
            self.problems += ["choices differ"] if shadow.ledger.differs and self._rng is None else []
            shadow.record = replace(record, compared=0, agreed=0, errors=0)
            shadow.record.differences.clear()

    def end(self) -> None:
        """Add the remaining counts of all shadows."""
        self._count()


@pytest.mark.parametrize("seed", [201, 202, 203, 204, 205])
@table("bounds", ("real bounds", REAL), ("tiny bounds", TINY))
@table("has_gangs", ("pods", False), ("gangs", True))
def test_a_shadow_with_the_same_spec_agrees(seed: int, bounds: Bounds, *, has_gangs: bool) -> None:
    """A shadow agrees on every compared decision, and live decisions equal those of a scheduler without shadows."""
    shadowed = Shadowed(bounds)
    counts = ClusterRun(seed, has_gangs=has_gangs, twins=(shadowed, Twin(bounds))).run(_DECISIONS)
    shadowed.end()
    assert counts.problem == ""
    assert shadowed.problems == []
    assert shadowed.compared > _DECISIONS // 5


@pytest.mark.parametrize("seed", [301, 302, 303, 304, 305])
@table("bounds", ("real bounds", REAL), ("tiny bounds", TINY))
@table("has_gangs", ("pods", False), ("gangs", True))
def test_a_shadow_changes_no_live_decision(seed: int, bounds: Bounds, *, has_gangs: bool) -> None:
    """Live decisions equal those of a scheduler without shadows, although the shadows' decisions differ."""
    shadowed = Shadowed(bounds, Random(seed))
    counts = ClusterRun(seed, has_gangs=has_gangs, twins=(shadowed, Twin(bounds))).run(_DECISIONS)
    shadowed.end()
    assert counts.problem == ""
    assert shadowed.problems == []
    assert shadowed.differed > 0


def _cluster(seed: int) -> Rig:
    """Return a scheduler with nodes and many pending pods, which its loop decides in slices."""
    rng = Random(seed)
    made = default_rig(plugins=OPAQUE_PLUGINS, options=SchedulerOptions(seed=seed), serve=False)
    for name in PROFILES:
        made.serve(random_profile(rng, name))
    made.add(*(random_node(rng, f"n{number}") for number in range(12)))
    made.add(*(pod(f"p{number}", **random_pod_fields(rng)) for number in range(_PODS_AT_ONCE)))
    return made


def _is_idle(made: Rig) -> bool:
    return made.queue.readings.is_idle and not made.scheduler.binding_count


@pytest.mark.parametrize("seed", range(401, 413))
async def test_decisions_of_one_slice_agree(seed: int) -> None:
    """A shadow agrees on each pod of a slice, because each is compared on the state of its decision."""
    plain, shadowed = _cluster(seed), _cluster(seed)
    shadows, wanted = shadowed.scheduler.shadows, {}
    for live in list(shadowed.context.profiles):
        spec = live.config.model_copy(update={"scheduler_name": f"shadow-of-{live.name}"})
        wanted[spec.scheduler_name] = shadowed.scheduler.build(spec, is_shadow=True), ShadowSettings(live.name)
    shadows.serve(wanted)
    for made in (plain, shadowed):
        async with made.running():
            await made.until(partial(_is_idle, made))
    assert shadowed.bound == plain.bound
    assert [str(each) for shadow in shadows for each in shadow.record.differences] == []
    assert sum(shadow.record.errors for shadow in shadows) == 0
    assert sum(shadow.record.compared for shadow in shadows) > _PODS_AT_ONCE // 10
