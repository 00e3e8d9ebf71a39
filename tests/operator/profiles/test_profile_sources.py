"""Tests of the sources of profiles: a configuration file, and custom resources."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from bayplan.configuration.configuration_file import RunConfiguration
from bayplan.gangs.bayplan_group_source import BayplanGroups
from bayplan.kube.credentials import ConfiguredAccess
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.profiles import profile_sources
from bayplan.profiles.desired_profiles import PluginConfigValidation, ProfileOwnership, desired_state
from bayplan.profiles.profile_rollout import ProfileRollout
from bayplan.profiles.profile_sources import ConfiguredProfiles, CustomResourceProfiles, ResourcePorts
from bayplan.settings.operator_settings import load_settings
from bayplan.simulation.admission import AdmittedCluster
from bayplan.simulation.cluster_files import Place, Placed
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.simulation.simulation import simulate

from scheduler_core.config.scheduler_configuration import parse_configuration
from scheduler_core.errors import ConfigError
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.scheduler import Scheduler
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Response, error_response

EXTENDERS = [{"urlPrefix": "http://licences.example.com", "filterVerb": "filter"}]
NOTICE = "Extenders are not called here, unlike in the running operator: http://licences.example.com."


def configuration(**fields: Any) -> RunConfiguration:
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration", **fields}
    return RunConfiguration("kube.yaml", parse_configuration(document))


async def test_the_profiles_of_the_file_are_live() -> None:
    """All profiles of the file run after activation, with the file's percentage."""
    scheduler = offline_scheduler()
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "b", "percentageOfNodesToScore": 7}]
    source = ConfiguredProfiles(scheduler, configuration(profiles=profiles))
    await source.read()
    assert not list(scheduler.context.profiles)
    source.activate()
    live = {instance.name: instance.config.percentage_of_nodes_to_score for instance in scheduler.context.profiles}
    assert live == {"default-scheduler": 0, "b": 7}
    assert source.tasks() == source.watches() == {}
    await source.finish()


def test_every_problem_of_every_profile_is_reported() -> None:
    """Each problem is reported with its path in the file."""
    unknown = {"score": {"enabled": [{"name": "Nope"}]}}
    profiles = [{"schedulerName": name, "plugins": unknown} for name in ("a", "b")]
    with pytest.raises(ConfigError) as caught:
        ConfiguredProfiles(offline_scheduler(), configuration(profiles=profiles))
    paths = [problem.path for problem in caught.value.problems]
    assert paths == [f"kube.yaml: profiles[{index}].plugins.score.enabled[0].name" for index in (0, 1)]


GANGS = {"multiPoint": {"enabled": [{"name": "GangScheduling"}]}}
NOTE = "GangScheduling has no effect: Bayplan schedules the members of a pod group together without a plugin"
NOTE_OF_FIT = "NodeResourcesFit has no effect: Bayplan has no extension point placementScore"


def test_an_entry_without_effect_of_the_file_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A plugin entry without effect is logged with the file and the field path."""
    score = {"placementScore": {"enabled": [{"name": "NodeResourcesFit"}]}}
    ConfiguredProfiles(offline_scheduler(), configuration(profiles=[{"plugins": {**GANGS, **score}}]))
    assert caplog.messages == [
        f"kube.yaml: profiles[0].plugins.multiPoint.enabled[0]: {NOTE}",
        f"kube.yaml: profiles[0].plugins.placementScore.enabled[0]: {NOTE_OF_FIT}",
    ]


def test_an_entry_without_effect_of_a_scheduler_profile_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A plugin entry without effect is logged once when the revision goes live."""
    scheduler = offline_scheduler()
    manifest = {"metadata": {"name": "batch", "uid": "1"}, "spec": {"plugins": GANGS}}
    live = ProfileRollout(scheduler, lambda _: ())
    for _ in range(2):
        live.apply(desired_state([manifest], [], PluginConfigValidation(scheduler.registry)))
    assert caplog.messages == [f"profile batch: spec.plugins.multiPoint.enabled[0]: {NOTE}"]


def test_a_simulation_reports_skipped_extenders() -> None:
    """A simulation of a profile with extenders has a notice that they are not called."""
    body = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    placed: Placed[dict[str, Any]] = Placed({**body, "extenders": EXTENDERS}, Place("kube.yaml", 1))
    result = simulate(AdmittedCluster(configurations=(placed,)))
    assert f"profile default-scheduler: {NOTICE}" in result.notices


OWN = "/apis/bayplan.dev/v1alpha1"
EMPTY = Response(body={"items": [], "metadata": {"resourceVersion": "5"}})


def source_of(
    api: FakeApi, connection: ApiConnection, scheduler: Scheduler, profiles: Response
) -> CustomResourceProfiles:
    """Return a source for an API server with this response to a list of profiles."""
    api.on("GET", f"{OWN}/schedulerprofiles", profiles)
    api.on("GET", f"{OWN}/pluginconfigs", EMPTY)
    api.on("GET", "/apis/apps/v1/namespaces/system/controllerrevisions", EMPTY)
    access = cast("ConfiguredAccess", None)  # only for kopf's own connection, which reading does not use
    clock, groups = InstantClock(), BayplanGroups(scheduler.group_feed)
    ports = ResourcePorts(connection, access, groups, clock, ProfileOwnership(None))
    return CustomResourceProfiles(scheduler, ports, load_settings({"namespace": "system"}))


async def test_forbidden_pod_groups_do_not_block_profiles() -> None:
    """Profiles are read although PodGroups are forbidden; PodGroups count as unread, with the reason."""
    scheduler = offline_scheduler()
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        api.on("GET", f"{OWN}/podgroups", EMPTY, error_response(403, "not yours"), EMPTY)
        source = source_of(api, connection, scheduler, EMPTY)
        reasons = []
        for _ in range(3):
            await source.read()
            reasons.append(scheduler.context.queue.gangs.unread(GroupSource.BAYPLAN))
    refused = f"the PodGroups of bayplan.dev cannot be listed: GET {OWN}/podgroups: HTTP 403: not yours"
    assert reasons == [None, refused, None]


async def test_profiles_are_live_while_kopf_is_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Profiles are live before kopf is imported, and the import runs outside the event loop's thread."""
    scheduler, threads = offline_scheduler(), []

    def failing_import(name: str) -> None:
        threads.append(threading.current_thread())
        raise ImportError(name)

    monkeypatch.setattr(profile_sources, "import_module", failing_import)
    profile = {"metadata": {"name": "batch", "uid": "1"}, "spec": {}}
    listed = Response(body={"items": [profile], "metadata": {"resourceVersion": "5"}})
    async with FakeApi() as api, ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        api.on("GET", f"{OWN}/podgroups", EMPTY)
        source = source_of(api, connection, scheduler, listed)
        await source.read()
        source.activate()
        assert [instance.name for instance in scheduler.context.profiles] == ["batch"]
        assert threads == []
        [work] = source.watches().values()
        with pytest.raises(ImportError, match=r"bayplan\.profiles\.kopf_handlers"):
            await work
    assert threads != [threading.current_thread()]
    assert len(threads) == 1
