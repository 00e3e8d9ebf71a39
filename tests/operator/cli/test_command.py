"""Tests of the command as a whole: subcommands, errors, exit codes."""

import json
import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from bayplan import cli
from bayplan.cli import bayplan
from click.testing import CliRunner

from scheduler_core.errors import ConfigError, Problem, RegistryError


def test_lists_its_subcommands() -> None:
    """The help names every subcommand with what it does."""
    result = CliRunner().invoke(bayplan, ["--help"])
    assert result.exit_code == 0
    for name in ("run", "simulate", "explain", "version"):
        assert name in result.output


def test_refuses_an_unknown_subcommand() -> None:
    """A misspelt subcommand is a usage error."""
    result = CliRunner().invoke(bayplan, ["simulat"])
    assert result.exit_code == 2
    assert "No such command 'simulat'" in result.stderr


def test_prints_versions() -> None:
    """The versions of Bayplan, of the reference and of Python are told."""
    result = CliRunner().invoke(bayplan, ["version"])
    assert result.output.splitlines()[:2] == [f"Bayplan {version('bayplan')}", "follows kube-scheduler v1.36.3"]


def test_prints_versions_as_json() -> None:
    """The same for machines."""
    result = CliRunner().invoke(bayplan, ["version", "-o", "json"])
    assert json.loads(result.output)["referenceKubeScheduler"] == "v1.36.3"


def test_version_does_not_load_the_scheduler() -> None:
    """What is slow to import is not imported to tell a version."""
    code = (
        "import sys\nfrom bayplan.cli import bayplan\nbayplan(['version'], standalone_mode=False)\n"
        "print(sorted({'numpy', 'kopf', 'aiohttp', 'pydantic'} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the subcommand ``version`` raise."""

    @click.command()
    def version() -> None:
        raise error

    monkeypatch.setattr("bayplan.cli.version.version", version)


@pytest.mark.parametrize(
    ("error", "exit_code", "text"),
    [
        pytest.param(ConfigError([Problem("a.b", "is wrong")]), 2, "bayplan: a.b: is wrong\n", id="bad input"),
        pytest.param(RegistryError("no such package"), 1, "bayplan: no such package\n", id="another error"),
    ],
)
def test_an_error_is_a_message(monkeypatch: pytest.MonkeyPatch, error: Exception, exit_code: int, text: str) -> None:
    """An error of ours ends in a message on standard error and an exit code."""
    failing(monkeypatch, error)
    result = CliRunner().invoke(bayplan, ["version"])
    assert (result.exit_code, result.stderr, result.stdout) == (exit_code, text, "")


def test_verbose_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -v the error is left to show where it came from."""
    error = RegistryError("no such package")
    failing(monkeypatch, error)
    assert CliRunner().invoke(bayplan, ["-v", "version"]).exception is error


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of the program is not dressed up as a message."""
    failing(monkeypatch, ZeroDivisionError())
    assert isinstance(CliRunner().invoke(bayplan, ["version"]).exception, ZeroDivisionError)


def test_exit_codes_differ() -> None:
    """Bad input can be told from a failure."""
    assert cli.EXIT_BAD_INPUT != cli.EXIT_ERROR
