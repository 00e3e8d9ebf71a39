"""Laws of gang preemption in small clusters."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from scheduler_core.model.affinity import Affinity
from scheduler_core.model.pod import Pod, SchedulingGroup
from scheduler_core.model.pod_group import GroupKey, GroupSource, GroupTopology
from scheduler_core.queueing.gang_members import Gang
from tests.support.affinities import anti_affinity_to
from tests.support.builders import node, pod
from tests.support.cluster_state import cluster_state
from tests.support.gang_preemption import add_gang, terminating_pod
from tests.support.gangs import LABEL, gang_of, group, member, previewed, settle
from tests.support.preemption import budget
from tests.support.scheduling import Rig, gang_rig

APART = anti_affinity_to("db")


@dataclass(frozen=True)
class MixedPod:
    """A running pod: its node, its size, and its other properties; ``kind`` is gang, apart, ending or ""."""

    number: int
    cpus: int
    priority: int
    kind: str
    port: int


@dataclass(frozen=True)
class World:
    """CPUs of each node, pods on the nodes, and a gang."""

    cpus: Sequence[int]
    pods: Sequence[MixedPod]
    wants: Sequence[int]
    needed: int
    port: int
    priority: int
    topology: GroupTopology | None
    allowed: int
    kind: str
    min_cpus: int = 0
    source: GroupSource = GroupSource.BAYPLAN

    def running(self) -> list[Pod]:
        return [self._pod(index, each) for index, each in enumerate(self.pods)]

    def _pod(self, index: int, each: MixedPod) -> Pod:
        name, on = f"v{index}", f"n{each.number % len(self.cpus)}"
        ports = [each.port] if each.port else []
        requests = {"cpu": str(each.cpus)}
        if each.kind == "gang":
            return member(name, "victim", node_name=on, priority=each.priority, requests=requests, ports=ports)
        made = pod(
            name,
            node_name=on,
            priority=each.priority,
            requests=requests,
            ports=ports,
            labels={"app": "db"},
            affinity=APART if each.kind == "apart" else Affinity(),
        )
        return terminating_pod(made) if each.kind == "ending" else made

    def staged(self) -> Rig:
        """Return a scheduler that has received all events and has not attempted the gang."""
        made = gang_rig()
        made.scheduler.group_feed.serve(GroupSource.NATIVE)
        for index, cpus in enumerate(self.cpus):
            labels = {"zone": "xy"[index % 2]}
            made.add(node(f"n{index}", labels=labels, allocatable={"cpu": str(cpus), "pods": "9"}))
        made.scheduler.group_feed.group_changed(group("victim", 1, disrupts_whole=True))
        made.add(*self.running())
        made.columns.disruption_budgets.assign(budget("db", {"app": "db"}, self.allowed))
        of = group(
            min_member=self.needed,
            topology=self.topology,
            min_resources={"cpu": 1000 * self.min_cpus} if self.min_cpus else {},
        )
        if self.source is GroupSource.NATIVE:
            native = GroupKey(GroupSource.NATIVE, "default", "train")
            of = dataclasses.replace(of, key=native, priority=self.priority, waits_for_gated=True)
        add_gang(made, *(self._member(index, cpus) for index, cpus in enumerate(self.wants)), of=of)
        return made

    def _member(self, number: int, cpus: int) -> Pod:
        made = member(
            f"train-{number}",
            requests={"cpu": str(cpus)},
            priority=self.priority,
            ports=[self.port] if self.port else [],
            labels={"app": "db"} if self.kind else {},
            affinity=APART if self.kind == "apart" else Affinity(),
        )
        if self.source is not GroupSource.NATIVE:
            return made
        labels = {name: value for name, value in made.metadata.labels.items() if name != LABEL}
        spec = replace(made.spec, scheduling_group=SchedulingGroup("train"))
        return replace(made, spec=spec, metadata=replace(made.metadata, labels=labels))


RUNNING = st.builds(
    MixedPod,
    number=st.integers(0, 3),
    cpus=st.integers(0, 3),
    priority=st.integers(0, 4),
    kind=st.sampled_from(["", "", "gang", "ending", "apart"]),
    port=st.sampled_from([0, 0, 80]),
)


@st.composite
def worlds(draw: st.DrawFn, *, plain: bool = False) -> World:
    """Generate a world; a plain one has only CPUs, and members of one class."""
    pods = draw(st.lists(RUNNING, max_size=8))
    wants = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    if plain:
        pods = [MixedPod(each.number, each.cpus, each.priority, "", 0) for each in pods]
        wants = [wants[0]] * len(wants)
    return World(
        draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)),
        pods,
        wants,
        len(wants) if plain else draw(st.integers(1, len(wants))),
        0 if plain else draw(st.sampled_from([0, 0, 80])),
        draw(st.integers(1, 4)),
        None
        if plain
        else draw(st.sampled_from([None, GroupTopology("zone"), GroupTopology("zone", is_required=False)])),
        draw(st.integers(0, 2)),
        "" if plain else draw(st.sampled_from(["", "db", "apart"])),
        0 if plain else draw(st.sampled_from([0, 0, 1, 2, 4, 8])),
        GroupSource.BAYPLAN if plain else draw(st.sampled_from([GroupSource.BAYPLAN, GroupSource.NATIVE])),
    )


def deliver_nominations(made: Rig, gang: Gang) -> None:
    """Deliver watch events of the members with the nominated nodes that the scheduler wrote."""
    written = {patch.uid: patch.nominated_node_name for patch in made.writer.patches if patch.nominated_node_name}
    for queued in list(gang.waiting.values()):
        old = queued.info.pod
        status = replace(old.status, nominated_node_name=written.get(queued.uid, ""))
        made.scheduler.feed.pod_updated(old, replace(old, status=status))


# Scores count pods without requests with defaults; without the nominations they choose other nodes after the evictions.
SCORES_CHANGE = World(
    [3, 4], [*[MixedPod(0, 0, 0, "", 0)] * 7, MixedPod(0, 1, 0, "", 0)], [2, 2, 3], 3, 0, 1, None, 0, ""
)

# The quorum has room after the evictions, but less than minResources is free.
FEW_FREE = World([2], [MixedPod(0, 1, 0, "", 0)] * 2, [1, 1], 2, 0, 1, None, 0, "", 3, GroupSource.NATIVE)


@given(worlds())
def test_a_dry_run_changes_nothing(world: World) -> None:
    """A dry run leaves all sums, orders and nominations unchanged."""
    made = world.staged()
    before = cluster_state(made.context)
    previewed(made, source=world.source)
    between = cluster_state(made.context)
    previewed(made, source=world.source)
    # The first dry run adds match counts of its queries to the cache, where they stay.
    assert {**before, "queries": between["queries"]} == between == cluster_state(made.context)


@example(SCORES_CHANGE)
@example(FEW_FREE)
@given(worlds())
def test_the_whole_quorum_is_scheduled_after_the_evictions(world: World) -> None:
    """Victims have lower priority and include whole gangs; none is evicted unless quorum and minResources fit then."""

    async def run() -> None:
        made = world.staged()
        await settle(made)
        victims = {deletion.name for deletion in made.writer.deletions}
        gang = gang_of(made, source=world.source)
        preempts = gang.outcome is not None and gang.outcome.reason == "Preempting"
        # Members beyond the quorum preempt one by one once the quorum has nodes.
        assert preempts or not victims or len(made.bound) >= world.needed
        running = {each.metadata.name: each for each in world.running()}
        assert all((running[name].spec.priority or 0) < world.priority for name in victims)
        assert not any(running[name].metadata.deletion_timestamp for name in victims)
        whole = {f"v{index}" for index, each in enumerate(world.pods) if each.kind == "gang"}
        assert whole <= victims or not whole & victims
        if not preempts:
            return
        assert made.bound == {}
        deliver_nominations(made, gang)
        for name, each in running.items():
            if name in victims or each.metadata.deletion_timestamp is not None:
                made.scheduler.feed.pod_deleted(each)
        await settle(made, after=30.0)
        assert len(made.bound) >= world.needed

    asyncio.run(run())


@given(worlds(plain=True))
def test_a_gang_preempts_if_and_only_if_that_helps(world: World) -> None:
    """A plain gang preempts if and only if all pods of lower priority free enough CPU and less is free before."""
    made = world.staged()

    def slots(least: int) -> int:
        """Return how many members fit beside the pods with at least the priority *least*."""
        free = list(world.cpus)
        for each in world.pods:
            free[each.number % len(free)] -= each.cpus if each.priority >= least else 0
        counts = [
            sum(each.number % len(free) == row and each.priority >= least for each in world.pods)
            for row in range(len(free))
        ]
        size = world.wants[0]
        return sum(max(0, min(cpus // size, 9 - count)) for cpus, count in zip(free, counts, strict=True))

    preview = previewed(made)
    assert (preview.plan is not None) == (slots(0) < world.needed <= slots(world.priority))
