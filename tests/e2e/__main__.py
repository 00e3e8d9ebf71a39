"""``python -m tests.e2e``: run kube-scheduler's end-to-end tests against kube-scheduler and Bayplan, and compare.

Exit codes: 0 both have the same verdict for each test, 1 a verdict differs without a reason, 2 a binary is missing.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hack.controlplane.binaries import MissingBinary, UnsupportedRelease, resolve
from hack.controlplane.schedulers import BAYPLAN, KUBE_SCHEDULER
from tests.e2e.suite_run import Result, run_suite

_HERE = Path(__file__).resolve().parent
_NOT_RUN = Result("not run")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e", description=__doc__)
    parser.add_argument("--only", default="", help="Regular expression of the names of tests.")
    parser.add_argument("--directory", type=Path, default=Path("build/e2e"), help="Directory of logs and reports.")
    given = parser.parse_args(arguments)
    selected = [f"--ginkgo.focus={given.only}"] if given.only else []
    directory = given.directory.resolve()
    try:
        resolve(["e2e", KUBE_SCHEDULER, "kube-controller-manager"])
    except (MissingBinary, UnsupportedRelease) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    # The clusters are independent, and the tests mostly wait.
    with ThreadPoolExecutor(2) as pool:
        runs = [pool.submit(run_suite, scheduler, directory, selected) for scheduler in (KUBE_SCHEDULER, BAYPLAN)]
        reference, ours = (run.result() for run in runs)
    reasons = tomllib.loads((_HERE / "reasons.toml").read_text(encoding="utf-8"))
    sys.stdout.write("\n".join(table(reference, ours)) + "\n")
    problems = unexplained(reference, ours, reasons)
    sys.stdout.write("".join(f"{problem}\n" for problem in problems))
    return 1 if problems else 0


def table(reference: Mapping[str, Result], ours: Mapping[str, Result]) -> list[str]:
    """Return a line for each test with both verdicts, and the message of those that did not pass."""
    lines = [f"{'kube-scheduler':16}{'Bayplan':12}test"]
    for name in sorted({*reference, *ours}):
        left, right = reference.get(name, _NOT_RUN), ours.get(name, _NOT_RUN)
        lines.append(f"{left.state:16}{right.state:12}{name}")
        lines += [f"{'':28}{message}" for message in dict.fromkeys((left.message, right.message)) if message]
    return lines


def unexplained(reference: Mapping[str, Result], ours: Mapping[str, Result], reasons: Mapping[str, str]) -> list[str]:
    """Return a line for each test that has different verdicts, or that fails for both, without a reason.

    Args:
        reference: Results of kube-scheduler.
        ours: Results of Bayplan.
        reasons: Reason by test name, for tests that do not pass on this cluster.
    """
    problems = []
    for name in sorted({*reference, *ours}):
        left, right = reference.get(name, _NOT_RUN).state, ours.get(name, _NOT_RUN).state
        if name in reasons:
            if left == right == "passed":
                problems.append(f"{name}: passes; remove it from reasons.toml")
        elif left != right:
            problems.append(f"{name}: {left} with kube-scheduler, {right} with Bayplan")
        elif left not in {"passed", "skipped"}:
            problems.append(f"{name}: {left} with both, and reasons.toml has no reason")
    return problems


if __name__ == "__main__":
    sys.exit(main())
