"""PodGroups of ``bayplan.dev``: validated, given their priority, and reported to the scheduler.

kopf's watch, a list and an informer all call this class. PriorityClasses are resolved here because, unlike for pods, no
admission plugin writes the priority of a group into its spec; a class that is created or recreated later takes effect
on its groups at once. A class or node label that does not exist is a warning and no problem of the object: it may be
created later.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, ParamSpec, Protocol

from msgspec import Struct

from bayplan.gangs.group_translation import from_bayplan
from bayplan.resources.missing_references import missing_of_reservation, missing_references
from bayplan.resources.node_reservation import NodeReservation
from bayplan.resources.object_store import Body, ObjectStore
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from scheduler_core.cycle.suspension import Suspension
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import CompositePodGroup, GroupKey, GroupSource
from scheduler_core.model.pod_group import PodGroup as Group
from scheduler_core.model.workloads import PriorityClass

log = logging.getLogger(__name__)
P = ParamSpec("P")


class GroupSink(Protocol):
    """Receiver of groups in the scheduler; see :class:`scheduler_core.feeds.pod_group_feed.GroupFeed`."""

    suspension: Suspension

    def serve(self, source: GroupSource) -> None:
        """Handle that all PodGroups of an API have been reported."""

    def withhold(self, source: GroupSource, reason: str) -> None:
        """Handle that the PodGroups of an API are not known; pods that name one are gated."""

    def group_changed(self, group: Group | CompositePodGroup) -> None:
        """Handle a group that was added or changed."""

    def group_deleted(self, key: GroupKey) -> None:
        """Handle a deleted group."""

    def group_refused(self, key: GroupKey, problems: Iterable[Problem]) -> None:
        """Handle an object whose spec is invalid and never was valid; its members are gated.

        :meth:`group_changed` or :meth:`group_deleted` ends this.
        """


class GroupObserver(Protocol):
    """Observer that writes statuses; see :class:`bayplan.gangs.group_status_controller.GroupController`."""

    def known(self, key: GroupKey, uid: str, generation: int, status: Mapping[str, Any], *, version: str = "") -> None:
        """Handle an object with a valid spec."""

    def invalid(self, key: GroupKey, uid: str, generation: int, problems: Iterable[Problem]) -> None:
        """Handle an object with an invalid spec; :meth:`known` is called for it first."""

    def warned(self, key: GroupKey, warnings: Sequence[Problem]) -> None:
        """Handle what a valid spec names and does not exist; called after :meth:`known`, again when it changes."""

    def gone(self, key: GroupKey) -> None:
        """Handle a deleted object."""


class ObservedGroup(Struct, frozen=True):
    """Metadata and status of a PodGroup object, and the version in which it was read, "" for the newest one."""

    key: GroupKey
    uid: str
    generation: int
    status: Mapping[str, Any]
    version: str = ""


class AcceptedGroups:
    """Accepted groups of one API; the observer gets every validated or deleted object after the sink."""

    def __init__(self, sink: GroupSink, observer: GroupObserver | None = None) -> None:
        self._sink = sink
        self._groups: dict[GroupKey, Group | CompositePodGroup] = {}
        self._problems: dict[GroupKey, tuple[Problem, ...]] = {}
        self._interrupted: set[GroupKey] = set()
        self._observer = observer

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """Problems of the objects whose current spec is invalid."""
        return self._problems

    def accept(self, observed: ObservedGroup, group: Group | CompositePodGroup) -> None:
        self._problems.pop(observed.key, None)
        self.update(group)
        self._notify(observed)

    def update(self, group: Group | CompositePodGroup) -> None:
        """Replace an accepted group; the sink is called only if the group differs."""
        if self._groups.get(group.key) != group or group.key in self._interrupted:
            self._deliver(group.key, self._sink.group_changed, group)
            self._groups[group.key] = group

    def reject(self, observed: ObservedGroup, error: ConfigError) -> None:
        """Record the problems of an invalid spec; the accepted group stays unless it belongs to another object."""
        key = observed.key
        known = self._groups.get(key)
        if known is None or known.uid != observed.uid:
            self._withdraw(key)
        else:
            # The sink may have handled half of it.
            self.update(known)
        self._problems[key] = error.problems
        effect = (
            "its last valid spec stays in effect" if key in self._groups else "its members wait until it is corrected"
        )
        if key not in self._groups:
            self._sink.group_refused(key, error.problems)
        log.warning("%s %s of %s is invalid; %s: %s", key.source.kind, key, key.source.api_group, effect, error)
        if self._observer is not None:
            self._notify(observed)
            self._observer.invalid(key, observed.uid, observed.generation, error.problems)

    def hold(self, observed: ObservedGroup, error: ConfigError) -> None:
        """Record the problems of an object that cannot be read: its last valid spec does not apply any more."""
        self._withdraw(observed.key)
        self.reject(observed, error)

    def delete(self, key: GroupKey) -> None:
        if key in self._problems and key not in self._groups:
            self._deliver(key, self._sink.group_deleted, key)
        self._withdraw(key)
        self._problems.pop(key, None)
        if self._observer is not None:
            self._observer.gone(key)

    def _notify(self, observed: ObservedGroup) -> None:
        if self._observer is not None:
            key, uid, generation, status = observed.key, observed.uid, observed.generation, observed.status
            self._observer.known(key, uid, generation, status, version=observed.version)

    def _withdraw(self, key: GroupKey) -> None:
        if key in self._groups or key in self._interrupted:
            self._deliver(key, self._sink.group_deleted, key)
            self._groups.pop(key, None)

    def _deliver(self, key: GroupKey, handle: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
        # If the sink raises, now or after a suspended cycle, it may have either version, and the next one is delivered
        # whatever it is.
        self._interrupted.add(key)
        with self._sink.suspension.reporting_later_errors(partial(self._interrupted.add, key)):
            handle(*args, **kwargs)
        self._interrupted.discard(key)


class BayplanGroups:
    """PodGroups of Bayplan's own API; receives watch events and lists of them, and PriorityClasses.

    Args:
        node_labels: Returns the labels of each node, for warnings of labels that no node has; they are compared when a
            group changes and with each list of groups.
    """

    def __init__(
        self,
        sink: GroupSink,
        observer: GroupObserver | None = None,
        node_labels: Callable[[], Iterable[Mapping[str, str]]] = tuple,
    ) -> None:
        self._sink = sink
        self._observer = observer
        self._node_labels = node_labels
        self._store = ObjectStore()
        self._accepted = AcceptedGroups(sink, observer)
        self._validated: dict[GroupKey, Body] = {}
        self._unhandled: set[GroupKey] = set()
        self._valid: dict[GroupKey, PodGroup] = {}
        self._priorities: dict[str, int] = {}

    def unlisted(self, reason: str) -> None:
        """Gate members until the next list, because the groups may be out of date; ``reason`` includes what to do."""
        self._sink.withhold(GroupSource.BAYPLAN, reason)

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
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
        for key, resource in self._valid.items():
            if resource.spec.topology is not None:
                self._warn(key, resource)
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
            with self._sink.suspension.reporting_later_errors(partial(self._unhandled.add, key)):
                if body is None:
                    self._delete(key)
                else:
                    self._validate(key, body)
        except Exception:
            # Of the sink or the observer, whatever it is: the other groups are handled all the same.
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
            self._warn(key, resource)

    def _warn(self, key: GroupKey, resource: PodGroup) -> None:
        if self._observer is not None:
            self._observer.warned(key, self.missing_references(resource))

    def missing_references(self, resource: PodGroup) -> list[Problem]:
        """Return a warning for each PriorityClass and node label that a group names and that does not exist."""
        return list(missing_references(resource, self._priorities, self._node_labels()))

    def missing_of_reservation(self, resource: NodeReservation, profiles: Sequence[Body]) -> list[Problem]:
        """Return a warning for each name in a NodeReservation that does not exist."""
        return list(missing_of_reservation(resource, self._priorities, self._node_labels(), profiles))

    def _delete(self, key: GroupKey) -> None:
        self._validated.pop(key, None)
        self._valid.pop(key, None)
        self._accepted.delete(key)

    def _translated(self, resource: PodGroup, status: Mapping[str, Any]) -> Group:
        return from_bayplan(resource, self._priorities.get(resource.spec.priority_class_name or ""), status)

    # -- PriorityClasses ----------------------------------------------------------------------------------------

    def class_added(self, added: PriorityClass) -> None:
        are_first = not self._priorities
        self._priorities[added.metadata.name] = added.value
        self._update_groups_of(added.metadata.name)
        if are_first:
            for key, resource in self._valid.items():
                self._warn(key, resource)

    def priority_of(self, class_name: str) -> int | None:
        """Return the value of a PriorityClass; None if it does not exist."""
        return self._priorities.get(class_name)

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
                self._warn(key, resource)


def _key(body: Mapping[str, Any]) -> GroupKey:
    metadata = body["metadata"]
    return GroupKey(GroupSource.BAYPLAN, metadata.get("namespace", ""), metadata["name"])
