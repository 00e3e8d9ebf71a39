"""Dry runs of a pod's scheduling cycle."""

from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.plugin_set_types import Plugins, PluginSet
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import Codes, FilterPlugin, ScorePlugin, Scores
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.model.pod import Pod
from scheduler_core.scheduler import Scheduler, SchedulerOptions
from scheduler_core.snapshot.node_columns import NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.affinities import named, node_affinity
from tests.support.builders import node, pod
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock


def scheduler() -> Scheduler:
    """Return a scheduler with three nodes: one small, one large, one tainted."""
    made = Scheduler(VirtualClock(), RecordingWriter())
    made.feed.node_added(node("large", allocatable={"cpu": "8", "memory": "32Gi", "pods": "110"}))
    made.feed.node_added(node("small", allocatable={"cpu": "1", "memory": "32Gi", "pods": "110"}))
    made.feed.node_added(node("tainted", taints=["gpu=true:NoSchedule"]))
    return made


def dry_run(wanted: Pod, config: ProfileConfig | None = None, by: Scheduler | None = None) -> Examination:
    """Dry-run the scheduling cycle of a pod."""
    by = by or scheduler()
    instance = by.build(config or ProfileConfig(scheduler_name="default-scheduler"))
    return by.cycles.examiner.examine(instance, by.context.cache.columns.compile_pod(wanted))


def test_every_rejected_node_has_a_status() -> None:
    """Every infeasible node has the status of the first plugin that rejected it."""
    found = dry_run(pod(requests={"cpu": "2"}))
    assert found.feasible == ("large",)
    assert {name: (status.code, status.plugin, status.reasons) for name, status in found.rejected.items()} == {
        "small": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "NodeResourcesFit", ("Insufficient cpu",)),
        "tainted": (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "TaintToleration", ("node(s) had untolerated taint(s)",)),
    }


def test_a_single_feasible_node_is_scored() -> None:
    """Nodes are scored even if only one is feasible, unlike in a cycle."""
    found = dry_run(pod(requests={"cpu": "2"}))
    assert found.best == ("large",)
    assert found.totals.tolist() == [sum(int(part.weighted[0]) for part in found.scores.values())]


def test_all_tied_nodes_are_best() -> None:
    """All nodes with the highest score are returned as best, sorted by name."""
    by = Scheduler(VirtualClock(), RecordingWriter())
    for name in ("b", "a"):
        by.feed.node_added(node(name))
    assert dry_run(pod(), by=by).best == ("a", "b")


def test_a_gated_pod_is_not_filtered() -> None:
    """No node is evaluated for a gated pod."""
    found = dry_run(pod(gates=["example.com/wait"]))
    assert found.gate.plugin == "SchedulingGates"
    assert (found.rejected, found.feasible, found.message) == ({}, (), "")


def test_the_message_of_an_infeasible_pod() -> None:
    """The message equals that of the FailedScheduling event, with the message of PostFilter."""
    found = dry_run(pod(requests={"cpu": "64"}))
    assert found.message == (
        "0/3 nodes are available: 1 node(s) had untolerated taint(s), 2 Insufficient cpu. "
        "preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
    )


def test_the_message_without_nodes() -> None:
    """The message for a cluster without nodes is that of kube-scheduler."""
    found = dry_run(pod(), by=Scheduler(VirtualClock(), RecordingWriter()))
    assert (found.message, found.error) == ("no nodes available to schedule pods", "")


def test_a_feasible_nominated_node_is_the_only_one_evaluated() -> None:
    """If the nominated node is feasible, no other node is evaluated."""
    found = dry_run(pod(nominated_node="large"))
    assert found.nominated_only
    assert (found.feasible, found.rejected) == (("large",), {})


def test_the_nodes_of_pre_filter_are_returned() -> None:
    """Only the nodes that PreFilter returns are evaluated, and their names are returned, existing or not."""
    found = dry_run(pod(affinity=node_affinity(named("large"), named("gone"))))
    assert found.pre_filter_nodes == frozenset({"large", "gone"})
    assert (found.feasible, found.rejected["small"].plugin) == (("large",), "")


def test_a_percentage_of_nodes_is_ignored() -> None:
    """A percentage neither limits the dry run nor moves the start of the next search."""
    by = Scheduler(VirtualClock(), RecordingWriter(), SchedulerOptions(percentage_of_nodes_to_score=1))
    for number in range(150):
        by.feed.node_added(node(f"node-{number}"))
    assert len(dry_run(pod(), by=by).feasible) == 150
    assert by.context.node_order.next_start == 0


def test_all_feasible_nodes_are_best_without_score_plugins() -> None:
    """Without Score plugins every feasible node is returned as best."""
    plugins = Plugins(score=PluginSet(disabled=(PluginEntry(name="*"),)))
    config = ProfileConfig(scheduler_name="default-scheduler", plugins=plugins)
    found = dry_run(pod(), config)
    assert found.best == ("large", "small")
    assert len(found.totals) == 0


class _Raising(FilterPlugin):
    name = "Raising"

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Codes | None:
        raise RuntimeError("broken")

    def decode(self, state: CycleState, pod: PodInfo, code: int) -> Status:
        return SUCCESS


class _RaisingScore(ScorePlugin):
    name = "RaisingScore"

    def score(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Scores:
        raise RuntimeError("broken")


@table("plugin, feasible", ("filter", _Raising, ()), ("score", _RaisingScore, ("large", "small")))
def test_returns_an_error_of_a_plugin(plugin: type[FilterPlugin | ScorePlugin], feasible: tuple[str, ...]) -> None:
    """An error of a plugin ends the dry run, which returns the error and the earlier results."""
    registry = in_tree_registry()
    registry.register(plugin)
    by = Scheduler(VirtualClock(), RecordingWriter(), registry=registry, defaults=default_plugins())
    by.feed.node_added(node("large"))
    by.feed.node_added(node("small"))
    plugins = Plugins(multi_point=PluginSet(enabled=(PluginEntry(name=plugin.name),)))
    found = dry_run(pod(), ProfileConfig(scheduler_name="default-scheduler", plugins=plugins), by)
    assert plugin.name in found.error
    assert "broken" in found.error
    assert (found.feasible, found.scores, found.best) == (feasible, {}, ())
