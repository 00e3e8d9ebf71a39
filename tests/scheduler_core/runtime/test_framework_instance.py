"""An instance is built completely or not at all; only plugins that can reject pods register hints."""

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
    """Rejects no pod."""

    name = "Notified"

    def post_bind(self, *_: object) -> None:
        return


def test_only_plugins_that_can_reject_register_hints() -> None:
    """A plugin that rejects no pods has nothing to requeue them for."""
    made = rig([recorder("Rec", Journal()), Notified], serve=False)
    instance = made.scheduler.build(profile())
    assert set(instance.registrations) == {"Rec"}


def test_args_reach_the_plugin_validated_and_with_defaults() -> None:
    """The args are an instance of the plugin's model."""
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
    """The plugin may be enabled later; it is not created."""
    made = rig(defaults=default_plugins(), serve=False)
    disabled = Plugins(multi_point=plugin_set(disabled=["NodeResourcesFit"]))
    config = configured("s", "NodeResourcesFit", {"ignoredResources": 3}, disabled)
    with pytest.raises(ConfigError, match="ignoredResources"):
        made.scheduler.build(config)
    good = configured("s", "NodeResourcesFit", {}, disabled)
    assert "NodeResourcesFit" not in made.scheduler.build(good).plugins


def test_a_plugin_without_valid_events_is_a_problem() -> None:
    """Plugins that were created are closed."""
    journal = Journal()

    def fail(_self: object) -> None:
        raise ValueError("no events")

    broken = type("Broken", (recorder("Broken", journal),), {"events_to_register": fail})
    made = rig([broken], serve=False)
    with pytest.raises(ConfigError, match="cannot be combined: no events"):
        made.scheduler.build(profile())
    assert journal.plugins_at("close") == ["Broken"]


def test_equal_profiles_have_equal_revisions() -> None:
    """A revision is a hash of the content."""
    made = rig(serve=False)
    first, second, other = (made.scheduler.build(profile(percentage=number)) for number in (50, 50, 60))
    assert first.revision == second.revision != other.revision
