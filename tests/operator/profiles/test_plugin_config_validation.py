"""Tests of how often args are validated between an edit and the live profiles."""

from __future__ import annotations

from bayplan.profiles.profile_controller import ControllerPorts, ProfileController
from bayplan.resources.plugin_config import PluginConfig
from bayplan.resources.scheduler_profile import SchedulerProfile

from scheduler_core.scheduler import Scheduler
from tests.support.extra_plugins import Counted, CountedArgs, registry_with_extra_plugins
from tests.support.fake_cluster_objects import FakeRevisions, FakeStatuses
from tests.support.manifests import Manifest, plugin_config_manifest, profile_manifest
from tests.support.recording_writer import RecordingWriter
from tests.support.virtual_clock import VirtualClock

COUNTED: Manifest = {"plugins": {"reserve": {"enabled": [{"name": "Counted"}]}}}
REFERS: Manifest = {**COUNTED, "pluginConfigRefs": [{"name": "shared"}]}
INLINE: Manifest = {**COUNTED, "pluginConfig": [{"name": "Counted", "args": {"size": 3}}]}


def shared(size: object) -> Manifest:
    return plugin_config_manifest("shared", "Counted", {"size": size})


EDITS = [
    (shared(1), 1),
    (profile_manifest("a", REFERS), 0),
    (profile_manifest("b", REFERS), 0),
    (shared(2), 1),
    (profile_manifest("a", {**REFERS, "percentageOfNodesToScore": 50}), 0),
    (profile_manifest("c", INLINE), 1),
    (shared("x"), 1),
    (profile_manifest("d", COUNTED), 0),
    (shared(2.0), 1),  # equal to 2 in Python, but not an integer
    (shared(2), 1),
]
"""Consecutive edits, each with the number of validations of args that it causes."""


def test_args_are_validated_once_per_edit() -> None:
    """Args are validated once for each change, however many profiles refer to them."""
    clock = VirtualClock()
    Counted.broken = False
    scheduler = Scheduler(clock, RecordingWriter(), registry=registry_with_extra_plugins())
    controller = ProfileController(scheduler, ControllerPorts(FakeRevisions(), FakeStatuses(), clock))
    counts = []
    for version, (manifest, _) in enumerate(EDITS, 1):
        kind = SchedulerProfile if manifest["kind"] == "SchedulerProfile" else PluginConfig
        metadata = {**manifest["metadata"], "resourceVersion": str(version), "generation": version}
        before = CountedArgs.validations
        controller.seen(kind, {**manifest, "metadata": metadata})
        controller.reconcile()
        counts.append(CountedArgs.validations - before)
    assert counts == [expected for _, expected in EDITS]
    live = [instance.plugins["Counted"] for instance in scheduler.context.profiles]
    assert sorted(plugin.size for plugin in live if isinstance(plugin, Counted)) == [0, 2, 2, 3]
