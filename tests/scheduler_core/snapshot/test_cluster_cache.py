"""The cache's state machine: assumed, bound, added, forgotten, and nodes that come and go under it."""

import pytest

from scheduler_core.errors import CacheError
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.affinity_terms import PodQuery
from scheduler_core.model.pod import ContainerStatus, Pod, ResourceRequirements
from scheduler_core.model.selectors import compile_label_selector
from scheduler_core.snapshot.cluster_cache import ClusterCache, Placement
from scheduler_core.snapshot.interning import CPU_COLUMN
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import container, node, pod

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


def placement_of(cache: ClusterCache, info: PodInfo) -> Placement | None:
    entry = cache.get(info.uid)
    return None if entry is None else entry.placement


def test_an_assumed_pod_counts_at_once(cache: ClusterCache) -> None:
    """The next cycle must not give its room away."""
    info = assume(cache, "p", "a")
    assert cpu_of(cache, "a", "b") == [1000, 0]
    assert (info.node_name, info.row) == ("a", cache.columns.row_of("a"))
    assert (len(cache), cache.assumed_count, placement_of(cache, info)) == (1, 1, Placement.ASSUMED)


def test_a_pod_is_assumed_once(cache: ClusterCache) -> None:
    """The message says where it is."""
    info = assume(cache, "p", "a")
    with pytest.raises(CacheError, match="node a already"):
        cache.assume(info, "b")
    assert cpu_of(cache, "a", "b") == [1000, 0]


def test_a_forgotten_pod_gives_back_what_it_held(cache: ClusterCache) -> None:
    """As if it had never been assumed."""
    info = assume(cache, "p", "a")
    cache.forget(info)
    assert cpu_of(cache, "a") == [0]
    assert (info.node_name, info.row, len(cache), cache.assumed_count) == ("", NO_ROW, 0, 0)
    cache.assume(info, "b")
    assert cpu_of(cache, "a", "b") == [0, 1000]


def test_forgetting_by_a_recompiled_pod_gives_back_what_was_assumed(cache: ClusterCache) -> None:
    """The queue recompiles a pod when it is updated, also while it is being bound."""
    info = assume(cache, "p", "a")
    cache.forget(cache.columns.compile_pod(info.pod))
    assert cpu_of(cache, "a") == [0]
    assert (info.row, len(cache)) == (NO_ROW, 0)


def test_a_pod_unknown_to_the_cache_is_forgotten_without_ado(cache: ClusterCache) -> None:
    """It may be gone meanwhile."""
    cache.forget(cache.columns.compile_pod(pod("p")))
    assert len(cache) == 0


def test_a_confirmed_pod_keeps_its_place(cache: ClusterCache) -> None:
    """And is counted once."""
    info = assume(cache, "p", "a")
    cache.finish_binding(info.uid, 5.0)
    assert placement_of(cache, info) is Placement.BOUND
    confirmed = cache.add_pod(placed("p", "a"))
    assert confirmed is info
    assert confirmed.pod.spec.node_name == "a"
    assert (placement_of(cache, info), cache.assumed_count) == (Placement.ADDED, 0)
    assert cpu_of(cache, "a") == [1000]


def test_a_watch_may_be_faster_than_the_bind(cache: ClusterCache) -> None:
    """What comes late then changes nothing: neither the answer of the bind nor its failure."""
    info = assume(cache, "p", "a")
    cache.add_pod(placed("p", "a"))
    cache.finish_binding(info.uid, 5.0)
    cache.forget(info)
    assert placement_of(cache, info) is Placement.ADDED
    assert cpu_of(cache, "a") == [1000]
    assert cache.overdue(100.0) == []


def test_confirming_twice_is_confirming_once(cache: ClusterCache) -> None:
    """Watches repeat themselves."""
    assume(cache, "p", "a")
    for _ in range(2):
        cache.add_pod(placed("p", "a"))
    assert (cpu_of(cache, "a"), len(cache)) == ([1000], 1)


def test_the_api_server_is_right_about_the_node(cache: ClusterCache) -> None:
    """A pod that was assumed elsewhere moves."""
    info = assume(cache, "p", "a")
    moved = cache.add_pod(placed("p", "b"))
    assert cpu_of(cache, "a", "b") == [0, 1000]
    assert (moved.node_name, info.row, cache.assumed_count) == ("b", NO_ROW, 0)
    cache.forget(info)
    assert cpu_of(cache, "b") == [1000]


def test_a_pod_that_another_scheduler_bound(cache: ClusterCache) -> None:
    """It just comes."""
    info = cache.add_pod(placed("p", "a", cpu="2"))
    assert (cpu_of(cache, "a"), placement_of(cache, info)) == ([2000], Placement.ADDED)


def test_a_resized_pod_is_counted_again(cache: ClusterCache) -> None:
    """By its spec and by what its status says is in force."""
    cache.add_pod(placed("p", "a", cpu="1"))
    cache.add_pod(placed("p", "a", cpu="2"))
    assert cpu_of(cache, "a") == [2000]
    in_force = ContainerStatus(name="main", resources=ResourceRequirements(requests={"cpu": "3"}))
    cache.add_pod(pod("p", node_name="a", requests={"cpu": "2"}, container_statuses=[in_force]))
    assert cpu_of(cache, "a") == [3000]


def test_an_update_that_changes_no_amount_keeps_the_compiled_pod(cache: ClusterCache) -> None:
    """But takes over the object."""
    info = cache.add_pod(placed("p", "a"))
    running = pod("p", node_name="a", requests={"cpu": "1"}, phase="Running", priority=0)
    assert cache.add_pod(running) is info
    assert info.pod is running


@pytest.mark.parametrize("is_assumed", [pytest.param(True, id="assumed"), pytest.param(False, id="added")])
def test_changed_labels_are_counted_and_not_compiled(cache: ClusterCache, is_assumed: bool) -> None:
    """Selectors of other pods count by them; the API server adds a node's topology to the labels of what it binds."""
    info = assume(cache, "p", "a") if is_assumed else cache.add_pod(placed("p", "a"))
    counts = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector({"app": "x"})), DEFAULT))
    unchanged = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector()), DEFAULT))
    row, version, position = info.row, unchanged.version, cache.columns.changes.position
    labelled = cache.add_pod(pod("p", node_name="a", requests={"cpu": "1"}, labels={"app": "x"}))
    assert (labelled is info, info.pod.metadata.labels) == (True, {"app": "x"})
    assert (cpu_of(cache, "a"), counts.total[row], unchanged.total[row]) == ([1000], 1, 1)
    assert (unchanged.version, cache.columns.changes.since(position)) == (version, [row])


def test_labels_that_change_while_the_node_is_away_count_when_it_is_back(cache: ClusterCache) -> None:
    """There is no row to count them on before."""
    cache.add_pod(placed("p", "later"))
    info = cache.add_pod(pod("p", node_name="later", requests={"cpu": "1"}, labels={"app": "x"}))
    cache.add_node(node("later"))
    counts = cache.columns.pod_index.query(PodQuery(compile_label_selector(LabelSelector({"app": "x"})), DEFAULT))
    assert (cpu_of(cache, "later"), counts.total[info.row]) == ([1000], 1)


@pytest.mark.parametrize("is_assumed", [pytest.param(True, id="assumed"), pytest.param(False, id="added")])
def test_a_pod_that_is_gone(cache: ClusterCache, is_assumed: bool) -> None:
    """It leaves nothing behind."""
    info = assume(cache, "p", "a") if is_assumed else cache.add_pod(placed("p", "a"))
    assert cache.remove_pod(info.uid) is info
    assert (cpu_of(cache, "a"), len(cache), cache.assumed_count) == ([0], 0, 0)
    assert cache.remove_pod(info.uid) is None


@pytest.mark.parametrize(
    ("before", "overdue"),
    [pytest.param(5.0, [], id="not-yet"), pytest.param(5.1, ["default/bound"], id="late")],
)
def test_overdue_pods_are_those_bound_and_not_confirmed(cache: ClusterCache, before: float, overdue: list[str]) -> None:
    """Assumed pods whose bind is under way are not asked about."""
    bound = assume(cache, "bound", "a")
    assume(cache, "binding", "a")
    cache.finish_binding(bound.uid, 5.0)
    assert [info.key for info in cache.overdue(before)] == overdue


def test_a_removed_nodes_pods_come_back_with_it(cache: ClusterCache) -> None:
    """Whatever row it gets."""
    cache.add_pod(placed("p", "a"))
    assumed = assume(cache, "q", "a")
    cache.remove_node("a")
    assert assumed.row == NO_ROW
    cache.add_node(node("c"))
    cache.add_node(node("a"))
    assert cpu_of(cache, "a", "b", "c") == [2000, 0, 0]
    cache.forget(assumed)
    assert cpu_of(cache, "a") == [1000]


def test_pods_may_come_before_their_node(cache: ClusterCache) -> None:
    """Watches of two kinds are not ordered."""
    info = cache.add_pod(placed("p", "late"))
    assert (info.row, info.node_name) == (NO_ROW, "late")
    cache.add_node(node("late"))
    assert cpu_of(cache, "late") == [1000]


def test_a_pod_that_goes_while_its_node_is_away_stays_gone(cache: ClusterCache) -> None:
    """It is not brought back by the node."""
    gone, forgotten = cache.add_pod(placed("p", "a")), assume(cache, "q", "a")
    cache.remove_node("a")
    cache.remove_pod(gone.uid)
    cache.forget(forgotten)
    cache.add_node(node("a"))
    assert cpu_of(cache, "a") == [0]
    assert len(cache) == 0


def test_a_pod_changed_while_its_node_is_away_comes_back_changed(cache: ClusterCache) -> None:
    """Once, with its new amount."""
    cache.add_pod(placed("p", "a", cpu="1"))
    cache.remove_node("a")
    cache.add_pod(placed("p", "a", cpu="3"))
    cache.add_node(node("a"))
    assert cpu_of(cache, "a") == [3000]


def test_adding_a_known_node_updates_it(cache: ClusterCache) -> None:
    """Its pods stay, and an update of an unknown one adds it."""
    cache.add_pod(placed("p", "a"))
    cache.add_node(node("a", allocatable={"cpu": "9"}))
    cache.update_node(node("new"))
    cache.remove_node("never-known")
    assert cpu_of(cache, "a", "new") == [1000, 0]
    assert cache.columns.allocatable[CPU_COLUMN, cache.columns.row_of("a")] == 9000


def test_sidecar_ports_are_free_after_their_pod(cache: ClusterCache) -> None:
    """Ports follow the same states."""
    ports = (("TCP", 80, "0.0.0.0"),)  # noqa: S104 - an address to compare with
    sidecar = container(name="s", ports=[80], restart_policy="Always")
    info = cache.columns.compile_pod(pod("p", init_containers=[sidecar]))
    cache.assume(info, "b")
    assert cache.columns.host_ports.conflicting_rows(ports).tolist() == [cache.columns.row_of("b")]
    cache.forget(info)
    assert not len(cache.columns.host_ports.conflicting_rows(ports))


def test_placed_pods_are_all_of_them(cache: ClusterCache) -> None:
    """Assumed, added and those without a node that is known."""
    assume(cache, "p", "a")
    cache.add_pod(placed("q", "b"))
    cache.add_pod(placed("r", "elsewhere"))
    assert [entry.info.key for entry in cache.placed_pods()] == ["default/p", "default/q", "default/r"]
