"""Review of a custom resource before the API server stores it: what is wrong in its own spec refuses it.

What depends on other objects (a PluginConfig that is missing or invalid, a scheduler name that another profile holds)
is a warning or left to the conditions: GitOps tools apply objects in any order, and prune after they have applied.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from bayplan.profiles.desired_profiles import (
    DesiredProfile,
    PluginConfigValidation,
    desired_state,
    missing_plugin_config,
)
from bayplan.profiles.kopf_handlers import Reviewed
from bayplan.profiles.profile_rollout import BuiltProfile, build_profile
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.object_store import Body
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.rebalance_plan import RebalancePlan
from bayplan.resources.resource_model import API_VERSION, CustomResource
from bayplan.settings.profile_selection import ProfileSelection
from bayplan.simulation.memory_cluster import offline_scheduler
from bayplan.texts.yaml_documents import list_at, value_at
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.runtime.profile_table import queue_sort_of

_KINDS: Mapping[str, type[CustomResource]] = {
    each.definition.kind: each for each in (PodGroup, NodeReservation, RebalancePlan)
}
"""Kinds that name other objects; ``PluginConfig`` is none."""


@dataclass(frozen=True, slots=True)
class ReviewedProfile:
    """Findings about a SchedulerProfile.

    Attributes:
        built: What the build found; its instance is retired.
        missing: References to PluginConfigs that are not known.
        order: The queue sort plugin with its args; None if the profile is not valid.
    """

    profile: DesiredProfile
    problems: tuple[Problem, ...]
    built: BuiltProfile
    missing: tuple[Problem, ...]
    order: tuple[str, str] | None = None


class ObjectRules:
    """Rules for the custom resources, with the installed plugins.

    Args:
        allow_default_scheduler: Whether a profile may be named default-scheduler, as with ``bayplan run``.

    Raises:
        RegistryError: An installed plugin cannot be loaded.
    """

    def __init__(self, *, allow_default_scheduler: bool = False) -> None:
        self.scheduler = offline_scheduler()
        self._allow_default_scheduler = allow_default_scheduler
        self._validation = PluginConfigValidation(self.scheduler.registry)

    def problems(self, plain: Mapping[str, Any]) -> tuple[Problem, ...]:
        """Return the problems of an object that is no SchedulerProfile; see :func:`plain_object`."""
        if plain["kind"] == "PluginConfig":
            (validated,) = PluginConfigValidation(self.scheduler.registry).validate([plain], {})
            return validated.problems
        kind = _KINDS.get(plain["kind"], PodGroup)
        try:
            kind.from_object(plain)
        except ConfigError as error:
            return error.problems
        return ()

    def profile_findings(
        self, plain: Mapping[str, Any], plugin_configs: Sequence[Mapping[str, Any]]
    ) -> ReviewedProfile:
        """Return the findings about a SchedulerProfile; see :func:`plain_object`."""
        state = desired_state(
            [plain], plugin_configs, self._validation, allow_default_scheduler=self._allow_default_scheduler
        )
        (validated,) = state.profiles
        missing = tuple(_missing(plain, [config.meta.name for config in state.plugin_configs]))
        problems = tuple(problem for problem in validated.problems if problem not in missing)
        built = build_profile(self.scheduler, validated)
        order = None
        if built.instance is not None:
            order = queue_sort_of(built.instance)
            built.instance.retire()
        return ReviewedProfile(validated, problems, built, missing, order)


def plain_object(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parts of a custom resource that the operator validates; the API server validates the rest."""
    metadata = body["metadata"]
    namespace, name = metadata.get("namespace"), metadata.get("name")
    plain = {"name": name if isinstance(name, str) else ""}
    if isinstance(namespace, str):
        plain["namespace"] = namespace
    spec = {"spec": body["spec"]} if "spec" in body else {}
    return {"apiVersion": API_VERSION, "kind": str(body["kind"]), "metadata": plain, **spec}


def plugin_config_references(profile: Mapping[str, Any]) -> Iterator[tuple[int, str]]:
    """Yield the names of the PluginConfigs that a profile references, as far as it is readable, with their indices."""
    for index, reference in enumerate(list_at(profile, "spec", "pluginConfigRefs")):
        name = value_at(reference, "name")
        if isinstance(name, str):
            yield index, name


def _missing(plain: Mapping[str, Any], known: Sequence[str]) -> Iterator[Problem]:
    """Yield references to PluginConfigs that are not known, with the message of ``desired_state``."""
    for index, name in plugin_config_references(plain):
        if name not in known:
            yield Problem(f"spec.pluginConfigRefs[{index}].name", missing_plugin_config(name, known))


_REFERENCES = "spec.pluginConfigRefs["
_PACE = 3.0


class AdmissionReview:
    """The review of this process, for the profiles of its selection: others may have other plugins."""

    def __init__(self, *, allow_default_scheduler: bool, selection: ProfileSelection | None) -> None:
        self._rules = ObjectRules(allow_default_scheduler=allow_default_scheduler)
        self._selection = selection
        self._lock = threading.Lock()
        self._next_at = 0.0

    def __call__(
        self,
        body: Body,
        old: Body | None,
        plugin_configs: Callable[[], Sequence[Body]],
        missing: Callable[[CustomResource], Sequence[Problem]] = lambda _: (),
    ) -> Reviewed:
        # The text, because 1 and True are equal in Python. Finalizers, labels and annotations of an object that was
        # stored without a review may always be changed.
        if old is not None and repr(old.get("spec")) == repr(body.get("spec")):
            return Reviewed()
        plain = plain_object(body)
        if plain["kind"] != "SchedulerProfile":
            with self._paced():
                wrong = self._rules.problems(plain)
            # Another process may have the plugin.
            unknown = [each for each in wrong if each.path == "spec.plugin" and self._selection is not None]
            kind = _KINDS.get(plain["kind"])
            if kind is not None and not wrong:
                return _reviewed((), missing(kind.from_object(plain)))
            return _reviewed(wrong, unknown)
        if self._selection is not None and not self._selection.matches(body["metadata"].get("labels") or {}):
            return Reviewed()
        with self._paced():
            found, alone = (self._rules.profile_findings(plain, stored) for stored in (plugin_configs(), ()))
        # Plugins may lack the args of the missing PluginConfig.
        problems = (*found.problems, *(() if found.missing else found.built.problems))
        of_others = [each for each in problems if each.path.startswith(_REFERENCES) and each not in alone.problems]
        return _reviewed(problems, [*found.missing, *of_others, *found.built.warnings, *found.built.notes])

    @contextmanager
    def _paced(self) -> Iterator[None]:
        """Run one review at a time, and wait twice as long as the last one took: any client may send reviews."""
        with self._lock:
            time.sleep(max(0.0, self._next_at - time.monotonic()))
            began = time.monotonic()
            try:
                yield
            finally:
                self._next_at = began + _PACE * (time.monotonic() - began)


def _reviewed(problems: Sequence[Problem], warnings: Sequence[Problem]) -> Reviewed:
    return Reviewed(
        tuple(each for each in problems if each not in warnings),
        tuple(" ".join(str(each).split()) for each in warnings),
    )
