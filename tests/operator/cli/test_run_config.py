"""``bayplan run --config``: its precedence over flags and settings, and the completed configuration."""

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

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Return a function that writes a configuration with the given fields."""

    def write(**fields: Any) -> Path:
        file = tmp_path / "kube.yaml"
        whole = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
        file.write_text(yaml.safe_dump(whole))
        return file

    return write


def joined(file: Path, flags: dict[str, Any], settings_file: Path | None = None) -> Settings:
    """Return the settings of a run."""
    own = {name: value for name, value in flags.items() if name != "leader_elect"}
    settings = load_settings(own, settings_file, leader_elect=flags.get("leader_elect"))
    return configured_settings(read_configuration(file), settings, flags)


def test_the_file_applies(written: Write) -> None:
    """Its fields and their defaults apply as in kube-scheduler; other settings come from flags."""
    election = {"leaseDuration": "7s", "renewDeadline": "5s", "resourceName": "mine"}
    file = written(clientConnection={"kubeconfig": "/k", "qps": 9}, leaderElection=election, delayCacheUntilActive=True)
    settings = joined(file, {"seed": 4})
    assert (settings.kubeconfig, settings.client_qps, settings.client_burst) == ("/k", 9.0, 100)
    assert settings.percentage_of_nodes_to_score == 0
    assert (settings.delay_cache_until_active, settings.seed) == (True, 4)
    options = settings.leader_election.options("unused")
    assert (options.namespace, options.name) == ("kube-system", "mine")
    assert (options.lease_seconds, options.renew_seconds, options.retry_seconds) == (7, 5, 2)


def test_a_negative_rate_is_no_limit(written: Write) -> None:
    """A negative rate disables the limit, as in client-go."""
    assert joined(written(clientConnection={"qps": -1}), {}).client_qps is None


@pytest.mark.parametrize(
    ("fields", "flags", "flag", "field"),
    [
        pytest.param({}, {"client_qps": 7.0}, "--client-qps", "clientConnection.qps is 50", id="qps"),
        pytest.param({}, {"client_burst": 7}, "--client-burst", "clientConnection.burst is 100", id="burst"),
        pytest.param(
            {"clientConnection": {"kubeconfig": "/a"}},
            {"kubeconfig": "/b"},
            "--kubeconfig",
            "clientConnection.kubeconfig is /a",
            id="kubeconfig",
        ),
        pytest.param(
            {"percentageOfNodesToScore": 3},
            {"percentage_of_nodes_to_score": 4},
            "--percentage-of-nodes-to-score",
            "percentageOfNodesToScore is 3",
            id="percentage",
        ),
        pytest.param(
            {}, {"leader_elect": False}, "--leader-elect", "leaderElection.leaderElect is true", id="election"
        ),
        pytest.param(
            {},
            {"delay_cache_until_active": True},
            "--delay-cache-until-active",
            "delayCacheUntilActive is false",
            id="caches",
        ),
        pytest.param(
            {}, {"allow_default_scheduler": False}, "--allow-default-scheduler", 'named "default-scheduler"', id="name"
        ),
        pytest.param({}, {"namespace": "n"}, "--namespace", "SchedulerProfiles", id="namespace"),
        pytest.param({}, {"profiles": "tier=a"}, "--profiles", "SchedulerProfiles", id="profiles"),
    ],
)
def test_a_flag_that_contradicts_the_file_is_rejected(
    written: Write, fields: dict[str, Any], flags: dict[str, Any], flag: str, field: str
) -> None:
    """The error names the flag and the field."""
    with pytest.raises(ConfigError) as caught:
        joined(written(**fields), flags)
    assert [problem.path for problem in caught.value.problems] == [flag]
    assert field in caught.value.problems[0].message


def test_a_setting_that_contradicts_the_file_is_rejected(written: Write, tmp_path: Path) -> None:
    """An equal setting is accepted."""
    settings_file = tmp_path / "settings.yaml"
    settings_file.write_text("clientBurst: 100\npodMaxBackoffSeconds: 60\n")
    with pytest.raises(ConfigError) as caught:
        joined(written(), {}, settings_file)
    assert [problem.path for problem in caught.value.problems] == ["--settings: podMaxBackoffSeconds"]


def test_invalid_times_of_an_election_are_rejected(written: Write) -> None:
    """kube-scheduler's validation accepts them, but its client library does not."""
    file = written(leaderElection={"renewDeadline": "2s"})
    with pytest.raises(ConfigError, match=r"leaderElection\.renewDeadline"):
        joined(file, {})


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bayplan, ["run", *map(str, arguments)])


def test_the_completed_configuration_is_printed(written: Write) -> None:
    """Defaults are set, and completing the result again changes nothing."""
    scored = {"enabled": [{"name": "PodGroupPodsCount", "weight": 2}]}
    file = written(extenders=[{"urlPrefix": "http://x"}], profiles=[{"plugins": {"placementScore": scored}}])
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
def test_args_that_only_bayplan_has_are_printed_if_they_are_set(written: Write, field: str) -> None:
    """kube-scheduler does not print them, and without them a file would mean something else."""
    name, _, value = field.partition(": ")
    args = {"name": "DynamicResources", "args": {name: yaml.safe_load(value)}}
    changed = run(
        "--config", written(profiles=[{"schedulerName": "a", "pluginConfig": [args]}]), "--write-config-to", "-"
    )
    assert field in changed.stdout
    assert name not in run("--config", written(), "--write-config-to", "-").stdout


def test_the_completed_configuration_is_written_to_a_file(written: Write, tmp_path: Path) -> None:
    """Nothing is printed."""
    target = tmp_path / "out.yaml"
    result = run("--config", written(), "--write-config-to", target)
    assert (result.exit_code, result.output) == (0, "")
    assert yaml.safe_load(target.read_text())["kind"] == "KubeSchedulerConfiguration"


def test_write_config_to_requires_config() -> None:
    """Without --config there is nothing to complete."""
    result = run("--write-config-to", "-")
    assert result.exit_code == 2
    assert "--config" in result.stderr


def test_problems_of_the_file_end_the_run(written: Write) -> None:
    """The run ends before any connection, and every problem has its path in the file."""
    file = written(profiles=[{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}], parallelism=-1)
    result = run("--config", file)
    assert result.exit_code == 2
    assert f"{file}: parallelism" in result.stderr


def test_problems_of_plugins_are_reported_with_the_others(written: Write) -> None:
    """All problems are reported together, each of them once."""
    profile = {
        "schedulerName": "a",
        "plugins": {"score": {"enabled": [{"name": "Nobody"}]}, "bind": {"disabled": [{"name": "*"}]}},
        "pluginConfig": [{"name": "NodeResourcesFit", "args": {"ignoredResourceGroups": ["a/b"]}}],
    }
    twin = {"schedulerName": "a", "percentageOfNodesToScore": 300, "plugins": {"filter": {"enabled": "all"}}}
    file = written(parallelism=0, profiles=[profile, twin])
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
