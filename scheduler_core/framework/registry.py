"""Registry of plugins by name, and the plugins that run at each extension point, from the defaults and a profile.

A profile's entry for a single point takes precedence over its multiPoint entry, and that over the defaults. ``*``
disables all plugins; a default plugin that a profile enables again stays at its position and takes the new weight.

Follows kube-scheduler v1.37.1, ``apis/config/v1/default_plugins.go`` (merging with the defaults) and
``framework/runtime/framework.go`` (expanding multiPoint, score weights).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import EntryPoint, entry_points

from msgspec import Struct

from scheduler_core.config.plugin_args import IN_TREE_ARGS
from scheduler_core.config.plugin_set_types import (
    ALL_PLUGINS,
    BUILT_IN_BEHAVIOUR,
    Plugins,
    PluginSet,
    disabled_problems,
    unavailable_plugin,
)
from scheduler_core.config.plugin_set_types import Plugin as PluginEntry
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import did_you_mean
from scheduler_core.errors import Problem, RegistryError
from scheduler_core.framework.extension_points import MAX_NODE_SCORE, POINT_CLASSES, Plugin, serves
from scheduler_core.framework.object_reads import DecodedTypes, ObjectReads, decoded_types

ENTRY_POINT_GROUP = "bayplan.plugins"


class Registry:
    """Plugin classes by the name by which profiles enable them."""

    def __init__(self, plugins: Iterable[type[Plugin]] = ()) -> None:
        self._classes: dict[str, type[Plugin]] = {}
        self._packages: dict[str, str] = {}
        for plugin in plugins:
            self.register(plugin)
        self._built_in = frozenset(self._classes)

    def __contains__(self, name: str) -> bool:
        return name in self._classes

    def __iter__(self) -> Iterator[str]:
        return iter(self._classes)

    def get(self, name: str) -> type[Plugin] | None:
        return self._classes.get(name)

    def is_built_in(self, name: str) -> bool:
        return name in self._built_in

    def register(self, plugin: object, origin: str = "") -> None:
        """Add a plugin class.

        Args:
            plugin: A concrete subclass of one or more extension points, with a ``name``.

        Raises:
            RegistryError: The name is taken, or the class is not a usable plugin.
        """
        where = f" (from {origin})" if origin else ""
        if not (isinstance(plugin, type) and issubclass(plugin, Plugin)):
            raise RegistryError(f"{plugin!r}{where} is not a subclass of Plugin; an entry point must name the class")
        name = getattr(plugin, "name", "")
        if not name:
            raise RegistryError(f'{plugin.__qualname__}{where} has no name; set the class attribute "name"')
        if not any(serves(plugin, point) for point in POINT_CLASSES):
            raise RegistryError(f'plugin "{name}"{where} implements no extension point; subclass at least one')
        missing = sorted(getattr(plugin, "__abstractmethods__", ()))
        if missing:
            raise RegistryError(f'plugin "{name}"{where} does not implement {", ".join(missing)}')
        if not isinstance(plugin.reads, ObjectReads):
            raise RegistryError(f'plugin "{name}"{where}: "reads" is not an ObjectReads; set it to an ObjectReads')
        if name in self._classes:
            raise RegistryError(f'plugin "{name}"{where} is already registered; rename one of the two plugins')
        self._classes[name] = plugin

    def decoded_types(self, *, reads_marks: bool = False, plans_moves: bool = False) -> DecodedTypes:
        """Return the types as which nodes, pods and other kinds are decoded to contain what every plugin declares.

        Raises:
            RegistryError: Two plugins declare the same field or kind in different forms.
        """
        reads = ((name, plugin.reads) for name, plugin in self._classes.items())
        return decoded_types(reads, reads_marks=reads_marks, plans_moves=plans_moves)

    def load_entry_points(self, points: Iterable[EntryPoint] | None = None) -> None:
        """Add every plugin that an installed distribution declares in the entry point group ``bayplan.plugins``.

        Raises:
            RegistryError: A plugin cannot be imported, is not a usable plugin, or has a name that is taken.
        """
        for point in entry_points(group=ENTRY_POINT_GROUP) if points is None else points:
            origin = f"entry point {point.name} = {point.value}"
            try:
                plugin = point.load()
            except Exception as error:
                raise RegistryError(
                    f"{origin} cannot be loaded ({error}); fix or uninstall the package that declares it"
                ) from error
            self.register(plugin, origin)
            if point.dist is not None:
                self._packages[plugin.name] = f"{point.dist.name} {point.dist.version}"

    def versions(self, plugins: Plugins) -> dict[str, str]:
        """Return the packages, with their versions, of the enabled plugins that are not built in."""
        enabled = {entry.name for plugin_set in plugins.points().values() for entry in plugin_set.enabled}
        return {name: self._packages[name] for name in sorted(enabled & self._packages.keys())}


MULTI_POINT = "multiPoint"

# Plugins that kube-scheduler had, and what does their work.
_REMOVED = {
    **dict.fromkeys(
        ("EBSLimits", "GCEPDLimits", "AzureDiskLimits", "CinderLimits"),
        "it was removed in Kubernetes 1.31, and NodeVolumeLimits does its work",
    ),
    **dict.fromkeys(
        ("NodeResourcesLeastAllocated", "NodeResourcesMostAllocated", "RequestedToCapacityRatio"),
        "it was removed in Kubernetes 1.24; set scoringStrategy of NodeResourcesFit",
    ),
    "SelectorSpread": "it was removed in Kubernetes 1.26, and PodTopologySpread does its work",
    "NodePreferAvoidPods": "it was removed in Kubernetes 1.24; use taints",
    "NodeLabel": "it was removed in Kubernetes 1.24; use NodeAffinity",
    "ServiceAffinity": "it was removed in Kubernetes 1.24; use InterPodAffinity",
}


class ResolvedPlugin(Struct, frozen=True):
    """A plugin at an extension point; ``weight`` applies to score only."""

    name: str
    weight: int = 0


ResolvedPlugins = dict[str, tuple[ResolvedPlugin, ...]]
"""Extension points with their plugins in execution order."""


def resolve(custom: Plugins, defaults: Plugins, registry: Registry) -> tuple[ResolvedPlugins, list[Problem]]:
    """Merge a profile's plugins with the defaults and expand multiPoint to all extension points.

    Returns:
        The plugins of each point, and all problems with paths from the profile's root, such as
        ``plugins.score.enabled[0].name``.
    """
    problems = _unknown_plugins(custom, registry)
    unknown = bool(problems)
    problems += disabled_problems(custom)
    merged = merged_sets(custom, defaults)
    multi_point = [entry for entry in merged[MULTI_POINT].enabled if entry.name in registry]
    resolved: ResolvedPlugins = {}
    for point in POINT_CLASSES:
        order, point_problems = _expand(point, merged[point], multi_point, registry)
        problems += point_problems
        weights = _weights(merged[point].enabled, multi_point) if point == "score" else {}
        resolved[point] = tuple(ResolvedPlugin(name, weights.get(name, 0)) for name in order)
    problems += [problem for problem in _cardinality_problems(resolved) if not _may_be_served(problem, problems)]
    return ({} if unknown else resolved), problems


def _may_be_served(missing: Problem, found: Sequence[Problem]) -> bool:
    """Return whether a plugin that cannot be enabled may be meant for the point that has none."""
    paths = (f"{missing.path}.enabled", f"plugins.{MULTI_POINT}.enabled")
    return any(problem.path.startswith(paths) for problem in found)


def merged_sets(custom: Plugins, defaults: Plugins) -> dict[str, PluginSet]:
    """Merge a profile's plugins with the defaults, by point or ``multiPoint``, without expanding multiPoint."""
    default_sets, custom_sets = defaults.points(), custom.points()
    return {point: _merge(default_sets[point], custom_sets[point]) for point in default_sets}


def _unknown_plugins(custom: Plugins, registry: Registry) -> list[Problem]:
    problems: list[Problem] = []
    for point, plugin_set in custom.points().items():
        for index, entry in enumerate(plugin_set.enabled):
            path = f"plugins.{point}.enabled[{index}].name"
            plugin = registry.get(entry.name)
            if plugin is None:
                message = _unavailable(entry.name, point, registry)
                if message:
                    problems.append(Problem(path, message))
            elif point != MULTI_POINT and not serves(plugin, point):
                points = ", ".join(name for name in POINT_CLASSES if serves(plugin, name))
                message = f'plugin "{entry.name}" does not serve {point}; it serves {points}: move the entry there'
                problems.append(Problem(path, message))
    return problems


def _unavailable(name: str, point: str, registry: Registry) -> str:
    """Return why a plugin that is not in the registry cannot be enabled; "" if it can, to no effect."""
    if name in _REMOVED and name not in registry:
        return f'there is no plugin "{name}": {_REMOVED[name]}; remove the entry'
    message = unavailable_plugin(name, point)
    if message is not None:
        return message
    hint = did_you_mean(name, (*registry, *BUILT_IN_BEHAVIOUR))
    return f'there is no plugin "{name}"{hint}; correct the name or install its package'


def _merge(default: PluginSet, custom: PluginSet) -> PluginSet:
    disabled = [*custom.disabled, *default.disabled]
    disabled_names = {entry.name for entry in disabled}
    again = {entry.name: entry for entry in custom.enabled}
    enabled: list[PluginEntry] = []
    replaced: set[str] = set()
    if ALL_PLUGINS not in disabled_names:
        for entry in default.enabled:
            if entry.name in disabled_names:
                continue
            enabled.append(again.get(entry.name, entry))
            replaced.add(entry.name)
    enabled += [entry for entry in custom.enabled if entry.name not in replaced]
    return PluginSet(enabled=tuple(enabled), disabled=tuple(disabled))


def _expand(
    point: str, point_set: PluginSet, multi_point: Sequence[PluginEntry], registry: Registry
) -> tuple[list[str], list[Problem]]:
    """Order the plugins of a point: overridden ones of multiPoint, the rest of multiPoint, then the point's own."""
    own = [entry.name for entry in point_set.enabled if entry.name in registry]
    disabled = {entry.name for entry in point_set.disabled}
    if ALL_PLUGINS in disabled:
        return own, []
    overridden: set[str] = set()
    spread: list[str] = []
    problems: list[Problem] = []
    for entry in multi_point:
        plugin = registry.get(entry.name)
        if plugin is None or not serves(plugin, point) or entry.name in disabled:
            continue
        if entry.name in own:
            overridden.add(entry.name)
        elif entry.name in spread:
            problems.append(Problem("plugins.multiPoint", f'plugin "{entry.name}" is enabled twice; remove one'))
        else:
            spread.append(entry.name)
    first = [name for name in own if name in overridden]
    last = [name for name in own if name not in overridden]
    return first + spread + last, problems


def _weights(own: Sequence[PluginEntry], multi_point: Sequence[PluginEntry]) -> dict[str, int]:
    """Return the weights: the point's own entry takes precedence over multiPoint; no weight, or 0, is 1."""
    weights: dict[str, int] = {}
    for entry in (*own, *multi_point):
        weights.setdefault(entry.name, entry.weight or 1)
    return weights


def _cardinality_problems(resolved: ResolvedPlugins) -> list[Problem]:
    problems: list[Problem] = []
    sorters = [plugin.name for plugin in resolved["queueSort"]]
    if len(sorters) != 1:
        found = f"found {', '.join(sorters)}; disable the others" if sorters else "found none; enable PrioritySort"
        problems.append(Problem("plugins.queueSort", f"exactly one plugin must order the queue, {found}"))
    if not resolved["bind"]:
        problems.append(Problem("plugins.bind", "at least one plugin must bind; enable DefaultBinder"))
    return problems


def warnings_without_effect(config: ProfileConfig, resolved: ResolvedPlugins, registry: Registry) -> Iterator[Problem]:
    """Yield a warning for each entry that kube-scheduler accepts too, and that does not do what it seems to do.

    Args:
        resolved: The plugins of ``config`` with the defaults.
    """
    for point, plugin_set in config.plugins.points().items():
        for index, entry in enumerate(plugin_set.disabled):
            message = _disables_nothing(entry.name, point, registry)
            if message:
                yield Problem(f"plugins.{point}.disabled[{index}].name", message)
        for index, entry in enumerate(plugin_set.enabled):
            message = _weighs_nothing(entry, point, registry)
            if message:
                yield Problem(f"plugins.{point}.enabled[{index}].weight", message)
    if not resolved["filter"]:
        message = (
            "no plugin filters nodes: pods are bound to nodes that lack the room, or that have taints they do not "
            "tolerate; enable the filters that you need"
        )
        yield Problem(_all_disabled(config, "filter"), message)
    yield from _outvoting(config, resolved)
    yield from _incomplete(config, resolved, registry)
    enabled = {entry.name for entries in resolved.values() for entry in entries}
    for index, each in enumerate(config.plugin_config):
        if each.name in registry and each.name not in enabled:
            message = f"has no effect: {each.name} is not enabled; enable it, or remove the entry"
            yield Problem(f"pluginConfig[{index}]", message)


def _disables_nothing(name: str, point: str, registry: Registry) -> str:
    """Return why an entry of ``disabled`` has no effect; "" if it may have one."""
    plugin = registry.get(name)
    if plugin is not None and point != MULTI_POINT and not serves(plugin, point):
        points = ", ".join(each for each in POINT_CLASSES if serves(plugin, each))
        return f"disables nothing: {name} does not serve {point}; it serves {points}: remove or move the entry"
    if plugin is not None or name in (ALL_PLUGINS, *_REMOVED, *BUILT_IN_BEHAVIOUR):
        return ""
    hint = did_you_mean(name, (*registry, *BUILT_IN_BEHAVIOUR))
    return f'disables nothing: there is no plugin "{name}"{hint}; correct or remove the entry'


def _weighs_nothing(entry: PluginEntry, point: str, registry: Registry) -> str:
    """Return why the weight of an entry has another effect than it seems to have; "" if it has not."""
    plugin = registry.get(entry.name)
    if plugin is None or entry.weight is None:
        return ""
    if point in ("score", MULTI_POINT) and serves(plugin, "score"):
        return "" if entry.weight else f"0 counts as 1; to turn the scores off, disable {entry.name} at score"
    # Configurations that kube-scheduler has written have a weight of 0 for plugins without scores.
    where = f"{entry.name} does not score" if point == MULTI_POINT else f"{point} has no weights"
    return f"has no effect: {where}; remove it" if entry.weight else ""


def _outvoting(config: ProfileConfig, resolved: ResolvedPlugins) -> Iterator[Problem]:
    """Yield a warning for a weight beside which the other scores only resolve ties.

    Normalized scores are whole numbers up to 100, so that one point of the plugin counts more than all of the others.
    """
    weights = {entry.name: entry.weight or 1 for entry in resolved["score"]}
    for point in ("score", MULTI_POINT):
        for index, entry in enumerate(config.plugins.points()[point].enabled):
            others = sum(weights.values()) - weights.get(entry.name, 0)
            if entry.weight and others and weights.get(entry.name) == entry.weight > MAX_NODE_SCORE * others:
                message = (
                    f"{entry.weight} outvotes all other scores together, which only resolve ties: their weights add up "
                    f"to {others}, and scores are at most {MAX_NODE_SCORE}; lower it unless that is intended"
                )
                yield Problem(f"plugins.{point}.enabled[{index}].weight", message)


_COMPUTED_AT = {"filter": "preFilter", "score": "preScore", "preBind": "reserve"}
"""Extension points, and the earlier one at which a plugin computes what it reads there."""


def _incomplete(config: ProfileConfig, resolved: ResolvedPlugins, registry: Registry) -> Iterator[Problem]:
    """Yield a warning for each entry that disables a point of plugins, but not the later point that relies on it."""
    names = {point: {entry.name for entry in entries} for point, entries in resolved.items()}
    for point, earlier in _COMPUTED_AT.items():
        for index, entry in enumerate(config.plugins.points()[earlier].disabled):
            left = [name for name in sorted(names[point] - names[earlier]) if entry.name in (name, ALL_PLUGINS)]
            left = [name for name in left if serves(registry.get(name) or Plugin, earlier)]
            if left:
                message = (
                    f"{', '.join(left)} is still called at {point}, which relies on its {earlier}; disable it at "
                    f"{point} too, or at {MULTI_POINT} to turn it off"
                )
                yield Problem(f"plugins.{earlier}.disabled[{index}].name", message)


def _all_disabled(config: ProfileConfig, point: str) -> str:
    """Return the path of the entry that disables all plugins of a point; that of the point if there is none."""
    points = config.plugins.points()
    for each in (point, MULTI_POINT):
        for index, entry in enumerate(points[each].disabled):
            if entry.name == ALL_PLUGINS:
                return f"plugins.{each}.disabled[{index}].name"
    return f"plugins.{point}"


def unknown_config_problem(name: str, registry: Registry) -> str:
    """Return what is wrong with a ``pluginConfig`` entry for this plugin name; "" if nothing is."""
    if name in registry or name in IN_TREE_ARGS:
        return ""
    return _unavailable(name, MULTI_POINT, registry)
