"""The audit of dependencies: vulnerabilities, allowances, and services that cannot be reached."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hack.checks.audit import CANARY, Allowance, audit, evaluate, read_allowed
from tests.support.tables import table

TODAY = date(2026, 6, 1)
CLEAN = {"dependencies": [{"name": "kopf", "version": "1.45.2", "vulns": []}], "fixes": []}
FOUND = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1", "GHSA-1"], "fix_versions": ["1.46.0"]}
VULNERABLE = {"dependencies": [{"name": "kopf", "version": "1.45.2", "vulns": [FOUND]}], "fixes": []}
SKIPPED = {"dependencies": [{"name": "kopf", "skip_reason": "not found"}], "fixes": []}
CANARY_UNKNOWN = {"dependencies": [{"name": "requests", "skip_reason": "not found"}], "fixes": []}
CANARY_FOUND = {"dependencies": [{"name": "requests", "version": "2.19.0", "vulns": [FOUND]}], "fixes": []}


def until(day: date, known_as: str = "CVE-2026-1") -> Allowance:
    return Allowance(known_as, "never called", day)


@table(
    "report, allowed, passes, text",
    ("none", CLEAN, (), True, "1 locked dependencies, no known vulnerability"),
    ("no service", None, (), True, "NOT AUDITED"),
    ("found", VULNERABLE, (), False, "kopf 1.45.2 has PYSEC-2026-1, fixed in 1.46.0"),
    ("allowed", VULNERABLE, (until(TODAY),), True, "no known vulnerability that is not allowed"),
    ("allowance expired", VULNERABLE, (until(date(2026, 5, 31)),), False, "never called"),
    ("another is allowed", VULNERABLE, (until(TODAY, "CVE-2"),), False, "kopf 1.45.2 has"),
    ("unused allowance", CLEAN, (until(TODAY),), False, "CVE-2026-1 is allowed but no longer found"),
    ("skipped", SKIPPED, (), False, "kopf was skipped: not found"),
)
def test_verdicts(report: dict[str, Any] | None, allowed: tuple[Allowance, ...], passes: bool, text: str) -> None:
    """The audit passes without vulnerabilities, or with a warning if no service could be reached."""
    verdict = evaluate(report, allowed, TODAY)
    assert verdict.passes is passes
    assert text in "\n".join(verdict.lines)


@table(
    "answers, passes, text",
    ("unreachable", [None], True, "NOT AUDITED"),
    ("mirror without data", [CANARY_UNKNOWN], True, "NOT AUDITED"),
    ("lost after the canary", [CANARY_FOUND, None], True, "NOT AUDITED"),
    ("none found", [CANARY_FOUND, CLEAN], True, "1 locked dependencies"),
    ("found", [CANARY_FOUND, VULNERABLE], False, "has PYSEC-2026-1"),
)
def test_the_canary_is_audited_first(answers: list[dict[str, Any] | None], passes: bool, text: str) -> None:
    """If a service does not recognise a vulnerable release, the dependencies are not audited."""
    audited: list[str] = []

    def service(file: Path) -> dict[str, Any] | None:
        audited.append(file.read_text().strip())
        return answers[len(audited) - 1]

    verdict = audit(service, lambda: "kopf==1.45.2", (), TODAY)
    assert audited == [CANARY, "kopf==1.45.2"][: len(answers)]
    assert verdict.passes is passes
    assert text in verdict.lines[0]


def test_the_list_of_allowances() -> None:
    """Each entry must have a reason and an expiry date."""
    text = '[[allowed]]\nid = "CVE-1"\nreason = "no"\nexpires = 2026-12-31\n'
    assert read_allowed(text) == (Allowance("CVE-1", "no", date(2026, 12, 31)),)
    with pytest.raises(ValueError, match="needs id, reason and expires"):
        read_allowed(text.replace('reason = "no"\n', ""))
