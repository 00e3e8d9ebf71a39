"""Candidate nodes of a preemption, each with its victims (a dry run), and the least harmful of them.

Follows kube-scheduler v1.37.1, ``pkg/scheduler/framework/preemption/preemption.go`` (``findCandidates``,
``DryRunPreemption``, ``pickOneNodeForPreemption``). kube-scheduler tries nodes in parallel and in random order. Here
the order follows from the nodes' names and a seed, and nodes are tried one after another, or many at once if the
filters are local to rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from scheduler_core.errors import AttemptLimitError, PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import Code, Status, error, unresolvable
from scheduler_core.plugins.default_preemption.victims_on_node import RowOutcome, Trial

_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_MIN_IN_STEP = 32


class DryRunResult(Struct):
    """Result of the dry run.

    Attributes:
        candidates: Nodes where the pod would fit, those without PodDisruptionBudget violations first.
        failures: Why other nodes are not candidates, with their number.
        is_row_local: Whether rows were tried independently of each other; valid only if rows were tried.
    """

    candidates: tuple[PreemptionCandidate, ...] = ()
    failures: dict[Status, int] = field(default_factory=dict)
    is_row_local: bool = False

    def fail(self, status: Status, count: int = 1) -> None:
        """Record that nodes are not candidates."""
        self.failures[status] = self.failures.get(status, 0) + count

    def error(self) -> Status | None:
        """Return the errors among the failures as one status, None if there are none."""
        texts = dict.fromkeys(status.message for status in self.failures if status.code is Code.ERROR)
        if not texts:
            return None
        return error(next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]")

    def why_no_candidate(self, node_count: int) -> str:
        """Return the message for a preemption without candidates, in the form of a failed attempt's message."""
        counts: dict[str, int] = {}
        tried = 0
        for status, count in self.failures.items():
            tried += count
            for reason in status.reasons:
                counts[reason] = counts.get(reason, 0) + count
        if tried < node_count:
            counts[_NOT_HELPFUL] = counts.get(_NOT_HELPFUL, 0) + node_count - tried
        parts = sorted(f"{count} {reason}" for reason, count in counts.items())
        text = f"0/{node_count} nodes are available:"
        return f"{text} {', '.join(parts)}." if parts else text


class Walk(Struct, frozen=True):
    """Rows on which candidates are searched.

    Attributes:
        rows: Rows in the order in which they are tried, each with a pod that may be preempted.
        wanted: Number of candidates at which the search ends, provided that one of them violates no budget.
        without_victims: Number of further rows where preemption could help but that have no pods to preempt.
    """

    rows: Sequence[int]
    wanted: int
    without_victims: int = 0


def dry_run(handle: Handle, state: CycleState, trial: Trial, walk: Walk, diagnosis: Diagnosis) -> DryRunResult:
    """Try nodes until there are enough candidates, without changing anything."""
    found = DryRunResult()
    if walk.without_victims:
        found.fail(_NO_VICTIMS, walk.without_victims)
    if not walk.rows:
        return found
    without_violations: list[PreemptionCandidate] = []
    with_violations: list[PreemptionCandidate] = []
    tried = 0
    found.is_row_local = _is_row_local(handle, state, trial)
    in_step = max(walk.wanted, _MIN_IN_STEP) if found.is_row_local else 1
    while tried < len(walk.rows):
        rows = walk.rows[tried : tried + in_step]
        tried += len(rows)
        try:
            outcomes = _try(handle, state, trial, rows)
        except AttemptLimitError:
            if not (without_violations or with_violations):
                raise
            # As if the rest had not been among the candidates, of which kube-scheduler tries a sample, too.
            break
        for row, outcome in outcomes:
            candidate = _candidate(outcome, trial.nodes.node_name(row), diagnosis)
            if isinstance(candidate, Status):
                found.fail(candidate)
                continue
            matching = with_violations if candidate.pdb_violations else without_violations
            if len(matching) < walk.wanted:
                matching.append(candidate)
            if without_violations and len(without_violations) + len(with_violations) >= walk.wanted:
                tried = len(walk.rows)
                break
    found.candidates = (*without_violations, *with_violations)
    return found


def _is_row_local(handle: Handle, state: CycleState, trial: Trial) -> bool:
    with handle.dry_run(state, trial.pod) as dry_run:
        return dry_run.is_row_local


def _try(
    handle: Handle, state: CycleState, trial: Trial, rows: Sequence[int]
) -> list[tuple[int, RowOutcome | PluginError]]:
    """Try rows at once; if a plugin fails, try each row on its own, so that only the failing row is lost."""
    try:
        with handle.dry_run(state, trial.pod, frees_shared_ports=trial.terms.frees_shared_ports) as dry_run:
            return [(outcome.row, outcome) for outcome in trial.select(dry_run, rows)]
    except AttemptLimitError:
        raise
    except PluginError as fault:
        if len(rows) == 1:
            return [(rows[0], fault)]
    return [pair for row in rows for pair in _try(handle, state, trial, [row])]


def _candidate(found: RowOutcome | PluginError, node_name: str, diagnosis: Diagnosis) -> PreemptionCandidate | Status:
    if isinstance(found, PluginError):
        return error(str(found))
    if found.verdict:
        return diagnosis.decode(found.verdict)
    if not found.victims:
        return error(f'expected at least one victim pod on node "{node_name}"')
    return PreemptionCandidate(node_name, tuple(found.victims), found.pdb_violations)


Integers = NDArray[np.int64]

_ABOVE_ANY_PRIORITY = 2**31
_INT64_MAX = np.iinfo(np.int64).max


class VictimSets(Struct, frozen=True):
    """Victims of all candidates.

    Attributes:
        starts: int64[candidates], index of each candidate's first victim; each has at least one.
        priorities: int64[victims].
        started: int64[victims], start times, in any unit.
        violations: int64[candidates], number of victims that violate a PodDisruptionBudget.
    """

    starts: Integers
    priorities: Integers
    started: Integers
    violations: Integers


def least_harmful(sets: VictimSets) -> int:
    """Return the index of the best candidate.

    Criteria, in this order: fewest budget violations; lowest priority of the most important victim; smallest sum of
    priorities, each shifted to be positive, so that more victims are worse for any sign; fewest victims; latest start
    of the longest running victim among those of the highest priority; first candidate.
    """
    starts, priorities = sets.starts, sets.priorities
    sizes = np.diff(starts, append=len(priorities))
    highest = np.maximum.reduceat(priorities, starts)
    sums = np.add.reduceat(priorities + _ABOVE_ANY_PRIORITY, starts)
    is_highest = priorities == np.repeat(highest, sizes)
    longest = np.minimum.reduceat(np.where(is_highest, sets.started, _INT64_MAX), starts)
    # The last key is the primary one; the sort is stable, so the first of equals stays first.
    return int(np.lexsort((-longest, sizes, sums, highest, sets.violations))[0])
