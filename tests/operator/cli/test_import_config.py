"""Tests of ``bayplan import-config``: the manifests are equivalent to the file."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from bayplan.cli import bayplan
from bayplan.configuration.configuration_file import RunConfiguration, build_profiles
from bayplan.configuration.configuration_import import import_configuration
from bayplan.profiles.desired_profiles import PluginConfigValidation, desired_state
from bayplan.settings.operator_settings import load_settings
from bayplan.simulation.memory_cluster import offline_scheduler
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.config.scheduler_configuration import parse_configuration
from scheduler_core.runtime.framework_instance import FrameworkInstance
from tests.support.tables import table

Document = dict[str, Any]
Import = Callable[..., Result]
FIT = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
EXTENDER = {"urlPrefix": "https://licences.example.com", "filterVerb": "filter"}
SCHEDULER = offline_scheduler()
SCORERS = ("NodeResourcesFit", "TaintToleration", "ImageLocality", "InterPodAffinity")
PLUGIN_CONFIG = st.sampled_from(
    [
        [],
        [FIT],
        [{"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": 7}}],
        [{"name": "NodeAffinity"}, FIT],
        [{"name": "PodTopologySpread", "args": {"kind": "PodTopologySpreadArgs", "defaultingType": "List"}}],
        [{"name": "DynamicResources", "args": {"filterTimeout": "90s"}}],
    ]
)
WEIGHTED = st.lists(
    st.fixed_dictionaries({"name": st.sampled_from(SCORERS), "weight": st.integers(0, 9)}),
    max_size=3,
    unique_by=lambda plugin: str(plugin["name"]),
)
DISABLED = st.lists(st.fixed_dictionaries({"name": st.sampled_from((*SCORERS, "*"))}), max_size=2)
PLUGINS = st.fixed_dictionaries(
    {},
    optional={
        "score": st.fixed_dictionaries({}, optional={"enabled": WEIGHTED, "disabled": DISABLED}),
        "multiPoint": st.fixed_dictionaries({}, optional={"enabled": WEIGHTED}),
        "preScore": st.fixed_dictionaries({"disabled": DISABLED}),
    },
)
PROFILE = st.fixed_dictionaries(
    {}, optional={"percentageOfNodesToScore": st.integers(0, 100), "plugins": PLUGINS, "pluginConfig": PLUGIN_CONFIG}
)
NAMES = st.lists(st.text("aB_.-9", min_size=1, max_size=6), min_size=1, max_size=4, unique=True)
EXTENDERS = st.lists(
    st.fixed_dictionaries(
        {"urlPrefix": st.just("http://x")},
        optional={"httpTimeout": st.sampled_from(["250ms", "1m"]), "ignorable": st.booleans(), "weight": st.just(3)},
    ),
    max_size=2,
)


@st.composite
def configurations(draw: st.DrawFn) -> Document:
    """Generate valid configurations of one to four profiles."""
    profiles = [{"schedulerName": name, **draw(PROFILE)} for name in draw(NAMES)]
    return document(
        profiles=profiles,
        extenders=draw(EXTENDERS),
        podInitialBackoffSeconds=draw(st.integers(1, 5)),
        podMaxBackoffSeconds=draw(st.integers(5, 50)),
        **draw(st.fixed_dictionaries({}, optional={"percentageOfNodesToScore": st.integers(0, 100)})),
    )


def document(**fields: Any) -> Document:
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}


def decision_inputs(instance: FrameworkInstance) -> tuple[object, ...]:
    """Return everything that determines the decisions of an instance."""
    config = instance.config
    return (
        instance.name,
        instance.resolved,
        [weight for _, weight in instance.scores],
        {name: plugin.args for name, plugin in instance.plugins.items() if hasattr(plugin, "args")},
        {entry.name: {**entry.args, "kind": None} for entry in config.plugin_config},
        (config.percentage_of_nodes_to_score, config.pod_initial_backoff_seconds, config.pod_max_backoff_seconds),
        config.extenders,
    )


@given(configurations())
def test_manifests_are_equivalent_to_the_file(written: Document) -> None:
    """Instances built from the manifests decide like those built from the file."""
    configuration = RunConfiguration("kube.yaml", parse_configuration(written))
    imported = import_configuration(configuration, SCHEDULER)
    # The API server returns JSON values.
    objects = [json.loads(json.dumps(manifest.document)) for manifest in imported.manifests]
    by_kind: dict[str, list[Document]] = {"SchedulerProfile": [], "PluginConfig": []}
    for found in objects:
        by_kind[found["kind"]].append(found)
    state = desired_state(
        by_kind["SchedulerProfile"], by_kind["PluginConfig"], PluginConfigValidation(SCHEDULER.registry)
    )
    assert [profile.problems for profile in state.profiles] == [()] * len(written["profiles"])
    made = {}
    for profile in state.profiles:
        assert profile.config is not None
        made[profile.scheduler_name] = decision_inputs(SCHEDULER.build(profile.config))
    expected = {instance.name: decision_inputs(instance) for instance in build_profiles(SCHEDULER, configuration)}
    assert made == expected


@pytest.fixture
def imported(tmp_path: Path) -> Import:
    """Return a function that runs the command on a configuration with the given fields."""

    def run(*flags: str, **fields: Any) -> Result:
        file = tmp_path / "kube.yaml"
        file.write_text(yaml.safe_dump(document(**fields)))
        return CliRunner().invoke(bayplan, ["import-config", str(file), *flags])

    return run


def objects(result: Result) -> list[Document]:
    assert result.exit_code == 0, result.output
    return [found for found in yaml.safe_load_all(result.stdout) if found]


def test_an_empty_file_is_one_profile(imported: Import) -> None:
    """An empty configuration is one profile with the default name, and a note that the name is reserved."""
    result = imported()
    spec = {"percentageOfNodesToScore": 0, "podInitialBackoffSeconds": 1, "podMaxBackoffSeconds": 10}
    expected = {"apiVersion": "bayplan.dev/v1alpha1", "kind": "SchedulerProfile", "spec": spec}
    assert objects(result) == [{**expected, "metadata": {"name": "default-scheduler"}}]
    assert "--allow-default-scheduler" in result.stderr
    assert any(line.startswith("# ") and "--allow-default-scheduler" in line for line in result.stdout.splitlines())


def test_shared_args_become_one_plugin_config(imported: Import) -> None:
    """Equal args of two profiles become a PluginConfig; other args stay in their profile."""
    other = {"name": "NodeAffinity", "args": {}}
    profiles = [{"schedulerName": "a", "pluginConfig": [FIT]}, {"schedulerName": "b", "pluginConfig": [other, FIT]}]
    shared, first, second = objects(imported(profiles=profiles))
    assert (shared["kind"], shared["metadata"]["name"]) == ("PluginConfig", "node-resources-fit")
    assert shared["spec"] == {"plugin": "NodeResourcesFit", "args": FIT["args"]}
    assert first["spec"]["pluginConfigRefs"] == second["spec"]["pluginConfigRefs"] == [{"name": "node-resources-fit"}]
    assert "pluginConfig" not in first["spec"]
    assert second["spec"]["pluginConfig"] == [{"name": "NodeAffinity"}]


def test_entries_without_effect_are_noted(imported: Import) -> None:
    """Entries without effect are noted, and extension points that a SchedulerProfile does not have are left out."""
    plugins = {
        "permit": {"enabled": [{"name": "GangScheduling"}]},
        "placementGenerate": {"enabled": [{"name": "TopologyPlacementGenerator"}]},
    }
    result = imported(profiles=[{"plugins": plugins}])
    (made,) = objects(result)
    assert made["spec"]["plugins"] == {"permit": plugins["permit"]}
    for place in ("permit.enabled[0]: GangScheduling", "placementGenerate.enabled[0]: TopologyPlacementGenerator"):
        assert f"note: profiles[0].plugins.{place} has no effect: Bayplan " in result.stderr


def test_names_become_dns_names(imported: Import) -> None:
    """The object's name is valid for the API server, and the schedulerName is unchanged."""
    made = objects(imported(profiles=[{"schedulerName": name} for name in ("My_Sched", "my-sched", "__")]))
    named = {found["metadata"]["name"]: found["spec"].get("schedulerName") for found in made}
    assert named == {"my-sched": "My_Sched", "my-sched-2": "my-sched", "profile": "__"}


def test_a_directory_gets_manifests_settings_and_values(imported: Import, tmp_path: Path) -> None:
    """Fields outside profiles become settings of the operator, and chart values except the kubeconfig."""
    target = tmp_path / "out"
    client = {"kubeconfig": "/etc/kube.conf", "qps": -1, "burst": 7}
    election = {"leaseDuration": "30s", "resourceName": "other"}
    result = imported("-o", str(target), clientConnection=client, leaderElection=election, delayCacheUntilActive=True)
    assert result.exit_code == 0, result.output
    assert [path.name for path in (target / "manifests").iterdir()] == ["schedulerprofile-default-scheduler.yaml"]
    read = load_settings({}, target / "settings.yaml")
    assert (read.kubeconfig, read.client_qps, read.client_burst) == ("/etc/kube.conf", None, 7)
    assert (read.leader_election.leader_elect, read.leader_election.lease_duration) == (True, 30.0)
    assert read.leader_election.options("n").name == "bayplan"
    assert read.delay_cache_until_active
    values = yaml.safe_load((target / "values.yaml").read_text())["settings"]
    assert "kubeconfig" not in values
    assert values["clientBurst"] == 7


@table(
    "fields, expected",
    (
        "several problems",
        {"parallelism": 0, "profiles": [{"pluginConfig": [{"name": "NodeAffinity", "args": {"x": 1}}]}]},
        ["parallelism: must be greater than 0", "profiles[0].pluginConfig[0].args.x: unknown field"],
    ),
    (
        "unknown plugin",
        {"profiles": [{"plugins": {"score": {"enabled": [{"name": "Nope"}]}}}]},
        ['profiles[0].plugins.score.enabled[0].name: there is no plugin "Nope"'],
    ),
    (
        "limit of the custom resource",
        {"podMaxBackoffSeconds": 2**40},
        ["SchedulerProfile default-scheduler: spec.podMaxBackoffSeconds: must be at most"],
    ),
)
def test_an_invalid_file_is_rejected(imported: Import, fields: Document, expected: list[str]) -> None:
    """Every problem is reported with its path, and no manifest is printed."""
    result = imported(**fields)
    assert result.exit_code == 2
    assert result.stdout == ""
    for text in expected:
        assert text in result.stderr


@table(
    "text, expected",
    ("invalid YAML", "a: [", "cannot be read"),
    ("list", "- a", "must be one KubeSchedulerConfiguration"),
    ("empty", "", "must be one KubeSchedulerConfiguration"),
)
def test_a_file_without_a_configuration_is_rejected(tmp_path: Path, text: str, expected: str) -> None:
    """The error names the file and the expected content."""
    file = tmp_path / "kube.yaml"
    file.write_text(text)
    result = CliRunner().invoke(bayplan, ["import-config", str(file)])
    assert result.exit_code == 2
    assert str(file) in result.stderr
    assert expected in result.stderr
