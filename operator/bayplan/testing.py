"""Checks of what a scheduling plugin guarantees, for the tests of plugin authors.

With ``pytest_plugins = ["bayplan.testing"]`` a test has the fixture ``check_plugin``; :func:`check_plugin` is the same
without pytest. Results of a plugin are reused for other pods, computed for some rows only and called on rows without a
node, so a plugin that breaks a guarantee makes wrong decisions without an error.

PYTEST_DONT_REWRITE: other tests may have imported this module before pytest loads it as a plugin.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from bayplan.simulation.admission import admit
from bayplan.simulation.cluster_files import read_cluster_files
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import FilterPlugin, ScorePlugin
from scheduler_core.framework.plugin import Plugin, PodReads, Reads
from scheduler_core.framework.registry import Registry
from scheduler_core.framework.status import Status
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.model.node import Node
from scheduler_core.model.pod import Pod
from scheduler_core.runtime.filtering import run_pre_filters
from scheduler_core.runtime.scoring import Scoring, run_pre_scores
from scheduler_core.scheduler import Scheduler
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

Manifest = Mapping[str, Any]
PluginCheck = Callable[..., None]

GUARANTEES = {
    "rows": "the result for some rows equals the result for all rows at those rows",
    "one row": "filter_row and score_row equal filter and score",
    "dead rows": "rows without a node do not change the results of other rows",
    "no state": "the result for a pod does not depend on pods that were scheduled before",
    "pod reads": "pods that differ only in aspects that reuse.pod does not declare have equal results",
    "cluster reads": "results change only with what reuse.filter and reuse.score declare",
    "reuse check": "while the check of reuse_check is true, PreFilter and PreScore prepare the same",
}
"""The guarantees that are checked, by the name in an error."""

_PROFILE = "checked"


class BrokenGuaranteeError(AssertionError):
    """A plugin broke a guarantee."""

    def __init__(self, plugin: str, guarantee: str, details: str) -> None:
        self.guarantee = guarantee
        super().__init__(f"plugin {plugin} breaks a guarantee: {GUARANTEES[guarantee]}: {details}")


@pytest.fixture(name="check_plugin")
def check_plugin_fixture() -> PluginCheck:
    return check_plugin


def check_plugin(
    plugin: type[Plugin],
    *,
    args: Manifest | None = None,
    nodes: Sequence[Manifest] = (),
    pods: Sequence[Manifest] = (),
    seed: int = 0,
    rounds: int = 30,
) -> None:
    """Check a Filter or Score plugin on random clusters.

    Args:
        args: Its args as in a profile; None for the defaults.
        nodes: Manifests of nodes that make a difference to the plugin; ordinary ones are added.
        pods: Manifests of pods that make a difference to the plugin; ordinary ones are added.
        seed: Seed of the random choices; equal seeds check equal clusters.
        rounds: Number of random clusters.

    Raises:
        BrokenGuaranteeError: The plugin breaks a guarantee.
        ConfigError: The args or the manifests are invalid.
    """
    registry = in_tree_registry()
    if plugin.name not in registry:
        registry.register(plugin)
    samples = _read_samples(registry, nodes, pods)
    for number in range(rounds):
        _Round(plugin, args, registry, samples, random.Random(f"{seed}/{number}")).check()


@dataclass(frozen=True, slots=True)
class _Samples:
    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]


def _read_samples(registry: Registry, nodes: Sequence[Manifest], pods: Sequence[Manifest]) -> _Samples:
    items: list[dict[str, Any]] = []
    for kind, manifests in (("Node", [*_NODES, *nodes]), ("Pod", [*_PODS, *pods])):
        for number, manifest in enumerate(manifests):
            named = {**manifest.get("metadata", {}), "name": f"{kind.lower()}-{number}"}
            items.append({**manifest, "apiVersion": "v1", "kind": kind, "metadata": named})
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "samples.json"
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
        cluster = admit(read_cluster_files([str(file)], registry.decoded_types()))
    return _Samples(cluster.nodes, cluster.pods)


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A pod after PreFilter, with its status, and PreScore."""

    info: PodInfo
    state: CycleState
    status: Status


class _World:
    """A scheduler with one profile that runs the plugin, and a cluster."""

    def __init__(self, plugin: type[Plugin], args: Manifest | None, registry: Registry) -> None:
        self.scheduler = Scheduler(SimulatedClock(), MemoryCluster(), registry=registry)
        enabled = [{"name": name} for name in dict.fromkeys((plugin.name, "PrioritySort", "DefaultBinder"))]
        config = ProfileConfig.model_validate(
            {
                "schedulerName": _PROFILE,
                "plugins": {"multiPoint": {"enabled": enabled, "disabled": [{"name": "*"}]}},
                "pluginConfig": [] if args is None else [{"name": plugin.name, "args": dict(args)}],
            }
        )
        self.instance = self.scheduler.build(config)
        self.scheduler.activate([self.instance])
        self.columns: NodeColumns = self.scheduler.context.cache.columns
        self.filters = [each for each in self.instance.filters if each.name == plugin.name]
        self.scores = [each for each, _ in self.instance.scores if each.name == plugin.name]

    def add(self, nodes: Sequence[Node], running: Sequence[Pod] = ()) -> _World:
        for node in nodes:
            self.scheduler.feed.node_added(node)
        for pod in running:
            self.scheduler.feed.pod_added(pod)
        return self

    def prepare(self, pod: Pod) -> _Prepared:
        info, state = self.columns.compile_pod(pod), CycleState()
        status = run_pre_filters(self.instance, state, info, self.columns).status
        if status.is_success:
            run_pre_scores(self.instance, Scoring(state, info, self.columns, ALL_ROWS))
        return _Prepared(info, state, status)

    def results(self, pod: Pod, prepared: _Prepared | None = None) -> dict[str, tuple[object, object]]:
        """Return the reasons and the raw score of each node by name; the reasons of PreFilter if it rejects the pod."""
        given = prepared or self.prepare(pod)
        if not given.status.is_success:
            reasons, scores = [given.status.reasons] * self.columns.size, [None] * self.columns.size
        else:
            reasons, scores = self.reasons(given, ALL_ROWS), self.raw_scores(given, ALL_ROWS)
        return {
            node.metadata.name: (reasons[row], scores[row])
            for row, node in enumerate(self.columns.nodes)
            if node is not None
        }

    def reasons(self, prepared: _Prepared, rows: Rows) -> list[Any]:
        """Return the reasons of each row in ``rows``; None for a feasible row."""
        info, state = prepared.info, prepared.state
        count = self.columns.size if isinstance(rows, slice) else len(rows)
        found: list[Any] = [None] * count
        for plugin in self.filters:
            if plugin.name in state.skip_filter:
                continue
            codes = plugin.filter(state, info, self.columns, rows)
            for index, code in enumerate([] if codes is None else codes.tolist()):
                alive = self.columns.alive[index if isinstance(rows, slice) else rows[index]]
                if code and alive:
                    found[index] = plugin.decode(state, info, code).reasons
        return found

    def raw_scores(self, prepared: _Prepared, rows: Rows) -> list[Any]:
        """Return the raw score of each row in ``rows``; None if the plugin does not score the pod."""
        info, state = prepared.info, prepared.state
        count = self.columns.size if isinstance(rows, slice) else len(rows)
        for plugin in self.scores:
            if plugin.name not in state.skip_score:
                return list(plugin.score(state, info, self.columns, rows).tolist())
        return [None] * count


class _Round:
    """The checks on one random cluster."""

    def __init__(
        self, plugin: type[Plugin], args: Manifest | None, registry: Registry, samples: _Samples, rng: random.Random
    ) -> None:
        self._plugin = plugin
        self._args, self._registry = args, registry
        self._rng = rng
        self._nodes = [self._node(rng.choice(samples.nodes), f"n{i}") for i in range(rng.randint(2, 6))]
        self._samples = samples
        self._running = [self._placed(i) for i in range(rng.randint(0, 8))]
        self._pod = self._named(rng.choice(samples.pods), "incoming")

    def _new_world(self) -> _World:
        return _World(self._plugin, self._args, self._registry)

    def check(self) -> None:
        world = self._new_world().add(self._nodes, self._running)
        expected = world.results(self._pod)
        prepared = world.prepare(self._pod)
        if prepared.status.is_success:
            self._check_rows(world, prepared)
            self._check_one_row(world, prepared)
        self._check_dead_rows(expected)
        self._check_state(world, expected)
        self._check_pod_reads(expected)
        self._check_cluster_reads(expected)
        self._check_reuse_check(world)

    def _check_rows(self, world: _World, prepared: _Prepared) -> None:
        everywhere = world.reasons(prepared, ALL_ROWS), world.raw_scores(prepared, ALL_ROWS)
        rows = np.array(self._rng.sample(range(world.columns.size), self._rng.randint(1, world.columns.size)))
        some = world.reasons(prepared, rows), world.raw_scores(prepared, rows)
        for what, of_all, of_some in zip(("filter", "score"), everywhere, some, strict=True):
            self._expect("rows", [of_all[row] for row in rows], of_some, f"{what}, rows {rows.tolist()}")

    def _check_one_row(self, world: _World, prepared: _Prepared) -> None:
        info, state = prepared.info, prepared.state
        rows = [row for row in range(world.columns.size) if world.columns.alive[row]]
        for plugin in world.filters:
            if isinstance(plugin, FilterPlugin) and plugin.name not in state.skip_filter:
                codes = plugin.filter(state, info, world.columns, ALL_ROWS)
                vector = [0] * len(rows) if codes is None else [int(codes[row]) for row in rows]
                self._expect("one row", vector, [plugin.filter_row(state, info, world.columns, row) for row in rows])
        for scorer in world.scores:
            if isinstance(scorer, ScorePlugin) and scorer.name not in state.skip_score:
                scores = scorer.score(state, info, world.columns, ALL_ROWS)
                single = [scorer.score_row(state, info, world.columns, row) for row in rows]
                self._expect("one row", [int(scores[row]) for row in rows], single)

    def _check_dead_rows(self, expected: object) -> None:
        world = self._new_world()
        gone = [self._node(self._rng.choice(self._samples.nodes), f"gone{i}") for i in range(3)]
        for node in gone:
            world.scheduler.feed.node_added(node)
        world.add(self._nodes, self._running)
        for node in gone:
            world.scheduler.feed.node_deleted(node)
        self._expect("dead rows", expected, world.results(self._pod))

    def _check_state(self, world: _World, expected: object) -> None:
        for number in range(4):
            world.results(self._named(self._rng.choice(self._samples.pods), f"earlier-{number}"))
        self._expect("no state", expected, world.results(self._pod))

    def _check_pod_reads(self, expected: object) -> None:
        for aspect, other in self._variants():
            if aspect not in self._plugin.reuse.pod:
                found = self._new_world().add(self._nodes, self._running).results(other)
                self._expect("pod reads", expected, found, f"pods that differ in {aspect.name}")

    def _variants(self) -> Iterator[tuple[PodReads, Pod]]:
        pod, meta = self._pod, self._pod.metadata
        yield PodReads.IDENTITY, self._named(pod, "another")
        labels = self._rng.choice(self._samples.pods).metadata.labels
        yield PodReads.LABELS, replace(pod, metadata=replace(meta, labels={**labels, "checked": "yes"}))
        resources = self._rng.choice(self._samples.pods).spec.containers[0].resources
        containers = tuple(replace(each, resources=resources) for each in pod.spec.containers)
        yield PodReads.RESOURCES, replace(pod, spec=replace(pod.spec, containers=containers))

    def _check_cluster_reads(self, expected: Mapping[str, tuple[object, object]]) -> None:
        added = self._node(self._rng.choice(self._samples.nodes), "added")
        place = self._rng.choice(self._nodes).metadata.name
        more = self._bound(self._named(self._rng.choice(self._samples.pods), "more"), place)
        with_node = self._new_world().add([*self._nodes, added], self._running).results(self._pod)
        with_pod = self._new_world().add(self._nodes, [*self._running, more]).results(self._pod)
        for index, reads in enumerate((self._plugin.reuse.filter, self._plugin.reuse.score)):
            if not reads.is_row_local:
                continue
            for name, was in expected.items():
                if Reads.NODES not in reads:
                    self._expect(
                        "cluster reads", was[index], with_node[name][index], f"node {name}, another node added"
                    )
                if Reads.PODS not in reads or name != place:
                    change = f"node {name}, a pod added to node {place}"
                    self._expect("cluster reads", was[index], with_pod[name][index], change)

    def _check_reuse_check(self, world: _World) -> None:
        prepared = world.prepare(self._pod)
        plugins = [
            each for each in {id(p): p for p in (*world.filters, *world.scores)}.values() if isinstance(each, Plugin)
        ]
        checks = [each.reuse_check(prepared.info, world.columns) for each in plugins]
        if not checks or any(check is None for check in checks):
            return
        place = self._rng.choice(self._nodes).metadata.name
        world.add([], [self._bound(self._named(self._rng.choice(self._samples.pods), "later"), place)])
        if all(check() for check in checks if check is not None):
            self._expect("reuse check", world.results(self._pod), world.results(self._pod, prepared))

    def _expect(self, guarantee: str, expected: object, found: object, where: str = "") -> None:
        if expected != found:
            pod = f"pod with labels {dict(self._pod.metadata.labels)}"
            details = ", ".join(filter(None, (pod, where)))
            raise BrokenGuaranteeError(self._plugin.name, guarantee, f"{details}: {found} instead of {expected}")

    def _placed(self, number: int) -> Pod:
        pod = self._named(self._rng.choice(self._samples.pods), f"running-{number}")
        return self._bound(pod, self._rng.choice(self._nodes).metadata.name)

    @staticmethod
    def _bound(pod: Pod, node_name: str) -> Pod:
        return replace(pod, spec=replace(pod.spec, node_name=node_name))

    @staticmethod
    def _named(pod: Pod, name: str) -> Pod:
        spec = replace(pod.spec, scheduler_name=_PROFILE)
        return replace(pod, metadata=replace(pod.metadata, name=name, uid=f"uid-{name}"), spec=spec)

    @staticmethod
    def _node(node: Node, name: str) -> Node:
        labels = {**node.metadata.labels, "kubernetes.io/hostname": name}
        return replace(node, metadata=replace(node.metadata, name=name, uid=f"uid-{name}", labels=labels))


def _node_manifest(cpu: str, labels: Mapping[str, str], **spec: Any) -> Manifest:
    amounts = {"cpu": cpu, "memory": "16Gi", "pods": "20"}
    return {"metadata": {"labels": dict(labels)}, "spec": spec, "status": {"allocatable": amounts, "capacity": amounts}}


def _pod_manifest(cpu: str, labels: Mapping[str, str], **spec: Any) -> Manifest:
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu, "memory": "1Gi"}}}
    return {"metadata": {"labels": dict(labels)}, "spec": {"containers": [container], **spec}}


_ZONE = "topology.kubernetes.io/zone"
_NODES = (
    _node_manifest("4", {_ZONE: "a"}),
    _node_manifest("8", {_ZONE: "b", "disk": "ssd"}),
    _node_manifest("2", {}, taints=[{"key": "dedicated", "value": "gpu", "effect": "NoSchedule"}]),
    _node_manifest("8", {_ZONE: "a"}, unschedulable=True),
)
_PODS = (
    _pod_manifest("500m", {"app": "web"}),
    _pod_manifest("3", {"app": "batch"}, nodeSelector={"disk": "ssd"}),
    _pod_manifest("1", {"app": "gpu"}, tolerations=[{"operator": "Exists"}]),
)
