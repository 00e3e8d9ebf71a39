"""State transitions of pods in the cache (assumed, bound, added, forgotten) while nodes are added and removed."""

from contextlib import suppress

import pytest

from scheduler_core.errors import CacheError
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.pod import ContainerStatus, Pod, ResourceRequirements
from scheduler_core.model.selectors import PodQuery, compile_label_selector
from scheduler_core.snapshot.cluster_cache import ClusterCache, PodState
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import container, node, pod
from tests.support.injected_errors import InjectedErrors
from tests.support.tables import table

DEFAULT = frozenset(("default",))


@pytest.fixture
def cache() -> ClusterCache:
    filled = ClusterCache()
    for name in ("a", "b"):
        filled.add_node(node(name))
    return filled


def placed(name: str, node_name: str, cpu: str = "1") -> Pod:
    return pod(name, node_name=node_name, requests={"cpu": cpu})


def assume(cache: ClusterCache, name: str, node_name: str, cpu: str = "1") -> PodInfo:
    info = cache.columns.compile_pod(pod(name, requests={"cpu": cpu}))
    cache.assume(info, node_name)
    return info


def cpu_of(cache: ClusterCache, *names: str) -> list[int]:
    return [int(cache.columns.requested[CPU_COLUMN, cache.columns.row_of(name)]) for name in names]


def placement_of(cache: ClusterCache, info: PodInfo) -> PodState | None:
    entry = cache.get(info.uid)
    return None if entry is None else entry.state


def test_an_assumed_pod_uses_resources(cache: ClusterCache) -> None:
    """The requests of an assumed pod count on its node, so that the next cycle does not use them again."""
    info = assume(cache, "p", "a")
    assert cpu_of(cache, "a", "b") == [1000, 0]
    assert (info.node_name, info.row) == ("a", cache.columns.row_of("a"))
    assert (len(cache), cache.assumed_count, placement_of(cache, info)) == (1, 1, PodState.ASSUMED)


def test_a_pod_is_assumed_once(cache: ClusterCache) -> None:
    """Assuming a pod twice raises an error that names the pod's node."""
    info = assume(cache, "p", "a")
    with pytest.raises(CacheError, match="node a already"):
        cache.assume(info, "b")
    assert cpu_of(cache, "a", "b") == [1000, 0]


def test_a_forgotten_pod_uses_no_resources(cache: ClusterCache) -> None:
    """forget() releases the requests of an assumed pod, which can then be assumed again."""
    info = assume(cache, "p", "a")
    cache.forget(info)
    assert cpu_of(cache, "a") == [0]
    assert (info.node_name, info.row, len(cache), cache.assumed_count) == ("", NO_ROW, 0, 0)
    cache.assume(info, "b")
    assert cpu_of(cache, "a", "b") == [0, 1000]


def test_forget_accepts_a_recompiled_pod(cache: ClusterCache) -> None:
    """forget() finds the assumed pod by UID, because the queue recompiles a pod that is updated during its bind."""
    info = assume(cache, "p", "a")
    cache.forget(cache.columns.compile_pod(info.pod))
    assert cpu_of(cache, "a") == [0]
    assert (info.row, len(cache)) == (NO_ROW, 0)


def test_forget_ignores_an_unknown_pod(cache: ClusterCache) -> None:
    """The pod may have been deleted before forget() is called."""
    cache.forget(cache.columns.compile_pod(pod("p")))
    assert len(cache) == 0


def test_a_confirmed_pod_is_counted_once(cache: ClusterCache) -> None:
    """The watch event of a bound pod changes its state to ADDED and not its requests."""
    info = assume(cache, "p", "a")
    cache.finish_binding(info.uid, 5.0)
    assert placement_of(cache, info) is PodState.BOUND
    confirmed = cache.add_pod(placed("p", "a"))
    assert confirmed is info
    assert confirmed.pod.spec.node_name == "a"
    assert (placement_of(cache, info), cache.assumed_count) == (PodState.ADDED, 0)
    assert cpu_of(cache, "a") == [1000]


def test_the_watch_event_may_arrive_before_the_bind_response(cache: ClusterCache) -> None:
    """After the watch event, neither a successful nor a failed bind response changes the cache."""
    info = assume(cache, "p", "a")
    cache.add_pod(placed("p", "a"))
    cache.finish_binding(info.uid, 5.0)
    cache.forget(info)
    assert placement_of(cache, info) is PodState.ADDED
    assert cpu_of(cache, "a") == [1000]
    assert cache.overdue(100.0) == []


def test_a_repeated_watch_event_is_ignored(cache: ClusterCache) -> None:
    """A pod that is added twice is counted once."""
    assume(cache, "p", "a")
    for _ in range(2):
        cache.add_pod(placed("p", "a"))
    assert (cpu_of(cache, "a"), len(cache)) == ([1000], 1)


def test_the_watch_event_overrides_the_assumed_node(cache: ClusterCache) -> None:
    """A pod that is bound to another node than the assumed one moves there."""
    info = assume(cache, "p", "a")
    moved = cache.add_pod(placed("p", "b"))
    assert cpu_of(cache, "a", "b") == [0, 1000]
    assert (moved.node_name, info.row, cache.assumed_count) == ("b", NO_ROW, 0)
    cache.forget(info)
    assert cpu_of(cache, "b") == [1000]


def test_a_pod_that_another_scheduler_bound(cache: ClusterCache) -> None:
    """A bound pod that was never assumed is added."""
    info = cache.add_pod(placed("p", "a", cpu="2"))
    assert (cpu_of(cache, "a"), placement_of(cache, info)) == ([2000], PodState.ADDED)


def test_a_resized_pod_is_counted_again(cache: ClusterCache) -> None:
    """A resized pod counts with its new spec, or with the resources in force in its status if larger."""
    cache.add_pod(placed("p", "a", cpu="1"))
    cache.add_pod(placed("p", "a", cpu="2"))
    assert cpu_of(cache, "a") == [2000]
    in_force = ContainerStatus(name="main", resources=ResourceRequirements(requests={"cpu": "3"}))
    cache.add_pod(pod("p", node_name="a", requests={"cpu": "2"}, container_statuses=[in_force]))
    assert cpu_of(cache, "a") == [3000]


def test_an_update_without_changed_amounts_reuses_the_compiled_pod(cache: ClusterCache) -> None:
    """The compiled pod refers to the updated object."""
    info = cache.add_pod(placed("p", "a"))
    running = pod("p", node_name="a", requests={"cpu": "1"}, phase="Running", priority=0)
    assert cache.add_pod(running) is info
    assert info.pod is running


@table("is_assumed", ("assumed", True), ("added", False))
def test_changed_labels_are_counted_without_recompilation(cache: ClusterCache, is_assumed: bool) -> None:
    """Changed labels change the counts of selectors. The API server adds topology labels to each pod that it binds."""
    info = assume(cache, "p", "a") if is_assumed else cache.add_pod(placed("p", "a"))
    counts = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector({"app": "x"})), DEFAULT))
    unchanged = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector()), DEFAULT))
    row, version, position = info.row, unchanged.version, cache.columns.changes.position
    labelled = cache.add_pod(pod("p", node_name="a", requests={"cpu": "1"}, labels={"app": "x"}))
    assert (labelled is info, info.pod.metadata.labels) == (True, {"app": "x"})
    assert (cpu_of(cache, "a"), counts.total[row], unchanged.total[row]) == ([1000], 1, 1)
    assert (unchanged.version, cache.columns.changes.since(position)) == (version, [row])


def test_labels_that_change_before_the_node_is_added(cache: ClusterCache) -> None:
    """The changed labels count when the node is added, because there is no row before."""
    cache.add_pod(placed("p", "later"))
    info = cache.add_pod(pod("p", node_name="later", requests={"cpu": "1"}, labels={"app": "x"}))
    cache.add_node(node("later"))
    counts = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector({"app": "x"})), DEFAULT))
    assert (cpu_of(cache, "later"), counts.total[info.row]) == ([1000], 1)


@table("is_assumed", ("assumed", True), ("added", False))
def test_remove_pod(cache: ClusterCache, is_assumed: bool) -> None:
    """Removing a pod releases its requests; removing it again returns None."""
    info = assume(cache, "p", "a") if is_assumed else cache.add_pod(placed("p", "a"))
    assert cache.remove_pod(info.uid) is info
    assert (cpu_of(cache, "a"), len(cache), cache.assumed_count) == ([0], 0, 0)
    assert cache.remove_pod(info.uid) is None


@table("before, overdue", ("not-overdue", 5.0, []), ("overdue", 5.1, ["default/bound"]))
def test_overdue_pods_are_bound_but_not_confirmed(cache: ClusterCache, before: float, overdue: list[str]) -> None:
    """Assumed pods with a bind in progress are not overdue."""
    bound = assume(cache, "bound", "a")
    assume(cache, "binding", "a")
    cache.finish_binding(bound.uid, 5.0)
    assert [info.key for info in cache.overdue(before)] == overdue


def test_pods_of_a_removed_node_count_when_it_is_added_again(cache: ClusterCache) -> None:
    """The pods count on the node's new row."""
    cache.add_pod(placed("p", "a"))
    assumed = assume(cache, "q", "a")
    cache.remove_node("a")
    assert assumed.row == NO_ROW
    cache.add_node(node("c"))
    cache.add_node(node("a"))
    assert cpu_of(cache, "a", "b", "c") == [2000, 0, 0]
    cache.forget(assumed)
    assert cpu_of(cache, "a") == [1000]


def _removed_and_added_again(errors: InjectedErrors) -> list[int]:
    """Remove a node with two pods, again if that raises, and add it again; return the CPU that is requested there."""
    cache = ClusterCache()
    cache.add_node(node("a"))
    cache.add_node(node("b"))
    for name in ("p", "q"):
        cache.add_pod(placed(name, "a"))
    with errors.active(), suppress(RuntimeError):
        cache.remove_node("a")
    cache.remove_node("a")
    cache.add_node(node("a"))
    return cpu_of(cache, "a", "b")


def test_no_pod_is_lost_if_the_removal_of_its_node_raises() -> None:
    """The deletion of a node is delivered again after an exception at any call; its pods count when it is back."""
    roots = frozenset(("snapshot/cluster_cache.py:ClusterCache.remove_node",))
    counted = InjectedErrors(lambda _call, _site: None, roots)
    assert _removed_and_added_again(counted) == [2000, 0]
    for number in range(1, counted.calls + 1):
        errors = InjectedErrors(lambda call, _site, at=number: RuntimeError if call == at else None, roots)  # type: ignore[misc]
        assert _removed_and_added_again(errors) == [2000, 0], errors.injected


def test_pods_may_be_added_before_their_node(cache: ClusterCache) -> None:
    """The watches of pods and nodes are not ordered."""
    info = cache.add_pod(placed("p", "late"))
    assert (info.row, info.node_name) == (NO_ROW, "late")
    cache.add_node(node("late"))
    assert cpu_of(cache, "late") == [1000]


def test_a_pod_that_is_removed_after_its_node(cache: ClusterCache) -> None:
    """Adding the node again does not restore pods that were removed or forgotten."""
    gone, forgotten = cache.add_pod(placed("p", "a")), assume(cache, "q", "a")
    cache.remove_node("a")
    cache.remove_pod(gone.uid)
    cache.forget(forgotten)
    cache.add_node(node("a"))
    assert cpu_of(cache, "a") == [0]
    assert len(cache) == 0


def test_a_pod_that_changes_after_its_node_is_removed(cache: ClusterCache) -> None:
    """When the node is added again, the pod counts once, with its new amount."""
    cache.add_pod(placed("p", "a", cpu="1"))
    cache.remove_node("a")
    cache.add_pod(placed("p", "a", cpu="3"))
    cache.add_node(node("a"))
    assert cpu_of(cache, "a") == [3000]


def test_adding_a_known_node_updates_it(cache: ClusterCache) -> None:
    """The pods of the node still count, and updating an unknown node adds it."""
    cache.add_pod(placed("p", "a"))
    cache.add_node(node("a", allocatable={"cpu": "9"}))
    cache.add_node(node("new"))
    cache.remove_node("unknown")
    assert cpu_of(cache, "a", "new") == [1000, 0]
    assert cache.columns.allocatable[CPU_COLUMN, cache.columns.row_of("a")] == 9000


def test_sidecar_ports_are_released_with_their_pod(cache: ClusterCache) -> None:
    """Host ports of an assumed pod are in use until the pod is forgotten."""
    ports = (("TCP", 80, "0.0.0.0"),)  # noqa: S104 - an address to compare with
    sidecar = container(name="s", ports=[80], restart_policy="Always")
    info = cache.columns.compile_pod(pod("p", init_containers=[sidecar]))
    cache.assume(info, "b")
    assert cache.columns.host_ports.conflicting_rows(ports).tolist() == [cache.columns.row_of("b")]
    cache.forget(info)
    assert not len(cache.columns.host_ports.conflicting_rows(ports))


def test_placed_pods(cache: ClusterCache) -> None:
    """placed_pods() returns assumed pods, added pods, and pods on unknown nodes."""
    assume(cache, "p", "a")
    cache.add_pod(placed("q", "b"))
    cache.add_pod(placed("r", "elsewhere"))
    assert [entry.info.key for entry in cache.placed_pods()] == ["default/p", "default/q", "default/r"]
