"""Pinned verdicts: read and write ``expected/<minor version>.toml``, and compare a run with them.

The file has a table per package, in it one per verdict, in it one per reason (not for ``PASS``), in it a list of
subtests per test; the list of a test without subtests is empty.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.upstream.verdicts import Outcome, Verdict, Verdicts

Expected = Mapping[str, Outcome]
"""Pinned outcome of each test of a package."""

_WITH_REASON = (Verdict.FAIL, Verdict.NOT_APPLICABLE)


def read_expected(path: Path) -> dict[str, dict[str, Outcome]]:
    """Read the pinned outcomes of each package; none if there is no such file.

    Raises:
        ValueError: A test is listed twice, or one that does not pass has no reason.
    """
    expected: dict[str, dict[str, Outcome]] = {}
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    for package, table in tomllib.loads(text).items():
        outcomes = expected.setdefault(package, {})
        for verdict in Verdict:
            by_reason = table.get(verdict.value, {})
            for reason, tests in by_reason.items() if verdict in _WITH_REASON else (("", by_reason),):
                for name in _names(tests):
                    if name in outcomes or (verdict in _WITH_REASON and not reason):
                        raise ValueError(f"{path.name}: {package}: {name} is listed twice or has no reason")
                    outcomes[name] = Outcome(verdict, reason)
    return expected


def write_expected(path: Path, expected: Mapping[str, Expected]) -> None:
    """Write the pinned outcomes of all packages."""
    parts = []
    for package, outcomes in sorted(expected.items()):
        for verdict in Verdict:
            for reason in dict.fromkeys(each.reason for each in outcomes.values() if each.verdict is verdict):
                keys = [package, verdict.value, *([reason] if verdict in _WITH_REASON else [])]
                lines = [f"[{'.'.join(json.dumps(key, ensure_ascii=False) for key in keys)}]"]
                tests = [name for name, each in outcomes.items() if each == Outcome(verdict, reason)]
                for test, subtests in _by_test(tests).items():
                    lines.append(f"{test} = {_list(subtests)}")
                parts.append("\n".join(lines) + "\n")
    path.write_text("\n".join(parts), encoding="utf-8")


def recorded(found: Verdicts, expected: Expected) -> dict[str, Outcome]:
    """Return the outcomes to pin after a run.

    A failure keeps the reason that is pinned for it. One without a reason is left out: a person has to find the reason.
    """
    outcomes = {}
    for name, outcome in found.by_test.items():
        pinned = expected.get(name)
        if outcome.verdict is not Verdict.FAIL:
            outcomes[name] = outcome
        elif pinned and pinned.verdict is Verdict.FAIL:
            outcomes[name] = pinned
    return outcomes


def differing(found: Verdicts, expected: Expected | None, only: Sequence[str] = ()) -> list[str]:
    """Return a line for each outcome that is not as expected; a better one differs too.

    Args:
        expected: The pinned ones; None if the package has none, and then every failure differs.
        only: The tests that were run; empty for all.
    """
    lines = [] if found.is_complete else ["the run was cut off"]
    if expected is None:
        return [*lines, *(f"{name}: FAIL" for name in found.of(Verdict.FAIL))]
    for name, outcome in found.by_test.items():
        pinned = expected.get(name)
        if pinned is None:
            lines.append(f"{name}: {outcome.verdict.value}, not pinned")
        elif outcome.verdict is not pinned.verdict:
            lines.append(f"{name}: {outcome.verdict.value}, expected {pinned.verdict.value}")
        elif outcome.verdict is Verdict.NOT_APPLICABLE and outcome.reason != pinned.reason:
            lines.append(f"{name}: not applicable because of {outcome.reason}, expected {pinned.reason}")
    missing = (name for name in expected if name not in found.by_test)
    return [*lines, *(f"{name}: did not run" for name in missing if _is_selected(name, only))]


def _is_selected(name: str, only: Sequence[str]) -> bool:
    return not only or any(name == test or name.startswith(f"{test}/") for test in only)


def _names(tests: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for test, subtests in tests.items():
        yield from (f"{test}/{subtest}" for subtest in subtests) if subtests else (test,)


def _by_test(names: Sequence[str]) -> dict[str, list[str]]:
    by_test: dict[str, list[str]] = {}
    for name in names:
        test, _, subtest = name.partition("/")
        by_test.setdefault(test, []).extend([subtest] if subtest else [])
    return by_test


def _list(items: Sequence[str]) -> str:
    return "[\n" + "".join(f"    {json.dumps(item, ensure_ascii=False)},\n" for item in items) + "]" if items else "[]"
