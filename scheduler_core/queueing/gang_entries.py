"""Gangs in the queue: one entry for all the members of a gang whose quorum waits.

Owns when a member waits with its gang and when the gang's entry comes and goes::

    member ──its PodGroup is not known──▶ gated ──known──▶ member
    member, gates open ──gather──▶ grouped ──quorum──▶ the entry is queued as a pod is ──pop──▶ its group cycle
           ▲                         │ ▲                                                        │ placed
           │ needed is 0             │ └──────────────── failed ◀───────────────────────────────┤
           └─────────────────────────┘                                              in flight, each on its own

Must not know how a gang is placed. Nothing is looked at from time to time: whatever changes a gang calls
:meth:`GangEntries.review`, which costs the same for a gang of any size unless its quorum comes or goes.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Collection, Iterable

from scheduler_core.framework.cluster_events import PROFILE_SWAPPED, Action, ClusterEvent, Resource
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import SUCCESS, Status, unresolvable
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.queueing.gang import Gang
from scheduler_core.queueing.gangs import Gangs
from scheduler_core.queueing.moves import ATTEMPT_FAILED, Moves, RulesLookup
from scheduler_core.queueing.queueing_rules import Requeue

GANG_SCHEDULING = "GangScheduling"
"""What members that wait for their gang are held by, as kube-scheduler names it."""

QUORUM_EXISTS = "GangQuorum"
"""The event by which a gang comes into the queue, for the counts."""

GROUP_CHANGED = "PodGroupUpdate"

_TIMES_AWAY = 2.0
"""Each gang that fails backs off for so many times as long as all of those take, one after the other."""
DOMAINS_CHANGED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL).name

_GROUPED, _IN_FLIGHT, _NOWHERE = Place.GROUPED, Place.IN_FLIGHT, Place.NOWHERE
_ASIDE = (Place.UNSCHEDULABLE, Place.GATED)
_RANKED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_CALLED_IN = (*_RANKED, Place.UNSCHEDULABLE)


def group_gate(gangs: Gangs, key: GroupKey | None) -> Status:
    """Return Success if a PodGroup is known, or if *key* is None; else why its members must not be decided.

    All profiles have this gate, whether they place gangs in one cycle or by Permit.
    """
    text = "" if key is None else gangs.obstacle(key)
    return unresolvable(text).of(GANG_SCHEDULING) if text else SUCCESS


class GangEntries:
    """Forms, keeps and dissolves the entries of gangs."""

    def __init__(self, gangs: Gangs, moves: Moves, rules: RulesLookup, sequence: itertools.count[int]) -> None:
        self._gangs = gangs
        self._moves = moves
        self._places = moves.places
        self._rules = rules
        self._sequence = sequence
        self._failing: dict[str, float] = {}
        moves.gather = self.gather
        moves.group_gate = self.gate

    # -- members ------------------------------------------------------------------------------------------------

    def belongs(self, pod: QueuedPod) -> None:
        """Note to which gang a pod belongs."""
        gang = self._gangs.of_uid(pod.uid)
        pod.group = None if gang is None else gang.key

    def gate(self, pod: QueuedPod) -> Status:
        """Return Success if the PodGroup that a pod names is known, or if the pod names none."""
        status = group_gate(self._gangs, pod.group)
        if not status.is_success and (pod.gated_by, pod.gate_reasons) != (status.plugin, status.reasons):
            self._gangs.held(pod)
        return status

    def source_changed(self, source: GroupSource) -> None:
        """Call when the PodGroups of a source become known, or are not known for another reason."""
        for gang in [gang for gang in self._gangs if gang.key.source is source]:
            self.review(gang)
            self._try_gate(gang)

    def _try_gate(self, gang: Gang) -> None:
        """Let the members that are held back pass if the PodGroup is known, or note why it is not."""
        for pod in self._queued(gang):
            if self.holds_back(pod):
                self._moves.enter(pod, GROUP_CHANGED)
                self._tried(pod)

    def holds_back(self, pod: QueuedPod) -> bool:
        """Return whether a pod is gated because its PodGroup is not known; it has no nomination then."""
        return pod.place is Place.GATED and pod.gated_by == GANG_SCHEDULING

    def _tried(self, pod: QueuedPod) -> None:
        if pod.place is _GROUPED:
            self._gangs.held(pod)
        nominator = self._moves.nominator
        if pod.place is not Place.GATED and not nominator.node_of(pod.uid):
            # After a restart, pods may be listed before their PodGroups: the nomination is the status's.
            nominator.decide(pod.info, None)

    def _hold_back(self, gang: Gang) -> None:
        """Send the members that wait to the gate: the PodGroup is not known any more."""
        self._withdraw(gang)
        gang.waiting.clear()
        for pod in self._queued(gang):
            if pod.place in _CALLED_IN or pod.place is _GROUPED:
                self._places.absolve(pod)
                pod.rejected_by = pod.pending_on = frozenset()
                self._moves.enter(pod, GROUP_CHANGED)

    def _queued(self, gang: Gang) -> list[QueuedPod]:
        return [pod for uid in gang.pods if (pod := self._places.find(uid)) is not None]

    def gather(self, pod: QueuedPod, label: str) -> bool:
        """Let a pod whose gates are open wait with its gang, if it is to be placed with it.

        Args:
            pod: The pod, wherever it is.
            label: The event by which it moves, for the counts.

        Returns:
            Whether it waits with its gang now.
        """
        gang = self._gang_that_needs(pod)
        if gang is None:
            return False
        if pod.place is not _GROUPED:
            self._places.absolve(pod)
            pod.rejected_by = pod.pending_on = frozenset()
            self._places.take(pod)
            self._places.hold(pod, _GROUPED)
        is_new = pod.uid not in gang.waiting
        if pod.info.pod.metadata.deletion_timestamp is None:
            gang.waiting[pod.uid] = pod
        self.review(gang, label)
        entry = gang.entry
        if is_new and entry is not None and entry.place is Place.UNSCHEDULABLE:
            # With another member the quorum may fit, and that member has no condition yet.
            self._moves.requeue(entry, Requeue.AFTER_BACKOFF, label)
        return True

    def member_updated(self, pod: QueuedPod) -> QueuedGang | None:
        """A member that waits with its gang has changed; what stands for it, if that waits aside."""
        gang = None if pod.group is None else self._gangs.get(pod.group)
        if gang is None:
            return None
        if pod.info.pod.metadata.deletion_timestamp is not None and gang.waiting.pop(pod.uid, None) is not None:
            self.review(gang)
        entry = gang.entry
        return entry if entry is not None and entry.place in _ASIDE else None

    def take_back(self, pod: QueuedPod) -> bool:
        """Let a pod whose attempt has failed wait with its gang, if that is not whole without it.

        The gang backs off as the pod would have.
        """
        self.belongs(pod)
        if pod.group is not None and self._gangs.obstacle(pod.group):
            self._places.absolve(pod)
            pod.rejected_by = pod.pending_on = frozenset()
            self._moves.enter(pod, ATTEMPT_FAILED)
            return True
        gang = self._gang_that_needs(pod)
        if gang is None:
            return False
        self._places.absolve(pod)
        entry = gang.entry
        if entry is None:
            entry = gang.entry = self._entry_of(gang, pod)
        if entry.place is _NOWHERE:
            entry.timestamp, entry.backoff_until = pod.timestamp, 0.0
            entry.error_count, entry.unschedulable_count = pod.error_count, pod.unschedulable_count
            entry.rejected_by, entry.pending_on = pod.rejected_by, frozenset()
            self._places.blame(entry, entry.rejected_by)
        pod.rejected_by = pod.pending_on = frozenset()
        self._places.hold(pod, _GROUPED)
        if pod.info.pod.metadata.deletion_timestamp is None:
            gang.waiting[pod.uid] = pod
        self.review(gang, ATTEMPT_FAILED)
        return True

    def forget(self, pod: QueuedPod) -> None:
        """A member waits no more: it is gone, or has a node."""
        gang = None if pod.group is None else self._gangs.get(pod.group)
        if gang is not None and gang.waiting.pop(pod.uid, None) is not None:
            self.review(gang)

    def _gang_that_needs(self, pod: QueuedPod) -> Gang | None:
        gang = None if pod.group is None else self._gangs.get(pod.group)
        rules = self._rules(pod.profile)
        if gang is None or rules is None or not rules.places_gangs:
            return None
        if gang.needed:
            return gang
        # It goes on alone: whoever reviews the gang next calls it in, should the gang not be whole any more.
        gang.was_whole = True
        return None

    def entry_of(self, pod: QueuedPod) -> QueuedGang | None:
        """What stands for a pod that waits with its gang; None while there is no quorum."""
        gang = None if pod.group is None else self._gangs.get(pod.group)
        entry = None if gang is None else gang.entry
        return None if entry is None or entry.place is _NOWHERE else entry

    # -- the entry ----------------------------------------------------------------------------------------------

    def group_changed(self, gang: Gang) -> None:
        """A gang's PodGroup has come or has changed: it may fit now."""
        self.review(gang)
        entry = gang.entry
        if entry is not None and entry.place in _ASIDE:
            self._moves.requeue(entry, Requeue.AFTER_BACKOFF, GROUP_CHANGED)

    def domains_changed(self, labels: Collection[str]) -> None:
        """Nodes have other values of some labels: gangs that look for a domain by one of them may find one now.

        No plugin's hint tells: those ask about one pod, and the domains are the group's.
        """
        if not labels:
            return
        for gang in self._gangs:
            topology = None if gang.group is None else gang.group.topology
            entry = gang.entry
            if topology is None or entry is None or entry.place not in _ASIDE:
                continue
            if not {topology.key, *topology.levels}.isdisjoint(labels):
                self._moves.requeue(entry, Requeue.AFTER_BACKOFF, DOMAINS_CHANGED)

    def review(self, gang: Gang, label: str = QUORUM_EXISTS) -> None:
        """A gang has changed: let its entry come or go, and members that nothing is waited for with go on alone."""
        entry = gang.entry
        if entry is not None and entry.place is _IN_FLIGHT:
            return
        was_known, gang.was_known = gang.was_known, not self._gangs.obstacle(gang.key)
        if not gang.was_known:
            gang.was_whole = False
            if was_known:
                self._hold_back(gang)
            return
        if not was_known:
            gang.is_reported = False
            self._try_gate(gang)
        is_whole = not gang.needed
        was_whole, gang.was_whole = gang.was_whole, is_whole
        if was_whole and not is_whole:
            self._call_in(gang)
        # What moved members may have brought the entry.
        entry = gang.entry
        if is_whole:
            self._let_go(gang, label)
        elif gang.binding or not gang.has_quorum:
            self._withdraw(gang)
        elif entry is None or entry.place is _NOWHERE:
            self._enter(gang, label)
        else:
            self._stand(gang, entry)

    def _enter(self, gang: Gang, label: str) -> None:
        first = min(gang.waiting.values(), key=lambda pod: (-pod.info.priority, pod.sequence))
        entry = gang.entry
        if entry is None or entry.profile != first.profile:
            entry = gang.entry = self._entry_of(gang, first)
        entry.info = copy.copy(first.info)
        entry.set_sort_position(gang.priority, gang.since)
        self._places.welcome(entry)
        self._moves.requeue(entry, Requeue.AFTER_BACKOFF, label)

    def _entry_of(self, gang: Gang, pod: QueuedPod) -> QueuedGang:
        return QueuedGang(gang.key, copy.copy(pod.info), pod.timestamp, next(self._sequence))

    def _stand(self, gang: Gang, entry: QueuedGang) -> None:
        """A gang of another priority has another place in the queue."""
        priority = gang.priority
        if priority != entry.info.priority:
            entry.set_sort_position(priority, gang.since)
            if entry.place in _RANKED:
                self._moves.reorder(entry)

    def stand_back(self, gang: Gang, now: float) -> None:
        """A gang has had its time: its age starts anew, so that its peers go first."""
        gang.since = now
        entry = gang.entry
        if entry is not None and entry.place is not _NOWHERE:
            entry.set_sort_position(gang.priority, now)
            if entry.place in _RANKED:
                self._moves.reorder(entry)

    def _withdraw(self, gang: Gang) -> None:
        """The quorum is gone; how its attempts went is kept for when there is one again."""
        entry = gang.entry
        if entry is None:
            return
        self._failing.pop(entry.uid, None)
        if entry.place is not _NOWHERE:
            self._places.drop(entry)

    def _let_go(self, gang: Gang, label: str) -> None:
        self._withdraw(gang)
        gang.entry = None
        members = list(gang.waiting.values())
        gang.waiting.clear()
        for pod in members:
            self._moves.enter(pod, label)

    def _call_in(self, gang: Gang) -> None:
        """Let members that wait alone wait with their gang, which is not whole any more, past their gates again."""
        for pod in self._queued(gang):
            if pod.place in _CALLED_IN:
                self._places.absolve(pod)
                pod.rejected_by = pod.pending_on = frozenset()
                self._moves.enter(pod, QUORUM_EXISTS)

    # -- attempts -----------------------------------------------------------------------------------------------

    def failed(self, entry: QueuedGang, now: float) -> None:
        """An attempt has failed: attempts of gangs that fail are to take half of the time at the most.

        Failures do not cost a gang its turn. Were there so many that the first are back before the last has failed,
        they would be tried over and over, and what came after them would never be. While nobody else wants to be
        tried, backing off delays nothing: who is nearest its end is tried early.

        Args:
            entry: What stands for the gang.
            now: The clock's seconds.
        """
        self._failing[entry.uid] = now - entry.tried_at
        entry.set_minimum_backoff(_TIMES_AWAY * sum(self._failing.values()))

    def attempted(self, entry: QueuedGang) -> None:
        """A failed attempt is over, and its entry has its place: what changed meanwhile counts from now on."""
        gang = self._gangs.get(entry.gang_key)
        if gang is not None:
            self.review(gang)

    def concluded(self, entry: QueuedGang, placed: Iterable[QueuedPod]) -> Gang | None:
        """A gang's attempt has placed its quorum: its entry is no more, and those who were tried fly on their own.

        Args:
            entry: What was popped.
            placed: The members that the attempt was about, those beyond the quorum included.
        """
        self._failing.pop(entry.uid, None)
        if entry.place is not _NOWHERE:
            self._places.drop(entry)
        gang = self._gangs.get(entry.gang_key)
        for pod in placed:
            self._places.take(pod)
            self._places.fly(pod)
            if gang is not None:
                gang.waiting.pop(pod.uid, None)
        if gang is not None:
            gang.entry = None
        return gang

    # -- profiles -----------------------------------------------------------------------------------------------

    def profile_changed(self, profile: str) -> None:
        """A profile came, was replaced or went: members wait by its new rules, or are parked."""
        rules = self._rules(profile)
        for gang in self._gangs:
            members = [pod for pod in gang.waiting.values() if pod.profile == profile]
            if not members:
                continue
            for pod in members:
                del gang.waiting[pod.uid]
            self.review(gang)
            for pod in members:
                if rules is None:
                    self._moves.park(pod)
                else:
                    self._moves.enter(pod, PROFILE_SWAPPED.name)
