"""The audit of dependencies: what is found, what is not, and what nobody could be asked about."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any

import pytest

from hack.checks.audit import CANARY, Allowance, audit, judge, read_allowed

TODAY = date(2026, 6, 1)
CLEAN = {"dependencies": [{"name": "kopf", "version": "1.45.2", "vulns": []}], "fixes": []}
FOUND = {"id": "PYSEC-2026-1", "aliases": ["CVE-2026-1", "GHSA-1"], "fix_versions": ["1.46.0"]}
VULNERABLE = {"dependencies": [{"name": "kopf", "version": "1.45.2", "vulns": [FOUND]}], "fixes": []}
PASSED_OVER = {"dependencies": [{"name": "kopf", "skip_reason": "not found"}], "fixes": []}
BLIND = {"dependencies": [{"name": "requests", "skip_reason": "not found"}], "fixes": []}
SEEING = {"dependencies": [{"name": "requests", "version": "2.19.0", "vulns": [FOUND]}], "fixes": []}


def until(day: date, known_as: str = "CVE-2026-1") -> Allowance:
    return Allowance(known_as, "never called", day)


@pytest.mark.parametrize(
    ("report", "allowed", "passes", "said"),
    [
        pytest.param(CLEAN, (), True, "1 locked dependencies, no known vulnerability", id="none"),
        pytest.param(None, (), True, "NOT AUDITED", id="no service"),
        pytest.param(VULNERABLE, (), False, "kopf 1.45.2 has PYSEC-2026-1, fixed in 1.46.0", id="found"),
        pytest.param(VULNERABLE, (until(TODAY),), True, "no known vulnerability that is not allowed", id="allowed"),
        pytest.param(VULNERABLE, (until(date(2026, 5, 31)),), False, "never called", id="allowed no longer"),
        pytest.param(VULNERABLE, (until(TODAY, "CVE-2"),), False, "kopf 1.45.2 has", id="another is allowed"),
        pytest.param(CLEAN, (until(TODAY),), False, "CVE-2026-1 is allowed but no longer found", id="idle allowance"),
        pytest.param(PASSED_OVER, (), False, "kopf was skipped: not found", id="skipped"),
    ],
)
def test_judgement(report: dict[str, Any] | None, allowed: tuple[Allowance, ...], passes: bool, said: str) -> None:
    """Only what no service could check passes, and that is printed as a warning."""
    verdict = judge(report, allowed, TODAY)
    assert verdict.passes is passes
    assert said in "\n".join(verdict.lines)


@pytest.mark.parametrize(
    ("answers", "passes", "said"),
    [
        pytest.param([None], True, "NOT AUDITED", id="unreachable"),
        pytest.param([BLIND], True, "NOT AUDITED", id="mirror that knows nothing"),
        pytest.param([SEEING, None], True, "NOT AUDITED", id="lost after the canary"),
        pytest.param([SEEING, CLEAN], True, "1 locked dependencies", id="none found"),
        pytest.param([SEEING, VULNERABLE], False, "has PYSEC-2026-1", id="found"),
    ],
)
def test_the_canary_goes_first(answers: list[dict[str, Any] | None], passes: bool, said: str) -> None:
    """Nothing is asked about our dependencies where a vulnerable release is not recognised, and no all-clear given."""
    asked: list[str] = []

    def ask(file: Path) -> dict[str, Any] | None:
        asked.append(file.read_text().strip())
        return answers[len(asked) - 1]

    verdict = audit(ask, lambda: "kopf==1.45.2", (), TODAY)
    assert asked == [CANARY, "kopf==1.45.2"][: len(answers)]
    assert verdict.passes is passes
    assert said in verdict.lines[0]


def test_the_list_of_what_is_allowed() -> None:
    """Each entry says why and until when."""
    text = '[[allowed]]\nid = "CVE-1"\nreason = "no"\nexpires = 2026-12-31\n'
    assert read_allowed(text) == (Allowance("CVE-1", "no", date(2026, 12, 31)),)
    with pytest.raises(ValueError, match="needs id, reason and expires"):
        read_allowed(text.replace('reason = "no"\n', ""))
