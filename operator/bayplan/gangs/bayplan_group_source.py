"""PodGroups of ``bayplan.dev``: validated, given their priority, and reported to the scheduler.

kopf's watch, a list and an informer all call this class. PriorityClasses are resolved here because, unlike for pods, no
admission plugin writes the priority of a group into its spec; a class that is created or recreated later takes effect
on its groups at once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.gangs.accepted_groups import AcceptedGroups, GroupObserver, GroupSink, ObservedGroup
from bayplan.gangs.group_translation import from_bayplan
from bayplan.resources.object_store import Body, ObjectStore
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.pod_group import PodGroup as Group
from scheduler_core.model.workloads import PriorityClass

log = logging.getLogger(__name__)


class BayplanGroups:
    """PodGroups of Bayplan's own API; receives watch events and lists of them, and PriorityClasses."""

    def __init__(self, sink: GroupSink, observer: GroupObserver | None = None) -> None:
        self._sink = sink
        self._store = ObjectStore()
        self._accepted = AcceptedGroups(sink, observer)
        self._validated: dict[GroupKey, Body] = {}
        self._unhandled: set[GroupKey] = set()
        self._valid: dict[GroupKey, PodGroup] = {}
        self._priorities: dict[str, int] = {}

    def unlisted(self, reason: str) -> None:
        """Gate members until the next list, because the stored groups may be out of date.

        Args:
            reason: Why there is no list, and what to do.
        """
        self._sink.withhold(GroupSource.BAYPLAN, reason)

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """Problems of the objects whose current spec is invalid."""
        return self._accepted.problems

    def body(self, key: GroupKey) -> Body | None:
        """Return the newest stored version of an object, valid or not."""
        return self._store.body(key.namespace, key.name)

    # -- objects ------------------------------------------------------------------------------------------------

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """Handle an object that was added, changed or reported again."""
        del kind
        if self._store.seen(body) or _key(body) in self._unhandled:
            self._handle(_key(body))

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        """Handle the deletion of an object."""
        del kind
        if self._store.gone(body):
            self._handle(_key(body))

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Handle a complete list; afterwards a member waits only if its own group is missing.

        What failed before is handled again: lists are read periodically.
        """
        del kind
        if self._store.listed(bodies, resource_version) or self._unhandled:
            self._handle_list()
        self._sink.serve(GroupSource.BAYPLAN)

    def _handle_list(self) -> None:
        known = {_key(body): body for body in self._store.bodies()}
        changed = [key for key, body in known.items() if self._validated.get(key) is not body]
        for key in dict.fromkeys((*(self._validated.keys() - known.keys()), *changed, *self._unhandled)):
            self._handle(key)

    def _handle(self, key: GroupKey) -> None:
        """Handle the stored version of an object, or its deletion; after an exception it is handled again."""
        body = self.body(key)
        try:
            if body is None:
                self._delete(key)
            else:
                self._validate(key, body)
        except Exception:
            self._unhandled.add(key)
            log.exception("Handling PodGroup %s failed; it is handled again with the next list", key)
        else:
            self._unhandled.discard(key)

    def _validate(self, key: GroupKey, body: Body) -> None:
        self._validated[key] = body
        metadata = body["metadata"]
        observed = ObservedGroup(key, metadata.get("uid", ""), metadata.get("generation", 0), body.get("status") or {})
        try:
            resource = PodGroup.from_object({"metadata": metadata, "spec": body.get("spec")})
            group = self._translated(resource, observed.status)
        except ConfigError as error:
            known = self._valid.get(key)
            if known is not None and known.metadata.uid != observed.uid:
                del self._valid[key]
            self._accepted.reject(observed, error)
        else:
            self._valid[key] = resource
            self._accepted.accept(observed, group)

    def _delete(self, key: GroupKey) -> None:
        self._validated.pop(key, None)
        self._valid.pop(key, None)
        self._accepted.delete(key)

    def _translated(self, resource: PodGroup, status: Mapping[str, Any]) -> Group:
        return from_bayplan(resource, self._priorities.get(resource.spec.priority_class_name or ""), status)

    # -- PriorityClasses ----------------------------------------------------------------------------------------

    def class_added(self, added: PriorityClass) -> None:
        """Handle a class that was added or listed."""
        self._priorities[added.metadata.name] = added.value
        self._update_groups_of(added.metadata.name)

    def class_updated(self, old: PriorityClass, new: PriorityClass) -> None:
        """Handle an updated class; its value is immutable and differs only if the class was recreated."""
        if old.value != new.value:
            self.class_added(new)

    def class_deleted(self, deleted: PriorityClass) -> None:
        """Handle a deleted class: groups that name it get the highest priority of their members again."""
        self._priorities.pop(deleted.metadata.name, None)
        self._update_groups_of(deleted.metadata.name)

    def _update_groups_of(self, class_name: str) -> None:
        for key, resource in self._valid.items():
            if resource.spec.priority_class_name == class_name:
                body = self.body(key) or {}
                self._accepted.update(self._translated(resource, body.get("status") or {}))


def _key(body: Mapping[str, Any]) -> GroupKey:
    metadata = body["metadata"]
    return GroupKey(GroupSource.BAYPLAN, metadata.get("namespace", ""), metadata["name"])
