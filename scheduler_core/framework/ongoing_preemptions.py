"""Preemptions whose evictions are not all issued yet.

They are stored apart from the plugin because a profile may be replaced during evictions: the new revision must still
gate the preemptor, or it would evict pods from another node as well.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from scheduler_core.model.pod_group import GroupKey
from scheduler_core.ports import ObjectReference
from scheduler_core.snapshot.pod_info import PodInfo


class Preemptor(Struct, frozen=True):
    """A pod or gang for which pods are evicted.

    Attributes:
        uid: UID of the pod, or of the gang's PodGroup.
        kind: ``pod`` or ``podgroup``, as in kube-scheduler's messages.
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
        """Key under which its preemption is stored."""
        return self.uid if self.group is None else holder_of(self.group)


def holder_of(group: GroupKey) -> str:
    """Return the key under which a gang's preemption is stored; it differs from every pod UID."""
    return f"gang {group.source}/{group}"


def pod_preemptor(info: PodInfo) -> Preemptor:
    meta = info.pod.metadata
    reference = ObjectReference("Pod", meta.name, meta.namespace, meta.uid)
    return Preemptor(info.uid, "pod", info.key, info.pod.spec.scheduler_name, info.priority, reference, pod=info)


class Preemption(Struct, eq=False):
    """A preemption whose evictions are not all issued yet.

    Attributes:
        node_name: The node of the victims; "" for several nodes.
        victim_count: Number of victims, including those that already terminate.
        victims: The victims that do not terminate yet when the preemption begins.
        waiting_for: Number of victims before the last that are still to be evicted.
        last: The last victim, once its eviction is issued.
        has_held: Whether it gated the preemptor, or any member of a gang, when the preemptor was last due for an
            attempt. The event that caused the attempt has passed, and later events may matter only to plugins that
            have not rejected the pod yet.
    """

    preemptor: Preemptor
    node_name: str
    victim_count: int
    waiting_for: int
    victims: tuple[PodInfo, ...] = ()
    last: PodInfo | None = None
    has_failed: bool = False
    has_held: bool = False


class PreemptionsUnderWay:
    """All preemptions with evictions to issue, at most one per preemptor."""

    __slots__ = ("_by_preemptor",)

    def __init__(self) -> None:
        self._by_preemptor: dict[str, Preemption] = {}

    def __len__(self) -> int:
        return len(self._by_preemptor)

    def __iter__(self) -> Iterator[Preemption]:
        return iter(list(self._by_preemptor.values()))

    def get(self, holder: str) -> Preemption | None:
        """Return the preemption of the pod with this UID, or of a gang by :func:`holder_of`; None if there is none."""
        return self._by_preemptor.get(holder)

    def attempted(self) -> None:
        """Record an attempt to preempt, whether it finds victims or not; metrics count it."""

    def begin(self, preemption: Preemption) -> None:
        """Add a preemption; it replaces an earlier one of the same preemptor."""
        self._by_preemptor[preemption.preemptor.holder] = preemption

    def end(self, preemption: Preemption) -> None:
        """Remove a preemption whose evictions are issued or given up; no effect if another has replaced it."""
        holder = preemption.preemptor.holder
        if self._by_preemptor.get(holder) is preemption:
            del self._by_preemptor[holder]
