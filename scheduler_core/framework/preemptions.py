"""Preemptions whose evictions are still to be issued.

Owns the books: whose evictions, on which node, and which victim is the last. Must not know how victims are made to
leave. Why they stand apart from the plugin: a profile may be replaced while evictions are on their way, and the new
revision must still hold the preemptor back, or it would evict pods from yet another node.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from scheduler_core.snapshot.pod_info import PodInfo


@dataclass(slots=True, eq=False)
class Preemption:
    """One that is under way.

    Attributes:
        preemptor: For whom.
        node_name: From where.
        victim_count: Its victims, those that end already among them.
        waiting_for: How many victims before the last are still to be evicted.
        last: The last victim, once its eviction is issued.
        has_failed: Whether a victim will not go.
        has_held: Whether it held the preemptor back when last a try was called for. The event that called for it is
            past, and those that follow may matter only to plugins that did not reject the pod yet.
    """

    preemptor: PodInfo
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

    def get(self, uid: str) -> Preemption | None:
        """The preemption for the pod of this UID; None if none is under way."""
        return self._by_preemptor.get(uid)

    def begin(self, preemption: Preemption) -> None:
        """Note one; an earlier one for the same pod no longer holds it back."""
        self._by_preemptor[preemption.preemptor.uid] = preemption

    def end(self, preemption: Preemption) -> None:
        """Its evictions are issued, or given up; one that another has replaced stays forgotten."""
        uid = preemption.preemptor.uid
        if self._by_preemptor.get(uid) is preemption:
            del self._by_preemptor[uid]
