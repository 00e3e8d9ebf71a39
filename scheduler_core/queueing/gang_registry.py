"""All gangs, and the gang of each pod; :mod:`scheduler_core.queueing.gang_members` counts the quorum.

A gang exists here while its PodGroup or any member exists. Membership depends on the pod and on the rules of its
profile for owners, never on which PodGroups are known: a pod that names a group, or has an owner with such a rule, is a
member from its first event on, and :meth:`Gangs.obstacle` returns why it must not be decided yet.

    source: unread (not listed yet, not served, refused) <--> readable     ignored: its labels and fields do not count
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from scheduler_core.config.gang_owners import OPT_OUT_LABEL, OwnerInstance, OwnerRule, owner_instance
from scheduler_core.framework.queued_pod import QueuedPod
from scheduler_core.framework.status import GANG_SCHEDULING, SUCCESS, Status, unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import (
    DEFAULT_SOURCES,
    GROUP_FIELDS,
    POD_GROUP_LABELS,
    CompositePodGroup,
    ForeignGangs,
    GroupKey,
    GroupSource,
    PodGroup,
    foreign_gang,
    group_key_of,
    group_keys_of,
    names_several_groups,
    volcano_group,
)
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang_members import Gang, HealingOutcome
from scheduler_core.queueing.group_trees import GroupForest

log = logging.getLogger(__name__)

_LABELS = frozenset(POD_GROUP_LABELS.values())
_NOT_BY_PERMIT = (
    "groups of groups are not supported by a profile that schedules gangs by Permit; disable its plugin, such as "
    "Coscheduling, or create the PodGroup without spec.parentCompositePodGroupName"
)
_TIMESTAMP_SECONDS = 1.0
"""Resolution of a creation timestamp."""


class Gangs:
    """Gangs by key.

    Attributes:
        forest: The CompositePodGroups, and the trees of gangs below them.
        on_change: Called with every gang whose status may have changed.
        on_foreign: Called with an added pod that has a mark of another gang scheduler, and what it is.
        interrupted: Groups whose last change raised: their members are gated until it is delivered again.
        on_gated: Called with a pod that the queue gates because its PodGroup is not known or a plugin rejects it, again
            when the reason changes, and when the pod waits for other members of its gang instead.
        on_incomplete: Called with a gang or tree whose members wait without a quorum.
        on_member: Called with a member of a gang that has lost members, or that is lost now: whether it has just lost
            its place, and whether it is deleted.
        on_bind_failed: Called with a gang and the UID of a member whose bind failed after others were sent.
        on_healing: Called with a gang when room is held for a replacement, and when that ends.
    """

    def __init__(self, clock: Clock, foreign_gangs: ForeignGangs = "Ignore") -> None:
        self._clock = clock
        self.foreign_gangs = foreign_gangs
        self.on_foreign: list[Callable[[QueuedPod, str], None]] = []
        self._gangs: dict[GroupKey, Gang] = {}
        self._key_of: dict[str, GroupKey] = {}
        self._counted = set(DEFAULT_SOURCES)
        self._counts_volcano = False
        self._unread = {
            source: f"the {source.kind}s of {source.api_group} have not been listed yet" for source in GroupSource
        }
        self._refused: dict[GroupKey, str] = {}
        self.interrupted: set[GroupKey] = set()
        self._follows_runs = False
        self._named_besides: dict[GroupKey, set[str]] = {}
        self._owner_rules: dict[str, tuple[OwnerRule, ...]] = {}
        self._unapplied_rules: set[str] = set()
        self._ended_of_owners: dict[str, Pod] = {}
        self.forest = GroupForest(self._gangs, clock.now, self.of_uid)
        self.on_change: list[Callable[[Gang], None]] = []
        self.on_gated: list[Callable[[QueuedPod], None]] = []
        self.on_incomplete: list[Callable[[Gang], None]] = []
        self.on_healing: list[Callable[[Gang, HealingOutcome], None]] = []
        self.on_bind_failed: list[Callable[[Gang, str], None]] = []
        self.on_member: list[Callable[[Gang, Pod, bool, bool], None]] = []
        self._left: dict[str, Pod] = {}
        """Members by UID whose loss is not reported yet, because an exception interrupted their change."""

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def units(self) -> Iterator[Gang]:
        """Yield what has an entry in the queue: the gangs that are no part of a tree, and the trees."""
        yield from (gang for gang in self._gangs.values() if gang.tree is None)
        yield from self.forest.trees.values()

    def get(self, key: GroupKey | None) -> Gang | None:
        """Return the gang of a key, or the tree of the key of a root; None for none."""
        if key is None:
            return None
        if key.source is GroupSource.COMPOSITE:
            return self.forest.trees.get(key)
        return self._gangs.get(key)

    def of_uid(self, uid: str) -> Gang | None:
        """Return the gang of a pod by the pod's UID; None for none."""
        key = self._key_of.get(uid)
        return None if key is None else self._gangs.get(key)

    def key_of(self, pod: Pod) -> GroupKey | None:
        """Return the group that a pod names by an API that is not ignored, or the one of its owner; None for none."""
        key = group_key_of(pod, self._counted)
        owner = self._owner_of(pod, key)
        return key if owner is None else owner.key

    def _owner_of(self, pod: Pod, named: GroupKey | None) -> OwnerInstance | None:
        """Return the instance whose group a pod belongs to, unless a label names another one; None for none."""
        # A native group does not count here: the Job controller gives the pods of every Job one of the basic policy,
        # and conflict() gates the pod if it is a gang.
        if named is not None and named.source is not GroupSource.NATIVE:
            return None
        rules = self._owner_rules.get(pod.spec.scheduler_name)
        return None if rules is None else owner_instance(pod, rules)

    def _keys_of(self, pod: Pod) -> list[GroupKey]:
        """Return the group that a pod is a member of, and then the others that it names."""
        named = group_keys_of(pod, self._counted)
        owner = self._owner_of(pod, named[0] if named else None)
        return named if owner is None else [owner.key, *named]

    def owner_rules(self, profile: str) -> tuple[OwnerRule, ...]:
        """Return the rules by which the pods of a profile belong to the gangs of their owners."""
        return self._owner_rules.get(profile, ())

    def ended_of_owners(self, profile: str) -> list[Pod]:
        """Return the ended pods of a profile that are in no gang, and to which a rule for owners may apply later."""
        return [pod for pod in self._ended_of_owners.values() if pod.spec.scheduler_name == profile]

    def unread(self, source: GroupSource) -> str | None:
        """Return why the PodGroups of a source are not known; None if they are."""
        return self._unread.get(source)

    def obstacle(self, key: GroupKey) -> str:
        """Return why members of a group are gated, with the remedy; "" if the PodGroup is known."""
        unread = self._unread.get(key.source)
        if unread is not None:
            return f'pod group "{key.name}" cannot be read: {unread}'
        if self.interrupted and (interrupted := self._interrupted_from(key)) is not None:
            what = f"{interrupted.source.kind} {interrupted} of {interrupted.source.api_group}"
            return f"a change of {what} failed in the scheduler itself; it is repeated until it is handled"
        gang = self._gangs.get(key)
        if gang is not None and gang.group is not None:
            return self._obstacle_above(gang.group.parent_key)
        # These are the words of kube-scheduler v1.37.1.
        waits = f'waiting for pods\'s pod group "{key.name}" to appear in scheduling queue'
        refused = self._refused.get(key)
        if gang is not None and gang.owner is not None:
            why = "it is being created" if refused is None else f"it cannot be created or used: {refused}"
            alone = f'the label {OPT_OUT_LABEL}: "false" in the pod template schedules the pods one by one'
            return f"{waits}: PodGroup {key} of {gang.owner} does not exist yet; {why}; {alone}"
        remedy = f"or create the pod without {GROUP_FIELDS[key.source]}"
        if refused is not None:
            return f"{waits}: PodGroup {key} of {key.source.value} cannot be scheduled: {refused}, {remedy}"
        return f"{waits}: no valid PodGroup {key} of {key.source.value} exists; create or correct it, {remedy}"

    def _interrupted_from(self, key: GroupKey) -> GroupKey | None:
        """Return the first group, from one upwards, whose last change raised; None for none."""
        return next((each for each in self.forest.path_up(key) if each in self.interrupted), None)

    def _obstacle_above(self, parent: GroupKey | None) -> str:
        """Return why the CompositePodGroups above a PodGroup are not known; "" if they are, or if there are none."""
        if parent is None:
            return ""
        unread = self._unread.get(parent.source)
        if unread is not None:
            return f'composite pod group "{parent.name}" cannot be read: {unread}'
        broken = self.forest.broken_above(parent)
        if broken is None:
            return ""
        key, is_own_ancestor = broken
        remedy = "or create its child groups without spec.parentCompositePodGroupName"
        if is_own_ancestor:
            return f'composite pod group "{key.name}" is its own ancestor; create it without a parent, {remedy}'
        waits = f'waiting for composite pod group "{key.name}" to appear in scheduling queue'
        what = f"{key.source.kind} {key} of {key.source.api_group}"
        refused = self._refused.get(key)
        if refused is not None:
            return f"{waits}: {what} cannot be scheduled: {refused}, {remedy}"
        return f"{waits}: no valid {what} exists; create or correct it, {remedy}"

    def gate(self, pod: QueuedPod, *, places_gangs: bool) -> Status:
        """Return Success if a pod may be scheduled, alone or with its gang; else why it is gated, with the remedy.

        Args:
            places_gangs: Whether its profile schedules gangs in group cycles; all profiles have this gate.
        """
        key = pod.group
        if key is None:
            holds = self.foreign_gangs == "Hold" and not pod.info.pod.spec.node_name
            text = self.foreign_mark(pod.info.pod) if holds else ""
        else:
            text, gang = self.obstacle(key), self._gangs.get(key)
            if gang is not None and gang.tree is not None and not places_gangs:
                text = _NOT_BY_PERMIT
            elif not text and gang is not None and _may_conflict(gang, pod.info.pod):
                text = self.conflict(pod.info.pod)
        return unresolvable(text).of(GANG_SCHEDULING) if text else SUCCESS

    def foreign_mark(self, pod: Pod) -> str:
        """Return what the mark of another gang scheduler on a pod without PodGroup is, with the remedy; "" for none."""
        if self.foreign_gangs == "Ignore" or self.key_of(pod) is not None:
            return ""
        return foreign_gang(pod.metadata)

    def conflict(self, pod: Pod) -> str:
        """Return why a pod that names several groups is gated, with the remedy; "" if it is in one gang."""
        first, *others = self._keys_of(pod)
        for other in others:
            if other.source is GroupSource.NATIVE:
                # One of the basic policy is no gang, but its object has to be known for that.
                obstacle = self.obstacle(other)
                if obstacle:
                    return obstacle
                gang = self._gangs.get(other)
                if gang is not None and gang.group is not None and gang.group.is_basic and not gang.group.parent:
                    continue
            own = self._gangs.get(first)
            if own is not None and own.owner is not None:
                return (
                    f"the pod belongs to two gangs, that of {own.owner} and PodGroup {other} of {other.source.value} "
                    f'({GROUP_FIELDS[other.source]}); set the label {OPT_OUT_LABEL}: "false" in the pod template to '
                    "keep the second one only"
                )
            both = " and ".join(f"{key} of {key.source.value} ({GROUP_FIELDS[key.source]})" for key in (first, other))
            return f"the pod names two gangs, PodGroups {both}; create it with one of them"
        return ""

    def named_besides(self, key: GroupKey) -> list[str]:
        """Return the UIDs of pods that name a group and are members of another one."""
        return sorted(self._named_besides.get(key, ()))

    # -- changes ------------------------------------------------------------------------------------------------

    def serve(self, source: GroupSource) -> None:
        """Take the PodGroups of a source as known: a group that was not reported does not exist."""
        self._unread.pop(source, None)

    def withhold(self, source: GroupSource, reason: str) -> None:
        """Take the PodGroups of a source as unknown, so that :meth:`obstacle` holds for all of its groups."""
        self._unread[source] = reason

    def ignore(self, source: GroupSource) -> None:
        """Ignore the labels and fields of a source; call this before any pod is reported."""
        self._counted.discard(source)

    def read_as(self, other: Gangs) -> None:
        """Count and ignore the same sources as another registry, by the same rules; call this before any change."""
        self._counted, self._unread = set(other._counted), dict(other._unread)
        self._counts_volcano, self._owner_rules = other._counts_volcano, dict(other._owner_rules)

    def count_volcano(self) -> None:
        """Count the annotations that name PodGroups of Volcano; call this before any pod is reported."""
        self._counted.add(GroupSource.VOLCANO)
        self._counts_volcano = True

    def follow_runs(self) -> None:
        """Follow the runs of all gangs from now on; call this when all objects have been reported once."""
        self._follows_runs = True
        for gang in self._gangs.values():
            try:
                gang.follow_run()
            except Exception:
                # The others are scheduled; the run of this one is inferred whenever it is read.
                log.exception("the run of gang %s cannot be followed", gang.key, extra={"podgroup": str(gang.key)})

    def set_owner_rules(self, profile: str, rules: Sequence[OwnerRule]) -> bool:
        """Set the rules for owners of a profile; return whether its pods do not belong to gangs by them yet.

        If so, the caller delivers the pods of the profile again, and then calls :meth:`owner_rules_applied`.
        """
        if self.owner_rules(profile) == tuple(rules):
            return profile in self._unapplied_rules
        self._unapplied_rules.add(profile)
        if rules:
            self._owner_rules[profile] = tuple(rules)
        else:
            del self._owner_rules[profile]
        return True

    def owner_rules_applied(self, profile: str) -> None:
        """Record that all pods of a profile belong to gangs by its rules for owners."""
        self._unapplied_rules.discard(profile)

    def run_recorded(self, group: PodGroup) -> bool:
        """Take over the record of its run from a PodGroup; return whether nothing else has changed."""
        gang = self._gangs.get(group.key)
        before = None if gang is None else gang.group
        if gang is None or before is None or replace(before, run=group.run, is_fresh=group.is_fresh) != group:
            return False
        gang.group = group
        return True

    def group_changed(self, group: PodGroup) -> Gang:
        """Record a created or updated PodGroup; one of another UID must be deleted first."""
        self._refused.pop(group.key, None)
        gang = self._gang(group.key)
        gang.refusal = ""
        if gang.group_uid not in ("", group.uid):
            gang.group, gang.is_first = None, False
            gang.run.begin()
            gang.begin(self._clock.now())
        if gang.group is None and group.key.source is not GroupSource.NATIVE:
            gang.since = min(gang.since, self._created_at(group.created))
        gang.group, gang.group_uid = group, group.uid
        if self._follows_runs:
            gang.follow_run()
        self.forest.gang_changed(gang)
        self.changed(gang)
        return gang

    def group_deleted(self, key: GroupKey) -> Gang | None:
        """Remove a deleted PodGroup; return its gang, None for none."""
        self._refused.pop(key, None)
        gang = self._gangs.get(key)
        if gang is not None:
            gang.group, gang.refusal = None, ""
            gang.run.begin()
            self.forest.gang_changed(gang)
            self._drop_if_empty(gang)
            self.changed(gang)
        return gang

    def composite_changed(self, composite: CompositePodGroup) -> list[Gang]:
        """Record a created or updated CompositePodGroup; return the gangs below it."""
        self._refused.pop(composite.key, None)
        return self.forest.composite_changed(composite)

    def composite_deleted(self, key: GroupKey) -> list[Gang]:
        """Remove a deleted CompositePodGroup; return the gangs below it."""
        self._refused.pop(key, None)
        return self.forest.composite_deleted(key)

    def group_refused(self, key: GroupKey, reason: str) -> list[Gang]:
        """Record why the only version of a group is invalid; return its gang, or those below a CompositePodGroup."""
        self._refused[key] = reason
        gang = self._gangs.get(key)
        if gang is not None:
            gang.refusal = reason
        return self.forest.leaves_below(key)

    def saw(self, pod: Pod) -> Gang | None:
        """Record a created or updated pod; return its gang, None for none."""
        uid = pod.metadata.uid
        meta = pod.metadata
        key = None
        if (
            pod.spec.scheduling_group is not None
            or not _LABELS.isdisjoint(meta.labels)
            or (self._counts_volcano and volcano_group(pod))
        ):
            key = group_key_of(pod, self._counted)
        owner = self._owner_of(pod, key) if self._owner_rules else None
        if owner is not None:
            key = owner.key
        known = self._key_of.get(uid)
        if known is not None and known != key:
            self.lost(uid, is_deleted=False)
        if key is None:
            # A rule that identifies the instance by labels, as that of Kueue's pod groups, needs no owner reference.
            if pod.is_terminal and (meta.labels or meta.owner_references):
                self._ended_of_owners[uid] = pod
            return None
        if self._ended_of_owners:
            self._ended_of_owners.pop(uid, None)
        gang = self._gang(key)
        gang.owner = owner
        if key.source is GroupSource.NATIVE and uid not in gang.pods:
            # As in kube-scheduler, pod groups of Kubernetes' own API are ordered by their first member.
            arrived = self._created_at(pod.metadata.creation_timestamp)
            gang.since = min(gang.since, arrived) if gang.pods else arrived
        self._key_of[uid] = key
        if pod.spec.scheduling_group is not None and key.source is not GroupSource.NATIVE:
            for other in self._keys_of(pod)[1:]:
                self._named_besides.setdefault(other, set()).add(uid)
        was_placed = uid in gang.placed or uid in self._left
        gang.saw(pod)
        if gang.lost_members or (was_placed and uid not in gang.placed):
            self._member_changed(gang, pod, was_placed, is_deleted=False)
        self.changed(gang)
        return gang

    def lost(self, uid: str, *, is_deleted: bool = True) -> Gang | None:
        """Remove a pod that was deleted or has left its group; return its former gang, None for none."""
        if self._ended_of_owners:
            self._ended_of_owners.pop(uid, None)
        key = self._key_of.pop(uid, None)
        gang = None if key is None else self._gangs.get(key)
        left = self._left.pop(uid, None)
        if gang is not None:
            pod = gang.pods.get(uid, left)
            if pod is not None and pod.spec.scheduling_group is not None and gang.key.source is not GroupSource.NATIVE:
                for other in group_keys_of(pod):
                    others = self._named_besides.get(other, set())
                    others.discard(uid)
                    if not others:
                        self._named_besides.pop(other, None)
            was_placed = is_deleted and (uid in gang.placed or left is not None)
            if was_placed and pod is not None:
                self._left[uid] = pod
            try:
                gang.lost(uid)
                if pod is not None and (gang.lost_members or was_placed):
                    self._member_changed(gang, pod, was_placed, is_deleted=True)
                self._drop_if_empty(gang)
                self.changed(gang)
            except Exception:
                self.repeat_loss(uid, gang)
                raise
        return gang

    def _member_changed(self, gang: Gang, pod: Pod, was_placed: bool, *, is_deleted: bool) -> None:
        uid = pod.metadata.uid
        has_left = was_placed and uid not in gang.placed
        if has_left:
            self._left[uid] = pod
        for callback in self.on_member:
            callback(gang, pod, has_left, is_deleted)
        if has_left:
            del self._left[uid]

    def repeat_loss(self, uid: str, gang: Gang) -> None:
        """Let :meth:`lost` return a gang for a pod again, because the deletion of the pod is delivered again."""
        self._key_of[uid] = gang.key

    def assumed(self, uid: str) -> None:
        gang = self.of_uid(uid)
        if gang is not None:
            gang.placed.add(uid)

    def released(self, uid: str) -> Gang | None:
        """Record a member that was assumed and is released; return its gang, None for none."""
        gang = self.of_uid(uid)
        if gang is not None:
            pod = gang.pods.get(uid)
            if pod is None or not pod.spec.node_name:
                gang.placed.discard(uid)
        return gang

    def changed(self, gang: Gang) -> None:
        for part in gang.parts:
            for callback in self.on_change:
                callback(part)

    def bind_failed(self, gang: Gang, uid: str) -> None:
        """Report a member whose bind failed after binds of its gang were sent; it is still assumed on its node."""
        for callback in self.on_bind_failed:
            callback(gang, uid)

    def report_foreign(self, pod: QueuedPod) -> None:
        """Call :attr:`on_foreign` if a pod without a PodGroup has a mark of another gang scheduler."""
        text = self.foreign_mark(pod.info.pod)
        if text:
            for each in self.on_foreign:
                each(pod, text)

    def report_gated(self, pod: QueuedPod) -> None:
        for each in self.on_gated:
            each(pod)

    def report_incomplete(self, gang: Gang) -> None:
        """Call :attr:`on_incomplete`; :attr:`Gang.is_incomplete` prevents a call for every member that joins."""
        gang.is_incomplete = True
        for each in self.on_incomplete:
            each(gang)

    def _created_at(self, created: datetime | None) -> float:
        """Return when an object was created, in the clock's seconds; now for one that was created just now."""
        # After a restart an object is as old as it was. Its timestamp has whole seconds, so the end of that second is
        # taken: objects that are seen as they are created keep their order within the second.
        now = self._clock.now()
        if created is None:
            return now
        age = (self._clock.wall() - created).total_seconds() - _TIMESTAMP_SECONDS
        return now - max(0.0, age)

    def _gang(self, key: GroupKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key, self._clock.now())
            gang.refusal = self._refused.get(key, "")
        return gang

    def _drop_if_empty(self, gang: Gang) -> None:
        if gang.group is None and not gang.pods:
            self._gangs.pop(gang.key, None)


def _may_conflict(gang: Gang, pod: Pod) -> bool:
    """Return whether a member may name or have another group: quickly, as most do not."""
    if names_several_groups(pod):
        return True
    has_no_label = gang.owner is not None or gang.key.source is GroupSource.VOLCANO
    return has_no_label and pod.spec.scheduling_group is not None
