"""Tests of the command as a whole: subcommands, errors, and exit codes."""

import json
import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from bayplan.cli import bayplan
from bayplan.cli.run import run
from bayplan.settings.operator_settings import Settings
from click.testing import CliRunner

from scheduler_core.errors import ConfigError, Problem, RegistryError
from tests.support.tables import table


def test_help_lists_subcommands() -> None:
    """The help lists every subcommand."""
    result = CliRunner().invoke(bayplan, ["--help"])
    assert result.exit_code == 0
    for name in ("run", "simulate", "explain", "version"):
        assert name in result.output


def test_an_unknown_subcommand_is_a_usage_error() -> None:
    """A misspelled subcommand is a usage error."""
    result = CliRunner().invoke(bayplan, ["simulat"])
    assert result.exit_code == 2
    assert 'No such command "simulat". Did you mean simulate?' in result.stderr
    assert "Commands: run, simulate," in CliRunner().invoke(bayplan, ["xyz"]).stderr


def test_the_version_is_an_option() -> None:
    """As with most commands, --version prints the version, also as a plugin of kubectl."""
    result = CliRunner().invoke(bayplan, ["--version"])
    assert result.output.endswith(f" {version('bayplan')}\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts(shell: str) -> None:
    """Each shell gets the script that calls the command to complete a line."""
    result = CliRunner().invoke(bayplan, ["completion", shell])
    assert "_BAYPLAN_COMPLETE" in result.output


def test_prints_versions() -> None:
    """The output has the versions of Bayplan and of the reference."""
    result = CliRunner().invoke(bayplan, ["version"])
    assert result.output.splitlines()[:2] == [f"Bayplan {version('bayplan')}", "follows kube-scheduler v1.37.1"]


def test_prints_versions_as_json() -> None:
    """The JSON output has the same versions."""
    result = CliRunner().invoke(bayplan, ["version", "-o", "json"])
    assert json.loads(result.output)["referenceKubeScheduler"] == "v1.37.1"


@table(
    "arguments, packages",
    ("version", "['version']", "{'numpy', 'kopf', 'aiohttp', 'pydantic'}"),
    ("status", "['status', '--help']", "{'numpy', 'kopf', 'pydantic', 'scheduler_core.scheduler'}"),
)
def test_slow_packages_are_not_imported(arguments: str, packages: str) -> None:
    """Packages that are slow to import are not imported for commands that do not schedule."""
    code = (
        f"import sys\nfrom bayplan.cli import bayplan\nbayplan({arguments}, standalone_mode=False)\n"
        f"print(sorted({packages} & set(sys.modules)))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def make_version_fail(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Replace the subcommand ``version`` with one that raises an error."""

    @click.command()
    def version() -> None:
        raise error

    monkeypatch.setattr("bayplan.cli.version", version)


@table(
    "error, exit_code, text",
    ("invalid input", ConfigError([Problem("a.b", "is wrong")]), 2, "bayplan: a.b: is wrong\n"),
    ("other error", RegistryError("no such package"), 1, "bayplan: no such package\n"),
)
def test_an_error_is_a_message(monkeypatch: pytest.MonkeyPatch, error: Exception, exit_code: int, text: str) -> None:
    """An error of Bayplan is printed as a message on standard error, with an exit code."""
    make_version_fail(monkeypatch, error)
    result = CliRunner().invoke(bayplan, ["version"])
    assert (result.exit_code, result.stderr, result.stdout) == (exit_code, text, "")


def test_verbose_shows_the_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -v the error is raised so that its traceback is printed."""
    error = RegistryError("no such package")
    make_version_fail(monkeypatch, error)
    assert CliRunner().invoke(bayplan, ["-v", "version"]).exception is error


def test_other_errors_are_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    """An unexpected exception is raised and not printed as a message."""
    make_version_fail(monkeypatch, ZeroDivisionError())
    assert isinstance(CliRunner().invoke(bayplan, ["version"]).exception, ZeroDivisionError)


def test_every_setting_has_a_flag() -> None:
    """Every setting has a flag, except groups of settings; leader election is enabled by a flag of its own."""
    flags = {str(parameter.name) for parameter in run.params}
    assert set(Settings.model_fields) - flags == {"leader_election", "tracing", "webhook"}
    assert "leader_elect" in flags
