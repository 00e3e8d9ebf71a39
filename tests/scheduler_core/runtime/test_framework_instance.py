"""Framework instances: how they are built from profiles, and which problems reject a profile."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_args import NodeResourcesFitArgs
from scheduler_core.config.plugin_set_types import PluginConfig, Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError
from scheduler_core.framework.extension_points import PostBindPlugin
from scheduler_core.in_tree import default_plugins
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import configured, plugin_set, profile, rig


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
    made = rig(defaults=default_plugins(), serve=False)
    config = configured("default-scheduler", "NodeResourcesFit", {"ignoredResources": ["example.com/gpu"]})
    args = made.scheduler.build(config).plugins["NodeResourcesFit"].args
    assert isinstance(args, NodeResourcesFitArgs)
    assert args.ignored_resources == ("example.com/gpu",)
    assert args.scoring_strategy == NodeResourcesFitArgs().scoring_strategy


def test_every_problem_is_reported() -> None:
    """Problems of plugins and of args are all reported, not only the first."""
    made = rig(defaults=default_plugins(), serve=False)
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
    made = rig(defaults=default_plugins(), serve=False)
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
