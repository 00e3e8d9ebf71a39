"""Preemptions whose evictions are still to be issued.

Owns the books: whose evictions, on which node, and which victim is the last. Must not know how victims are made to
leave. Why they stand apart from the plugin: a profile may be replaced while evictions are on their way, and the new
revision must still hold the preemptor back, or it would evict pods from yet another node.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import ObjectReference
from scheduler_core.snapshot.pod_info import PodInfo


class Preemptor(Struct, frozen=True):
    """For whom pods are evicted: a pod, or a gang.

    Attributes:
        uid: Its UID; a gang's is its PodGroup's.
        kind: ``pod`` or ``podgroup``, as the reference words it.
        key: ``namespace/name``.
        scheduler_name: The profile that decides for it.
        priority: Its priority.
        reference: The object, as events name it.
        pod: The pod; None for a gang.
        group: The gang; None for a pod.
    """

    uid: str
    kind: str
    key: str
    scheduler_name: str
    priority: int
    reference: ObjectReference
    pod: PodInfo | None = None
    group: GroupKey | None = None

    @property
    def holder(self) -> str:
        """Under what its preemption is kept."""
        return self.uid if self.group is None else holder_of(self.group)


def holder_of(group: GroupKey) -> str:
    """Under what the preemption of a gang is kept; no pod's UID reads like it."""
    return f"gang {group.source}/{group}"


def pod_preemptor(info: PodInfo) -> Preemptor:
    """A pod as preemptor."""
    meta = info.pod.metadata
    reference = ObjectReference("Pod", meta.name, meta.namespace, meta.uid)
    return Preemptor(info.uid, "pod", info.key, info.pod.spec.scheduler_name, info.priority, reference, pod=info)


class Preemption(Struct, eq=False):
    """One that is under way.

    Attributes:
        preemptor: For whom.
        node_name: From where; "" for several nodes.
        victim_count: Its victims, those that end already among them.
        waiting_for: How many victims before the last are still to be evicted.
        last: The last victim, once its eviction is issued.
        has_failed: Whether a victim will not go.
        has_held: Whether it held the preemptor back when last a try was called for, or held any member of a gang back.
            The event that called for it is past, and those that follow may matter only to plugins that did not reject
            the pod yet.
    """

    preemptor: Preemptor
    node_name: str
    victim_count: int
    waiting_for: int
    last: PodInfo | None = None
    has_failed: bool = False
    has_held: bool = False


class PreemptionsUnderWay:
    """All of them, at most one for each preemptor."""

    __slots__ = ("_by_preemptor",)

    def __init__(self) -> None:
        self._by_preemptor: dict[str, Preemption] = {}

    def __len__(self) -> int:
        return len(self._by_preemptor)

    def __iter__(self) -> Iterator[Preemption]:
        return iter(list(self._by_preemptor.values()))

    def get(self, holder: str) -> Preemption | None:
        """The preemption for the pod of this UID, or for a gang by :func:`holder_of`; None if none is under way."""
        return self._by_preemptor.get(holder)

    def begin(self, preemption: Preemption) -> None:
        """Note one; an earlier one for the same preemptor no longer holds it back."""
        self._by_preemptor[preemption.preemptor.holder] = preemption

    def end(self, preemption: Preemption) -> None:
        """Its evictions are issued, or given up; one that another has replaced stays forgotten."""
        holder = preemption.preemptor.holder
        if self._by_preemptor.get(holder) is preemption:
            del self._by_preemptor[holder]
