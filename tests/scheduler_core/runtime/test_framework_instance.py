"""Framework instances: how they are built from profiles, and which problems reject a profile."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError
from scheduler_core.framework.extension_points import PostBindPlugin
from scheduler_core.runtime.profile_table import ProfileTable, queue_sort_of
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import configured, default_rig, plugin_set, profile, rig


class Notified(PostBindPlugin):
    """PostBind plugin, which can reject no pod."""

    name = "Notified"

    def post_bind(self, *_: object) -> None:
        return


def test_only_plugins_that_can_reject_register_hints() -> None:
    """A plugin that cannot reject pods has no event registrations."""
    made = rig([recorder("Rec", Journal()), Notified], serve=False)
    instance = made.scheduler.build(profile())
    assert set(instance.registrations) == {"Rec"}


def test_plugins_get_validated_args_with_defaults() -> None:
    """A plugin gets its args as an instance of its model, with defaults."""
    made = default_rig(serve=False)
    config = configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": ["example.com/gpu"]})
    args = made.scheduler.build(config).plugins["NodeResourcesFit"].args
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.ignored_resources == ("example.com/gpu",)
    assert args.scoring_strategy == NodeResourcesFitArgs().scoring_strategy


def test_every_problem_is_reported() -> None:
    """Problems of plugins and of args are all reported, not only the first."""
    made = default_rig(serve=False)
    config = ProfileConfig(
        scheduler_name="s",
        plugins=Plugins(bind=plugin_set(disabled=["*"])),
        plugin_config=(
            PluginConfig(name="Nope", args={}),
            PluginConfig(name="NodeResourcesFit", args={"ignoredResources": 3}),
            PluginConfig(name="NodeName", args={"apiVersion": "v1", "kind": "K", "x": 1}),
        ),
    )
    with pytest.raises(ConfigError) as raised:
        made.scheduler.build(config)
    assert {problem.path for problem in raised.value.problems} == {
        "plugins.bind",
        "pluginConfig[0].name",
        "pluginConfig[1].args.ignoredResources",
        "pluginConfig[2].args",
    }


def test_args_of_a_disabled_plugin_are_checked_too() -> None:
    """Args of a disabled plugin are validated, and the plugin is not created."""
    made = default_rig(serve=False)
    disabled = Plugins(multi_point=plugin_set(disabled=["NodeResourcesFit"]))
    config = configured("s", "NodeResourcesFit", {"ignoredResources": 3}, disabled)
    with pytest.raises(ConfigError, match="ignoredResources"):
        made.scheduler.build(config)
    valid = configured("s", "NodeResourcesFit", {}, disabled)
    assert "NodeResourcesFit" not in made.scheduler.build(valid).plugins


def test_invalid_event_registrations_reject_the_profile() -> None:
    """A plugin with invalid event registrations rejects the profile, and created plugins are closed."""
    journal = Journal()

    def fail(_self: object) -> None:
        raise ValueError("no events")

    broken = type("Broken", (recorder("Broken", journal),), {"events_to_register": fail})
    made = rig([broken], serve=False)
    with pytest.raises(
        ConfigError, match=r"cannot be combined: plugin .Broken. failed at eventsToRegister: .*no events"
    ):
        made.scheduler.build(profile())
    assert journal.plugins_at("close") == ["Broken"]


def test_equal_profiles_have_equal_revisions() -> None:
    """The revision of a profile is a hash of its content."""
    made = rig(serve=False)
    first, second, other = (made.scheduler.build(profile(percentage=number)) for number in (50, 50, 60))
    assert first.revision == second.revision != other.revision


def test_a_swap_is_atomic() -> None:
    """Every callback of a swap gets the table with all changes, and old instances are closed after the callbacks."""
    journal = Journal()
    made = rig([recorder("Rec", journal)], serve=False)
    calls: list[tuple[str, list[str], int]] = []

    def on_change(name: str) -> None:
        calls.append((name, sorted(live.revision for live in table), len(journal.plugins_at("close"))))

    table = ProfileTable(on_change)
    first, second = made.scheduler.build(profile("a")), made.scheduler.build(profile("b"))
    table.swap(first, second)
    newer = [made.scheduler.build(profile(name, percentage=50)) for name in ("a", "b")]
    table.swap(*newer)
    revisions = sorted(instance.revision for instance in newer)
    assert calls[2:] == [("a", revisions, 0), ("b", revisions, 0)]
    assert journal.plugins_at("close") == ["Rec", "Rec"]


def test_withdraw() -> None:
    """A withdrawn profile is removed and its instance closed; a second withdrawal has no effect."""
    journal = Journal()
    made = rig([recorder("Rec", journal)], serve=False)
    changed: list[str] = []
    table = ProfileTable(changed.append)
    table.swap(made.scheduler.build(profile("a")))
    table.withdraw("a")
    table.withdraw("a")
    assert ("a" in table, len(table), changed, journal.plugins_at("close")) == (False, 0, ["a", "a"], ["Rec"])


def test_a_rejected_swap_changes_nothing() -> None:
    """A rejected swap leaves the table unchanged and calls no callback."""
    made = rig(serve=False)
    changed: list[str] = []
    table = ProfileTable(changed.append)
    instance, other = made.scheduler.build(profile("a")), made.scheduler.build(profile("b"))
    table.swap(instance)
    sorter = type("Other", (type(other.queue_sort),), {"name": "Other"})
    other.queue_sort = sorter(None, other.queue_sort.handle)
    assert queue_sort_of(other) == ("Other", "")
    with pytest.raises(ConfigError, match="all profiles must use the same plugin with the same args"):
        table.swap(other)
    assert (list(table), changed) == ([instance], ["a"])


def test_the_only_profile_may_change_its_order() -> None:
    """The only profile can be replaced by one with another QueueSort plugin."""
    made = rig(serve=False)
    table = ProfileTable(lambda _name: None)
    table.swap(made.scheduler.build(profile("a")))
    newer = made.scheduler.build(profile("a", percentage=50))
    newer.queue_sort = type("Other", (type(newer.queue_sort),), {"name": "Other"})(None, newer.queue_sort.handle)
    assert table.disagreement([newer]) is None
    table.swap(newer)
    assert table.get("a") is newer
