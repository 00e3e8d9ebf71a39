"""Hostile custom resources go live as a whole or are rejected with a field path, and never affect other profiles."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.scheduler_profile import SchedulerProfile

from scheduler_core.errors import ConfigError
from tests.security.control_pods import Controls
from tests.security.hostile_manifests import Document, HostileManifests
from tests.support.fake_cluster_objects import FakeRevisions, FakeStatuses
from tests.support.manifests import plugin_config_manifest, profile_manifest

_LONGEST_MESSAGE = 4608
_MOST_PROBLEMS = 1100
_BATCH = 100


class Cluster(Controls):
    """The profile controller and a scheduler, with a control profile that must not be affected."""

    def __init__(self) -> None:
        super().__init__("control")
        self.statuses = FakeStatuses()
        self.controller = ProfileController(self.scheduler, ControllerPorts(FakeRevisions(), self.statuses, self.clock))
        self.outcomes: Counter[str] = Counter()
        self._version = 0
        self.apply(profile_manifest("control"))
        self.control_revision = self.revision("control")

    def apply(self, manifest: Document) -> None:
        """Create or edit an object, and reconcile it."""
        self._version += 1
        kind = SchedulerProfile if manifest["kind"] == "SchedulerProfile" else PluginConfig
        metadata = manifest["metadata"] | {"resourceVersion": str(self._version), "generation": self._version}
        self.controller.seen(kind, manifest | {"metadata": metadata})
        self.controller.reconcile()

    def revision(self, scheduler_name: str) -> str:
        """Return the live revision of a scheduler name, or "" if there is none."""
        instance = self.scheduler.context.profiles.get(scheduler_name)
        return "" if instance is None else instance.revision

    def accepted(self, name: str) -> tuple[bool, str, str]:
        """Return whether a profile is accepted, the reason of its condition Ready, and the message."""
        conditions = {one["type"]: one for one in self.statuses.profile(name)["conditions"]}
        accepted = conditions["Accepted"]
        return accepted["status"] == "True", conditions["Ready"]["reason"], accepted["message"]

    async def schedule_a_control_pod(self) -> None:
        """Check that the control profile is unchanged and binds a pod."""
        assert self.revision("control") == self.control_revision
        await self.bind_a_pod()


def _names_the_problem(message: str) -> bool:
    return 0 < len(message) <= _LONGEST_MESSAGE and "spec" in message


def _expected_revision(spec: Any, referenced: list[Any]) -> str:
    body = {"metadata": {"name": "hostile"}, "spec": spec}
    return SchedulerProfile.from_object(body).profile_config(referenced).revision()


@pytest.mark.parametrize("seed", range(4))
async def test_profiles(seed: int) -> None:
    """Each edit of a profile goes live as its own revision, or is rejected with a path and the last good one stays."""
    cluster, hostile = Cluster(), HostileManifests(seed)
    cluster.apply(profile_manifest("hostile", age=1))
    for number in range(1000):
        before = cluster.revision("hostile")
        spec = hostile.profile_spec()
        if isinstance(spec, dict):
            spec.pop("schedulerName", None)  # the API server rejects a change of it
        cluster.apply(profile_manifest("hostile", spec, age=1))
        await cluster.controller.publish()
        is_accepted, ready, message = cluster.accepted("hostile")
        live = cluster.revision("hostile")
        if is_accepted and ready == "Live":
            assert live == _expected_revision(spec, [])
        else:
            assert live == before
            assert ready == "WaitingForQueueSort" or _names_the_problem(message), message
        cluster.outcomes["live" if is_accepted else "refused"] += 1
        assert len(str(cluster.statuses.profile("hostile"))) < 16_384
        if number % _BATCH == 0:
            await cluster.schedule_a_control_pod()
    await cluster.schedule_a_control_pod()
    assert min(cluster.outcomes["live"], cluster.outcomes["refused"]) > 100, cluster.outcomes


@pytest.mark.parametrize("seed", range(2))
async def test_plugin_configs(seed: int) -> None:
    """Each edit of a PluginConfig reaches the profile that refers to it as a whole, or not at all."""
    cluster, hostile = Cluster(), HostileManifests(100 + seed)
    cluster.apply(plugin_config_manifest("args"))
    cluster.apply(profile_manifest("hostile", {"pluginConfigRefs": [{"name": "args"}]}, age=1))
    for number in range(1000):
        before = cluster.revision("hostile")
        manifest = plugin_config_manifest("args") | {"spec": hostile.plugin_config_spec()}
        cluster.apply(manifest)
        await cluster.controller.publish()
        is_accepted, _, message = cluster.accepted("hostile")
        valid = next(
            one for one in cluster.statuses.statuses["pluginconfigs", "args"]["conditions"] if one["type"] == "Valid"
        )
        if is_accepted:
            entry = PluginConfig.from_object(manifest).entry()
            references = {"pluginConfigRefs": [{"name": "args"}]}
            assert cluster.revision("hostile") == _expected_revision(references, [entry])
        else:
            assert cluster.revision("hostile") == before
            assert _names_the_problem(message)
            assert _names_the_problem(valid["message"])
        cluster.outcomes["live" if is_accepted else "refused"] += 1
        if number % _BATCH == 0:
            await cluster.schedule_a_control_pod()
    await cluster.schedule_a_control_pod()
    assert min(cluster.outcomes["live"], cluster.outcomes["refused"]) > 100, cluster.outcomes


def test_the_number_of_problems_is_limited() -> None:
    """A spec with thousands of problems reports a limited number of them."""
    spec = {"plugins": {"score": {"enabled": [{"name": 1, f"x{number}": 1} for number in range(3000)]}}}
    with pytest.raises(ConfigError) as raised:
        SchedulerProfile.from_object({"metadata": {"name": "hostile"}, "spec": spec})
    assert len(raised.value.problems) <= _MOST_PROBLEMS
