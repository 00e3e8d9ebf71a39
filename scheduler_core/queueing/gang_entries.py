"""Gangs in the queue: one entry for all members of a gang whose quorum waits.

::

    member ──its PodGroup is not known──▶ gated ──known──▶ member
    member, gates open ──gather──▶ grouped ──quorum──▶ the entry is queued like a pod ──pop──▶ its group cycle
           ▲                         │ ▲                                                       │ scheduled
           │ needed is 0             │ └──────────────── failed ◀──────────────────────────────┤
           └─────────────────────────┘                                         in flight, each member by itself

A native group with a gated member has no entry, and its members stay grouped, also if needed is 0. The gangs of a tree
have one entry, that of the tree; see :mod:`scheduler_core.queueing.group_trees`.

There is no polling: every change of a gang calls :meth:`GangEntries.review`, whose cost does not depend on the size of
the gang unless the quorum is reached or lost.
"""

from __future__ import annotations

import copy
import itertools
import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from msgspec import Struct

from scheduler_core.errors import error_message
from scheduler_core.framework.cluster_events import PROFILE_SWAPPED, Action, ClusterEvent, Resource
from scheduler_core.framework.queued_pod import Place, QueuedGang, QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING, Status
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, GangOutcome
from scheduler_core.queueing.gang_registry import Gangs
from scheduler_core.queueing.group_trees import GangTree
from scheduler_core.queueing.queue_moves import ATTEMPT_FAILED, Move, Moves, NominationListener, RulesLookup
from scheduler_core.queueing.queueing_rules import Requeue

log = logging.getLogger(__name__)

QUORUM_EXISTS = "GangQuorum"
"""Label of the event by which a gang enters the queue, for metrics."""

GROUP_CHANGED = "PodGroupUpdate"

_BACKOFF_FACTOR = 2.0
"""Minimum backoff of a failing gang, as a multiple of the time that one cycle of every failing gang takes."""

_COST_OF_GATE = 2
"""Moves that cost as much as to run the gates of a member."""
_MOST_AT_ONCE = 300
"""Members of a gang that are moved at once: about 10 ms."""

_GATED, _GROUPED, _IN_FLIGHT, _NOWHERE = Place.GATED, Place.GROUPED, Place.IN_FLIGHT, Place.NOWHERE
_ASIDE = (Place.UNSCHEDULABLE, Place.GATED)
_RANKED = (Place.ACTIVE, Place.BACKOFF, Place.ERROR_BACKOFF)
_CALLED_IN = (*_RANKED, Place.UNSCHEDULABLE)


class GangEntries:
    """Creates, updates and removes the queue entries of gangs."""

    def __init__(self, gangs: Gangs, rules: RulesLookup, clock: Clock, sequence: itertools.count[int]) -> None:
        self._gangs = gangs
        self.gates_strangers = gangs.foreign_gangs == "Hold"
        self.moves = Moves(rules, clock, self)
        self._places = self.moves.places
        self._rules = rules
        self._sequence = sequence
        self._failing: dict[str, float] = {}
        self._faulty: dict[GroupKey, None] = {}
        self._changed_in_flight: dict[str, dict[GroupKey, None]] = {}
        """By UID of an entry in flight, the gangs and trees that changed during its attempt."""
        self.on_nomination_ended: list[NominationListener] = []
        gangs.forest.on_detached.append(self.review)

    # -- members ------------------------------------------------------------------------------------------------

    def assign_gang(self, pod: QueuedPod) -> None:
        """Set the gang of a pod; a running member whose resize is deferred waits on its own."""
        gang = self._gangs.of_uid(pod.uid)
        pod.group = None if gang is None or pod.info.pod.has_deferred_resize else gang.key

    def gate(self, pod: QueuedPod) -> Status:
        """Return Success if the PodGroup that a pod names is known, or if it names none and has no foreign mark."""
        rules = self._rules(pod.profile)
        status = self._gangs.gate(pod, places_gangs=rules is None or rules.places_gangs)
        if not status.is_success and (pod.gated_by, pod.gate_reasons) != (status.plugin, status.reasons):
            self._gangs.report_gated(pod)
        return status

    def is_tried_alone(self, pod: QueuedPod) -> bool:
        """Return whether a pod in flight may still be scheduled by itself: its gang, if any, is known and whole."""
        self.assign_gang(pod)
        if pod.group is None and not self.gates_strangers:
            return True
        rules = self._rules(pod.profile)
        status = self._gangs.gate(pod, places_gangs=rules is None or rules.places_gangs)
        return status.is_success and self._gang_that_needs(pod) is None

    def group_priority(self, uid: str) -> int | None:
        """Return the priority of the group or tree of groups of a pod; None if the pod's own counts."""
        gang = self._gangs.of_uid(uid)
        group = None if gang is None else gang.unit.group
        return None if group is None else group.priority

    def try_gate(self, gang: Gang) -> None:
        """Run the gate again for gated members, and for gated pods that name the group besides another one."""
        besides = map(self._places.find, self._gangs.named_besides(gang.key))
        pods = (*self._queued(gang), *filter(None, besides))
        self._for_each(self._try_gate_of, [pod for pod in pods if pod.place is _GATED])

    def _try_gate_of(self, pod: QueuedPod) -> None:
        if pod.place is _GATED and pod.gated_by == GANG_SCHEDULING:
            self.moves.enter(pod, GROUP_CHANGED)
            if pod.place is _GROUPED:
                self._gangs.report_gated(pod)

    def _for_each(self, move: Callable[[QueuedPod], None], pods: Sequence[QueuedPod]) -> None:
        """Move pods, those of a large gang in slices, of which the last one ends before the next pop."""
        if len(pods) > _MOST_AT_ONCE:
            unless_gone = partial(self._unless_gone, move)
            self.moves.pending.start([(unless_gone, pod, _COST_OF_GATE) for pod in pods])
            return
        for pod in pods:
            move(pod)

    def _unless_gone(self, move: Callable[[QueuedPod], None], pod: QueuedPod) -> None:
        if self._places.find(pod.uid) is pod:
            move(pod)

    def _gate_members(self, gang: Gang) -> None:
        """Gate the waiting members, and end their nominations: the PodGroup is not known any more."""
        gang.waiting.clear()
        self._for_each(self._gate_member, self._queued(gang))

    def _gate_member(self, pod: QueuedPod) -> None:
        if pod.place in _CALLED_IN or pod.place is _GROUPED:
            self._places.clear_rejections(pod)
            self.moves.enter(pod, GROUP_CHANGED)
        nominator = self.moves.nominator
        nominated, node_name = nominator.nomination_of(pod.uid), nominator.node_of(pod.uid)
        if nominated is not None and pod.place is _GATED:
            nominator.withdraw(pod.uid)
            for listener in self.on_nomination_ended:
                listener(nominated, node_name)

    def _queued(self, gang: Gang) -> list[QueuedPod]:
        return [pod for uid in gang.pods if (pod := self._places.find(uid)) is not None]

    def gather(self, pod: QueuedPod, label: str) -> bool:
        """Add an ungated pod to the waiting members of its gang if the gang needs it; return whether it waits there."""
        gang = self._gang_that_needs(pod)
        if gang is None:
            return False
        if pod.place is not _GROUPED:
            self._places.clear_rejections(pod)
            self._places.take(pod)
            self._places.put(pod, _GROUPED)
        is_new = pod.uid not in gang.waiting
        if is_new and pod.is_reported:
            self._gangs.report_gated(pod)
        if pod.info.pod.metadata.deletion_timestamp is None:
            gang.waiting[pod.uid] = pod
        self.review(gang, label)
        entry = gang.unit.entry
        if is_new and entry is not None and entry.place is Place.UNSCHEDULABLE:
            # The quorum may be feasible with another member, and that member needs a condition.
            self.moves.requeue(entry, Requeue.AFTER_BACKOFF, label)
        return True

    def note_gate(self, pod: QueuedPod, *, is_closed: bool) -> None:
        """Record whether a PreEnqueue plugin gates a pod of a gang; review the gang if that holds its members back."""
        gang = self._gangs.get(pod.group)
        if gang is None:
            return
        if is_closed:
            gang.aside[pod.uid] = pod
        else:
            gang.aside.pop(pod.uid, None)
        if (pod.uid in gang.gates) is is_closed:
            return
        was_held, was_waiting = gang.is_held, is_closed and gang.drop_waiting(pod.uid)
        if is_closed:
            gang.gates.add(pod.uid)
        else:
            gang.gates.discard(pod.uid)
        if was_waiting or gang.is_held is not was_held:
            self.review(gang)

    def report_gated(self, pod: QueuedPod) -> None:
        """Report a pod that a plugin gates; the API server reports scheduling gates, and members report an entry."""
        if type(pod) is not QueuedGang and not pod.info.pod.spec.scheduling_gates:
            self._gangs.report_gated(pod)

    def note_parked(self, pod: QueuedPod) -> None:
        gang = self._gangs.get(pod.group)
        if gang is not None:
            gang.aside[pod.uid] = pod
            self._gangs.changed(gang)

    def member_updated(self, pod: QueuedPod) -> QueuedGang | None:
        """Handle an update of a grouped member; return the gang's entry if it is unschedulable or gated."""
        gang = self._gangs.get(pod.group)
        if gang is None:
            return None
        if pod.info.pod.metadata.deletion_timestamp is not None and gang.drop_waiting(pod.uid):
            self.review(gang)
        entry = gang.unit.entry
        return entry if entry is not None and entry.place in _ASIDE else None

    def requeue_member(self, pod: QueuedPod) -> bool:
        """Requeue a pod whose attempt has failed with its gang, if the gang needs it; return whether that was done."""
        self.assign_gang(pod)
        if pod.group is not None and self._gangs.obstacle(pod.group):
            self._places.clear_rejections(pod)
            self.moves.enter(pod, ATTEMPT_FAILED)
            if pod.place is Place.GATED:
                self.moves.withhold_nomination(pod)
            return True
        gang = self._gang_that_needs(pod)
        if gang is None:
            return False
        entry = gang.unit.entry
        if entry is None and gang.unit.needed:
            entry = gang.unit.entry = self._entry_of(gang.unit, pod)
        if entry is not None and entry.place is _NOWHERE:
            # The backoff of the pod becomes that of the gang.
            entry.timestamp, entry.backoff_until = pod.timestamp, 0.0
            entry.error_count, entry.unschedulable_count = pod.error_count, pod.unschedulable_count
            entry.rejected_by, entry.pending_on = pod.rejected_by, frozenset()
        self._places.clear_rejections(pod)
        self._places.put(pod, _GROUPED)
        if pod.info.pod.metadata.deletion_timestamp is None:
            gang.waiting[pod.uid] = pod
        self.review(gang, ATTEMPT_FAILED)
        return True

    def remove_member(self, pod: QueuedPod) -> None:
        gang = self._gangs.get(pod.group)
        if gang is None:
            return
        self.note_gate(pod, is_closed=False)
        if gang.drop_waiting(pod.uid):
            self.review(gang)

    def _gang_that_needs(self, pod: QueuedPod) -> Gang | None:
        gang = self._gangs.get(pod.group)
        rules = self._rules(pod.profile)
        if gang is None or rules is None or not rules.places_gangs:
            return None
        if not gang.is_one_by_one:
            return gang
        # It is scheduled by itself; the next review regroups it if the gang is not whole any more.
        gang.was_whole = True
        return None

    def entry_of(self, pod: QueuedPod) -> QueuedGang | None:
        """Return the queue entry of the gang of a grouped pod; None without a quorum."""
        gang = self._gangs.get(pod.group)
        entry = None if gang is None else gang.unit.entry
        return None if entry is None or entry.place is _NOWHERE else entry

    # -- the entry ----------------------------------------------------------------------------------------------

    def group_changed(self, gang: Gang) -> None:
        """Handle a created, updated or invalid PodGroup: its gang may be schedulable now, or gated otherwise."""
        self.review(gang)
        if not gang.was_known or self._gangs.named_besides(gang.key):
            self.try_gate(gang)
        self._requeue_aside(gang, GROUP_CHANGED)

    def _requeue_aside(self, gang: Gang, label: str) -> None:
        entry = gang.unit.entry
        if entry is not None and entry.place in _ASIDE:
            self.moves.requeue(entry, Requeue.AFTER_BACKOFF, label)

    def review(self, gang: Gang, label: str = QUORUM_EXISTS) -> None:
        """Update the entry of a changed gang or tree; members of a whole gang continue as single pods."""
        # If a review raises twice, the next flush repeats it; no other gang or pod is affected.
        before = gang.was_known, gang.was_whole, gang.has_lost_member
        for is_last in (False, True):
            try:
                self._review(gang, label)
            except Exception as fault:
                # The next review acts on the same differences.
                gang.was_known, gang.was_whole, gang.has_lost_member = before
                if is_last:
                    self._note_faulty(gang, fault)
            else:
                return

    def _note_faulty(self, gang: Gang, fault: Exception) -> None:
        text = "the queue entry of gang %s cannot be updated; it is tried again within half a minute"
        log.error(text, gang.key, exc_info=fault, extra={"podgroup": str(gang.key)})
        self._faulty[gang.key] = None
        gang.outcome = GangOutcome("SchedulerError", error_message(fault))
        self._gangs.changed(gang)

    def review_faulty(self) -> None:
        """Review the gangs whose last review raised."""
        faulty, self._faulty = self._faulty, {}
        for key in faulty:
            gang = self._gangs.get(key)
            if gang is not None:
                self.review(gang)

    def delayed(self, pod: QueuedPod) -> None:
        """Take a pod that an error delays off the waiting members of its gang, until it is requeued."""
        gang = self._gangs.get(pod.group)
        if gang is None:
            return
        was_gated = pod.uid in gang.gates
        # A gang that waits for gated members does not wait for a pod that backs off.
        gang.gates.discard(pod.uid)
        if gang.drop_waiting(pod.uid) or was_gated:
            self.review(gang)

    def remove_faulty_member(self, pod: QueuedPod, fault: Exception) -> None:
        """Remove a deleted or bound member although :meth:`remove_member` raised."""
        gang = self._gangs.get(pod.group)
        if gang is not None:
            gang.gates.discard(pod.uid)
            gang.drop_waiting(pod.uid)
            self._note_faulty(gang, fault)

    def _review(self, gang: Gang, label: str) -> None:
        unit = gang.unit
        if unit.entry is not None and unit.entry.place is _IN_FLIGHT:
            # The members of an attempt must not move: it is reviewed when the attempt has ended.
            self._changed_in_flight.setdefault(unit.entry.uid, {})[gang.key] = None
            if gang.was_known and self._gangs.obstacle(gang.key):
                # A gate that runs during the attempt, for a swapped profile, is closed; the next review opens it again.
                gang.was_known = False
            return
        if isinstance(gang, GangTree):
            leaves = gang.take_unreviewed()
            try:
                for leaf in leaves:
                    self._review_members(leaf, label)
            except Exception:
                # Raised again to the caller, which reviews the tree once more.
                gang.review_again(leaves)
                raise
            self._review_entry(gang, label)
            return
        was_known, gang.was_known = gang.was_known, not self._gangs.obstacle(gang.key)
        if not gang.was_known:
            was_whole, gang.was_whole = gang.was_whole, False
            # Also without members: a swap of their profile during an attempt may have moved them already.
            self._withdraw(gang)
            if was_known or was_whole or gang.waiting:
                # Members have joined during an attempt of the tree, in which the group was not reviewed.
                self._gate_members(gang)
            if gang.tree is not None:
                self._review_entry(gang.tree, label)
            return
        if not was_known:
            gang.is_reported = False
            self.try_gate(gang)
        self._review_members(gang, label)
        if gang.tree is None:
            self._review_entry(gang, label)
        else:
            self.review(gang.tree, label)

    def _review_members(self, gang: Gang, label: str) -> None:
        """Release the members of a gang that is whole now, or regroup those of one that is not whole any more."""
        is_whole = gang.is_one_by_one
        was_whole, gang.was_whole = gang.was_whole, is_whole
        if was_whole and not is_whole:
            self._regroup(gang)
        if is_whole:
            self._release_members(gang, label)
        elif gang.tree is not None:
            self._withdraw(gang)

    def _review_entry(self, gang: Gang, label: str) -> None:
        # Moving members may have created the entry.
        entry = gang.entry
        has_lost_member, gang.has_lost_member = gang.has_lost_member, False
        if gang.is_one_by_one or gang.binding:
            # While members that were scheduled together are being bound, the quorum is theirs; others wait for its end.
            self._withdraw(gang)
        elif not gang.has_quorum:
            self._withdraw(gang)
            if not gang.is_incomplete and gang.waiting:
                self._gangs.report_incomplete(gang)
            if gang.was_rejected:
                gang.was_rejected = False
                for pod in gang.waiting.values():
                    self._gangs.report_gated(pod)
        elif entry is None or entry.place is _NOWHERE:
            gang.is_incomplete = False
            self._enter(gang, label)
        else:
            self._update_priority(gang, entry)
            if has_lost_member and entry.place in _ASIDE and not self._has_changed_profile(gang, entry, label):
                # Perhaps only that member was rejected.
                self.moves.requeue(entry, Requeue.AFTER_BACKOFF, label)

    def _has_changed_profile(self, gang: Gang, entry: QueuedGang, label: str) -> bool:
        """Enter the gang again if the member that represented it has left, and the next one has another profile.

        Called only before and after attempts, and for swaps of profiles, because it reads all members.
        """
        if not gang.waiting or entry.info.uid in gang.waiting or entry.profile == self._first(gang).profile:
            return False
        self._withdraw(gang)
        self._enter(gang, label)
        return True

    def leave_profile(self, gang: Gang) -> None:
        """Enter a gang again whose entry has a profile that is not live any more, if members of another one wait."""
        entry = gang.entry
        if entry is not None and entry.place not in (_NOWHERE, _IN_FLIGHT) and self._rules(entry.profile) is None:
            self._has_changed_profile(gang, entry, PROFILE_SWAPPED.name)

    @staticmethod
    def _first(gang: Gang) -> QueuedPod:
        """Return the member that represents a gang in hints and events: the most important one, of equals the first."""
        return min(gang.waiting.values(), key=lambda pod: (-pod.info.priority, pod.sequence))

    def _enter(self, gang: Gang, label: str) -> None:
        first = self._first(gang)
        entry = gang.entry
        if entry is None or entry.profile != first.profile:
            entry = gang.entry = self._entry_of(gang, first)
        entry.info = copy.copy(first.info)
        entry.set_sort_position(gang.priority, gang.waits_since)
        earlier = self._places.by_uid.get(entry.uid)
        if earlier is not None:
            # The group was recreated while a copy of the process searched for nodes; its result is not used.
            self._places.drop(earlier)
        self._places.register(entry)
        self._places.count_rejections(entry)
        self.moves.requeue(entry, Requeue.AFTER_BACKOFF, label)

    def _entry_of(self, gang: Gang, pod: QueuedPod) -> QueuedGang:
        return QueuedGang(gang.key, gang.waiting, copy.copy(pod.info), pod.timestamp, next(self._sequence))

    def _update_priority(self, gang: Gang, entry: QueuedGang) -> None:
        """Reorder the entry if the priority of the gang has changed."""
        priority = gang.priority
        if priority != entry.info.priority:
            entry.set_sort_position(priority, gang.waits_since)
            if entry.place in _RANKED:
                self.moves.reorder(entry)

    def move_behind_peers(self, gang: Gang, now: float) -> None:
        """Reset the age of a timed-out gang, so that gangs and pods of the same priority are tried first."""
        gang.since = now
        entry = gang.entry
        if entry is not None and entry.place is not _NOWHERE:
            entry.set_sort_position(gang.priority, now)
            if entry.place in _RANKED:
                self.moves.reorder(entry)

    def _withdraw(self, gang: Gang) -> None:
        """Remove the entry from the queue without its quorum; its backoff is retained for the next quorum."""
        entry = gang.entry
        if entry is None:
            return
        self._failing.pop(entry.uid, None)
        if entry.place is not _NOWHERE:
            self._places.drop(entry)

    def _release_members(self, gang: Gang, label: str) -> None:
        self._withdraw(gang)
        gang.entry = None
        members = list(gang.waiting.values())
        gang.waiting.clear()
        self._for_each(lambda pod: self.moves.enter(pod, label), members)

    def _regroup(self, gang: Gang) -> None:
        """Regroup members that wait as single pods, because their gang is not whole any more."""
        self._for_each(self._regroup_member, self._queued(gang))

    def _regroup_member(self, pod: QueuedPod) -> None:
        if pod.place in _CALLED_IN:
            self._places.clear_rejections(pod)
            self.moves.enter(pod, QUORUM_EXISTS)

    # -- attempts -----------------------------------------------------------------------------------------------

    def failed(self, entry: QueuedGang, now: float) -> None:
        """Set the minimum backoff of a failed gang, so that failing gangs take at most half of the scheduler's time."""
        gang = self._gangs.get(entry.gang_key)
        if gang is not None:
            gang.was_rejected = True
        # A failed gang keeps its position. With very many failing gangs the first would be back before the last has
        # been tried, and pods behind them would starve. If the active queue is empty, the entry nearest the end of its
        # backoff is tried early, so the backoff then delays nothing.
        self._failing[entry.uid] = now - entry.busy_since
        entry.minimum_backoff = _BACKOFF_FACTOR * sum(self._failing.values())

    def attempted(self, entry: QueuedGang) -> None:
        """Review a gang after its failed attempt was requeued: it may have changed meanwhile."""
        gang = self._gangs.get(entry.gang_key)
        if gang is None or gang.entry is not entry:
            # The gang was deleted during the attempt, and another one of its name has an entry of its own.
            self._failing.pop(entry.uid, None)
            if self._places.find(entry.uid) is entry:
                self._places.drop(entry)
        self._review_changed(entry, gang)
        if gang is not None:
            self.review(gang)
            if gang.entry is entry and entry.place is not _NOWHERE:
                self._has_changed_profile(gang, entry, ATTEMPT_FAILED)

    def _review_changed(self, entry: QueuedGang, gang: Gang | None) -> None:
        """Review the gangs of a tree that changed during its attempt, and those that have left it."""
        for key in self._changed_in_flight.pop(entry.uid, ()):
            changed = self._gangs.get(key)
            if changed is not None and changed is not gang:
                self.review(changed)

    def gang_placed(self, entry: QueuedGang, placed: Iterable[QueuedPod]) -> Gang | None:
        """Remove the entry of a scheduled gang; its assumed members are in flight by themselves."""
        self._failing.pop(entry.uid, None)
        self._changed_in_flight.pop(entry.uid, None)
        if entry.place is not _NOWHERE:
            self._places.drop(entry)
        gang = self._gangs.get(entry.gang_key)
        for pod in placed:
            self._places.take(pod)
            self._places.begin_attempt(pod)
            member_of = self._gangs.of_uid(pod.uid)
            if member_of is not None:
                member_of.waiting.pop(pod.uid, None)
                # A profile that was swapped during the attempt may have closed a gate.
                member_of.gates.discard(pod.uid)
        if gang is not None:
            gang.entry = None
        return gang


_COST_OF_MEMBER = 2
"""Cost of moving a member, in moves of pods: it is gathered again, and its gang reviewed."""
DOMAINS_CHANGED = ClusterEvent(Resource.NODE, Action.UPDATE_NODE_LABEL).name


class _Swap(Struct):
    """A swap of the profile of a gang's members, with those that are not moved yet, the last one first.

    Attributes:
        is_begun: Whether the gang was reviewed without the members.
    """

    gang: Gang
    profile: str
    members: list[QueuedPod] | None = None
    is_begun: bool = False


class GangRequeueing:
    """Requeues gangs.

    Args:
        note: Records that a pod or gang in flight is retried if its attempt fails.
    """

    def __init__(self, gangs: Gangs, entries: GangEntries, note: Callable[[QueuedPod], None]) -> None:
        self._gangs = gangs
        self._entries = entries
        self._note = note

    def source_changed(self, source: GroupSource) -> None:
        """Call when the groups of a source become known, or are not known for another reason."""
        gangs = [gang for gang in self._gangs if gang.depends_on(source)]
        self._entries.moves.pending.start((self._review, gang, 1 + _COST_OF_MEMBER * len(gang.pods)) for gang in gangs)

    def _review(self, gang: Gang) -> None:
        self._entries.review(gang)
        self._entries.try_gate(gang)

    def domains_changed(self, labels: Collection[str]) -> None:
        """Requeue gangs whose topology uses one of some changed node labels, and members that wait as single pods."""
        if not labels:
            return
        entries = [
            entry
            for gang in self._gangs.units()
            if (entry := gang.entry) is not None and entry.place in _ASIDE and not gang.domain_labels.isdisjoint(labels)
        ]
        members = [pod for pod, gang in self._rejected_members() if not gang.domain_labels.isdisjoint(labels)]
        self._requeue_all((*entries, *members))
        for pod, gang in self._in_flight():
            if not gang.domain_labels.isdisjoint(labels):
                self._note(pod)

    def _requeue_all(self, pods: Iterable[QueuedPod]) -> None:
        self._entries.moves.pending.start((self._requeue_aside, pod, 1) for pod in pods)

    def _requeue_aside(self, pod: QueuedPod) -> None:
        if pod.place in _ASIDE:
            self._entries.moves.requeue(pod, Requeue.AFTER_BACKOFF, DOMAINS_CHANGED)

    def member_moved(self, gang: Gang | None) -> None:
        """Requeue members that wait as single pods: a member was bound elsewhere or is gone, so the domain may differ.

        Args:
            gang: The gang of that member; None for a pod without one.
        """
        if gang is None or not gang.unit.domain_labels:
            return
        self._requeue_all([pod for pod, unit in self._rejected_members() if unit is gang.unit])
        for pod, unit in self._in_flight():
            if unit is gang.unit and type(pod) is not QueuedGang:
                self._note(pod)

    def _in_flight(self) -> list[tuple[QueuedPod, Gang]]:
        """Return members and entries in flight, each with its gang or tree."""
        # No queueing hint covers domains: hints are called for single pods, and topologies belong to groups.
        found = []
        for pod in self._entries.moves.places.pods(_IN_FLIGHT):
            gang = self._gangs.get(pod.gang_key if isinstance(pod, QueuedGang) else pod.group)
            if gang is not None:
                found.append((pod, gang.unit))
        return found

    def _rejected_members(self) -> list[tuple[QueuedPod, Gang]]:
        """Return members that GangScheduling rejected as single pods, each with its gang or tree."""
        # By unschedulable pods, as an event costs, and not by the members of all gangs.
        found = []
        for pod in self._entries.moves.places.pods(Place.UNSCHEDULABLE):
            if GANG_SCHEDULING in pod.rejected_by and type(pod) is not QueuedGang:
                gang = self._gangs.get(pod.group)
                if gang is not None:
                    found.append((pod, gang.unit))
        return found

    def profile_changed(self, profile: str) -> list[Move]:
        """Return moves of the waiting members: by the new rules of a profile, or to the parked pods without it."""
        return [(self._swap_members, _Swap(gang, profile), _COST_OF_MEMBER) for gang in self._gangs if gang.waiting]

    def _swap_members(self, swap: _Swap) -> bool:
        """Take the members off their gang in the first call, move one in each further call; return if any is left."""
        members, gang = swap.members, swap.gang
        if members is None:
            members = swap.members = [pod for pod in gang.waiting.values() if pod.profile == swap.profile][::-1]
        if not swap.is_begun:
            # Once more if it raises: members of no gang would wait permanently.
            for pod in members:
                gang.waiting.pop(pod.uid, None)
            if members:
                # Without them, because the profile may place gangs no longer.
                self._entries.review(gang)
                self._entries.leave_profile(gang.unit)
            swap.is_begun = True
        else:
            pod = members[-1]
            if pod.place is _GROUPED:
                try:
                    self._entries.moves.enter(pod, PROFILE_SWAPPED.name)
                except Exception as fault:
                    self._entries.moves.delay_faulty(pod, fault)
            members.pop()
        return bool(members)
