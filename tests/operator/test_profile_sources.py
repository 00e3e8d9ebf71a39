"""Profiles of one configuration file, and that extenders are never passed over in silence, however a profile came."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from bayplan.completed_configuration import offline_scheduler
from bayplan.kube_configuration import RunConfiguration
from bayplan.live_profiles import LiveProfiles
from bayplan.profile_sources import ConfiguredProfiles
from bayplan.reconcile.desired_state import desired_state
from bayplan.reconcile.status import Progress, profile_status
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.simulation.simulation import simulate

from scheduler_core.config.scheduler_configuration import parse_configuration
from scheduler_core.errors import ConfigError
from scheduler_core.ports import Clock
from tests.support.manifests import profile_manifest
from tests.support.virtual_clock import VirtualClock

EXTENDERS = [{"urlPrefix": "http://licences.example.com", "filterVerb": "filter"}]
NOTICE = "Extenders are not called yet, pods are placed without them: http://licences.example.com."


def configuration(**fields: Any) -> RunConfiguration:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
    return RunConfiguration("kube.yaml", parse_configuration(document))


async def test_the_profiles_of_the_file_are_live() -> None:
    """All of them at once, by the file's percentage; nothing else runs or is written."""
    scheduler = offline_scheduler()
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "b", "percentageOfNodesToScore": 7}]
    source = ConfiguredProfiles(scheduler, configuration(profiles=profiles))
    await source.read()
    assert not list(scheduler.context.profiles)
    source.activate()
    live = {instance.name: instance.config.percentage_of_nodes_to_score for instance in scheduler.context.profiles}
    assert live == {"default-scheduler": 0, "b": 7}
    assert source.tasks(lambda: None) == {}
    await source.finish()


def test_every_problem_of_every_profile_is_told() -> None:
    """With its path in the file."""
    unknown = {"score": {"enabled": [{"name": "Nope"}]}}
    profiles = [{"schedulerName": name, "plugins": unknown} for name in ("a", "b")]
    with pytest.raises(ConfigError) as caught:
        ConfiguredProfiles(offline_scheduler(), configuration(profiles=profiles))
    paths = [problem.path for problem in caught.value.problems]
    assert paths == [f"kube.yaml: profiles[{index}].plugins.score.enabled[0].name" for index in (0, 1)]


def test_a_configuration_with_extenders_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """When it is run as it is, the log says what is not done."""
    with caplog.at_level(logging.WARNING):
        ConfiguredProfiles(offline_scheduler(), configuration(extenders=EXTENDERS))
    assert f"kube.yaml: {NOTICE}" in caplog.text


def test_a_profile_with_extenders_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    """It is accepted, and its condition and the log say what is not done."""
    scheduler = offline_scheduler()
    clock: Clock = VirtualClock()
    state = desired_state([profile_manifest("p", {"extenders": EXTENDERS})], [], scheduler.registry)
    with caplog.at_level(logging.WARNING):
        step = LiveProfiles(scheduler, lambda _: []).apply(state)
    assert f"profile p: {NOTICE}" in caplog.text
    status = profile_status(step.findings[0], Progress(), {}, clock.wall())
    accepted = next(one for one in status["conditions"] if one["type"] == "Accepted")
    assert (accepted["status"], accepted["message"]) == ("True", NOTICE)


def test_a_simulation_with_extenders_says_so() -> None:
    """Among the notices of its result."""
    body = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    placed: Placed[dict[str, Any]] = Placed({**body, "extenders": EXTENDERS}, Place("kube.yaml", 1))
    result = simulate(AdmittedCluster(configurations=(placed,)))
    assert f"profile default-scheduler: {NOTICE}" in result.notices
