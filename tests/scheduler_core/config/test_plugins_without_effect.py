"""Names of kube-scheduler plugins that profiles may list, although the scheduler core has no such plugin."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.config.plugin_set_types import BUILT_IN_BEHAVIOUR
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.runtime.framework_instance import ProfilePlan, plan_profile
from tests.parity.conformance.cases import IN_TREE_NAMES


def planned(plugins: dict[str, Any], *plugin_config: dict[str, Any]) -> ProfilePlan:
    document = {"schedulerName": "s", "plugins": plugins, "pluginConfig": list(plugin_config)}
    return plan_profile(validate(ProfileConfig, document), in_tree_registry(), default_plugins())


def entry(point: str, name: str, action: str = "enabled") -> dict[str, Any]:
    return {point: {action: [{"name": name}]}}


@pytest.mark.parametrize("name", sorted(IN_TREE_NAMES))
def test_every_plugin_of_kube_scheduler_is_accepted(name: str) -> None:
    """Each of kube-scheduler's plugins is either registered or built-in behaviour, and a profile may list it."""
    registered = name in in_tree_registry()
    assert registered + (name in BUILT_IN_BEHAVIOUR) == 1
    assert not planned(entry("multiPoint", name)).problems


def test_an_entry_has_no_effect() -> None:
    """A profile with the entries runs the same plugins as one without; empty args are accepted."""
    plugins = {"multiPoint": {"enabled": [{"name": name, "weight": 7} for name in BUILT_IN_BEHAVIOUR]}}
    named = planned(plugins, {"name": "GangScheduling"})
    assert (named.problems, named.resolved) == ((), planned({}).resolved)


@pytest.mark.parametrize(
    ("plugins", "path", "message"),
    [
        pytest.param(
            entry("multiPoint", "GangScheduling", "disabled"),
            "plugins.multiPoint.disabled[0].name",
            'plugin "GangScheduling" cannot be disabled: Bayplan schedules the members of a pod group together',
            id="disabled",
        ),
        pytest.param(
            entry("preEnqueue", "GangScheduling", "disabled"),
            "plugins.preEnqueue.disabled[0].name",
            'plugin "GangScheduling" cannot be disabled',
            id="disabled-at-a-point",
        ),
        pytest.param(
            entry("score", "GangScheduling"),
            "plugins.score.enabled[0].name",
            'plugin "GangScheduling" does not serve score; it serves preEnqueue, permit',
            id="another-point",
        ),
        pytest.param(
            entry("score", "DeferredPodScheduling"),
            "plugins.score.enabled[0].name",
            'plugin "DeferredPodScheduling" does not',
            id="deferred-resizes-have-no-score",
        ),
        pytest.param(
            entry("permit", "GangSchedulin"),
            "plugins.permit.enabled[0].name",
            'there is no plugin "GangSchedulin" (did you mean "GangScheduling"?)',
            id="unknown",
        ),
    ],
)
def test_rejected_entries(plugins: dict[str, Any], path: str, message: str) -> None:
    """An entry that would change Bayplan's behaviour is rejected at its path."""
    (problem,) = planned(plugins).problems
    assert problem.path == path
    assert problem.message.startswith(message)


def test_all_defaults_can_be_disabled() -> None:
    """``*`` disables the default plugins, but not the built-in behaviour."""
    assert planned({"permit": {"disabled": [{"name": "*"}]}}).problems == ()


def test_args_are_rejected() -> None:
    """A plugin without effect accepts no args."""
    (problem,) = planned({}, {"name": "GangScheduling", "args": {"timeout": 3}}).problems
    assert str(problem) == 'pluginConfig[0].args: plugin "GangScheduling" takes no args; remove timeout'
