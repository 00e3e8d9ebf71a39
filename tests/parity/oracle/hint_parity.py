"""Comparison of kube-scheduler's and Bayplan's queueing hints on random changes.

The comparison covers, for each plugin, whether the change requeues a pod that it rejected. A plugin that is not called
equals one that returns Skip, because the feeds drop events that no plugin registers for.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from scheduler_core.errors import SchedulerCoreError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from tests.parity.hint_cases import QUEUE, SKIP, decode_hint_case, hints_of
from tests.parity.oracle.generation.families import DEFAULT_FAMILIES, generate
from tests.parity.oracle.generation.hints import hint_cases, kind_of
from tests.parity.oracle.runs import Files, admit, read_results, run_hints, write_cases

_CHANGES_OF_A_CASE = 8
_SHOWN = 5


@dataclass(slots=True)
class HintTally:
    """Agreement on hints.

    Attributes:
        cases: Number of compared changes.
        agreed: Number of changes on which both agree.
        mix: Number of the reference's verdicts by plugin, kind of change and verdict.
        found: Differences: name of the case, kind of change, and both verdicts.
        failures: Errors of cases without a result.
    """

    cases: int = 0
    agreed: int = 0
    mix: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    found: list[tuple[str, str, dict[str, tuple[str, str]]]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, case: Mapping[str, Any], expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
        """Count a case."""
        change = kind_of(case["change"])
        self.cases += 1
        for plugin, verdict in expected.items():
            self.mix[plugin, change, _queue_or_skip(verdict)] += 1
        differing = hint_differences(expected, actual)
        self.agreed += not differing
        if differing:
            self.found.append((case["name"], change, differing))

    @property
    def agrees(self) -> bool:
        """Return whether all changes have results and agree."""
        return bool(self.cases) and not self.found and not self.failures


def hint_differences(expected: Mapping[str, str], actual: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Compare the verdicts on one change.

    Args:
        expected: The reference's verdicts by plugin: Queue, Skip, or Error, which counts as Queue.
        actual: Bayplan's verdicts by plugin.

    Returns:
        Both verdicts of each plugin whose verdicts differ.
    """
    differing = {}
    for plugin in sorted({*expected, *actual}):
        wanted, found = _queue_or_skip(expected.get(plugin, SKIP)), actual.get(plugin, SKIP)
        if wanted != found:
            differing[plugin] = (expected.get(plugin, "absent"), actual.get(plugin, "absent"))
    return differing


def compare_hints(
    oracle: Path, directory: Path, seed: int, count: int, families: Sequence[str] = DEFAULT_FAMILIES
) -> HintTally:
    """Generate changes, run both sides, and compare the verdicts.

    Args:
        oracle: The binary.
        directory: Directory of the files, which stay if a verdict differs.
    """
    files = Files(directory, "hints", families)
    # Every second case is bent; the API server rejects some of these.
    per_family = 1 + count * 5 // (4 * _CHANGES_OF_A_CASE * len(families))
    write_cases(
        files.submitted,
        (generate(family, seed, index, bent=index % 2 == 1) for index in range(per_family) for family in families),
    )
    admit(oracle, files)
    write_cases(files.changes, islice(hint_cases(read_results(files.admitted), seed, _CHANGES_OF_A_CASE), count))
    hint_run = run_hints(oracle, files)
    tally = HintTally()
    if hint_run.stderr:
        tally.failures.append(hint_run.stderr)
    expected = {result["name"]: result["verdicts"] for result in read_results(files.expected)}
    for case, actual in _run_bayplan(files, tally):
        wanted = expected.get(case["name"])
        if wanted is not None:
            tally.add(case, wanted, actual)
    if tally.agrees:
        files.drop()
    return tally


def _run_bayplan(files: Files, tally: HintTally) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    registry, defaults = in_tree_registry(), default_plugins()
    with files.changes.open("rb") as lines:
        for line in lines:
            case = json.loads(line)
            try:
                found = hints_of(decode_hint_case(line), registry, defaults)
            except SchedulerCoreError as error:
                tally.failures.append(f"{case['name']}: {error}")
                continue
            yield case, found


def print_hints(tally: HintTally, directory: Path) -> None:
    """Print the verdicts by kind of change, the agreement and the first differences."""
    pairs = sorted({(plugin, change) for plugin, change, _ in tally.mix})
    width = max((len(plugin) for plugin, _ in pairs), default=0)
    print(f"{'plugin':{width}}  {'change':28}{QUEUE:>8}{SKIP:>8}")
    for plugin, change in pairs:
        queued, skipped = tally.mix[plugin, change, QUEUE], tally.mix[plugin, change, SKIP]
        print(f"{plugin:{width}}  {change:28}{queued:8}{skipped:8}")
    print(f"{tally.agreed} of {tally.cases} changes agree", flush=True)
    for name, change, differing in tally.found[:_SHOWN]:
        verdicts = "; ".join(
            f"{plugin}: kube-scheduler {pair[0]}, bayplan {pair[1]}" for plugin, pair in differing.items()
        )
        print(f"  {name} ({change}): {verdicts}")
    for problem in tally.failures[:_SHOWN]:
        print(f"  failed: {problem}")
    if not tally.agrees:
        print(f"  the files are in {directory}", flush=True)


def _queue_or_skip(verdict: str) -> str:
    return SKIP if verdict == SKIP else QUEUE
