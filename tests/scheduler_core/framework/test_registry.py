"""Registration of plugins, and the classes that the registry rejects."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any, cast

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import RegistryError
from scheduler_core.framework.extension_points import FilterPlugin, Plugin, PreEnqueuePlugin
from scheduler_core.framework.registry import ENTRY_POINT_GROUP, Registry
from scheduler_core.framework.status import SUCCESS, Status
from scheduler_core.in_tree import in_tree_registry
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.scheduling import plugin_set
from tests.support.tables import table


class Gate(PreEnqueuePlugin):
    name = "Gate"

    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS


class SameName(Gate):
    pass


class Nameless(PreEnqueuePlugin):
    def pre_enqueue(self, pod: PodInfo) -> Status:
        return SUCCESS


class Pointless(Plugin):
    name = "Pointless"


class Unfinished(FilterPlugin):
    name = "Unfinished"


def test_a_plugin_is_found_by_its_name() -> None:
    """get() returns the plugin with the name, or None."""
    registry = Registry([Gate])
    assert registry.get("Gate") is Gate
    assert registry.get("Other") is None
    assert ("Gate" in registry, "Other" in registry, list(registry)) == (True, False, ["Gate"])


@table(
    "plugin, message",
    ("duplicate", SameName, 'plugin "Gate" is already registered'),
    ("nameless", Nameless, "Nameless has no name"),
    ("no-point", Pointless, 'plugin "Pointless" implements no extension point'),
    ("abstract", Unfinished, 'plugin "Unfinished" does not implement filter'),
    ("another-class", object, "is not a subclass of Plugin"),
    ("no-class", "Gate", "is not a subclass of Plugin"),
    ("an-instance", Gate(None, None), "is not a subclass of Plugin"),  # type: ignore[arg-type]  # unused
)
def test_rejected_plugins(plugin: object, message: str) -> None:
    """The error names the plugin and the problem."""
    registry = Registry([Gate])
    with pytest.raises(RegistryError, match=message):
        registry.register(plugin)
    assert list(registry) == ["Gate"]


def test_the_error_names_the_origin() -> None:
    """The error names the package that the plugin is from."""
    with pytest.raises(RegistryError, match=r"\(from my-package\)"):
        Registry([Gate]).register(SameName, "my-package")


class FakeEntryPoint(EntryPoint):
    """Entry point that loads the object, or raises the error, in LOADS."""

    def load(self) -> Any:
        loaded = LOADS[self.name]
        if isinstance(loaded, Exception):
            raise loaded
        return loaded


LOADS: dict[str, object] = {
    "fine": Gate,
    "same": SameName,
    "broken": ImportError("no module named numpyy"),
    "crashing": ZeroDivisionError("at import"),
    "module": ModuleType("gate"),
}


def entry_point(name: str) -> EntryPoint:
    return FakeEntryPoint(name, f"package:{name}", ENTRY_POINT_GROUP)


def versioned_entry_point(name: str, version: str) -> EntryPoint:
    """Return an entry point of the distribution ``gates`` in a version."""
    distribution = SimpleNamespace(name="gates", version=version)
    made = type("Versioned", (FakeEntryPoint,), {"dist": distribution})
    return cast("EntryPoint", made(name, f"package:{name}", ENTRY_POINT_GROUP))


def test_entry_points_are_registered() -> None:
    """A plugin of an installed distribution is enabled by its name."""
    registry = Registry()
    registry.load_entry_points([entry_point("fine")])
    assert registry.get("Gate") is Gate


def test_versions_of_enabled_plugins() -> None:
    """The package with its version is known of enabled plugins that a distribution declares, and of no others."""
    registry = in_tree_registry()
    registry.load_entry_points([versioned_entry_point("fine", "1.2")])
    enabled = Plugins(pre_enqueue=plugin_set("Gate", "SchedulingGates", "Nope"))
    assert registry.versions(enabled) == {"Gate": "gates 1.2"}
    assert registry.versions(Plugins()) == {}


@table(
    "names, message",
    ("import-error", ["broken"], "entry point broken = package:broken cannot be loaded .*numpyy"),
    ("any-error", ["crashing"], "crashing = package:crashing cannot be loaded .*at import"),
    ("no-plugin", ["module"], "from entry point module = package:module.* is not a subclass"),
    ("duplicate", ["fine", "same"], 'plugin "Gate" .from entry point same.* is already registered'),
)
def test_rejected_entry_points(names: list[str], message: str) -> None:
    """The error names the entry point and chains the cause."""
    with pytest.raises(RegistryError, match=message):
        Registry().load_entry_points([entry_point(name) for name in names])


def test_an_entry_point_may_not_replace_a_built_in_plugin() -> None:
    """An entry point with the name of a built-in plugin is rejected."""
    registry = in_tree_registry()
    duplicate = type("Duplicate", (Gate,), {"name": "NodeName"})
    LOADS["duplicate"] = duplicate
    with pytest.raises(RegistryError, match='"NodeName"'):
        registry.load_entry_points([entry_point("duplicate")])


def test_installed_entry_points_are_looked_up() -> None:
    """Without a list, the entry points of the group are loaded; this distribution declares none."""
    registry = Registry([Gate])
    registry.load_entry_points()
    assert "Gate" in registry
