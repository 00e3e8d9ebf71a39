"""What plugins answered for pods of one signature, kept and refreshed where rows have changed.

Owns the second way to evaluate. A profile's plugins say what their answers depend on: those that read Node objects and
the pods on the one in question alone, and that give a signature of what they read of a pod, need not be asked again
about rows that are as they were. Every other plugin is asked as ever. Whoever asks gets what the full pass would give,
to the bit; a law in the tests holds both equal.

An entry is made when a signature comes for the second time, so that pods each of which is different pay nothing but a
look into a table. Plugins' times are not noted where answers are served: cycles whose plugins are timed do not come
here. Entries are bounded in bytes; the one that was not used for longest goes first. An entry that is so
far behind that most rows have changed, or that the change log does not reach back to, is made anew.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from functools import partial
from itertools import count
from typing import TypeVar

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.cycle_times import UNTIMED
from scheduler_core.framework.diagnosis import Verdicts
from scheduler_core.framework.extension_points import Normalization, Plugin, Reads, Scores
from scheduler_core.framework.plugin import always
from scheduler_core.runtime.asked_again import AskedAgain, Repetition
from scheduler_core.runtime.filtering import first_verdicts, is_rejected_before, run_filters
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.node_adapters import NodeFilterAdapter, NodeScoreAdapter
from scheduler_core.runtime.ranking import Asked, Ranking, RelativeScores
from scheduler_core.runtime.reuse_limits import DEFAULT_LIMITS, ReuseLimits
from scheduler_core.runtime.scoring import ScoreTable, Scoring, add_scores, raw_scores
from scheduler_core.snapshot.node_columns import ALL_ROWS, NodeColumns, Rows
from scheduler_core.snapshot.pod_info import PodInfo

_WORTH_REFRESHING = 4
"""An entry is refreshed while at most one row in so many has changed; else it is made anew."""


class _Entry(Struct):
    """Answers for one signature; arrays have room for rows to come, and hold anything in rows that are not alive.

    Attributes:
        position: Up to where in the change log they are up to date.
        version: Of which version of the Node objects they are.
        verdicts: int32 per row, of the filters that are remembered.
        local: int64 per row, the weighted sum of scores that need no normalising.
        raw: int64 per row of each score that does, in the order of the plugins.
    """

    position: int
    version: int
    verdicts: Verdicts | None = None
    local: Scores | None = None
    raw: list[Scores] = field(default_factory=list)

    @property
    def size(self) -> int:
        """Rows."""
        return len(self.verdicts if self.verdicts is not None else self.local if self.local is not None else ())

    @property
    def bytes(self) -> int:
        """What it takes."""
        return self.size * (4 + 8 * (1 + len(self.raw)))


_CACHES = count()
"""Numbers of caches; pods carry them, so that none is given twice in a process."""


class ResultCache:
    """The answers of one framework instance's plugins.

    Args:
        instance: Whose plugins.
        limits: How much is cached at most.
    """

    def __init__(self, instance: FrameworkInstance, limits: ReuseLimits = DEFAULT_LIMITS) -> None:
        self._instance = instance
        self._limits = limits
        self._number = next(_CACHES)
        self._next_number = count()
        numbered = tuple(enumerate(instance.filters))
        self._kept_filters = tuple(each for each in numbered if _is_kept(each[1], "filter_reads"))
        self._wide_filters = tuple(each for each in numbered if not _is_kept(each[1], "filter_reads"))
        self._kept_scores = tuple(each for each in instance.scores if _is_kept(each[0], "score_reads"))
        self._wide_scores = tuple(each for each in instance.scores if not _is_kept(each[0], "score_reads"))
        self._local = tuple(each for each in self._kept_scores if each[0].normalization is Normalization.NONE)
        self._scaled = tuple(each for each in self._kept_scores if each[0].normalization is not Normalization.NONE)
        signers: dict[str, Plugin] = {}
        for plugin in (*(each for _, each in self._kept_filters), *(each for each, _ in self._kept_scores)):
            assert isinstance(plugin, Plugin)
            signers[plugin.name] = plugin
        self._signers = tuple(signers.values())
        self._readers_of_identity = tuple(plugin for plugin in self._signers if plugin.reads_identity)
        self._readers_of_resources = frozenset(_readers_of_resources(instance))
        self._preparing = tuple(
            {plugin.name: plugin for plugin in (*instance.pre_filter, *instance.pre_score)}.values()
        )
        self._reads_nodes = any(
            getattr(plugin, reads, Reads.STATIC) is Reads.NODES
            for plugin in self._signers
            for reads in ("filter_reads", "score_reads")
        )
        self._numbers: dict[Hashable, int] = {}
        self._seen: dict[Hashable, None] = {}
        self._entries: dict[Hashable, _Entry] = {}

    # -- serving ------------------------------------------------------------------------------------------------

    def filter(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, rows: Rows) -> Verdicts | None:
        """What :func:`scheduler_core.runtime.filtering.run_filters` would answer; None if it is to be asked.

        Raises:
            PluginError: As there, or about a row that the full pass would not ask a plugin about.
        """
        skipped = state.skip_filter
        entry = self._entry(("filter", frozenset(skipped)), pod, nodes)
        if entry is None:
            return None
        stale = self._stale(entry, nodes)
        if stale is None or entry.verdicts is None:
            entry.verdicts = run_filters(self._instance, state, pod, nodes, ALL_ROWS, among=self._kept_filters)
        elif len(stale):
            entry.verdicts = _grown(entry.verdicts, nodes.size)
            entry.verdicts[stale] = run_filters(self._instance, state, pod, nodes, stale, among=self._kept_filters)
        entry.position, entry.version = nodes.changes.position, nodes.version
        kept = entry.verdicts[: nodes.size]
        kept = kept.copy() if isinstance(rows, slice) else kept[rows]
        if all(plugin.name in skipped for _, plugin in self._wide_filters):
            return kept
        rejected_before = partial(is_rejected_before, kept)
        wide = run_filters(
            self._instance, state, pod, nodes, rows, among=self._wide_filters, rejected_before=rejected_before
        )
        return first_verdicts(kept, wide)

    def score(self, scoring: Scoring) -> ScoreTable | None:
        """What :func:`scheduler_core.runtime.scoring.run_scores` would answer; None if it is to be asked.

        Raises:
            PluginError: As there.
        """
        state = scoring.state
        times, state.times = state.times, UNTIMED
        try:
            return self._score(scoring)
        finally:
            state.times = times

    def _score(self, scoring: Scoring) -> ScoreTable | None:
        state, pod, nodes, rows = scoring.state, scoring.pod, scoring.nodes, scoring.rows
        entry = self._entry(("score", frozenset(state.skip_score)), pod, nodes)
        if entry is None:
            return None
        local = [each for each in self._local if each[0].name not in state.skip_score]
        scaled = [each for each in self._scaled if each[0].name not in state.skip_score]
        stale = self._stale(entry, nodes)
        if stale is None or entry.local is None:
            everywhere = Scoring(state, pod, nodes, ALL_ROWS)
            totals = add_scores(self._instance, everywhere, local).totals
            raw = [raw_scores(self._instance, everywhere, plugin) for plugin, _ in scaled]
            # Together, since a plugin that raises must leave no half of an entry.
            entry.local, entry.raw = totals, raw
        elif len(stale):
            there = Scoring(state, pod, nodes, stale)
            entry.local = _grown(entry.local, nodes.size)
            entry.local[stale] = add_scores(self._instance, there, local).totals
            entry.raw = [_grown(known, nodes.size) for known in entry.raw]
            for known, (plugin, _) in zip(entry.raw, scaled, strict=True):
                known[stale] = raw_scores(self._instance, there, plugin)
        entry.position, entry.version = nodes.changes.position, nodes.version
        table = ScoreTable(entry.local[: nodes.size][rows].copy())
        known_raw = {
            plugin.name: known[: nodes.size][rows] for known, (plugin, _) in zip(entry.raw, scaled, strict=True)
        }
        wide = [each for each in self._wide_scores if each[0].name not in state.skip_score]
        if scaled or wide:
            table.totals += add_scores(self._instance, scoring, (*scaled, *wide), known_raw).totals
        return table

    # -- pods of one kind ---------------------------------------------------------------------------------------

    def repetition(self, state: CycleState, pod: PodInfo, nodes: NodeColumns, *, resources_differ: bool) -> Repetition:
        """What serves pods like one that has come to its scores.

        Args:
            state: The pod's.
            pod: The pod.
            nodes: The columns.
            resources_differ: Whether the others may ask for other resources.
        """
        names = {plugin.name for _, plugin in self._wide_filters if plugin.name not in state.skip_filter}
        names.update(plugin.name for plugin, _ in self._wide_scores if plugin.name not in state.skip_score)
        if resources_differ:
            names |= self._readers_of_resources
        names.update(plugin.name for plugin in self._signers if plugin.signature(pod) is None)
        checks = []
        for plugin in self._preparing:
            check = None if plugin.name in names else plugin.preparation_check(pod, nodes)
            if check is None:
                names.add(plugin.name)
            elif check is not always:
                checks.append(check)
        return Repetition(AskedAgain.of(self._instance, frozenset(names)), tuple(checks))

    def ranking(self, scoring: Scoring, again: AskedAgain, allowed: NDArray[np.bool_]) -> Ranking:
        """All rows ranked for pods of one kind, to be kept up row by row.

        Args:
            scoring: One of the pods that has come to its scores, on all rows.
            again: Whose answers are left out.
            allowed: bool per row: others are left out.

        Raises:
            PluginError: A plugin raised, or answered what its point does not allow.
        """
        state, nodes = scoring.state, scoring.nodes
        times, state.times = state.times, UNTIMED
        try:
            relative, fixed_raw = [], {}
            for plugin, weight in self._scaled:
                if plugin.name in state.skip_score or plugin.name in again.names:
                    continue
                if getattr(plugin, "score_reads", Reads.OPAQUE) is Reads.STATIC:
                    raw = raw_scores(self._instance, scoring, plugin)
                    there = raw[nodes.alive]
                    if not len(there) or not np.ptp(there):
                        # All alike: what comes of it does not depend on which rows fit, and moves all of them alike.
                        continue
                    fixed_raw[plugin.name] = raw
                relative.append((plugin, weight))
            asked = Asked(
                tuple(
                    each
                    for each in self._kept_filters
                    if each[1].name not in state.skip_filter and each[1].name not in again.names
                ),
                tuple(
                    each
                    for each in self._local
                    if each[0].name not in state.skip_score and each[0].name not in again.names
                ),
            )
            relative_scores = RelativeScores(tuple(relative), fixed_raw)
            return Ranking(self._instance, scoring, asked, relative_scores, allowed & nodes.alive)
        finally:
            state.times = times

    def are_alike(self, one: PodInfo, other: PodInfo) -> bool:
        """Whether plugins that may read who a pod is take two pods, which differ in nothing else, for alike."""
        return all(plugin.signature(one) == plugin.signature(other) for plugin in self._readers_of_identity)

    # -- entries ------------------------------------------------------------------------------------------------

    def _entry(self, kind: Hashable, pod: PodInfo, nodes: NodeColumns) -> _Entry | None:
        """The entry of a pod's signature, an empty one when it comes for the second time; None before that."""
        number = self._number_of(pod)
        if number < 0:
            return None
        key = (number, kind)
        entry = self._entries.pop(key, None)
        if entry is None:
            if key not in self._seen:
                self._seen[key] = None
                if len(self._seen) > self._limits.max_seen:
                    del self._seen[next(iter(self._seen))]
                return None
            entry = _Entry(nodes.changes.position, nodes.version)
            self._make_room(nodes.size)
        self._entries[key] = entry
        return entry

    def _make_room(self, rows: int) -> None:
        """Drop entries that were not used for longest until another one fits in."""
        wanted = rows * 4 * 8
        used = sum(entry.bytes for entry in self._entries.values())
        limits = self._limits
        while self._entries and (used + wanted > limits.max_bytes or len(self._entries) >= limits.max_entries):
            used -= self._entries.pop(next(iter(self._entries))).bytes

    def _number_of(self, pod: PodInfo) -> int:
        """A number for the pod's signature; -1 if it has none."""
        known = pod.signature
        if known is not None and known[0] == self._number:
            return known[1]
        parts = tuple(plugin.signature(pod) for plugin in self._signers)
        number = -1
        if None not in parts:
            found = self._numbers.pop(parts, None)
            # A waiting pod may carry a number whose signature was dropped here: no number is given a second time.
            number = next(self._next_number) if found is None else found
            self._numbers[parts] = number
            if len(self._numbers) > self._limits.max_signatures:
                del self._numbers[next(iter(self._numbers))]
        pod.signature = (self._number, number)
        return number

    def _stale(self, entry: _Entry, nodes: NodeColumns) -> NDArray[np.intp] | None:
        """Rows to ask about again, ascending; None for all."""
        if not entry.size or (self._reads_nodes and entry.version != nodes.version):
            return None
        if entry.position == nodes.changes.position:
            return _NO_ROWS
        changed = nodes.changes.since(entry.position)
        if changed is None:
            return None
        rows = sorted(set(changed))
        if len(rows) * _WORTH_REFRESHING > nodes.size:
            return None
        return np.array([row for row in rows if row < nodes.size], dtype=np.intp)


def _readers_of_resources(instance: FrameworkInstance) -> Iterator[str]:
    scorers = (plugin for plugin, _ in instance.scores)
    for plugin in (*instance.pre_filter, *instance.filters, *instance.pre_score, *scorers):
        judge = plugin.plugin if isinstance(plugin, (NodeFilterAdapter, NodeScoreAdapter)) else plugin
        if judge.reads_resources:
            yield plugin.name


def _is_kept(plugin: object, reads: str) -> bool:
    """Whether a plugin's answers depend on no more than the row, and can be told apart by a signature."""
    if isinstance(plugin, (NodeFilterAdapter, NodeScoreAdapter)) or not isinstance(plugin, Plugin):
        return False
    if getattr(plugin, "normalization", None) is Normalization.OWN:
        return False
    is_signed = type(plugin).signature is not Plugin.signature
    return is_signed and getattr(plugin, reads) <= Reads.NODES


_A = TypeVar("_A", bound=np.generic)


def _grown(array: NDArray[_A], size: int) -> NDArray[_A]:
    """The array with room for ``size`` rows at least."""
    if len(array) >= size:
        return array
    grown = np.zeros(size, dtype=array.dtype)
    grown[: len(array)] = array
    return grown


_NO_ROWS: NDArray[np.intp] = np.empty(0, dtype=np.intp)
