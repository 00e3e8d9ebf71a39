"""All gangs, and which pod belongs to which.

Owns membership. Must not know what becomes of a gang: the queue is asked when it changes. A gang exists here as long as
its PodGroup or any member does; members whose PodGroup is missing wait for it.

A source that is not served does not exist: its labels then are labels as any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupKey, GroupSource, PodGroup, group_key_of
from scheduler_core.ports import Clock
from scheduler_core.queueing.gang import Gang


class Gangs:
    """Gangs by key.

    Args:
        clock: Time.

    Attributes:
        on_change: Told of every gang that status may show otherwise now.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._gangs: dict[GroupKey, Gang] = {}
        self._key_of: dict[str, GroupKey] = {}
        self._served: set[GroupSource] = set()
        self.on_change: list[Callable[[Gang], None]] = []

    # -- looking ------------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Gang]:
        return iter(self._gangs.values())

    def __len__(self) -> int:
        return len(self._gangs)

    def get(self, key: GroupKey) -> Gang | None:
        """The gang of this key."""
        return self._gangs.get(key)

    def of_uid(self, uid: str) -> Gang | None:
        """The gang of a pod, by the pod's UID."""
        key = self._key_of.get(uid)
        return None if key is None else self._gangs.get(key)

    def key_of(self, pod: Pod) -> GroupKey | None:
        """The group that a pod names, by an API that is there; None for none."""
        return group_key_of(pod, self._served)

    def is_served(self, source: GroupSource) -> bool:
        """Whether the API of a source is there."""
        return source in self._served

    # -- changes ------------------------------------------------------------------------------------------------

    def serve(self, source: GroupSource) -> None:
        """The API of a source is there: its labels count from now on, for pods that come or change."""
        self._served.add(source)

    def group_changed(self, group: PodGroup) -> Gang:
        """A PodGroup has come or has changed; the deletion of one of another UID comes first."""
        gang = self._gang(group.key)
        if gang.group_uid not in ("", group.uid):
            gang.group = None
            gang.begin(self._clock.now())
        if gang.group is None and group.created is not None:
            # Seen anew after a restart, it is as old as it was.
            age = (self._clock.wall() - group.created).total_seconds()
            gang.since = min(gang.since, self._clock.now() - age)
        gang.group, gang.group_uid = group, group.uid
        self.changed(gang)
        return gang

    def group_deleted(self, key: GroupKey) -> Gang | None:
        """A PodGroup is gone; its gang, if there is one yet."""
        gang = self._gangs.get(key)
        if gang is not None:
            gang.group = None
            self._drop_if_empty(gang)
            self.changed(gang)
        return gang

    def saw(self, pod: Pod) -> Gang | None:
        """A pod has come or has changed; its gang, None for none."""
        if not self._served:
            return None
        uid = pod.metadata.uid
        key = self.key_of(pod)
        known = self._key_of.get(uid)
        if known is not None and known != key:
            self.lost(uid)
        if key is None:
            return None
        gang = self._gang(key)
        self._key_of[uid] = key
        gang.saw(pod)
        self.changed(gang)
        return gang

    def lost(self, uid: str) -> Gang | None:
        """A pod is gone, or left its group; the gang that it leaves, None for none."""
        key = self._key_of.pop(uid, None)
        gang = None if key is None else self._gangs.get(key)
        if gang is not None:
            gang.lost(uid)
            self._drop_if_empty(gang)
            self.changed(gang)
        return gang

    def assumed(self, uid: str) -> None:
        """A member was given a node that is not written yet."""
        gang = self.of_uid(uid)
        if gang is not None:
            gang.placed.add(uid)

    def released(self, uid: str) -> Gang | None:
        """A member lost the node that it was given before that was written; its gang, None for none."""
        gang = self.of_uid(uid)
        if gang is not None:
            pod = gang.pods.get(uid)
            if pod is None or not pod.spec.node_name:
                gang.placed.discard(uid)
        return gang

    def changed(self, gang: Gang) -> None:
        """Tell that a gang may be shown otherwise now."""
        for told in self.on_change:
            told(gang)

    def _gang(self, key: GroupKey) -> Gang:
        gang = self._gangs.get(key)
        if gang is None:
            gang = self._gangs[key] = Gang(key, self._clock.now())
        return gang

    def _drop_if_empty(self, gang: Gang) -> None:
        if gang.group is None and not gang.pods:
            self._gangs.pop(gang.key, None)
