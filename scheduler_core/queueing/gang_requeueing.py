"""Requeueing of many gangs at once: when a profile, an API of groups, or labels of nodes have changed.

Queueing hints do not cover these changes: they are called for single pods, while topology domains and the rules of a
quorum belong to the group.
"""

from __future__ import annotations

from collections.abc import Collection

from scheduler_core.framework.cluster_events import PROFILE_SWAPPED, Action, ClusterEvent, Resource
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING
from scheduler_core.model.pod_group import GroupSource
from scheduler_core.queueing.gang_entries import GangEntries
from scheduler_core.queueing.gang_members import Gang
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.gates_and_hints import Requeue
from scheduler_core.queueing.moves_and_backoff import RulesLookup

DOMAINS_CHANGED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL).name

_ASIDE = (Place.UNSCHEDULABLE, Place.GATED)


class GangRequeueing:
    """Requeues gangs.

    Args:
        gangs: All gangs.
        entries: Their entries in the queue.
        rules: Returns the rules of a profile.
    """

    def __init__(self, gangs: Gangs, entries: GangEntries, rules: RulesLookup) -> None:
        self._gangs = gangs
        self._entries = entries
        self._rules = rules

    def source_changed(self, source: GroupSource) -> None:
        """Call when the groups of a source become known, or are not known for another reason."""
        for gang in [gang for gang in self._gangs if gang.depends_on(source)]:
            self._entries.review(gang)
            self._entries.try_gate(gang)

    def domains_changed(self, labels: Collection[str]) -> None:
        """Requeue gangs whose topology uses one of some changed node labels, and members that wait as single pods."""
        if not labels:
            return
        for gang in self._gangs.units():
            entry = gang.entry
            if entry is not None and entry.place in _ASIDE and not gang.domain_labels.isdisjoint(labels):
                self._entries.moves.requeue(entry, Requeue.AFTER_BACKOFF, DOMAINS_CHANGED)
        for pod, gang in self._rejected_members():
            if not gang.domain_labels.isdisjoint(labels):
                self._entries.moves.requeue(pod, Requeue.AFTER_BACKOFF, DOMAINS_CHANGED)

    def member_moved(self, gang: Gang | None) -> None:
        """Requeue members that wait as single pods: a member was bound elsewhere or is gone, so the domain may differ.

        Args:
            gang: The gang of that member; None for a pod without one.
        """
        if gang is None or not gang.unit.domain_labels:
            return
        for pod, unit in self._rejected_members():
            if unit is gang.unit:
                self._entries.moves.requeue(pod, Requeue.AFTER_BACKOFF, DOMAINS_CHANGED)

    def _rejected_members(self) -> list[tuple[QueuedPod, Gang]]:
        """Return members that GangScheduling rejected as single pods, each with its gang or tree.

        The cost depends on the unschedulable pods, as that of an event does, and not on the size of gangs.
        """
        found = []
        for pod in self._entries.moves.places.pods(Place.UNSCHEDULABLE):
            if pod.group is not None and GANG_SCHEDULING in pod.rejected_by:
                gang = self._gangs.get(pod.group)
                if gang is not None and type(pod) is not QueuedGang:
                    found.append((pod, gang.unit))
        return found

    def profile_changed(self, profile: str) -> None:
        """Requeue waiting members by the new rules of a profile, or park them if it was withdrawn."""
        rules, moves = self._rules(profile), self._entries.moves
        for gang in self._gangs:
            members = [pod for pod in gang.waiting.values() if pod.profile == profile]
            if not members:
                continue
            for pod in members:
                del gang.waiting[pod.uid]
            self._entries.review(gang)
            for pod in members:
                if rules is None:
                    moves.park(pod)
                else:
                    moves.enter(pod, PROFILE_SWAPPED.name)
