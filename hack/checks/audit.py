"""Checks the locked dependencies for known vulnerabilities with pip-audit.

Fetching and evaluation are separate, so tests cover every outcome without a network.

A canary, a release that is known to be vulnerable, is looked up first: some mirrors of the index store no
vulnerabilities, and pip-audit then reports a clean result. The result for our dependencies counts only if the canary is
reported as vulnerable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from hack.release.locked_dependencies import uv_program

CANARY = "requests==2.19.0"
"""The canary: it has had known vulnerabilities since 2018 (CVE-2018-18074)."""

_ROOT = Path(__file__).resolve().parents[2]
_ALLOWED = Path(__file__).with_name("audit_allowed.toml")
_TIMEOUT_SECONDS = 300

Report = Mapping[str, Any]
Run = Callable[[Path], "Report | None"]
"""Audits a requirements file and returns the report, or None if no service can be reached."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A vulnerability that is accepted for a limited time.

    Attributes:
        id: Its identifier, or one of its aliases.
        expires: Last day on which it is accepted.
    """

    id: str
    reason: str
    expires: date


@dataclass(frozen=True, slots=True)
class Verdict:
    passes: bool
    lines: tuple[str, ...]


def read_allowed(text: str) -> tuple[Allowance, ...]:
    """Return the accepted vulnerabilities that a TOML text lists.

    Raises:
        ValueError: An entry lacks its id, reason or expires.
    """
    allowed = []
    for entry in tomllib.loads(text).get("allowed", ()):
        if not (entry.get("id") and entry.get("reason") and isinstance(entry.get("expires"), date)):
            raise ValueError(f"{entry} needs id, reason and expires (a date such as 2026-12-31); add what is missing")
        allowed.append(Allowance(entry["id"], entry["reason"], entry["expires"]))
    return tuple(allowed)


def sees_vulnerabilities(canary: Report | None) -> bool:
    """Return whether the report lists a vulnerability of the canary."""
    return canary is not None and any(found.get("vulns") for found in canary.get("dependencies", ()))


def evaluate(report: Report | None, allowed: Sequence[Allowance], today: date) -> Verdict:
    """Evaluate a report of pip-audit.

    Args:
        report: Its JSON; None if no service can be reached.

    Returns:
        The verdict. The check fails if a vulnerability is not accepted, if its acceptance has expired, or if a
        dependency was skipped. It passes with a warning if no service can be reached.
    """
    if report is None:
        return Verdict(
            passes=True,
            lines=(
                "!! NOT AUDITED: no vulnerability service can be reached from here.",
                "!! The state of the dependencies is unknown; run `make audit` where pypi.org can be reached.",
            ),
        )
    lines: list[str] = []
    used: set[str] = set()
    for dependency in report.get("dependencies", ()):
        name = f"{dependency.get('name')} {dependency.get('version', '')}".rstrip()
        if "skip_reason" in dependency:
            lines.append(f"{name} was skipped: {dependency['skip_reason']}")
        for found in dependency.get("vulns", ()):
            known_as = {found["id"], *found.get("aliases", ())}
            allowance = next((one for one in allowed if one.id in known_as), None)
            if allowance is not None:
                used.add(allowance.id)
            if allowance is None or allowance.expires < today:
                fixed = ", ".join(found.get("fix_versions", ())) or "no release yet"
                late = "" if allowance is None else f" (allowed until {allowance.expires}: {allowance.reason})"
                lines.append(f"{name} has {found['id']}, fixed in {fixed}{late}")
    lines += [f"{one.id} is allowed but no longer found; remove it" for one in allowed if one.id not in used]
    if lines:
        advice = f"lock a fixed version (uv lock --upgrade-package NAME), or allow it in {_ALLOWED.name} with a reason"
        return Verdict(passes=False, lines=(*lines, advice))
    count = len(report.get("dependencies", ()))
    return Verdict(passes=True, lines=(f"{count} locked dependencies, no known vulnerability that is not allowed",))


def audit(run: Run, requirements: Callable[[], str], allowed: Sequence[Allowance], today: date) -> Verdict:
    """Audit the canary first, then the locked dependencies if the canary is reported.

    Args:
        run: Audits a requirements file.
        requirements: Returns the locked dependencies with their hashes.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(f"{CANARY}\n", encoding="utf-8")
        if not sees_vulnerabilities(run(file)):
            return evaluate(None, allowed, today)
        file.write_text(requirements(), encoding="utf-8")
        return evaluate(run(file), allowed, today)


def _ask_pip_audit(file: Path) -> Report | None:
    """Run pip-audit, which exits with 1 both when it finds something and when it reaches no service."""
    command = [sys.executable, "-m", "pip_audit", f"--requirement={file}", "--disable-pip", "--no-deps"]
    command += ["--format=json", "--progress-spinner=off", "--timeout=15"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=_TIMEOUT_SECONDS, cwd=file.parent
        )
        report: Report = json.loads(done.stdout)
    except (subprocess.TimeoutExpired, json.JSONDecodeError):
        return None
    return report


def _locked() -> str:
    command = [uv_program(), "export", "--frozen", "--quiet", "--all-groups", "--all-extras"]
    command += ["--no-emit-project", "--format=requirements-txt"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT).stdout


def main() -> int:
    allowed = read_allowed(_ALLOWED.read_text(encoding="utf-8"))
    verdict = audit(_ask_pip_audit, _locked, allowed, datetime.now().astimezone().date())
    print("\n".join(verdict.lines))
    return 0 if verdict.passes else 1


if __name__ == "__main__":
    sys.exit(main())
