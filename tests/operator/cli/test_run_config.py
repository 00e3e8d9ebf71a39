"""Tests of ``bayplan run --config``: its precedence over flags and settings, and the completed configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.configuration.configuration_file import configured_settings, read_configuration
from bayplan.settings.operator_settings import Settings, load_settings
from click.testing import CliRunner, Result

from scheduler_core.errors import ConfigError
from tests.support.tables import table

Write = Callable[..., Path]


@pytest.fixture
def write_config(tmp_path: Path) -> Write:
    """Return a function that writes a configuration with the given fields."""

    def write(**fields: Any) -> Path:
        file = tmp_path / "kube.yaml"
        whole = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
        file.write_text(yaml.safe_dump(whole))
        return file

    return write


def settings_of(file: Path, flags: dict[str, Any], settings_file: Path | None = None) -> Settings:
    own = {name: value for name, value in flags.items() if name != "leader_elect"}
    settings = load_settings(own, settings_file, leader_elect=flags.get("leader_elect"))
    return configured_settings(read_configuration(file), settings, flags)


def test_the_fields_of_the_file_apply(write_config: Write) -> None:
    """The fields of the file and their defaults apply as in kube-scheduler, and other settings come from flags."""
    election = {"leaseDuration": "7s", "renewDeadline": "5s", "resourceName": "mine"}
    file = write_config(
        clientConnection={"kubeconfig": "/k", "qps": 9}, leaderElection=election, delayCacheUntilActive=True
    )
    settings = settings_of(file, {"seed": 4})
    assert (settings.kubeconfig, settings.client_qps, settings.client_burst) == ("/k", 9.0, 100)
    assert settings.percentage_of_nodes_to_score == 0
    assert (settings.delay_cache_until_active, settings.seed) == (True, 4)
    options = settings.leader_election.options("unused")
    assert (options.namespace, options.name) == ("kube-system", "mine")
    assert (options.lease_seconds, options.renew_seconds, options.retry_seconds) == (7, 5, 2)


def test_a_negative_rate_is_no_limit(write_config: Write) -> None:
    """A negative rate disables the limit, as in client-go."""
    assert settings_of(write_config(clientConnection={"qps": -1}), {}).client_qps is None


@table(
    "fields, flags, flag, field",
    ("qps", {}, {"client_qps": 7.0}, "--client-qps", "clientConnection.qps is 50"),
    ("burst", {}, {"client_burst": 7}, "--client-burst", "clientConnection.burst is 100"),
    (
        "kubeconfig",
        {"clientConnection": {"kubeconfig": "/a"}},
        {"kubeconfig": "/b"},
        "--kubeconfig",
        "clientConnection.kubeconfig is /a",
    ),
    (
        "percentage",
        {"percentageOfNodesToScore": 3},
        {"percentage_of_nodes_to_score": 4},
        "--percentage-of-nodes-to-score",
        "percentageOfNodesToScore is 3",
    ),
    ("election", {}, {"leader_elect": False}, "--leader-elect", "leaderElection.leaderElect is true"),
    ("caches", {}, {"delay_cache_until_active": True}, "--delay-cache-until-active", "delayCacheUntilActive is false"),
    ("name", {}, {"allow_default_scheduler": False}, "--allow-default-scheduler", 'named "default-scheduler"'),
    ("namespace", {}, {"namespace": "n"}, "--namespace", "SchedulerProfiles"),
    ("profiles", {}, {"profiles": "tier=a"}, "--profiles", "SchedulerProfiles"),
    ("initial ones", {}, {"initial_profiles": "p.yaml"}, "--initial-profiles", "SchedulerProfiles"),
    ("admission webhook", {}, {"webhook": {"configuration": "w"}}, "--settings: webhook", "custom resources"),
)
def test_a_flag_that_contradicts_the_file_is_rejected(
    write_config: Write, fields: dict[str, Any], flags: dict[str, Any], flag: str, field: str
) -> None:
    """A flag that contradicts the file is an error that names the flag and the field."""
    with pytest.raises(ConfigError) as caught:
        settings_of(write_config(**fields), flags)
    assert [problem.path for problem in caught.value.problems] == [flag]
    assert field in caught.value.problems[0].message


def test_a_setting_that_contradicts_the_file_is_rejected(write_config: Write, tmp_path: Path) -> None:
    """A setting that contradicts the file is an error; an equal setting is accepted."""
    settings_file = tmp_path / "settings.yaml"
    settings_file.write_text("clientBurst: 100\npodMaxBackoffSeconds: 60\n")
    with pytest.raises(ConfigError) as caught:
        settings_of(write_config(), {}, settings_file)
    assert [problem.path for problem in caught.value.problems] == ["--settings: podMaxBackoffSeconds"]


def test_invalid_times_of_an_election_are_rejected(write_config: Write) -> None:
    """Durations that only kube-scheduler's client library rejects are rejected."""
    file = write_config(leaderElection={"renewDeadline": "2s"})
    with pytest.raises(ConfigError, match=r"leaderElection\.renewDeadline"):
        settings_of(file, {})


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bayplan, ["run", *map(str, arguments)])


def test_the_completed_configuration_is_printed(write_config: Write) -> None:
    """The completed configuration has all defaults, and completing it again does not change it."""
    scored = {"enabled": [{"name": "PodGroupPodsCount", "weight": 2}]}
    file = write_config(extenders=[{"urlPrefix": "http://x"}], profiles=[{"plugins": {"placementScore": scored}}])
    first = run("--config", file, "--write-config-to", "-")
    assert first.exit_code == 0, first.output
    document = yaml.safe_load(first.stdout)
    assert document["leaderElection"]["resourceName"] == "kube-scheduler"
    (profile,) = document["profiles"]
    assert profile["schedulerName"] == "default-scheduler"
    assert {"name": "TaintToleration", "weight": 3} in profile["plugins"]["multiPoint"]["enabled"]
    assert (profile["plugins"]["placementScore"], profile["plugins"]["placementGenerate"]) == (scored, {})
    assert len(profile["pluginConfig"]) == 8
    file.write_text(first.stdout)
    assert run("--config", file, "--write-config-to", "-").stdout == first.stdout


@pytest.mark.parametrize("field", ["deviceSelection: BestFit", "gangSearchSteps: 7"])
def test_args_that_only_bayplan_has_are_printed_if_they_are_set(write_config: Write, field: str) -> None:
    name, _, value = field.partition(": ")
    args = {"name": "DynamicResources", "args": {name: yaml.safe_load(value)}}
    changed = run(
        "--config", write_config(profiles=[{"schedulerName": "a", "pluginConfig": [args]}]), "--write-config-to", "-"
    )
    assert field in changed.stdout
    assert name not in run("--config", write_config(), "--write-config-to", "-").stdout


def test_the_completed_configuration_is_written_to_a_file(write_config: Write, tmp_path: Path) -> None:
    """The completed configuration is written to a file, and nothing is printed."""
    target = tmp_path / "out.yaml"
    result = run("--config", write_config(), "--write-config-to", target)
    assert (result.exit_code, result.output) == (0, "")
    assert yaml.safe_load(target.read_text())["kind"] == "KubeSchedulerConfiguration"


def test_write_config_to_requires_config() -> None:
    """--write-config-to without --config is a usage error."""
    result = run("--write-config-to", "-")
    assert result.exit_code == 2
    assert "--config" in result.stderr


def test_problems_of_the_file_end_the_run(write_config: Write) -> None:
    """A problem of the file ends the run before any connection."""
    file = write_config(profiles=[{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}], parallelism=-1)
    result = run("--config", file)
    assert result.exit_code == 2
    assert f"{file}: parallelism" in result.stderr


def test_problems_of_plugins_are_reported_with_the_others(write_config: Write) -> None:
    """All problems are reported together and once."""
    profile = {
        "schedulerName": "a",
        "plugins": {"score": {"enabled": [{"name": "Nobody"}]}, "bind": {"disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["a/b"]}}],
    }
    other = {"schedulerName": "a", "percentageOfNodesToScore": 300, "plugins": {"filter": {"enabled": "all"}}}
    file = write_config(parallelism=0, profiles=[profile, other])
    with pytest.raises(ConfigError) as caught:
        read_configuration(file)
    assert sorted(problem.path.removeprefix(f"{file}: ") for problem in caught.value.problems) == [
        "parallelism",
        "profiles[0].pluginConfig[0].args.ignoredResourceGroups[0]",
        "profiles[0].plugins.bind",
        "profiles[0].plugins.score.enabled[0].name",
        "profiles[1].percentageOfNodesToScore",
        "profiles[1].plugins.filter.enabled",
        "profiles[1].schedulerName",
    ]
