"""``bayplan run --config``: what it says beside flags and settings, and how it is printed completed."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.kube_configuration import configured_settings, read_configuration
from bayplan.settings import Settings, load_settings
from click.testing import CliRunner, Result

from scheduler_core.errors import ConfigError

Write = Callable[..., Path]


@pytest.fixture
def written(tmp_path: Path) -> Write:
    """Writes a configuration of these fields."""

    def write(**fields: Any) -> Path:
        file = tmp_path / "kube.yaml"
        whole = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
        file.write_text(yaml.safe_dump(whole))
        return file

    return write


def joined(file: Path, flags: dict[str, Any], settings_file: Path | None = None) -> Settings:
    """The settings that a run would have."""
    own = {name: value for name, value in flags.items() if name != "leader_elect"}
    settings = load_settings(own, settings_file, leader_elect=flags.get("leader_elect"))
    return configured_settings(read_configuration(file), settings, flags)


def test_the_file_counts(written: Write) -> None:
    """What it says and what it leaves to its defaults holds as in kube-scheduler; the rest is a flag's."""
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
    """As in client-go."""
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
def test_a_flag_that_says_something_else_is_refused(
    written: Write, fields: dict[str, Any], flags: dict[str, Any], flag: str, field: str
) -> None:
    """The flag and the field are named."""
    with pytest.raises(ConfigError) as caught:
        joined(written(**fields), flags)
    assert [problem.path for problem in caught.value.problems] == [flag]
    assert field in caught.value.problems[0].message


def test_a_setting_that_says_something_else_is_refused(written: Write, tmp_path: Path) -> None:
    """As a flag; one that says the same is not."""
    settings_file = tmp_path / "settings.yaml"
    settings_file.write_text("clientBurst: 100\npodMaxBackoffSeconds: 60\n")
    with pytest.raises(ConfigError) as caught:
        joined(written(), {}, settings_file)
    assert [problem.path for problem in caught.value.problems] == ["--settings: podMaxBackoffSeconds"]


def test_times_of_an_election_that_cannot_work_are_refused(written: Write) -> None:
    """The file's own validation lets them pass, its client library does not."""
    file = written(leaderElection={"renewDeadline": "2s"})
    with pytest.raises(ConfigError, match=r"leaderElection\.renewDeadline"):
        joined(file, {})


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(bayplan, ["run", *map(str, arguments)])


def test_the_completed_configuration_is_printed(written: Write) -> None:
    """Its defaults are filled in, and what it completes to is its own completion."""
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


def test_the_completed_configuration_goes_to_a_file(written: Write, tmp_path: Path) -> None:
    """Nothing else is printed."""
    target = tmp_path / "out.yaml"
    result = run("--config", written(), "--write-config-to", target)
    assert (result.exit_code, result.output) == (0, "")
    assert yaml.safe_load(target.read_text())["kind"] == "KubeSchedulerConfiguration"


def test_only_a_configuration_is_completed() -> None:
    """Without --config there is nothing to print."""
    result = run("--write-config-to", "-")
    assert result.exit_code == 2
    assert "--config" in result.stderr


def test_problems_of_the_file_end_the_run(written: Write) -> None:
    """Before anything is connected; every problem with its path in the file."""
    file = written(profiles=[{"plugins": {"bind": {"disabled": [{"name": "*"}]}}}], parallelism=-1)
    result = run("--config", file)
    assert result.exit_code == 2
    assert f"{file}: parallelism" in result.stderr


def test_what_plugins_say_is_told_beside_the_rest(written: Write) -> None:
    """Everything that is wrong comes at once, each problem once."""
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
