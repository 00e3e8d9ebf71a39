"""Tests of the modules that are imported before the first scheduling cycle, which cost start-up time."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import bayplan
import pytest

from tests.support.manifests import write_kubeconfig

_PROGRAM = """
import asyncio, pathlib, sys
import bayplan.cli.run
from bayplan.kube.credentials import from_kubeconfig
asyncio.run(from_kubeconfig(pathlib.Path(sys.argv[1])))
print("\\n".join(sys.modules))
"""
_MODULES = 1000
"""Maximum number of modules, about 2 % above the current number."""


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Return the modules that `bayplan run` imports before it connects with a token of a kubeconfig."""
    path = write_kubeconfig(tmp_path_factory.mktemp("start") / "kubeconfig", "https://127.0.0.1:1", {"token": "abc"})
    command = [sys.executable, "-c", _PROGRAM, str(path)]
    found = subprocess.run(command, check=True, capture_output=True, text=True, timeout=120)
    return set(found.stdout.split())


@pytest.mark.parametrize(
    "package",
    [
        # Imported after the first cycles.
        "kopf",
        "aiohttp.web",
        "prometheus_client",
        "bayplan.explanation",
        "bayplan.serving.operator_server",
        # The client library and what it imports; only kubeconfigs with other credentials need it.
        "kubernetes",
        "aiohttp_retry",
        "dateutil",
        "oauthlib",
        "requests",
        "urllib3",
        "websocket",
        # Needed by other commands, and by settings that are off.
        "bayplan.configuration.completed_configuration",
        "bayplan.introspection.status_rendering",
        "bayplan.resources.crd_generation",
        "bayplan.simulation",
        "bayplan.testing",
        "bayplan.validation",
        "rich",
        "cryptography",
        "opentelemetry",
        "hypothesis",
        "pytest",
    ],
)
def test_packages_are_not_imported_before_the_first_cycle(package: str, imported: set[str]) -> None:
    """Packages that the first cycle does not need are not imported before it."""
    assert not {each for each in imported if f"{each}.".startswith(f"{package}.")}


def test_the_number_of_modules_is_bounded(imported: set[str]) -> None:
    """The number of modules does not exceed its maximum; a change that raises it is explained in CHANGELOG.md."""
    assert len(imported) <= _MODULES


_LATE = {
    # Before the operator is built.
    "bayplan/__init__.py": {"importlib"},
    "bayplan/kube/credentials.py": {"kubernetes"},
    # While the operator is built.
    "bayplan/process/tracing.py": {"opentelemetry"},
    "bayplan/kube/http/byte_stream.py": {"cryptography"},
    "bayplan/wiring.py": {"bayplan"},
}
"""Packages that the operator's functions import, by file; none is first imported between two scheduling cycles."""


def test_late_imports_do_not_stall_cycles() -> None:
    """Imports in functions are limited to known files, because an import in the event loop stops all scheduling."""
    folder = Path(bayplan.__file__).parent
    found: dict[str, set[str]] = {}
    for file in folder.rglob("*.py"):
        name = file.relative_to(folder.parent).as_posix()
        for function in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)) and not name.startswith("bayplan/cli/"):
                packages = {package.partition(".")[0] for node in ast.walk(function) for package in _imported_by(node)}
                if packages:
                    found.setdefault(name, set()).update(packages)
    assert found == _LATE


def _imported_by(node: ast.AST) -> list[str]:
    if isinstance(node, ast.ImportFrom):
        return [node.module or ""]
    return [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
