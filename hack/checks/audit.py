"""The locked dependencies have no known vulnerability, as far as anybody can be asked.

Owns the question, its judgement and the list of what is allowed for a while. Fetching and judging are apart, so that
every outcome is tested without a network.

Why a canary goes first: a mirror of the index that knows no vulnerabilities makes pip-audit report that there are
none. A release that is known to be vulnerable must be told as such before an answer about ours is believed, and where
it is not, one package has been looked up and not a hundred.
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

CANARY = "requests==2.19.0"
"""Has had known vulnerabilities since 2018 (CVE-2018-18074)."""

_ROOT = Path(__file__).resolve().parents[2]
_ALLOWED = Path(__file__).with_name("audit_allowed.toml")
_TIMEOUT_SECONDS = 300

Report = Mapping[str, Any]
Ask = Callable[[Path], "Report | None"]
"""Asks about a file of requirements; None where nobody answers."""


@dataclass(frozen=True, slots=True)
class Allowance:
    """A vulnerability that is lived with for a while.

    Attributes:
        id: Its identifier, or one of its aliases.
        reason: Why it does no harm here.
        expires: The last day.
    """

    id: str
    reason: str
    expires: date


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of it.

    Attributes:
        passes: Whether the check passes.
        lines: What is said.
    """

    passes: bool
    lines: tuple[str, ...]


def read_allowed(text: str) -> tuple[Allowance, ...]:
    """Read the list of what is allowed.

    Raises:
        ValueError: An entry lacks its id, its reason or its day, so that nobody can judge it later.
    """
    allowed = []
    for entry in tomllib.loads(text).get("allowed", ()):
        if not (entry.get("id") and entry.get("reason") and isinstance(entry.get("expires"), date)):
            raise ValueError(f"{entry} needs id, reason and expires (a date such as 2026-12-31); add what is missing")
        allowed.append(Allowance(entry["id"], entry["reason"], entry["expires"]))
    return tuple(allowed)


def sees_vulnerabilities(canary: Report | None) -> bool:
    """Whether who was asked about the canary knows vulnerabilities at all."""
    return canary is not None and any(found.get("vulns") for found in canary.get("dependencies", ()))


def judge(report: Report | None, allowed: Sequence[Allowance], today: date) -> Verdict:
    """Judge a report of pip-audit.

    Args:
        report: Its JSON; None where nobody could be asked.
        allowed: What is lived with.
        today: The day.

    Returns:
        It fails for each vulnerability that is not allowed, or not any more, and for dependencies that were passed
        over; it passes where nobody could be asked, and says so.
    """
    if report is None:
        return Verdict(
            passes=True,
            lines=(
                "!! NOT AUDITED: no service that knows vulnerabilities can be reached from here.",
                "!! Nothing is known about the dependencies; run `make audit` where pypi.org is at hand.",
            ),
        )
    lines: list[str] = []
    used: set[str] = set()
    for dependency in report.get("dependencies", ()):
        name = f"{dependency.get('name')} {dependency.get('version', '')}".rstrip()
        if "skip_reason" in dependency:
            lines.append(f"{name} was passed over: {dependency['skip_reason']}")
        for found in dependency.get("vulns", ()):
            known_as = {found["id"], *found.get("aliases", ())}
            allowance = next((one for one in allowed if one.id in known_as), None)
            if allowance is not None:
                used.add(allowance.id)
            if allowance is None or allowance.expires < today:
                fixed = ", ".join(found.get("fix_versions", ())) or "no version yet"
                late = "" if allowance is None else f" (allowed until {allowance.expires}: {allowance.reason})"
                lines.append(f"{name} has {found['id']}, fixed in {fixed}{late}")
    lines += [f"{one.id} is allowed but is found no more; remove it" for one in allowed if one.id not in used]
    if lines:
        advice = f"lock a fixed version (uv lock --upgrade-package NAME), or allow it in {_ALLOWED.name} with a reason"
        return Verdict(passes=False, lines=(*lines, advice))
    count = len(report.get("dependencies", ()))
    return Verdict(passes=True, lines=(f"{count} locked dependencies, no known vulnerability that is not allowed",))


def audit(ask: Ask, requirements: Callable[[], str], allowed: Sequence[Allowance], today: date) -> Verdict:
    """Ask about the canary, and if that is recognised about the locked dependencies.

    Args:
        ask: Asks.
        requirements: Gives the locked dependencies with their hashes.
        allowed: What is lived with.
        today: The day.
    """
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "requirements.txt"
        file.write_text(f"{CANARY}\n", encoding="utf-8")
        if not sees_vulnerabilities(ask(file)):
            return judge(None, allowed, today)
        file.write_text(requirements(), encoding="utf-8")
        return judge(ask(file), allowed, today)


def _ask_pip_audit(file: Path) -> Report | None:
    """Ask by pip-audit, which ends with 1 when it finds something and when it cannot ask."""
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
    uv = _ROOT / ".uv" / "bin" / "uv"
    command = [str(uv) if uv.exists() else "uv", "export", "--frozen", "--quiet", "--all-groups", "--all-extras"]
    command += ["--no-emit-project", "--format=requirements-txt"]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=_ROOT).stdout


def main() -> int:
    """Say what was found; 1 when something has to be done."""
    allowed = read_allowed(_ALLOWED.read_text(encoding="utf-8"))
    verdict = audit(_ask_pip_audit, _locked, allowed, datetime.now().astimezone().date())
    print("\n".join(verdict.lines))
    return 0 if verdict.passes else 1


if __name__ == "__main__":
    sys.exit(main())
