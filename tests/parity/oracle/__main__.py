"""`make parity`: comparison of kube-scheduler's framework and Bayplan on random cases.

The exit status is 1 if a case differs in any aspect or has no result.
"""

from __future__ import annotations

import argparse
import secrets
import sys
import tempfile
from pathlib import Path

from hack.controlplane.binaries import MissingBinary, resolve
from tests.parity.oracle.agreement import ASPECTS, Difference, Tally
from tests.parity.oracle.generation.families import DEFAULT_FAMILIES, FAMILIES, generate
from tests.parity.oracle.hint_parity import compare_hints, print_hints
from tests.parity.oracle.queue_parity import compare_queues, print_queues
from tests.parity.oracle.runs import Files, Timed, admit, read_results, run_bayplan, run_oracle, write_cases
from tests.parity.oracle.selector_parity import compare_selectors, print_selectors

_SELECTORS = "selectors"
_SHOWN_DIFFERENCES = 5
_SHOWN_CHARACTERS = 2000


class Report:
    """Report of a run, printed line by line.

    Args:
        families: Families in the order in which they run.
    """

    def __init__(self, families: list[str]) -> None:
        self._width = max(len(name) for name in [*families, "family"])
        self._tallies: dict[str, Tally] = {}
        self._oracle = self._bayplan = 0.0
        self.failures = 0

    def heading(self) -> None:
        """Print the head of the table."""
        columns = "".join(f"{name:>12}" for name in ASPECTS)
        print(f"{'family':{self._width}}{'cases':>7}{columns}{'oracle/s':>10}{'bayplan/s':>10}{'ratio':>7}", flush=True)

    def family(self, name: str, tally: Tally, oracle: Timed, bayplan: Timed) -> None:
        """Print the row of a family."""
        self._tallies[name] = tally
        self._oracle += oracle.seconds
        self._bayplan += bayplan.seconds
        self._row(name, tally, oracle.seconds, bayplan.seconds)

    def close(self) -> bool:
        """Print the totals and the first differences; return whether all results agree."""
        total = Tally()
        for tally in self._tallies.values():
            total.cases += tally.cases
            for aspect in ASPECTS:
                total.applied[aspect] += tally.applied[aspect]
                total.agreed[aspect] += tally.agreed[aspect]
            total.found += tally.found
        self._row("all", total, self._oracle, self._bayplan)
        for difference in total.found[:_SHOWN_DIFFERENCES]:
            _print_difference(difference)
        return total.agrees and total.cases > 0 and not self.failures

    def _row(self, name: str, tally: Tally, oracle_seconds: float, bayplan_seconds: float) -> None:
        cells = "".join(f"{_rate(tally, aspect):>12}" for aspect in ASPECTS)
        oracle_speed, bayplan_speed = tally.cases / oracle_seconds, tally.cases / bayplan_seconds
        speeds = f"{oracle_speed:10.0f}{bayplan_speed:10.0f}{bayplan_speed / max(oracle_speed, 1e-9):7.2f}"
        print(f"{name:{self._width}}{tally.cases:7}{cells}{speeds}", flush=True)


def _rate(tally: Tally, aspect: str) -> str:
    applied = tally.applied[aspect]
    if not applied:
        return "-"
    # One case in thousands is a difference, so a rate is never rounded up to 100 %.
    return "100%" if tally.agreed[aspect] == applied else f"{100 * tally.agreed[aspect] / applied:.3f}%"


def _print_difference(difference: Difference) -> None:
    expected, actual = difference.expected, difference.actual
    if isinstance(expected, dict) and isinstance(actual, dict):
        keys = [key for key in {**expected, **actual} if expected.get(key) != actual.get(key)]
        expected = {key: expected.get(key) for key in keys}
        actual = {key: actual.get(key) for key in keys}
    print(f"\n{difference.name}: {difference.aspect}")
    print(f"  kube-scheduler | {str(expected)[:_SHOWN_CHARACTERS]}")
    print(f"  bayplan        | {str(actual)[:_SHOWN_CHARACTERS]}")


def _run_family(family: str, options: argparse.Namespace, oracle: Path, directory: Path, report: Report) -> None:
    files = Files(directory, family, [family])
    cases = (generate(family, options.seed, index, bent=options.bent) for index in range(options.count))
    write_cases(files.submitted, cases)
    admission = admit(oracle, files)
    if admission.stderr and not options.bent:
        sys.stderr.write(admission.stderr)
    expected_run, actual_run = run_oracle(oracle, files), run_bayplan(files)
    # The oracle reports cases for which the reference has contradictory results; docs/internals/parity.md lists them.
    sys.stderr.write(expected_run.stderr)
    sys.stderr.write(actual_run.stderr)
    actual = {result["name"]: result for result in read_results(files.actual)}
    tally = Tally()
    for expected in read_results(files.expected):
        found = actual.get(expected["name"])
        report.failures += found is None
        tally.add(expected, found)
    report.family(family, tally, expected_run, actual_run)
    if tally.agrees:
        files.drop()
    else:
        print(f"  files: {files.admitted}", flush=True)


def _run_families(families: list[str], options: argparse.Namespace, oracle: Path) -> bool:
    """Compare the cases of families and return whether all results agree."""
    print(f"seed {options.seed}, {options.count} cases of each family{', bent' if options.bent else ''}", flush=True)
    if not families:
        return True
    report = Report(families)
    report.heading()
    directory = Path(tempfile.mkdtemp(prefix="bayplan-parity-"))
    for family in families:
        _run_family(family, options, oracle, directory, report)
    agrees = report.close()
    if agrees:
        directory.rmdir()
    return agrees


def _run_hints(options: argparse.Namespace, oracle: Path) -> int:
    families = [name for name in options.family or DEFAULT_FAMILIES if name != _SELECTORS]
    print(f"seed {options.seed}, {options.count} changes of objects around waiting pods", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="bayplan-parity-"))
    tally = compare_hints(oracle, directory, options.seed, options.count, families)
    print_hints(tally, directory)
    if tally.agrees:
        directory.rmdir()
    return 0 if tally.agrees else 1


def _run_queues(options: argparse.Namespace, oracle: Path) -> int:
    print(f"seed {options.seed}, {options.count} sequences of a scheduling queue", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="bayplan-parity-"))
    tally = compare_queues(oracle, directory, options.seed, options.count)
    print_queues(tally, directory)
    if tally.agrees:
        directory.rmdir()
    return 0 if tally.agrees else 1


def main() -> int:
    """Run the comparison and return the exit status."""
    parser = argparse.ArgumentParser(prog="make parity", description=__doc__)
    parser.add_argument("--seed", type=int, help="Seed of the cases; random by default, and printed")
    parser.add_argument("--count", type=int, default=2000, help="Number of cases of each family")
    parser.add_argument(
        "--family", choices=[*FAMILIES, _SELECTORS], action="append", help="Family to run; may be repeated"
    )
    parser.add_argument("--hints", action="store_true", help="Compare queueing hints instead, for COUNT changes")
    parser.add_argument(
        "--queue", action="store_true", help="Compare scheduling queues instead, for COUNT random sequences"
    )
    parser.add_argument("--bent", action="store_true", help="Combine families and add rare notations and states")
    options = parser.parse_args()
    if options.seed is None:
        options.seed = secrets.randbelow(10**6)
    try:
        oracle = resolve(["oracle"])["oracle"]
    except MissingBinary as problem:
        sys.stderr.write(f"{problem}\n")
        return 1
    if options.hints:
        return _run_hints(options, oracle)
    if options.queue:
        return _run_queues(options, oracle)
    families = options.family or [*FAMILIES, *([] if options.bent else [_SELECTORS])]
    agrees = _run_families([name for name in families if name != _SELECTORS], options, oracle)
    if _SELECTORS in families:
        tally = compare_selectors(resolve([_SELECTORS])[_SELECTORS], options.seed, options.count)
        print_selectors(tally)
        agrees = agrees and tally.agrees
    return 0 if agrees else 1


if __name__ == "__main__":
    sys.exit(main())
