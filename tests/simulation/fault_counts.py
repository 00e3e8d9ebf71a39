"""Kinds of faults, and how often each one took effect.

A fault is counted when it takes effect, not when it is planned. A kind that never occurs stays in the table with 0.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

FAULTS: dict[str, str] = {
    "watch stalled": "events of one resource were delayed for seconds",
    "watch behind an own write": "the event of a write of the operator was delayed for up to seconds",
    "watch reordered": "an event was delivered before an older event of another resource",
    "watch dropped": "the connection of a watch broke",
    "watch ended": "the API server closed a watch",
    "watch expired": "a watch got status 410, and the informer listed again",
    "API server unavailable": "the API server answered no request for seconds",
    "throttled": "a request got status 429",
    "bind refused": "status 5xx, and the pod was not bound",
    "bind failed after it took effect": "status 5xx, and the pod was bound",
    "bind request lost": "the connection broke, and the pod was not bound",
    "bind response lost": "the connection broke, and the pod was bound",
    "bind timed out": "the request timed out, but the pod was bound",
    "bind conflict without cause": "status 409, and the pod was not bound",
    "bind conflict with a rival": "status 409, because another scheduler had bound the pod",
    "bind slow": "a bind took seconds",
    "bind acknowledged but not performed": "status 201, and the pod was not bound",
    "read failed": "a read of a pod failed",
    "patch failed": "a patch of a pod's status failed",
    "deletion failed": "the first deletion of a victim failed",
    "pod deleted during its attempt": "a pod was deleted during its scheduling attempt",
    "node deleted during a bind": "a node was deleted while a pod was being bound to it",
    "rival bound": "another scheduler bound a pending pod",
    "rival overcommitted": "another scheduler overcommitted a node",
    "operator killed": "the process was killed and restarted",
    "operator stopped": "the process stopped gracefully and was restarted",
    "profile edited": "a profile was edited while the operator ran",
    "profile rejected": "an invalid edit of a profile was rejected",
    "profile deleted": "a profile was deleted and created again",
    "permit allowed late": "a pod waited at Permit and was allowed",
    "permit rejected": "a pod was rejected at Permit, or while it waited there",
    "permit timed out": "no plugin allowed or rejected a pod that waited at Permit",
    "reserve rejected": "a Reserve plugin rejected a pod",
    "pre-bind failed": "a PreBind plugin failed",
    "pre-bind rejected": "a PreBind plugin returned Unschedulable",
    "plugin raised": "a plugin raised an exception",
    "node added": "a node was added",
    "node deleted": "a node was deleted",
    "node allocatable reduced": "a node's allocatable resources were reduced",
    "node cordoned or tainted": "a node was cordoned or tainted",
    "node labels changed": "a node's labels changed",
    "pod changed": "labels, tolerations or requests of a pending pod changed",
    "gate lifted": "a pod's last scheduling gate was removed",
    "pod recreated": "a pod was deleted and created again with the same name",
    "evicted": "preemption deleted a victim",
    "protected pod evicted": "preemption evicted a pod that a PodDisruptionBudget selects, within what it allows",
    "resize made late": "a running pod was shrunk, and its kubelet allocated and made that seconds later",
    "search continued in a copy": "the search of a pod or gang continued in a copy of the process",
    "copy died": "a copy of the process was killed before it had a result",
    "pod terminated slowly": "a deleted pod took seconds to terminate",
    "extender slow": "a cycle waited seconds for an extender, and all events of that time were queued",
    "extender failed": "a call of an extender failed",
    "volume bind failed": "a volume could not be bound or provisioned as planned",
    "gang member deleted while it waits": "a member was deleted before it was bound",
    "gang member deleted before its bind": "a member was deleted between the decision for its gang and its bind",
    "gang member deleted while it runs": "a bound member was deleted",
    "gang member failed": "a bound member failed, and its job replaced it",
    "room held for a lost member": "the room of a lost member was held for its replacement",
    "lost member replaced": "the replacement of a lost member was bound",
    "room reserved": "room was held for a NodeReservation",
    "gang member succeeded": "a bound member succeeded",
    "gang member's gate lifted": "a member's scheduling gates were removed",
    "gang reservation released": "a member released its reservation because its gang could not be bound as a whole",
    "gang bind failed": "a bind failed, or another scheduler bound the pod, after binds of its gang were sent",
    "minMember changed": "minMember of a PodGroup was raised or lowered",
    "PodGroup recreated": "a PodGroup was deleted and created again with the same name",
    "claim write failed": "a write of a finalizer, allocation or reservation failed, or its response was lost",
    "claim write conflict": "status 409 for a write of a claim, without cause or because the claim had changed",
    "claim deleted": "a claim in use was deleted",
    "devices replaced": "a driver replaced the devices of a node, in two writes",
    "devices withdrawn": "the devices of a node were deleted for a while",
    "operator killed after an allocation": "the process was killed between the write of an allocation and the bind",
    "devices changed after an allocation": "claim, devices, node or pod changed between an allocation and the bind",
    "operator killed between binds": "the process was killed when some members of a gang were bound",
    "operator killed after a PodGroup": "the process was killed when it had created the PodGroup of an owner",
    "owner scaled": "parallelism, replicas or size of a workload whose pods are a gang changed",
    "owner suspended or resumed": "a Job or JobSet was suspended or resumed",
    "owner deleted": "a workload whose pods are a gang was deleted, perhaps without its pods, and perhaps recreated",
    "PodGroup of an owner deleted": "a user deleted a PodGroup that the operator manages",
    "PodGroup of an owner edited": "a user changed minMember of a PodGroup that the operator manages or has managed",
    "PodGroup write failed": "a request for a PodGroup of an owner failed, or its response was lost",
}
"""Description of each kind of fault."""


class FaultCounts:
    """Fault counts of one run."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """Count a fault that took effect.

        Raises:
            KeyError: ``FAULTS`` does not contain the name.
        """
        if name not in FAULTS:
            raise KeyError(f'unknown fault "{name}": add it to FAULTS')
        self.by_name[name] += 1


def shares(counts: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Return the share of runs in which each kind of fault occurred, 0 to 1, in the order of ``FAULTS``."""
    runs = list(counts)
    return {name: sum(1 for run in runs if run.get(name)) / max(1, len(runs)) for name in FAULTS}
