"""``python -m tests.upstream``: run kube-scheduler's own integration tests against Bayplan, and compare the verdicts.

Exit codes: 0 all verdicts are as expected, 1 some differ, 2 the tests cannot be built.
"""

from __future__ import annotations

import argparse
import os
import sys
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path

from hack.controlplane.binaries import MissingBinary, resolve
from tests.upstream.builds import BuildError, build, default_directory
from tests.upstream.judging import READY, Verdict, Verdicts, judge

_HERE = Path(__file__).resolve().parent
_ROOT = _HERE.parents[1]
_COMMAND = f"{_ROOT / '.venv' / 'bin' / 'bayplan'} run --serve-address="
_OTHER = (Verdict.FAIL, Verdict.NOT_APPLICABLE)

Expected = Mapping[str, Verdict]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; see the module."""
    parser = argparse.ArgumentParser(prog="python -m tests.upstream", description=__doc__)
    parser.add_argument(
        "packages", nargs="*", help="Packages below test/integration/scheduler; default: the pinned ones."
    )
    parser.add_argument("--command", default=_COMMAND, help="Command of the scheduler; --config FILE is appended.")
    parser.add_argument(
        "--directory", type=Path, default=default_directory(), help="Directory of the build and the logs."
    )
    parser.add_argument("--only", default="", help="One test, as the output names it.")
    parser.add_argument("--ready", default=READY, help="Text in the scheduler's output by which it is ready.")
    given = parser.parse_args(arguments)
    expected = read_expected(_HERE / "expected.toml")
    packages = given.packages or list(expected)
    try:
        os.environ["PATH"] = os.pathsep.join((str(resolve(["etcd"])["etcd"].parent), os.environ["PATH"]))
        binaries = build(packages, given.directory)
    except (BuildError, MissingBinary) as error:
        sys.stderr.write(f"{error}\n")
        return 2
    differences = 0
    for package, binary in binaries.items():
        log = given.directory / "logs" / f"{binary.name}.log"
        found = judge(binary, given.command, log, only=given.only, ready=given.ready)
        pinned = expected.get(package)
        if pinned is not None:
            _try_again(binary, given, log, found, pinned)
        reported = differing(found, pinned, is_partial=bool(given.only))
        counts = ", ".join(f"{len(found.of(verdict))} {verdict.value}" for verdict in Verdict)
        sys.stdout.write("\n    ".join([f"{package}: {counts}; log: {log}", *reported]) + "\n")
        differences += len(reported)
    return 1 if differences else 0


def read_expected(path: Path) -> dict[str, Expected]:
    """Read the pinned verdicts.

    Args:
        path: A table for each package: names of tests that pass, and of others, each with its reason.

    Raises:
        ValueError: A test is listed twice, or one that does not pass has no reason.
    """
    expected: dict[str, Expected] = {}
    for package, table in tomllib.loads(path.read_text(encoding="utf-8")).items():
        verdicts = dict.fromkeys(table.get("PASS", ()), Verdict.PASS)
        for verdict in _OTHER:
            for name, reason in table.get(verdict.value, {}).items():
                if name in verdicts or not reason:
                    raise ValueError(f"{path.name}: {package}: {name} is listed twice or has no reason")
                verdicts[name] = verdict
        expected[package] = verdicts
    return expected


def differing(found: Verdicts, expected: Expected | None, *, is_partial: bool = False) -> list[str]:
    """Return a line for each verdict that is not as expected.

    Args:
        found: The verdicts.
        expected: The pinned ones; None if the package has none, and then every failure differs.
        is_partial: Whether tests were left out of the run.
    """
    lines = [] if found.is_complete else ["the run was cut off"]
    if expected is None:
        return [*lines, *(f"{name}: FAIL" for name in found.of(Verdict.FAIL))]
    for name, verdict in found.by_test.items():
        pinned = expected.get(name)
        if verdict is not pinned:
            lines.append(f"{name}: {verdict.value}, expected {pinned.value if pinned else 'no such test'}")
    if not is_partial:
        lines += [f"{name}: did not run" for name in expected if name not in found.by_test]
    return lines


def _try_again(binary: Path, given: argparse.Namespace, log: Path, found: Verdicts, expected: Expected) -> None:
    """Run each test that fails unexpectedly once more, alone: the tests have limits of time."""
    failed = [name for name in found.of(Verdict.FAIL) if expected.get(name) is not Verdict.FAIL]
    for number, name in enumerate(failed):
        alone = judge(binary, given.command, log.with_suffix(f".again-{number}.log"), only=name, ready=given.ready)
        if alone.by_test.get(name) is Verdict.PASS:
            sys.stdout.write(f"{name}: passes when it runs alone\n")
            found.by_test[name] = Verdict.PASS


if __name__ == "__main__":
    sys.exit(main())
