"""Reuse of one pod's cycle for the next pods of its class.

The ranking of all nodes for a class is updated from the change log of the columns: only changed rows are filtered and
scored again. A changed Node object or a truncated change log ends it, because results that depend on Node objects are
computed once.

``PodClasses.lookup`` returns the class of a pod when its results can be reused, ``PodClass.evaluate`` turns them into
the best nodes for the pod, and ``PodClasses.store`` stores what a full scheduling cycle computed. Plugins whose results
cannot be reused are called for every pod beside the ranking. The result equals that of the full scheduling cycle.

A class key encodes everything decoded from a pod except its identity (name, UID, age) and conditions. A looser key also
leaves out aspects in which the pods of a workload often differ; plugins that read such an aspect are then called for
every pod of the class.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from hashlib import blake2b
from operator import attrgetter
from typing import Any

import numpy as np
from msgspec import Struct
from msgspec.msgpack import Encoder
from msgspec.structs import replace
from numpy.typing import NDArray

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleStage, CycleState, Recorder
from scheduler_core.framework.device_choices import DeviceChooser
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import (
    MAX_NODE_SCORE,
    FilterPlugin,
    Normalization,
    Plugin,
    PodReads,
    PreFilterPlugin,
    PreScorePlugin,
    Reads,
    Reuse,
    ScorePlugin,
    Scores,
)
from scheduler_core.framework.plugin import always
from scheduler_core.framework.status import Code
from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.pod import Container, PodSpec
from scheduler_core.runtime.filtering import first_verdicts, run_filters, run_pre_filters, verdicts_of
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import FilterRunner, NodeFilterAdapter, NodeScoreAdapter, ScoreRunner
from scheduler_core.runtime.scoring import Scoring, add_scores, raw_scores, run_pre_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo
from scheduler_core.snapshot.row_cache import StaleDeviceRows

INFEASIBLE = -1
_SCALAR_ROWS = 8
"""Up to this many changed rows are refreshed one by one, which is cheaper than a vectorised call."""


class ReusedPlugins(Struct, frozen=True):
    """Plugins whose results are reused: filters with their positions, scores with their weights."""

    filters: Sequence[tuple[int, FilterPlugin]]
    scores: Sequence[tuple[ScorePlugin, int]]

    def split(self) -> tuple[ReusedPlugins, ReusedPlugins]:
        """Return the plugins that read Node objects alone, and those that also read the pods on a node."""
        by_pods: tuple[list[tuple[int, FilterPlugin]], ...] = ([], [])
        scores: tuple[list[tuple[ScorePlugin, int]], ...] = ([], [])
        for position, runner in self.filters:
            by_pods[Reads.PODS in runner.reuse.filter].append((position, runner))
        for scorer, weight in self.scores:
            scores[Reads.PODS in scorer.reuse.score].append((scorer, weight))
        return ReusedPlugins(by_pods[0], scores[0]), ReusedPlugins(by_pods[1], scores[1])


class NodeRanking:
    """All nodes as the pods of one class see them.

    Attributes:
        verdicts: int32 per row: 0 where the pods fit, else the verdict of the first reused filter that rejects the row;
            anything in freed rows.
        keys: int64 per row: the weighted sum of the reused scores, higher is better; :data:`INFEASIBLE` where the pods
            do not fit.
        normalized: Score plugins, with weights, whose scores are normalised over the feasible rows and added for each
            pod.
        raw: int64 per row: the scores before normalisation of those that read Node objects alone, by plugin.
    """

    __slots__ = (
        "_by_node", "_by_pods", "_node_keys", "_node_verdicts", "_pod", "_position", "_state", "_version",
        "feasible_count", "keys", "nbytes", "normalized", "raw", "verdicts",
    )  # fmt: skip

    def __init__(self, instance: FrameworkInstance, scoring: Scoring, plugins: ReusedPlugins) -> None:
        """Call the plugins on all rows.

        Args:
            plugins: The plugins; every result depends on the row and on Node objects alone.
        """
        nodes = scoring.nodes
        self._state, self._pod = scoring.state, scoring.pod
        self._position, self._version = nodes.changes.position, nodes.version
        plain = [each for each in plugins.scores if each[0].normalization is Normalization.NONE]
        self._by_node, self._by_pods = ReusedPlugins(plugins.filters, plain).split()
        self._node_verdicts = self._filter(instance, nodes, self._by_node.filters, ALL_ROWS)
        candidates = np.flatnonzero((self._node_verdicts == 0) & nodes.alive)
        self._node_keys = np.full(nodes.size, INFEASIBLE, dtype=np.int64)
        self._node_keys[candidates] = self._score(nodes, self._by_node.scores, candidates)
        self.normalized, self.raw = self._normalized_scores(nodes, plugins.scores, candidates)
        self.verdicts: Verdicts = np.zeros(nodes.size, dtype=np.int32)
        self.keys: NDArray[np.int64] = np.full(nodes.size, INFEASIBLE, dtype=np.int64)
        self._refresh_rows(instance, nodes, np.flatnonzero(nodes.alive))
        verdicts = self.verdicts.nbytes + self._node_verdicts.nbytes
        scores = self.keys.nbytes + self._node_keys.nbytes + sum(raw.nbytes for raw in self.raw.values())
        self.nbytes = verdicts + scores

    def refresh(self, instance: FrameworkInstance, nodes: NodeColumns) -> bool:
        """Filter and score the rows that changed since the last call; return False to rebuild the ranking."""
        changes = nodes.changes
        if nodes.version != self._version:
            return False
        behind = changes.position - self._position
        if not behind:
            return True
        if behind > len(changes.entries):
            return False
        rows = set(changes.entries[-behind:])
        if len(rows) <= _SCALAR_ROWS:
            for row in rows:
                self._refresh_row(nodes, row)
        else:
            self._refresh_rows(instance, nodes, np.fromiter(rows, dtype=np.intp, count=len(rows)))
        self._position = changes.position
        return True

    def _refresh_row(self, nodes: NodeColumns, row: int) -> None:
        state, pod = self._state, self._pod
        verdict = self._node_verdicts.item(row)
        for position, runner in self._by_pods.filters:
            code = runner.filter_row(state, pod, nodes, row)
            if code:
                found = int(verdicts_of(np.array([code], dtype=np.int16), position)[0])
                verdict = min(verdict, found) if verdict else found
                break
        key = INFEASIBLE
        if not verdict:
            key = self._node_keys.item(row)
            for scorer, weight in self._by_pods.scores:
                score = scorer.score_row(state, pod, nodes, row)
                if not 0 <= score <= MAX_NODE_SCORE:
                    message = f"answered {score} for node {nodes.names[row]}; score from 0 to {MAX_NODE_SCORE}"
                    raise PluginError(scorer.name, "score", message)
                key += score * weight
        self.feasible_count += (key >= 0) - (self.keys.item(row) >= 0)
        self.keys[row], self.verdicts[row] = key, verdict

    def _refresh_rows(self, instance: FrameworkInstance, nodes: NodeColumns, rows: NDArray[np.intp]) -> None:
        found = self._filter(instance, nodes, self._by_pods.filters, rows)
        verdicts = first_verdicts(self._node_verdicts[rows], found)
        self.verdicts[rows] = verdicts
        feasible = rows[verdicts == 0]
        self.keys[rows] = INFEASIBLE
        self.keys[feasible] = self._node_keys[feasible] + self._score(nodes, self._by_pods.scores, feasible)
        self.feasible_count = int(np.count_nonzero(self.keys >= 0))

    def _filter(
        self, instance: FrameworkInstance, nodes: NodeColumns, filters: Sequence[tuple[int, FilterPlugin]], rows: Rows
    ) -> Verdicts:
        return run_filters(instance, self._state, self._pod, nodes, rows, among=filters)

    def _score(
        self,
        nodes: NodeColumns,
        scores: Sequence[tuple[ScorePlugin, int]],
        rows: NDArray[np.intp],
    ) -> Scores:
        if not len(rows):
            return np.zeros(0, dtype=np.int64)
        requested: Rows = ALL_ROWS if len(rows) == nodes.size else rows
        return add_scores(Scoring(self._state, self._pod, nodes, requested), scores).totals

    def _normalized_scores(
        self,
        nodes: NodeColumns,
        scores: Sequence[tuple[ScorePlugin, int]],
        candidates: NDArray[np.intp],
    ) -> tuple[list[tuple[ScorePlugin, int]], Mapping[str, Scores]]:
        """Return the plugins whose scores are normalised, and the raw scores that do not change."""
        normalized: list[tuple[ScorePlugin, int]] = []
        raw: dict[str, Scores] = {}
        for scorer, weight in scores:
            if scorer.normalization is Normalization.NONE:
                continue
            if Reads.PODS not in scorer.reuse.score:
                found = np.zeros(nodes.size, dtype=np.int64)
                found[candidates] = raw_scores(Scoring(self._state, self._pod, nodes, candidates), scorer)
                if not len(candidates) or not np.ptp(found[candidates]):
                    # Equal raw scores stay equal, whichever rows are feasible: they change no order.
                    continue
                raw[scorer.name] = found
            normalized.append((scorer, weight))
        return normalized, raw


_PRE_FILTER, _FILTER = CycleStage.PRE_FILTER, CycleStage.FILTER
_PRE_SCORE, _SCORE = CycleStage.PRE_SCORE, CycleStage.SCORE
_SUCCESS = Code.SUCCESS


LOOSENESS = (PodReads.NOTHING, PodReads.RESOURCES, PodReads.LABELS, PodReads.RESOURCES | PodReads.LABELS)
"""Aspects that a key may leave out, the strictest key first; a key's looseness is its index."""

_WITHOUT_LABELS = tuple(PodReads.LABELS in varying for varying in LOOSENESS)
_RESOURCES_LEFT_OUT = tuple(PodReads.RESOURCES in varying for varying in LOOSENESS)
_DIGEST_BYTES = 32
_SHORT_BYTES = 512
_encode = Encoder().encode


def class_key(info: PodInfo, looseness: int = 0) -> bytes:
    """Return the key of a pod's class; pods with equal keys differ in identity and the aspects left out alone."""
    pod = info.pod
    if not looseness and info.class_key is not None and info.class_key[0] is pod:
        return info.class_key[1]
    spec, meta, status = pod.spec, pod.metadata, pod.status
    labels = None if _WITHOUT_LABELS[looseness] else meta.labels
    annotations = meta.annotations if isinstance(meta, AnnotatedMeta) else {}
    # An ephemeral volume's claim is named after the pod.
    common = (looseness, meta.namespace, labels, meta.owner_references, annotations, info.volumes.claims)
    rest: tuple[object, ...]
    if _RESOURCES_LEFT_OUT[looseness]:
        read_status = _status_reader(type(status), resources=False)
        containers = [_WITHOUT_RESOURCES(each) for each in (*spec.containers, *spec.init_containers)]
        # Which extended resources a pod requests stays in the key: device classes may serve them.
        names = info.scalars, info.fit_names if info.scalars else ()
        rest = (len(spec.containers), containers, _SPEC_WITHOUT_RESOURCES(spec), read_status(status), names)
    else:
        rest = (spec, _status_reader(type(status), resources=True)(status))
    encoded = _encode((common, rest))
    key = encoded if len(encoded) <= _SHORT_BYTES else blake2b(encoded, digest_size=_DIGEST_BYTES).digest()
    if not looseness:
        info.class_key = pod, key
    return key


def _all_but(struct: type[Struct], *names: str) -> attrgetter[tuple[object, ...]]:
    return attrgetter(*(name for name in struct.__struct_fields__ if name not in names))


_SPEC_WITHOUT_RESOURCES = _all_but(PodSpec, "containers", "init_containers", "overhead", "resources")
_WITHOUT_RESOURCES = _all_but(Container, "resources")
_PROGRESS = ("phase", "conditions", "start_time")
_STATUS_RESOURCES = ("container_statuses", "init_container_statuses", "allocated_resources", "resources")


@cache
def _status_reader(kind: type[Struct], *, resources: bool) -> Callable[[object], object]:
    return _all_but(kind, *_PROGRESS, *(() if resources else _STATUS_RESOURCES))


class ReuseBounds(Struct, frozen=True):
    """Bounds of what a profile's revision stores.

    Attributes:
        classes: Classes; the least recently used one is dropped first.
        ranking_bytes: Memory of all rankings, in bytes; the least recently used one is dropped first. A
            ranking that is larger by itself is not stored.
        seen_keys: Keys of classes of which one pod was seen, for each looseness; the oldest is dropped first.
        row_results: Classes for which plugins store results by row; the least recently used one is dropped first.
    """

    classes: int = 256
    ranking_bytes: int = 32 * 1024 * 1024
    seen_keys: int = 1024
    row_results: int = 4


DEFAULT_REUSE_BOUNDS = ReuseBounds()


class RerunPlugins(Struct, frozen=True):
    """Plugins that are called for every pod of a class, by extension point, in the profile's order.

    Attributes:
        reads_anything: Whether the Filter or Score of one of them may read anything.
        by_node: Those of the filters that are called node by node.
    """

    names: frozenset[str]
    pre_filter: tuple[PreFilterPlugin, ...]
    filters: tuple[tuple[int, FilterRunner], ...]
    pre_score: tuple[PreScorePlugin, ...]
    scores: tuple[tuple[ScoreRunner, int], ...]
    reads_anything: bool
    by_node: tuple[NodeFilterAdapter, ...]

    @classmethod
    def of(cls, instance: FrameworkInstance, names: frozenset[str]) -> RerunPlugins:
        filters = tuple(each for each in enumerate(instance.filters) if each[1].name in names)
        scores = tuple(each for each in instance.scores if each[0].name in names)
        return cls(
            names,
            tuple(plugin for plugin in instance.pre_filter if plugin.name in names),
            filters,
            tuple(plugin for plugin in instance.pre_score if plugin.name in names),
            scores,
            any(Reads.ANYTHING in runner.reuse.filter for _, runner in filters)
            or any(Reads.ANYTHING in scorer.reuse.score for scorer, _ in scores),
            tuple(runner for _, runner in filters if isinstance(runner, NodeFilterAdapter)),
        )


class Evaluation(Struct, frozen=True):
    """The outcome of Filter and Score for one pod.

    Attributes:
        feasible_count: Nodes on which the pod fits; at least two.
        best: intp[k], the rows with the highest total.
    """

    state: CycleState
    feasible_count: int
    best: NDArray[np.intp]


class PodClass(Struct):
    """Pods that the plugins cannot distinguish except ``rerun``, with what their first full cycle prepared.

    Attributes:
        checks: All are true while the reused plugins would prepare the same.
        ranking: All nodes; None until a second pod needs it.
    """

    pod: PodInfo
    prepared: CycleState
    rerun: RerunPlugins
    checks: tuple[Callable[[], bool], ...]
    ranking: NodeRanking | None = None

    def is_current(self, instance: FrameworkInstance, nodes: NodeColumns) -> bool:
        """Bring the ranking up to date; return False if the class must be stored again."""
        for check in self.checks:
            if not check():
                return False
        if self.ranking is None or not self.ranking.refresh(instance, nodes):
            scoring = Scoring(self.prepared, self.pod, nodes, ALL_ROWS)
            self.ranking = NodeRanking(instance, scoring, self._reused(instance))
        return True

    def _reused(self, instance: FrameworkInstance) -> ReusedPlugins:
        state, names = self.prepared, self.rerun.names
        return ReusedPlugins(
            [
                (position, runner)
                for position, runner in enumerate(instance.filters)
                if not isinstance(runner, NodeFilterAdapter) and runner.name not in names | state.skip_filter
            ],
            [
                (scorer, weight)
                for scorer, weight in instance.scores
                if not isinstance(scorer, NodeScoreAdapter) and scorer.name not in names | state.skip_score
            ],
        )

    def evaluate(
        self,
        instance: FrameworkInstance,
        info: PodInfo,
        nodes: NodeColumns,
        recorder: Recorder,
        among: NDArray[np.bool_] | None = None,
    ) -> Evaluation | None:
        """Filter and score all nodes for a pod of the class, whose ranking is current.

        Args:
            recorder: Records the stages, also if the result is None; plugins are not timed.
            among: bool per row, the only rows to look at; None for all.

        Returns:
            None to fall back to the full scheduling cycle, which also explains a rejection: fewer than two nodes are
            feasible, or a PreFilter rejects the pod or narrows the nodes.
        """
        ranking, rerun = self.ranking, self.rerun
        assert ranking is not None, "is_current() comes first"
        if ranking.feasible_count < 2:
            return None
        state = self.prepared.clone()
        if rerun.names or ranking.normalized or among is not None:
            return self._evaluate(instance, Scoring(state, info, nodes, ALL_ROWS), recorder, among)
        recorder.skip_search()
        return Evaluation(state, ranking.feasible_count, np.flatnonzero(ranking.keys == ranking.keys.max()))

    def _evaluate(
        self, instance: FrameworkInstance, scoring: Scoring, recorder: Recorder, among: NDArray[np.bool_] | None
    ) -> Evaluation | None:
        ranking, rerun = self.ranking, self.rerun
        assert ranking is not None
        state, info, nodes = scoring.state, scoring.pod, scoring.nodes
        recorder.enter(_PRE_FILTER)
        for runner in rerun.by_node:
            runner.prepare(state)
        outcome = run_pre_filters(instance, state, info, nodes, among=rerun.pre_filter)
        recorder.leave(_PRE_FILTER, outcome.status.code)
        if not outcome.status.is_success or outcome.node_names is not None:
            return None
        recorder.enter(_FILTER)
        feasible = ranking.keys >= 0
        if rerun.filters:
            verdicts = run_filters(instance, state, info, nodes, ALL_ROWS, among=rerun.filters, beside=ranking.verdicts)
            feasible &= verdicts == 0
        if among is not None:
            feasible &= among
        rows = np.flatnonzero(feasible)
        recorder.leave(_FILTER, _SUCCESS)
        if len(rows) < 2:
            return None
        requested: Rows = ALL_ROWS if len(rows) == nodes.size else rows
        recorder.enter(_PRE_SCORE)
        run_pre_scores(instance, Scoring(state, info, nodes, requested), among=rerun.pre_score)
        recorder.leave(_PRE_SCORE, _SUCCESS)
        recorder.enter(_SCORE)
        wanted = [each for each in rerun.scores if each[0].name not in state.skip_score]
        raw: dict[str, Scores] = {}
        if ranking.normalized:
            wanted += ranking.normalized
            raw = {name: known[requested] for name, known in ranking.raw.items()}
        totals = ranking.keys[requested]
        if wanted:
            totals = totals + add_scores(Scoring(state, info, nodes, requested), wanted, raw).totals
        best = rows[np.flatnonzero(totals == totals.max())]
        recorder.leave(_SCORE, _SUCCESS)
        return Evaluation(state, len(rows), best)


class RowResults(Struct):
    """What a plugin computed for single rows and the pods of one class.

    Attributes:
        results: By row, without rows that changed.
        checks: All are true while the pods of the class are prepared equally.
        versions: Versions of what else the results depend on.
        position: Position in the log of changed rows to which the results are current.
        stale: Reader of changed rows for results that depend on devices in use as well; None for others.
    """

    results: dict[int, Any]
    checks: Sequence[Callable[[], bool]]
    versions: tuple[object, ...]
    position: int
    stale: StaleDeviceRows | None = None

    def refresh(self, versions: tuple[object, ...], nodes: NodeColumns) -> bool:
        """Drop the results of rows that changed; return False if all results are outdated."""
        if versions != self.versions or not all(check() for check in self.checks):
            return False
        if self.stale is not None:
            rows = self.stale.take()
            if rows is None or self.stale.shared_changed:
                return False
            for row in rows:
                self.results.pop(row, None)
            return True
        if self.position != nodes.changes.position:
            changed = nodes.changes.since(self.position)
            if changed is None:
                return False
            for row in changed:
                self.results.pop(row, None)
            self.position = nodes.changes.position
        return True

    def pass_by_undone(self) -> None:
        """Ignore the changes since the last :meth:`refresh`, because a dry run has made and undone them."""
        if self.stale is not None:
            self.stale.take()


class PodClasses:
    """The pod classes of one revision of a profile, least recently used first.

    Attributes:
        untimed: Pods that would have had their plugins timed, and had their class's results reused.
    """

    __slots__ = ("_bounds", "_by_row", "_classes", "_rerun", "_reusability", "_seen", "untimed")

    def __init__(self, bounds: ReuseBounds) -> None:
        self._bounds = bounds
        self._classes: dict[bytes, PodClass] = {}
        self._seen: tuple[dict[bytes, None], ...] = tuple({} for _ in LOOSENESS)
        self._reusability: dict[int, _Reusability] = {}
        self._rerun: dict[frozenset[str], RerunPlugins] = {}
        self._by_row: dict[tuple[str, bytes, bytes | None], RowResults] = {}
        self.untimed = 0

    def lookup(self, instance: FrameworkInstance, info: PodInfo, nodes: NodeColumns) -> PodClass | None:
        """Return the strictest stored class of a pod, with a current ranking.

        Returns:
            None if there is none, or if the pod is the second of a stricter class, whose results are stored after the
            full scheduling cycle.
        """
        if not self._classes:
            return None
        stricter: list[bytes] = []
        for looseness, seen in enumerate(self._seen):
            key = class_key(info, looseness)
            found = self._classes.pop(key, None)
            if found is not None:
                former = found.ranking
                is_current = found.is_current(instance, nodes)
                if found.ranking is not former and is_current:
                    is_current = self._make_room_for(found)
                if not is_current:
                    self._see(seen, key)
                    return None
                self._classes[key] = found
                for other, each in zip(self._seen, stricter, strict=False):
                    self._see(other, each)
                return found
            if key in seen:
                return None
            stricter.append(key)
        return None

    def store(self, instance: FrameworkInstance, info: PodInfo, state: CycleState, nodes: NodeColumns) -> None:
        """Store what a full scheduling cycle prepared, once two pods of a class were seen."""
        for looseness, seen in enumerate(self._seen):
            key = class_key(info, looseness)
            if key in self._classes:
                return
            if key in seen:
                del seen[key]
                while len(self._classes) >= max(1, self._bounds.classes):
                    self._drop_oldest()
                self._classes[key] = self._class_of_cycle(instance, info, state, nodes, looseness)
                return
            self._see(seen, key)

    def _class_of_cycle(
        self, instance: FrameworkInstance, info: PodInfo, state: CycleState, nodes: NodeColumns, looseness: int
    ) -> PodClass:
        known = self._reusability.get(looseness)
        if known is None:
            known = self._reusability[looseness] = _Reusability.of(instance, LOOSENESS[looseness])
        names = (known.filters - state.skip_filter) | (known.scores - state.skip_score)
        checks = []
        for plugin, is_checked in known.preparing:
            check = plugin.reuse_check(info, nodes) if is_checked and plugin.name not in names else None
            if check is None:
                names |= {plugin.name}
            elif check is not always:
                checks.append(check)
        rerun = self._rerun.get(names)
        if rerun is None:
            if len(self._rerun) >= self._bounds.classes:
                self._rerun.clear()
            rerun = self._rerun[names] = RerunPlugins.of(instance, names)
        return PodClass(copy.copy(info), state.clone(without=names), rerun, tuple(checks))

    def results_by_row(
        self,
        instance: FrameworkInstance,
        info: PodInfo,
        nodes: NodeColumns,
        owner: str,
        *versions: object,
        devices: bytes | None = None,
    ) -> RowResults | None:
        """Return what a plugin stored by row for the class of a pod whose PreFilter succeeded, to be read and extended.

        Args:
            owner: Name of the plugin.
            devices: Key of the search for its devices, so that the names of its claims may differ; None without claims.
            versions: Versions of what the results depend on, besides Node objects, the pods of the row, and the results
                of PreFilter and Filter.

        Returns:
            The results of rows that did not change; None if PreFilter and Filter have to be called for every pod.
        """
        key = owner, class_key(info if devices is None else _without_claims(info)), devices
        found = self._by_row.pop(key, None)
        versions = nodes.version, *versions
        if devices is not None:
            versions = *versions, nodes.devices.classes_version
        if found is None or not found.refresh(versions, nodes):
            checks = _filter_checks(instance, info, nodes, has_devices=devices is not None)
            if checks is None:
                return None
            found = RowResults({}, checks, versions, nodes.changes.position)
            if devices is not None:
                found.stale = StaleDeviceRows(nodes)
                found.stale.take()
            while len(self._by_row) >= max(1, self._bounds.row_results):
                del self._by_row[next(iter(self._by_row))]
        self._by_row[key] = found
        return found

    def stored(self) -> Sequence[PodClass]:
        """Return all classes, the least recently used first."""
        return tuple(self._classes.values())

    def _see(self, seen: dict[bytes, None], key: bytes) -> None:
        seen[key] = None
        if len(seen) > self._bounds.seen_keys:
            del seen[next(iter(seen))]

    def _make_room_for(self, built: PodClass) -> bool:
        """Drop classes until a ranking that was just built, after its class was stored, fits."""
        assert built.ranking is not None
        left = self._bounds.ranking_bytes - built.ranking.nbytes
        used = sum(each.ranking.nbytes for each in self._classes.values() if each.ranking is not None)
        while self._classes and used > left:
            dropped = self._drop_oldest().ranking
            used -= 0 if dropped is None else dropped.nbytes
        return used <= left

    def _drop_oldest(self) -> PodClass:
        return self._classes.pop(next(iter(self._classes)))


class _Reusability(Struct, frozen=True):
    """Plugins of a revision whose results cannot be reused whatever the pod is, for one looseness of class keys.

    Attributes:
        preparing: The PreFilter and PreScore plugins, each with whether its reuse check decides.
    """

    filters: frozenset[str]
    scores: frozenset[str]
    preparing: tuple[tuple[Plugin, bool], ...]

    @classmethod
    def of(cls, instance: FrameworkInstance, varying: PodReads) -> _Reusability:
        unreusable = PodReads.IDENTITY | varying
        scorers = [scorer for scorer, _ in instance.scores]
        return cls(
            frozenset(
                each.name for each in instance.filters if not _is_reusable(each.reuse, each.reuse.filter, unreusable)
            ),
            frozenset(
                each.name
                for each in scorers
                if each.normalization is Normalization.OWN or not _is_reusable(each.reuse, each.reuse.score, unreusable)
            ),
            tuple(
                (plugin, not plugin.reuse.pod & unreusable)
                for plugin in _distinct((*instance.pre_filter, *instance.pre_score))
            ),
        )


def _without_claims(info: PodInfo) -> PodInfo:
    bare, pod = copy.copy(info), info.pod
    spec, status = replace(pod.spec, resource_claims=()), replace(pod.status, resource_claim_statuses=())
    bare.pod, bare.class_key = replace(pod, spec=spec, status=status), None
    return bare


def _filter_checks(
    instance: FrameworkInstance, info: PodInfo, nodes: NodeColumns, *, has_devices: bool = False
) -> Sequence[Callable[[], bool]] | None:
    """Return checks that hold while PreFilter prepares the same for all pods of a class; None if it may not.

    Args:
        has_devices: Whether the pods have claims for the same devices, so that the plugin of devices does so, too.
    """
    if instance.filters_by_identity:
        return None
    checks = []
    for plugin in instance.pre_filter:
        if has_devices and isinstance(plugin, DeviceChooser):
            continue
        check = plugin.reuse_check(info, nodes)
        if check is None:
            return None
        if check is not always:
            checks.append(check)
    return checks


def filter_class(instance: FrameworkInstance, info: PodInfo) -> object:
    """Return a key that is equal for pods for which every PreFilter and Filter plugin returns the same."""
    return info.uid if instance.filters_by_identity else class_key(info)


def _is_reusable(reuse: Reuse, reads: Reads, unreusable: PodReads) -> bool:
    return reads.is_row_local and not reuse.pod & unreusable


def _distinct(plugins: Iterable[Plugin]) -> Sequence[Plugin]:
    return tuple({plugin.name: plugin for plugin in plugins}.values())
