"""PodGroups of ``bayplan.dev``: judged, given their priority, and put in force.

Owns which form of each object is in force, and the PriorityClasses that groups name. Must not know who watches: kopf, a
list and an informer call alike. Why classes are resolved here: unlike a pod's, nobody at admission writes a group's
priority into it; so a class that comes late or is made anew counts for the groups that name it at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bayplan.gangs.group_translation import from_bayplan
from bayplan.gangs.handed_groups import GroupObserver, GroupTaker, HandedGroups, ShownForm
from bayplan.object_store import Body, ObjectStore
from bayplan.resources.pod_group import PodGroup
from bayplan.resources.resource_model import CustomResource
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.pod_group import PodGroup as Group
from scheduler_core.model.priority_class import PriorityClass


class BayplanGroups:
    """The groups of Bayplan's own API; a watcher, a taker of lists, and a sink of PriorityClasses.

    Args:
        taker: Is told what is in force.
    """

    def __init__(self, taker: GroupTaker) -> None:
        self._taker = taker
        self._store = ObjectStore()
        self._handed = HandedGroups(taker)
        self._judged: dict[GroupKey, Body] = {}
        self._good: dict[GroupKey, PodGroup] = {}
        self._priorities: dict[str, int] = {}

    def unlisted(self, reason: str) -> None:
        """Hold members back until the next list: what is known may be out of date.

        Args:
            reason: Why there is no list, and what to do.
        """
        self._taker.withhold(GroupSource.BAYPLAN, reason)

    @property
    def problems(self) -> Mapping[GroupKey, tuple[Problem, ...]]:
        """What is wrong with objects whose present form is not in force."""
        return self._handed.problems

    @property
    def observers(self) -> list[GroupObserver]:
        """Who is told of every form that was judged."""
        return self._handed.observers

    def body(self, key: GroupKey) -> Body | None:
        """The newest known form of an object, whether it is in force or not."""
        return self._store.body(key.namespace, key.name)

    # -- objects ------------------------------------------------------------------------------------------------

    def seen(self, kind: type[CustomResource], body: Body) -> None:
        """An object has come, has changed or is shown again."""
        del kind
        if self._store.seen(body):
            self._judge(_key(body), body)

    def gone(self, kind: type[CustomResource], body: Body) -> None:
        """An object is gone."""
        del kind
        if self._store.gone(body):
            self._forget(_key(body))

    def listed(self, kind: type[CustomResource], bodies: Iterable[Body], resource_version: str) -> None:
        """Take all objects of a list; members of groups that are not among them wait for theirs alone from now on."""
        del kind
        if self._store.listed(bodies, resource_version):
            self._take_listed()
        self._taker.serve(GroupSource.BAYPLAN)

    def _take_listed(self) -> None:
        known = {_key(body): body for body in self._store.bodies()}
        for key in self._judged.keys() - known.keys():
            self._forget(key)
        for key, body in known.items():
            if self._judged.get(key) is not body:
                self._judge(key, body)

    def _judge(self, key: GroupKey, body: Body) -> None:
        self._judged[key] = body
        metadata = body["metadata"]
        form = ShownForm(key, metadata.get("uid", ""), metadata.get("generation", 0), body.get("status") or {})
        try:
            shown = PodGroup.from_object({"metadata": metadata, "spec": body.get("spec")})
            group = self._translated(shown)
        except ConfigError as error:
            known = self._good.get(key)
            if known is not None and known.metadata.uid != form.uid:
                del self._good[key]
            self._handed.refuse(form, error)
        else:
            self._good[key] = shown
            self._handed.accept(form, group)

    def _forget(self, key: GroupKey) -> None:
        self._judged.pop(key, None)
        self._good.pop(key, None)
        self._handed.forget(key)

    def _translated(self, shown: PodGroup) -> Group:
        return from_bayplan(shown, self._priorities.get(shown.spec.priority_class_name or ""))

    # -- PriorityClasses ----------------------------------------------------------------------------------------

    def class_added(self, shown: PriorityClass) -> None:
        """A class has come, or is first seen."""
        self._priorities[shown.metadata.name] = shown.value
        self._hand_those_of(shown.metadata.name)

    def class_updated(self, old: PriorityClass, shown: PriorityClass) -> None:
        """A class has changed; its value cannot, but by being made anew."""
        if old.value != shown.value:
            self.class_added(shown)

    def class_deleted(self, gone: PriorityClass) -> None:
        """A class is gone: groups that name it stand by the highest of their members again."""
        self._priorities.pop(gone.metadata.name, None)
        self._hand_those_of(gone.metadata.name)

    def _hand_those_of(self, class_name: str) -> None:
        for shown in self._good.values():
            if shown.spec.priority_class_name == class_name:
                self._handed.renew(self._translated(shown))


def _key(body: Mapping[str, Any]) -> GroupKey:
    metadata = body["metadata"]
    return GroupKey(GroupSource.BAYPLAN, metadata.get("namespace", ""), metadata["name"])
