"""A live profile: its plugins, instantiated, in the order of each point.

Owns the lists that the runtime walks, and the plugins' life: built whole or not at all, closed once after the last pod
in flight. Must not know how a profile was configured beyond its :class:`ProfileConfig`.

    building ──▶ live ──swap──▶ retired ──last pod done──▶ closed
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct, field
from pydantic import BaseModel

from scheduler_core.config.built_in_behaviour import BUILT_IN_BEHAVIOUR
from scheduler_core.config.plugin_args import NodeResourcesFitArgs, read_args
from scheduler_core.config.plugins_config import Plugins
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.framework.cluster_events import EVERY_EVENT, EventRegistration
from scheduler_core.framework.extension_points import (
    BindPlugin,
    FilterPlugin,
    NodeFilterPlugin,
    PermitPlugin,
    Plugin,
    PostBindPlugin,
    PostFilterPlugin,
    PreBindPlugin,
    PreEnqueuePlugin,
    PreFilterPlugin,
    PreScorePlugin,
    QueueSortPlugin,
    ReservePlugin,
)
from scheduler_core.framework.handle import Handle
from scheduler_core.framework.plugin_sets import ResolvedPlugins, resolve, unknown_config_problem
from scheduler_core.framework.registry import Registry
from scheduler_core.runtime.extenders import EXTENDER, ExtenderRunner
from scheduler_core.runtime.node_adapters import FilterRunner, ScoreRunner, filter_runner, score_runner
from scheduler_core.runtime.registrations import registrations_of

if TYPE_CHECKING:
    from scheduler_core.runtime.equivalence.reuse import PodClasses

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Plugin)

_REJECTING = (PreEnqueuePlugin, PreFilterPlugin, FilterPlugin, NodeFilterPlugin, ReservePlugin, PermitPlugin)


class Evaluations(Struct, frozen=True):
    """How often plugins of a profile were asked, by their names.

    Follows kube-scheduler v1.36.3 (``framework/runtime/instrumented_plugins.go``): PreFilter and PreScore count pods
    for which they did not skip, Filter and Score count nodes.
    """

    pre_filter: dict[str, int] = field(default_factory=dict)
    filter: dict[str, int] = field(default_factory=dict)
    pre_score: dict[str, int] = field(default_factory=dict)
    score: dict[str, int] = field(default_factory=dict)


class FrameworkInstance:
    """One revision of a profile, running.

    Attributes:
        config: What it was built from.
        name: The scheduler name that the profile serves.
        revision: The hash of that.
        resolved: Plugin names and weights per point, as status shows them.
        plugins: Every instantiated plugin by name.
        scores: Score plugins with their weights.
        evaluations: How often plugins were asked; a live instance shares them with those before it.
        pod_classes: Results that are reused between pods of one class; None before the first pod and after closing.
            They refer to plugins, which refer to the instance: a table of them elsewhere would keep it alive.
    """

    def __init__(self, plan: ProfilePlan, plugins: Mapping[str, Plugin]) -> None:
        self.config = plan.config
        self.name = plan.config.scheduler_name
        self.revision = plan.revision
        self.resolved = resolved = plan.resolved
        self.plugins = plugins

        def at(point: str, kind: type[T]) -> tuple[T, ...]:
            found = [plugins[entry.name] for entry in resolved[point]]
            return tuple(plugin for plugin in found if isinstance(plugin, kind))

        self.queue_sort = at("queueSort", QueueSortPlugin)[0]  # type: ignore[type-abstract]  # a kind to ask isinstance
        self.pre_enqueue = at("preEnqueue", PreEnqueuePlugin)  # type: ignore[type-abstract]  # as above
        self.pre_filter = at("preFilter", PreFilterPlugin)  # type: ignore[type-abstract]  # as above
        self.filters: tuple[FilterRunner, ...] = tuple(
            filter_runner(plugins[entry.name]) for entry in resolved["filter"]
        )
        self.post_filter = at("postFilter", PostFilterPlugin)  # type: ignore[type-abstract]  # as above
        self.pre_score = at("preScore", PreScorePlugin)  # type: ignore[type-abstract]  # as above
        self.scores: tuple[tuple[ScoreRunner, int], ...] = tuple(
            (score_runner(plugins[entry.name]), entry.weight) for entry in resolved["score"]
        )
        self.reserve = at("reserve", ReservePlugin)  # type: ignore[type-abstract]  # as above
        self.permit = at("permit", PermitPlugin)  # type: ignore[type-abstract]  # as above
        self.pre_bind = at("preBind", PreBindPlugin)  # type: ignore[type-abstract]  # as above
        self.bind = at("bind", BindPlugin)  # type: ignore[type-abstract]  # as above
        self.post_bind = at("postBind", PostBindPlugin)  # type: ignore[type-abstract]  # as above
        self.registrations: dict[str, tuple[EventRegistration, ...]] = {
            name: registrations_of(plugin) for name, plugin in plugins.items() if isinstance(plugin, _REJECTING)
        }
        self.pod_classes: PodClasses | None = None
        self.evaluations = Evaluations()
        self.count_with(self.evaluations)
        self.extenders: tuple[ExtenderRunner, ...] = ()
        self._in_flight = 0
        self._retired = False
        self._closed = False
        self._on_close: Callable[[], None] | None = None

    def call_extenders(self, extenders: tuple[ExtenderRunner, ...], on_close: Callable[[], None]) -> None:
        """Let extenders take part from now on; before the instance is live.

        Args:
            extenders: In calling order. Any event may help a pod that they reject, since they cannot tell.
            on_close: Called once, when the instance is closed.
        """
        self.extenders = extenders
        self.registrations[EXTENDER] = (EventRegistration(EVERY_EVENT),)
        self._on_close = on_close

    @property
    def extenders_judge_nodes(self) -> bool:
        """Whether any extender filters or scores, so that one node that fits is not enough to end a search."""
        return any(each.config.filter_verb or each.config.prioritize_verb for each in self.extenders)

    @property
    def in_flight(self) -> int:
        """Pods whose attempt began on this instance and has not ended."""
        return self._in_flight

    def count_with(self, evaluations: Evaluations) -> None:
        """Add to counts that were begun by others; every plugin stands there from now on, with 0 if it is new."""
        self.evaluations = evaluations
        for counts, plugins in (
            (evaluations.pre_filter, self.pre_filter),
            (evaluations.filter, self.filters),
            (evaluations.pre_score, self.pre_score),
            (evaluations.score, tuple(plugin for plugin, _ in self.scores)),
        ):
            for plugin in plugins:
                counts.setdefault(plugin.name, 0)

    def begin(self) -> None:
        """An attempt begins on this instance."""
        self._in_flight += 1

    def end(self) -> None:
        """An attempt has ended; the last one of a retired instance closes it."""
        self._in_flight -= 1
        self._close_if_done()

    def retire(self) -> None:
        """No new attempt begins here; close after the last."""
        self._retired = True
        self._close_if_done()

    def _close_if_done(self) -> None:
        if not self._retired or self._in_flight or self._closed:
            return
        self._closed = True
        self.pod_classes = None
        for plugin in self.plugins.values():
            try:
                plugin.close()
            except Exception:
                log.exception(
                    "plugin %s of profile %s failed to close; it is dropped",
                    plugin.name,
                    self.name,
                    extra={"plugin": plugin.name, "profile": self.name, "revision": self.revision},
                )
        if self._on_close is not None:
            self._on_close()


HandleFactory = Callable[[str], Handle]
"""Makes the handle of a profile from its scheduler name."""


class ProfilePlan(Struct, frozen=True):
    """What a profile asks for, read and judged, before anything is instantiated. Instances may share one.

    Attributes:
        config: The profile.
        revision: The hash of it.
        resolved: Plugin names and weights per point.
        args: Each enabled plugin's args that could be read; None for a plugin that takes none.
        problems: What is wrong with the profile; with any no instance comes of it.
    """

    config: ProfileConfig
    revision: str
    resolved: ResolvedPlugins
    args: Mapping[str, BaseModel | None]
    problems: tuple[Problem, ...]


def plan_profile(config: ProfileConfig, registry: Registry, defaults: Plugins) -> ProfilePlan:
    """Resolve a profile's plugins and read their args.

    Args:
        config: The profile.
        registry: The plugins that exist.
        defaults: The default plugin set.

    Returns:
        The plan, with the problems: unknown plugins, bad args, no or several QueueSort plugins, no Bind plugin.
    """
    resolved, found = resolve(config.plugins, defaults, registry)
    problems = list(found)
    given = {entry.name: (index, entry.args) for index, entry in enumerate(config.plugin_config)}
    for name, (index, args) in given.items():
        message = unknown_config_problem(name, registry)
        if message:
            problems.append(Problem(f"pluginConfig[{index}].name", message))
        elif name in BUILT_IN_BEHAVIOUR:
            problems += _needless_args(name, args, f"pluginConfig[{index}]")
    enabled = dict.fromkeys(entry.name for entries in resolved.values() for entry in entries)
    plugin_args: dict[str, BaseModel | None] = {}
    for name in dict.fromkeys([*enabled, *(name for name in given if name in registry)]):
        index, args = given.get(name, (-1, {}))
        try:
            read = _read(name, args, f"pluginConfig[{index}]", registry)
        except ConfigError as error:
            problems += error.problems
            continue
        if name in enabled:
            plugin_args[name] = _without_ignored(read, config)
    return ProfilePlan(config, config.revision(), resolved, plugin_args, tuple(problems))


def _without_ignored(args: BaseModel | None, config: ProfileConfig) -> BaseModel | None:
    """NodeResourcesFit leaves alone what extenders say, in the place of what its args say.

    Follows kube-scheduler v1.36.3, ``pkg/scheduler/scheduler.go`` (``buildExtenders``).
    """
    if not isinstance(args, NodeResourcesFitArgs):
        return args
    managed = [resource for extender in config.extenders for resource in extender.managed_resources]
    ignored = tuple(resource.name for resource in managed if resource.ignored_by_scheduler)
    return args.model_copy(update={"ignored_resources": ignored}) if ignored else args


def build_instance(
    config: ProfileConfig, registry: Registry, defaults: Plugins, make_handle: HandleFactory
) -> FrameworkInstance:
    """Instantiate a profile, whole or not at all.

    Args:
        config: The profile.
        registry: The plugins that exist.
        defaults: The default plugin set.
        make_handle: Makes the plugins' handle.

    Returns:
        The instance, not yet live.

    Raises:
        ConfigError: With every problem of the plan, and plugins that cannot be made.
    """
    return build_planned(plan_profile(config, registry, defaults), registry, make_handle)


def build_planned(plan: ProfilePlan, registry: Registry, make_handle: HandleFactory) -> FrameworkInstance:
    """Instantiate a profile that has been read, whole or not at all.

    Args:
        plan: The profile; what is made of it does not change it.
        registry: The plugins that exist.
        make_handle: Makes the plugins' handle.

    Raises:
        ConfigError: With every problem of the plan, and plugins that cannot be made.
    """
    config, problems = plan.config, list(plan.problems)
    paths = {entry.name: f"pluginConfig[{index}]" for index, entry in enumerate(config.plugin_config)}
    handle = make_handle(config.scheduler_name)
    plugins: dict[str, Plugin] = {}
    for name, args in plan.args.items():
        try:
            plugins[name] = _make(name, args, paths.get(name, "plugins"), registry, handle)
        except ConfigError as error:
            problems += error.problems
    if problems:
        _close_all(plugins)
        raise ConfigError(problems)
    try:
        return FrameworkInstance(plan, plugins)
    except Exception as error:
        _close_all(plugins)
        message = f"the plugins cannot be wired together: {error}; see the operator's log, or disable the faulty plugin"
        raise ConfigError([Problem("plugins", message)]) from error


def _read(name: str, args: Mapping[str, object], path: str, registry: Registry) -> BaseModel | None:
    kind = registry.get(name)
    assert kind is not None
    if kind.args_model is not None:
        return read_args(name, kind.args_model, args, f"{path}.args")
    problems = _needless_args(name, args, path)
    if problems:
        raise ConfigError(problems)
    return None


def _needless_args(name: str, args: Mapping[str, object], path: str) -> list[Problem]:
    fields = sorted(set(args) - {"apiVersion", "kind"})
    return [Problem(f"{path}.args", f'plugin "{name}" takes no args; remove {", ".join(fields)}')] if fields else []


def _make(name: str, args: BaseModel | None, path: str, registry: Registry, handle: Handle) -> Plugin:
    kind = registry.get(name)
    assert kind is not None
    try:
        return kind(args, handle)
    except Exception as error:
        message = f'plugin "{name}" cannot be made: {error}; correct its args or disable it'
        raise ConfigError([Problem(path, message)]) from error


def _close_all(plugins: Mapping[str, Plugin]) -> None:
    for plugin in plugins.values():
        try:
            plugin.close()
        except Exception:
            log.exception("plugin %s failed to close; it is dropped", plugin.name)
