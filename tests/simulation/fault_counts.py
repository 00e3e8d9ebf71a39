"""The kinds of fault, and how often each one took effect.

A kind that no longer occurs stays in the table with a share of 0. A fault is counted when it takes effect, not when it
is planned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

FAULTS: dict[str, str] = {
    "watch stalled": "events of one kind were held back for seconds",
    "watch reordered": "an event was delivered before an older one of another kind",
    "watch dropped": "a watch's connection broke",
    "watch ended": "the server ended a watch in order",
    "watch expired": "a watch was answered by 410 and everything was listed again",
    "server away": "the server answered no request for seconds",
    "throttled": "a request was answered by 429",
    "bind refused": "5xx, and the pod was not bound",
    "bind failed after it happened": "5xx, and the pod was bound",
    "bind lost before it happened": "the connection broke, and the pod was not bound",
    "bind lost after it happened": "the connection broke, and the pod was bound",
    "bind unanswered": "the request timed out before the bind was answered, but the pod was bound",
    "bind conflict without reason": "409, and the pod was not bound",
    "bind conflict with a rival": "409, because another scheduler was faster",
    "bind slow": "a bind took seconds",
    "bind answered and never done": "a bind was answered by 201, and the pod was not bound",
    "read failed": "a pod could not be read",
    "patch failed": "a status could not be patched",
    "deletion failed": "a victim could not be deleted at the first try",
    "pod deleted half-way": "a pod was deleted while its attempt was under way",
    "node deleted under a pod": "a node was deleted while a pod was being bound to it",
    "rival bound": "another scheduler bound a pending pod",
    "rival overcommitted": "another scheduler put more on a node than it can hold",
    "operator killed": "the process was killed and started again",
    "operator stopped": "the process stopped gracefully and started again",
    "profile swapped": "a profile was replaced while it had pods",
    "profile refused": "an edit of a profile was not valid",
    "profile withdrawn": "a profile went away and came back",
    "permit allowed late": "a pod waited at Permit and was allowed",
    "permit rejected": "a pod was rejected at Permit, or while it waited there",
    "permit timed out": "no plugin allowed or rejected a pod that waited at Permit",
    "reserve refused": "a Reserve plugin did not succeed",
    "pre-bind failed": "a PreBind plugin failed",
    "pre-bind rejected": "a PreBind plugin returned Unschedulable",
    "plugin raised": "a plugin raised an exception",
    "node came": "a node was added",
    "node went": "a node was deleted",
    "node shrank": "a node's allocatable resources were cut",
    "node cordoned or tainted": "a node became unschedulable, or was tainted",
    "node relabelled": "a node's labels changed",
    "pod changed": "a waiting pod's labels, tolerations or requests changed",
    "gate lifted": "a pod's last scheduling gate was removed",
    "pod recreated": "a pod was deleted, and another one of its name was created at once",
    "evicted": "a victim was deleted by preemption",
    "ended slowly": "a deleted pod took seconds to end",
    "extender slow": "a cycle was suspended for seconds, and all events of that time were queued",
    "extender failed": "an extender did not answer",
    "volume changed under a pod": "a volume could not be bound or made as planned",
    "gang member deleted while it waits": "a member was deleted before it was bound",
    "gang member deleted half-way": "a member was deleted between its gang's placement and its bind",
    "gang member deleted while it runs": "a bound member was deleted",
    "gang member failed": "a bound member failed, and its job replaces it",
    "gang member succeeded": "a bound member ended well",
    "gang member's gate lifted": "a member's scheduling gates were removed",
    "gang gave back": "a member released its reservation because its gang could not be bound as a whole",
    "gang bind failed": "a member's bind failed, or a rival's was faster, after binds of its gang were sent",
    "minMember changed": "minMember of a PodGroup was raised or lowered",
    "PodGroup recreated": "a PodGroup was deleted, and another one of its name was created",
    "claim write failed": "a finalizer, an allocation or a reservation could not be written, or the answer was lost",
    "claim write conflict": "409 for a write of a claim, without a reason or because the claim had changed",
    "claim deleted": "a claim that a pod uses was deleted",
    "devices replaced": "a driver published other devices of a node, in two steps",
    "driver gone": "the devices of a node were withdrawn for a while",
    "operator killed after an allocation": "the process ended between the write of an allocation and the bind",
    "devices changed after an allocation": "claim, devices, node or pod changed between that write and the bind",
    "operator killed between binds": "the process ended when some of a gang's members were bound",
}
"""Description of each kind."""


class FaultCounts:
    """Counts of one run."""

    def __init__(self) -> None:
        self.by_name: Counter[str] = Counter()

    def add(self, name: str) -> None:
        """Count a fault that took effect.

        Raises:
            KeyError: The name is not on the list.
        """
        if name not in FAULTS:
            raise KeyError(f'fault "{name}" is not on the list; add it to FAULTS')
        self.by_name[name] += 1


def shares(counts: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Return the share of runs in which each kind occurred, 0 to 1, in the order of the list."""
    runs = list(counts)
    return {name: sum(1 for run in runs if run.get(name)) / max(1, len(runs)) for name in FAULTS}
