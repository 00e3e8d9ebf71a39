"""Laws of the preemption dry run.

A reference function for one node and one pod at a time finds the same candidates and nominates the same node. Victims
are minimal: with any victim restored, the pod does not fit. A dry run of many nodes at once equals dry runs of single
nodes. A dry run does not change the columns.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler_core.config.plugin_args import DefaultPreemptionArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.handle import DryRun, Handle
from scheduler_core.model.affinity import Affinity
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.default_preemption import DefaultPreemption
from scheduler_core.snapshot.held_claims import HeldClaims
from scheduler_core.snapshot.indexes.pod_index import TermKind
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.affinities import anti_affinity_to, term
from tests.support.builders import node, pod
from tests.support.preemption import PreemptionWorld, budget, started
from tests.support.presence import present

CPUS = 4
APPS = ("web", "db", "")


@dataclass(frozen=True)
class AppPod:
    """A running pod of an app; ``start`` is unique."""

    name: str
    node: str
    priority: int
    cpu: int
    start: int
    app: str


@dataclass(frozen=True)
class Cluster:
    """Nodes of equal size, their pods, nominations, and the allowed disruptions of each app."""

    nodes: tuple[str, ...]
    running: tuple[AppPod, ...]
    nominated: tuple[tuple[str, int, int], ...]
    allowed: tuple[tuple[str, int], ...]
    cpu: int
    priority: int


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """Generate full clusters."""
    nodes = tuple(f"n{index}" for index in range(draw(st.integers(1, 4))))
    running = []
    for name in nodes:
        free = CPUS
        while free:
            cpu = draw(st.integers(1, free))
            free -= cpu
            priority, app = draw(st.integers(-1, 3)), draw(st.sampled_from(APPS))
            running.append((name, priority, cpu, app))
    starts = draw(st.permutations(range(len(running))))
    return Cluster(
        nodes,
        tuple(
            AppPod(f"p{index}", name, priority, cpu, start, app)
            for index, ((name, priority, cpu, app), start) in enumerate(zip(running, starts, strict=True))
        ),
        tuple(draw(st.lists(st.tuples(st.sampled_from(nodes), st.integers(0, 3), st.integers(1, 2)), max_size=2))),
        tuple(draw(st.lists(st.tuples(st.sampled_from(APPS), st.integers(-1, 2)), max_size=3))),
        draw(st.integers(1, CPUS)),
        draw(st.integers(0, 4)),
    )


def world_of(cluster: Cluster, affinity: Affinity | None = None) -> PreemptionWorld:
    carried: dict[str, Any] = {} if affinity is None else {"affinity": affinity}
    pods = [
        pod(
            each.name,
            node_name=each.node,
            priority=each.priority,
            requests={"cpu": each.cpu},
            start_time=started(each.start),
            labels={"app": each.app} if each.app else {},
            ports=[80] if each.cpu == 1 else [],
            **(carried if each.app == "db" else {}),
        )
        for each in cluster.running
    ]
    pods += [
        pod(f"nominated-{index}", priority=priority, requests={"cpu": cpu}, nominated_node=name)
        for index, (name, priority, cpu) in enumerate(cluster.nominated)
    ]
    budgets = [
        budget(f"b{index}", {"app": app} if app else {}, allowed)
        for index, (app, allowed) in enumerate(cluster.allowed)
    ]
    nodes = [node(name, labels={"kubernetes.io/hostname": name}) for name in cluster.nodes]
    return PreemptionWorld(nodes, pods, budgets)


def incoming(cluster: Cluster, **fields: Any) -> Pod:
    return pod("wants", priority=cluster.priority, requests={"cpu": cluster.cpu}, **fields)


def plain_victims(cluster: Cluster, name: str) -> tuple[list[AppPod], int] | None:
    """Return the victims on a node and the number of budget violations, or None if the node is not a candidate."""
    here = [each for each in cluster.running if each.node == name]
    remaining = [each for each in here if each.priority >= cluster.priority]
    nominated = sum(cpu for on, priority, cpu in cluster.nominated if on == name and priority >= cluster.priority)

    def fits(pods: list[AppPod]) -> bool:
        return sum(each.cpu for each in pods) + nominated + cluster.cpu <= CPUS

    removable = sorted((each for each in here if each not in remaining), key=lambda each: (-each.priority, each.start))
    if not removable or not fits(remaining):
        return None
    allowed_disruptions = [allowed for _, allowed in cluster.allowed]
    violating = []
    for each in removable:
        for index, (app, _) in enumerate(cluster.allowed):
            if app and app == each.app:
                allowed_disruptions[index] -= 1
                if allowed_disruptions[index] < 0:
                    violating.append(each)
                    break
    victims = []
    for each in [*violating, *(each for each in removable if each not in violating)]:
        if fits([*remaining, each]):
            remaining.append(each)
        else:
            victims.append(each)
    count = len([each for each in victims if each in violating])
    return sorted(victims, key=lambda each: (-each.priority, each.start)), count


@given(clusters())
def test_equals_the_plain_form(cluster: Cluster) -> None:
    """Candidates, victims, violations and the nominated node equal those of the reference function."""
    preview = present(world_of(cluster).preview(incoming(cluster)))
    plain = {name: found for name in cluster.nodes if (found := plain_victims(cluster, name)) is not None}
    assert {
        candidate.node_name: ([info.pod.metadata.name for info in candidate.victims], candidate.pdb_violations)
        for candidate in preview.candidates
    } == {name: ([each.name for each in victims], count) for name, (victims, count) in plain.items()}

    def harm(name: str) -> tuple[int, ...]:
        victims, count = plain[name]
        highest = victims[0].priority
        longest = min(each.start for each in victims if each.priority == highest)
        return count, highest, sum(each.priority + 2**31 for each in victims), len(victims), -longest

    assert preview.result.nominated_node == (min(plain, key=harm) if plain else "")


@given(clusters())
@settings(max_examples=50)
def test_victims_are_minimal(cluster: Cluster) -> None:
    """Without all victims the pod fits; with any one victim restored it does not."""
    world = world_of(cluster)
    failed = present(world.failed_attempt(incoming(cluster)))
    attempt, diagnosis = failed
    preview = world.plugin.preview(attempt.state, attempt.info, world.columns, diagnosis)
    for candidate in preview.candidates:
        for restored in (None, *candidate.victims):
            assert fits_without(world, attempt.state, attempt.info, candidate, restored) is (restored is None)


def fits_without(
    world: PreemptionWorld, state: CycleState, info: PodInfo, candidate: PreemptionCandidate, restored: PodInfo | None
) -> bool:
    rows = world.columns.alive.nonzero()[0]
    rows = rows[rows == world.columns.row_of(candidate.node_name)]
    with world.handle.dry_run(state, info) as dry_run:
        for other in candidate.victims:
            if other is not restored:
                dry_run.remove(other)
        return int(dry_run.run_filters(rows)[0]) == 0


class OneByOne:
    """Handle with dry runs that report that rows affect each other, so that rows are filtered one at a time."""

    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)

    def dry_run(
        self, state: CycleState, info: PodInfo, *, frees_shared_ports: bool = True, held: HeldClaims | None = None
    ) -> AbstractContextManager[DryRun]:
        assert frees_shared_ports
        assert held is None
        return self._single_row_run(state, info)

    @contextmanager
    def _single_row_run(self, state: CycleState, info: PodInfo) -> Iterator[DryRun]:
        with self._handle.dry_run(state, info) as dry_run:
            yield SingleRowDryRun(dry_run)


class SingleRowDryRun:
    """Dry run that accepts only one row at a time."""

    is_row_local = False

    def __init__(self, dry_run: DryRun) -> None:
        self.remove, self.restore = dry_run.remove, dry_run.restore
        self._run_filters = dry_run.run_filters

    def by_sums(self, rows: Any) -> None:
        """Return nothing; sums are not used for single rows."""

    def results_by_row(self, owner: str, *versions: object) -> None:
        """Return nothing; results are not stored."""

    def run_filters(self, rows: Any) -> Any:
        """Filter one row."""
        assert len(rows) == 1
        return self._run_filters(rows)


@given(clusters(), st.integers(1, 4))
def test_many_nodes_at_once_equal_single_nodes(cluster: Cluster, enough: int) -> None:
    """The preview is equal, also if not all nodes are dry-run."""
    world = world_of(cluster)
    args = DefaultPreemptionArgs(min_candidate_nodes_percentage=0, min_candidate_nodes_absolute=enough)
    at_once = world.preview(incoming(cluster, ports=[80]), DefaultPreemption(args, world.handle))
    single: Any = OneByOne(world.handle)
    assert world.preview(incoming(cluster, ports=[80]), DefaultPreemption(args, single)) == at_once


def fingerprint(columns: NodeColumns) -> tuple[object, ...]:
    """Return all readable state of the columns, including the order of each row's pods."""
    placed = [info for pods in columns.pods for info in pods.values()]
    terms = [counts for info in placed for counts in columns.pod_index.matching_terms(TermKind.REQUIRED_ANTI, info)]
    queries = [columns.pod_index.query(term.query) for info in placed for term in info.terms.required_anti]
    return (
        [(counts.holders.tolist(), counts.sum) for counts in terms],
        [(counts.total.tolist(), counts.ending.tolist()) for counts in queries],
        columns.priorities.below(2, np.arange(columns.size)).tolist(),
        columns.requested.tolist(),
        columns.nonzero_requested.tolist(),
        columns.pod_count.tolist(),
        [list(pods) for pods in columns.pods],
        [info.row for pods in columns.pods for info in pods.values()],
        sorted(columns.host_ports.conflicting_rows((("TCP", 80, "0.0.0.0"),)).tolist()),  # noqa: S104 - an address to compare with
        columns.version,
    )


AWAY_FROM_WEB = anti_affinity_to(term("web", "kubernetes.io/hostname"))


@given(clusters(), st.booleans())
def test_a_dry_run_does_not_change_the_columns(cluster: Cluster, has_affinity: bool) -> None:
    """The columns are unchanged by dry runs with host ports, nominations and anti-affinity."""
    affinity = AWAY_FROM_WEB if has_affinity else None
    world = world_of(cluster, affinity)
    carried: dict[str, Any] = {} if affinity is None else {"affinity": affinity}
    pending = incoming(cluster, ports=[80], labels={"app": "web"}, **carried)
    before, found = fingerprint(world.columns), world.failed_attempt(pending)
    first, second = world.preview(pending), world.preview(pending)
    assert fingerprint(world.columns) == before
    assert first == second
    again = world.failed_attempt(pending)
    assert (found is None, again is None) == (False, False)
    assert found is not None
    assert again is not None
    assert found[1].verdicts.tolist() == again[1].verdicts.tolist()
