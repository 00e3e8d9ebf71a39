"""``python -m tests.upstream``: run kube-scheduler's own integration tests against Bayplan, and compare the verdicts.

Exit codes: 0 all verdicts are as expected, 1 some differ, 2 the tests cannot be built.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import tomllib
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from hack.controlplane.binaries import MissingBinary, UnsupportedRelease, resolve
from tests.upstream.builds import (
    DEVICES,
    BuildError,
    TestBinary,
    build,
    default_directory,
    environment,
    packages_of,
    selected_release,
)
from tests.upstream.pinned import Expected, differing, read_expected, recorded, write_expected
from tests.upstream.verdicts import GATES, READY, BinaryRunner, Outcome, Verdict, Verdicts

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_COMMAND = f"{_ROOT / '.venv' / 'bin' / 'bayplan'} run --serve-address="
_ATTEMPTS = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    given = _parser().parse_args(arguments)
    try:
        minor = selected_release()
        directory = given.directory or default_directory(minor)
        selection = read_selection(_HERE / "selection.toml") if given.selection else {}
        packages = given.packages or list(selection) or packages_of(minor)
        os.environ["PATH"] = os.pathsep.join((str(resolve(["etcd"])["etcd"].parent), os.environ["PATH"]))
        binaries = build(packages, minor, directory)
    except (BuildError, MissingBinary, UnsupportedRelease) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    pinned_file = _HERE / "expected" / f"{minor}.toml"
    expected = read_expected(pinned_file)
    runner = BinaryRunner(given.command, given.ready, given.gates, environment=environment(directory))
    tests = Tests(runner, given.again)
    rows, reported = [], []
    for package, binary in binaries.items():
        only = [given.only] if given.only else selection.get(package, [])
        started = time.monotonic()
        log = directory / "logs" / f"{binary.path.name}.log"
        found = tests.run(package, binary, log, only, expected.get(package))
        rows.append((package, found, time.monotonic() - started))
        sys.stdout.write(f"{row(*rows[-1])}\n")
        sys.stdout.flush()
        if given.record and not only and found.is_complete:
            expected[package] = recorded(found, expected.get(package, {}))
            write_expected(pinned_file, expected)
        reported += [f"{package}: {line}; log: {log}" for line in differing(found, expected.get(package), only)]
    sys.stdout.write("\n".join([*summary([found for _, found, _ in rows]), *reported]) + "\n")
    return 1 if reported else 0


class Tests:
    """Runner of binaries that repeats tests that fail unexpectedly.

    Args:
        again: Maximum repetitions of a test that fails unexpectedly; it runs alone, because the tests have timeouts.
    """

    def __init__(self, runner: BinaryRunner, again: int) -> None:
        self._runner = runner
        self._again = again

    def run(
        self, package: str, binary: TestBinary, log: Path, only: Sequence[str], expected: Expected | None
    ) -> Verdicts:
        """Run a package's binary; see ``BinaryRunner.run``. A test that passes in a repetition passes."""
        any_gates = package.startswith(DEVICES)
        found = self._runner.run(binary, log, only, any_gates=any_gates)
        pinned = expected or {}
        failed = [
            name for name in found.of(Verdict.FAIL) if pinned.get(name, Outcome(Verdict.PASS)).verdict is Verdict.PASS
        ]
        for number, name in enumerate(failed):
            for attempt in range(self._again):
                again = log.with_suffix(f".again-{number}-{attempt}.log")
                alone = self._runner.run(binary, again, [name], any_gates=any_gates)
                if alone.by_test.get(name) == Outcome(Verdict.PASS):
                    sys.stdout.write(f"{name}: passes when it runs alone\n")
                    found.by_test[name] = Outcome(Verdict.PASS)
                    break
        return found


def read_selection(path: Path) -> dict[str, list[str]]:
    """Read the tests that CI runs: names by package, empty for the whole package."""
    selection: dict[str, list[str]] = tomllib.loads(path.read_text(encoding="utf-8"))
    return selection


def row(package: str, found: Verdicts, seconds: float) -> str:
    """Return a line of the table."""
    counts = "".join(f"{len(found.of(verdict)):>16}" for verdict in Verdict)
    return f"{package:36}{counts}{seconds:8.0f} s"


def summary(runs: Sequence[Verdicts]) -> list[str]:
    """Return the totals, and the number of tests that are not applicable by class."""
    outcomes = [outcome for found in runs for outcome in found.by_test.values()]
    counts = Counter(outcome.verdict for outcome in outcomes)
    classes = Counter(outcome.reason.partition(":")[0] for outcome in outcomes if outcome.reason)
    totals = f"{'all':36}" + "".join(f"{counts[verdict]:>16}" for verdict in Verdict)
    return [totals, "not applicable:", *(f"{number:>6}  {reason}" for reason, number in classes.most_common())]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument(
        "packages",
        nargs="*",
        help="Packages below test/integration/scheduler (default: all), or of dra/ and scheduler_perf/.",
    )
    parser.add_argument("--selection", action="store_true", help="Run only the tests of selection.toml.")
    parser.add_argument("--only", default="", help="One test, as the output names it.")
    parser.add_argument("--record", action="store_true", help="Pin the verdicts; failures need a reason by hand.")
    parser.add_argument("--again", type=int, default=2, help="Repetitions of a test that fails unexpectedly.")
    parser.add_argument("--command", default=_COMMAND, help="Command of the scheduler; --config FILE is appended.")
    parser.add_argument("--ready", default=READY, help="Text in the scheduler's output by which it is ready.")
    parser.add_argument("--gates", default=GATES, help="Feature gates of the scheduler, by those that tests change.")
    parser.add_argument("--directory", type=Path, help="Directory of the build and the logs.")
    return parser


if __name__ == "__main__":
    sys.exit(main())
