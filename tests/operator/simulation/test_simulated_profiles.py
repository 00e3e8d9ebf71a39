"""Tests of the activation of profiles from files."""

from typing import Any

import pytest
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.simulation.memory_cluster import MemoryCluster, SimulatedClock
from bayplan.simulation.simulated_profiles import activate_profiles

from scheduler_core.errors import ConfigError
from scheduler_core.scheduler import Scheduler
from tests.support.presence import present
from tests.support.tables import table

Raw = dict[str, Any]


def placed(*bodies: Raw, file: str = "f.yaml") -> tuple[Placed[Raw], ...]:
    """Return objects, each in its own document."""
    return tuple(Placed(body, Place(file, number)) for number, body in enumerate(bodies, start=1))


def profile(name: str, **spec: Any) -> Raw:
    """Return a SchedulerProfile manifest."""
    return {"metadata": {"name": name}, "spec": spec}


def plugin_config(name: str, plugin: str, **args: Any) -> Raw:
    """Return a PluginConfig manifest."""
    return {
        "apiVersion": "bayplan.dev/v1alpha1",
        "kind": "PluginConfig",
        "metadata": {"name": name},
        "spec": {"plugin": plugin, "args": args},
    }


def configuration(*names: str, **fields: Any) -> Raw:
    """Return a KubeSchedulerConfiguration manifest."""
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"schedulerName": name} for name in names],
        **fields,
    }


def live_percentages(cluster: AdmittedCluster) -> dict[str, int | None]:
    """Return the percentage of each live profile by scheduler name."""
    scheduler = Scheduler(SimulatedClock(), MemoryCluster())
    activate_profiles(scheduler, cluster)
    return {instance.name: instance.config.percentage_of_nodes_to_score for instance in scheduler.context.profiles}


@table(
    "cluster, expected",
    ("none", AdmittedCluster(), {"default-scheduler": None}),
    (
        "profiles",
        AdmittedCluster(profiles=placed(profile("a"), profile("b", schedulerName="c"))),
        {"a": None, "c": None},
    ),
    ("configuration", AdmittedCluster(configurations=placed(configuration("x", "y"))), {"x": 0, "y": 0}),
    (
        "both",
        AdmittedCluster(profiles=placed(profile("a")), configurations=placed(configuration("x"), file="g.yaml")),
        {"a": None, "x": 0},
    ),
)
def test_profiles_in_files_are_live(cluster: AdmittedCluster, expected: dict[str, int | None]) -> None:
    """The profiles in the files are live, and without any the default profile is live."""
    assert live_percentages(cluster) == expected


@table(
    "cluster, paths",
    (
        "profiles",
        AdmittedCluster(
            profiles=placed(
                profile("a", percentageOfNodesToScore=101, pluginConfigRefs=[{"name": "none"}]),
                profile("b", plugins={"filter": {"enabled": [{"name": "NoSuchPlugin"}]}}),
            )
        ),
        [
            "f.yaml, document 1 (SchedulerProfile a): spec.percentageOfNodesToScore",
            "f.yaml, document 1 (SchedulerProfile a): spec.pluginConfigRefs[0].name",
            "f.yaml, document 2 (SchedulerProfile b): spec.plugins.filter.enabled[0].name",
        ],
    ),
    (
        "duplicate name",
        AdmittedCluster(profiles=placed(profile("a", schedulerName="x"), profile("b", schedulerName="x"))),
        ["f.yaml, document 2 (SchedulerProfile b): spec.schedulerName"],
    ),
    (
        "name in a profile and a configuration",
        AdmittedCluster(profiles=placed(profile("x")), configurations=placed(configuration("y", "x"), file="g.yaml")),
        ["g.yaml, document 1 (KubeSchedulerConfiguration): profiles[1].schedulerName"],
    ),
    (
        "configuration",
        AdmittedCluster(configurations=placed(configuration(parallelism=0))),
        ["f.yaml, document 1 (KubeSchedulerConfiguration): parallelism"],
    ),
    (
        "unknown plugin in a configuration",
        AdmittedCluster(
            configurations=placed(
                {**configuration(), "profiles": [{"plugins": {"score": {"enabled": [{"name": "NoSuchPlugin"}]}}}]}
            )
        ),
        ["f.yaml, document 1 (KubeSchedulerConfiguration): profiles[0].plugins.score.enabled[0].name"],
    ),
    (
        "invalid args without a reference",
        AdmittedCluster(plugin_configs=placed(plugin_config("c", "NodeResourcesFit", strategy="Most"))),
        ["f.yaml, document 1 (PluginConfig c): spec.args.strategy"],
    ),
)
def test_every_problem_is_reported(cluster: AdmittedCluster, paths: list[str]) -> None:
    """Each problem names the file, document, object and field."""
    with pytest.raises(ConfigError) as caught:
        live_percentages(cluster)
    assert [problem.path for problem in caught.value.problems] == paths


def test_references_are_resolved() -> None:
    """A PluginConfig is merged into the profile that references it."""
    cluster = AdmittedCluster(
        profiles=placed(profile("a", pluginConfigRefs=[{"name": "packed"}])),
        plugin_configs=placed(
            plugin_config("packed", "NodeResourcesFit", scoringStrategy={"type": "MostAllocated"}), file="g.yaml"
        ),
    )
    scheduler = Scheduler(SimulatedClock(), MemoryCluster())
    activate_profiles(scheduler, cluster)
    instance = present(scheduler.context.profiles.get("a"))
    assert [entry.name for entry in instance.config.plugin_config] == ["NodeResourcesFit"]
