"""Tests of PluginConfig."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.resources.plugin_config import PluginConfig

from tests.support.manifests import plugin_config_manifest


@pytest.mark.parametrize(
    "args",
    [
        pytest.param({}, id="empty"),
        pytest.param({"scoringStrategy": {"type": "MostAllocated"}}, id="built-in"),
        pytest.param({"snake_case": [1, 2.5, None, {"deep": True}]}, id="anything"),
    ],
)
def test_entry(args: dict[str, Any]) -> None:
    """The entry for a profile's pluginConfig has the unchanged args."""
    entry = PluginConfig.from_object(plugin_config_manifest(plugin="Own", args=args)).entry()
    assert (entry.name, entry.args) == ("Own", args)


def test_args_may_be_omitted() -> None:
    """A PluginConfig without args has the plugin's defaults."""
    body = {"metadata": {"name": "plain"}, "spec": {"plugin": "Own", "args": None}}
    assert PluginConfig.from_object(body).entry().args == {}
