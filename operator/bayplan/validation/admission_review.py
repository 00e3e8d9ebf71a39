"""Review of a custom resource before the API server stores it: what is wrong in its own spec refuses it.

What depends on other objects (a PluginConfig that is missing or invalid, a scheduler name that another profile holds)
is a warning or left to the conditions: GitOps tools apply objects in any order, and prune after they have applied.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from bayplan.profiles.kopf_handlers import Reviewed
from bayplan.resources.object_store import Body
from bayplan.settings.profile_selection import ProfileSelection
from bayplan.validation.object_rules import ObjectRules, plain_object
from scheduler_core.errors import Problem

_REFERENCES = "spec.pluginConfigRefs["
_PACE = 3.0


class AdmissionReview:
    """The review of this process, with its plugins.

    Args:
        allow_default_scheduler: Whether a profile may be named default-scheduler.
        selection: The profiles that this process serves; None for all. Others may have other plugins.
    """

    def __init__(self, *, allow_default_scheduler: bool, selection: ProfileSelection | None) -> None:
        self._rules = ObjectRules(allow_default_scheduler=allow_default_scheduler)
        self._selection = selection
        self._lock = threading.Lock()
        self._next_at = 0.0

    def __call__(self, body: Body, old: Body | None, plugin_configs: Callable[[], Sequence[Body]]) -> Reviewed:
        """Review an object."""
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
            return _reviewed(wrong, unknown)
        if self._selection is not None and not self._selection.matches(body["metadata"].get("labels") or {}):
            return Reviewed()
        with self._paced():
            found, alone = (self._rules.profile_findings(plain, stored) for stored in (plugin_configs(), ()))
        # Plugins may lack the args of the missing PluginConfig.
        problems = (*found.problems, *(() if found.missing else found.build_problems))
        of_others = [each for each in problems if each.path.startswith(_REFERENCES) and each not in alone.problems]
        return _reviewed(problems, [*found.missing, *of_others, *found.notes])

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
