"""What the process imports before its first scheduling cycle: every module costs start-up time."""

from __future__ import annotations

import subprocess
import sys

import pytest

_PROGRAM = "import sys, bayplan.cli.run; print('\\n'.join(sys.modules))"
_MODULES = 1290
"""Bound of the modules, about 3 % above today's number."""


@pytest.fixture(scope="module")
def imported() -> set[str]:
    """The modules that `bayplan run` imports before it starts."""
    found = subprocess.run([sys.executable, "-c", _PROGRAM], check=True, capture_output=True, text=True, timeout=120)
    return set(found.stdout.split())


@pytest.mark.parametrize("package", ["kopf", "rich", "cryptography", "opentelemetry", "hypothesis", "pytest"])
def test_not_needed_for_the_first_cycle(package: str, imported: set[str]) -> None:
    """Kopf is imported beside the first cycles, the others by the commands and settings that need them."""
    assert not {each for each in imported if each.partition(".")[0] == package}


def test_number_of_modules(imported: set[str]) -> None:
    """No more than the bound; a change that raises it says in CHANGELOG.md why."""
    assert len(imported) <= _MODULES
