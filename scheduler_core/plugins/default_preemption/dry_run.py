"""Which nodes preemption could help, and at what price.

Owns the walk over nodes: where it begins, when it has seen enough, and why nodes are no candidates. Follows
kube-scheduler v1.36.3, ``pkg/scheduler/framework/preemption/preemption.go`` (``findCandidates``, ``DryRunPreemption``);
there nodes are tried in parallel and in an order drawn at random, here one after another, or many in step where filters
look at single nodes only, in an order that the nodes' names and a seed give.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct, field

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.diagnosis import Diagnosis
from scheduler_core.framework.extension_points import PreemptionCandidate
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.status import Code, Status, error, unresolvable
from scheduler_core.plugins.default_preemption.victims import RowOutcome, Trial

_NO_VICTIMS = unresolvable("No preemption victims found for incoming pod")
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_MIN_IN_STEP = 32


class DryRun(Struct):
    """What the walk found.

    Attributes:
        candidates: Nodes where the pod would fit, those that violate no budget first.
        failures: Why other nodes that were tried are none, and how many for that.
        is_row_local: Whether each row was judged by itself; only known where rows were tried.
    """

    candidates: tuple[PreemptionCandidate, ...] = ()
    failures: dict[Status, int] = field(default_factory=dict)
    is_row_local: bool = False

    def fail(self, status: Status, count: int = 1) -> None:
        """Note that nodes are no candidates."""
        self.failures[status] = self.failures.get(status, 0) + count

    def error(self) -> Status | None:
        """The errors among the failures in one, None if there are none."""
        texts = dict.fromkeys(status.message for status in self.failures if status.code is Code.ERROR)
        if not texts:
            return None
        return error(next(iter(texts)) if len(texts) == 1 else f"[{', '.join(texts)}]")

    def why_no_candidate(self, node_count: int) -> str:
        """Why there is no candidate at all, over all nodes, in the words of a failed attempt."""
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
    """Where candidates are looked for.

    Attributes:
        rows: Rows in the order in which they are tried, each with a pod that may be preempted.
        wanted: At how many candidates the walk may end; it goes on until one of them violates no budget.
        without_victims: How many rows besides could be helped if there were pods to preempt.
    """

    rows: Sequence[int]
    wanted: int
    without_victims: int = 0


def dry_run(handle: Handle, state: CycleState, trial: Trial, walk: Walk, diagnosis: Diagnosis) -> DryRun:
    """Try nodes until there are enough candidates. Nothing is changed.

    Args:
        handle: The rest of the scheduler.
        state: The attempt's state; it is cloned.
        trial: What is tried.
        walk: Where.
        diagnosis: Explains verdicts.
    """
    found = DryRun()
    if walk.without_victims:
        found.fail(_NO_VICTIMS, walk.without_victims)
    if not walk.rows:
        return found
    unharmed: list[PreemptionCandidate] = []
    harmed: list[PreemptionCandidate] = []
    tried = 0
    found.is_row_local = _is_row_local(handle, state, trial)
    in_step = max(walk.wanted, _MIN_IN_STEP) if found.is_row_local else 1
    while tried < len(walk.rows):
        rows = walk.rows[tried : tried + in_step]
        tried += len(rows)
        for row, outcome in _try(handle, state, trial, rows):
            candidate = _judged(outcome, trial.nodes.node_name(row), diagnosis)
            if isinstance(candidate, Status):
                found.fail(candidate)
                continue
            kept = harmed if candidate.pdb_violations else unharmed
            if len(kept) < walk.wanted:
                kept.append(candidate)
            if unharmed and len(unharmed) + len(harmed) >= walk.wanted:
                tried = len(walk.rows)
                break
    found.candidates = (*unharmed, *harmed)
    return found


def _is_row_local(handle: Handle, state: CycleState, trial: Trial) -> bool:
    with handle.dry_run(state, trial.pod) as dry_run:
        return dry_run.is_row_local


def _try(
    handle: Handle, state: CycleState, trial: Trial, rows: Sequence[int]
) -> list[tuple[int, RowOutcome | PluginError]]:
    """Try rows in step; a plugin that fails is asked again about each alone, so that it spoils only its own."""
    try:
        with handle.dry_run(state, trial.pod) as dry_run:
            return [(outcome.row, outcome) for outcome in trial.select(dry_run, rows)]
    except PluginError as fault:
        if len(rows) == 1:
            return [(rows[0], fault)]
    return [pair for row in rows for pair in _try(handle, state, trial, [row])]


def _judged(found: RowOutcome | PluginError, node_name: str, diagnosis: Diagnosis) -> PreemptionCandidate | Status:
    if isinstance(found, PluginError):
        return error(str(found))
    if found.verdict:
        return diagnosis.decode(found.verdict)
    if not found.victims:
        return error(f'expected at least one victim pod on node "{node_name}"')
    return PreemptionCandidate(node_name, tuple(found.victims), found.pdb_violations)
