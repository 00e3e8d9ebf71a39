"""Queueing hints laid side by side: random changes through kube-scheduler's event handlers and hints, and Bayplan's.

Owns the comparison and its report. Compared is what a change comes to: for each plugin whether a pod that it rejected
is tried again. A plugin that is not asked is as good as one that says Skip, since the feeds leave out events that no
plugin registers for. DynamicResources is left out: nothing brings back a pod with resource claims here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from bayplan.conformance.hints import QUEUE, SKIP, decode_hint_case, hints_of

from hack.oracle.generation.families import FAMILIES, generate
from hack.oracle.generation.hints import hint_cases, kind_of
from hack.oracle.runs import Files, admit, ask_hints, read_results, write_cases
from scheduler_core.errors import SchedulerCoreError
from scheduler_core.in_tree import default_plugins, in_tree_registry

NOT_COMPARED = frozenset({"DynamicResources"})
_CHANGES_OF_A_CASE = 8
_SHOWN = 5


@dataclass(slots=True)
class HintTally:
    """Agreement on hints.

    Attributes:
        cases: Changes compared.
        agreed: Those on which both agree.
        mix: How often the reference said what, by (plugin, kind of change, verdict).
        found: Differences: the case's name, its change, and what both say.
        unanswered: Cases that one side did not answer, and why.
    """

    cases: int = 0
    agreed: int = 0
    mix: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    found: list[tuple[str, str, dict[str, tuple[str, str]]]] = field(default_factory=list)
    unanswered: list[str] = field(default_factory=list)

    def add(self, case: Mapping[str, Any], expected: Mapping[str, str], actual: Mapping[str, str]) -> None:
        """Count a case."""
        change = kind_of(case["change"])
        self.cases += 1
        for plugin, verdict in expected.items():
            self.mix[plugin, change, _settled(verdict)] += 1
        wrong = hint_differences(expected, actual)
        self.agreed += not wrong
        if wrong:
            self.found.append((case["name"], change, wrong))

    @property
    def is_whole(self) -> bool:
        """Whether everything was answered and agrees."""
        return bool(self.cases) and not self.found and not self.unanswered


def hint_differences(expected: Mapping[str, str], actual: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """Compare what two say of one change.

    Args:
        expected: The reference's verdicts by plugin: Queue, Skip, or Error, which counts as Queue.
        actual: The other's.

    Returns:
        By plugin what each of them says where they differ.
    """
    wrong = {}
    for plugin in sorted({*expected, *actual} - NOT_COMPARED):
        wanted, found = _settled(expected.get(plugin, SKIP)), actual.get(plugin, SKIP)
        if wanted != found:
            wrong[plugin] = (expected.get(plugin, "absent"), actual.get(plugin, "absent"))
    return wrong


def compare_hints(oracle: Path, directory: Path, seed: int, count: int) -> HintTally:
    """Make ``count`` changes, ask both, compare.

    Args:
        oracle: The binary.
        directory: Where the files go; they stay if anything differs.
        seed: Any number.
        count: Changes.
    """
    files = Files(directory, "hints")
    families = list(FAMILIES)
    # Every other case is bent, of which the API server refuses some.
    per_family = 1 + count * 5 // (4 * _CHANGES_OF_A_CASE * len(families))
    write_cases(
        files.submitted,
        (generate(family, seed, index, bent=index % 2 == 1) for index in range(per_family) for family in families),
    )
    admit(oracle, files)
    write_cases(files.changes, islice(hint_cases(read_results(files.admitted), seed, _CHANGES_OF_A_CASE), count))
    answers = ask_hints(oracle, files)
    tally = HintTally()
    if answers.complaints:
        tally.unanswered.append(answers.complaints)
    expected = {result["name"]: result["verdicts"] for result in read_results(files.expected)}
    for case, actual in _ask_bayplan(files, tally):
        wanted = expected.get(case["name"])
        if wanted is not None:
            tally.add(case, wanted, actual)
    if tally.is_whole:
        files.drop()
    return tally


def _ask_bayplan(files: Files, tally: HintTally) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
    registry, defaults = in_tree_registry(), default_plugins()
    with files.changes.open("rb") as lines:
        for line in lines:
            case = json.loads(line)
            try:
                found = hints_of(decode_hint_case(line), registry, defaults)
            except SchedulerCoreError as error:
                tally.unanswered.append(f"{case['name']}: {error}")
                continue
            yield case, found.verdicts


def print_hints(tally: HintTally, directory: Path) -> None:
    """Print the mix, the agreement and the first differences."""
    pairs = sorted({(plugin, change) for plugin, change, _ in tally.mix})
    width = max((len(plugin) for plugin, _ in pairs), default=0)
    print(f"{'plugin':{width}}  {'change':28}{QUEUE:>8}{SKIP:>8}")
    for plugin, change in pairs:
        queued, skipped = tally.mix[plugin, change, QUEUE], tally.mix[plugin, change, SKIP]
        print(f"{plugin:{width}}  {change:28}{queued:8}{skipped:8}")
    print(f"{tally.agreed} of {tally.cases} changes agree", flush=True)
    for name, change, wrong in tally.found[:_SHOWN]:
        told = "; ".join(f"{plugin}: kube-scheduler {pair[0]}, bayplan {pair[1]}" for plugin, pair in wrong.items())
        print(f"  {name} ({change}): {told}")
    for problem in tally.unanswered[:_SHOWN]:
        print(f"  not answered: {problem}")
    if not tally.is_whole:
        print(f"  the files are kept: {directory}", flush=True)


def _settled(verdict: str) -> str:
    return SKIP if verdict == SKIP else QUEUE
