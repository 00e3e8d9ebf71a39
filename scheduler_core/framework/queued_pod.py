"""A pod in the scheduling queue, as QueueSort and diagnosis see it."""

from __future__ import annotations

from scheduler_core.snapshot.pod_info import PodInfo


class QueuedPod:
    """A pod and its history in the queue.

    Attributes:
        info: The compiled pod; replaced when the pod is updated.
        profile: The scheduler name that it asks for.
        timestamp: When it entered its present place in the queue, in the clock's seconds.
        first_added: When it first came.
        attempts: Scheduling attempts so far.
        unschedulable_count: Attempts that ended in a rejection since it last progressed; backoff grows by it.
        error_count: Errors in a row; their backoff is counted apart.
        backoff_until: When its backoff ends; 0 for none.
        rejected_by: Plugins that rejected it in its last attempt.
        pending_on: Of those, the ones that answered Pending.
        gated_by: The PreEnqueue plugin that holds it back, "" for none.
        gate_reasons: What that plugin said.
        sequence: A number by arrival that settles what time and priority leave open.
        sort_key: The QueueSort plugin's key, computed when it enters the active queue.
        first_attempt: When its first attempt began; 0 before it.
    """

    __slots__ = (
        "attempts",
        "backoff_until",
        "error_count",
        "first_added",
        "first_attempt",
        "gate_reasons",
        "gated_by",
        "info",
        "pending_on",
        "profile",
        "rejected_by",
        "sequence",
        "sort_key",
        "timestamp",
        "unschedulable_count",
    )

    def __init__(self, info: PodInfo, now: float, sequence: int) -> None:
        self.info = info
        self.profile = info.pod.spec.scheduler_name
        self.timestamp = now
        self.first_added = now
        self.sequence = sequence
        self.attempts = 0
        self.unschedulable_count = 0
        self.error_count = 0
        self.backoff_until = 0.0
        self.first_attempt = 0.0
        self.rejected_by: frozenset[str] = frozenset()
        self.pending_on: frozenset[str] = frozenset()
        self.gated_by = ""
        self.gate_reasons: tuple[str, ...] = ()
        self.sort_key: object = None

    @property
    def uid(self) -> str:
        """The pod's UID."""
        return self.info.uid

    def __repr__(self) -> str:
        return f"QueuedPod({self.info.key}, attempts={self.attempts}, rejected_by={sorted(self.rejected_by)})"
