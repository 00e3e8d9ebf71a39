"""Roles of plugins, which the scheduler finds by what plugins declare, not by their names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import scheduler_core
from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import NodeFilterPlugin, PermitPlugin, PermitResult
from scheduler_core.framework.object_reads import NodeView
from scheduler_core.framework.plugin import NodeChange
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.scheduling import BARE, default_rig, plugin_set, profile
from tests.support.tables import table

_CORE = Path(scheduler_core.__file__).parent
_NAMES_ALLOWED = ("plugins", "config", "in_tree.py")


class OtherFit(NodeFilterPlugin):
    """Filter plugin with the roles of NodeResourcesFit and NodeAffinity."""

    name = "OtherFit"
    hints_for = NodeChange.CAPACITY | NodeChange.LABELS

    def filter_node(self, state: CycleState, pod: PodInfo, node: NodeView) -> Status:
        """Accept every node."""
        del state, pod, node
        return SUCCESS


class Gathers(PermitPlugin):
    """Permit plugin that declares that members of a gang wait for each other."""

    name = "Gathers"
    gathers_gangs = True

    def permit(self, state: CycleState, pod: PodInfo, node_name: str) -> PermitResult:
        """Allow every pod."""
        del state, pod, node_name
        return PermitResult()


_FIT, _AFFINITY = frozenset(("NodeResourcesFit",)), frozenset(("NodeAffinity",))
_OTHER = frozenset(("OtherFit",))


@table(
    "plugins, capacity, labels",
    ("default profile", Plugins(), _FIT, _AFFINITY),
    ("additional plugin", Plugins(filter=plugin_set("OtherFit")), _FIT | _OTHER, _AFFINITY | _OTHER),
    ("no plugins", Plugins(multi_point=plugin_set(*BARE, disabled=("*",))), frozenset(), frozenset()),
)
def test_plugins_whose_hints_requeue(plugins: Plugins, capacity: frozenset[str], labels: frozenset[str]) -> None:
    instance = default_rig(plugins=[OtherFit]).scheduler.build(profile(plugins=plugins))
    assert (instance.capacity_plugins, instance.label_plugins) == (capacity, labels)


@pytest.mark.parametrize(("permit", "places_gangs"), [((), True), (("Coscheduling",), False), (("Gathers",), False)])
def test_gathered_gangs_are_not_placed_together(permit: tuple[str, ...], *, places_gangs: bool) -> None:
    plugins = Plugins(permit=plugin_set(*permit))
    instance = default_rig(plugins=[Gathers]).scheduler.build(profile(plugins=plugins))
    assert instance.places_gangs is places_gangs


def test_the_core_contains_no_name_of_a_plugin() -> None:
    """Only the plugins, the list of built-in plugins and the configuration contain names of plugins."""
    names = frozenset(in_tree_registry())
    modules = [each for each in _CORE.rglob("*.py") if each.relative_to(_CORE).parts[0] not in _NAMES_ALLOWED]
    found = [
        f"{module.relative_to(_CORE)}:{constant.lineno} {constant.value}"
        for module in modules
        for constant in ast.walk(ast.parse(module.read_text()))
        if isinstance(constant, ast.Constant) and constant.value in names
    ]
    assert modules
    assert not found
