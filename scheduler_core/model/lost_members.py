"""Lost members of running gangs, and how their replacements are recognised.

A member whose index is known (a completion index, an ordinal, a worker index) is replaced only by a pod of the same
owner and index. Other members are replaced by a pod of their name, else by one of their controller with equal requests.

Labels: Job controller and StatefulSet controller of Kubernetes v1.37.1; JobSet v0.11.1, ``jobset_types.go``;
LeaderWorkerSet v0.8.0, ``leaderworkerset_types.go``.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod

_JOB_INDEX = "batch.kubernetes.io/job-completion-index"
_JOBSET = "jobset.sigs.k8s.io/"
_LWS = "leaderworkerset.sigs.k8s.io/"


@dataclass(slots=True)
class LostMember:
    """A member of a running gang that was deleted or failed, until its replacement is bound or its time is over.

    Attributes:
        pod: The pod as last reported before it was lost.
        node_name: The node that it was on.
        index: Owner and index, see :func:`owner_and_index`; "" if unknown.
        until: Time at which the hold ends; None while the pod still uses its room.
        replacement: UID of the waiting pod that replaces it; "" for none yet.
        has_room: Whether room is held for the replacement on the node.
    """

    pod: Pod
    node_name: str
    index: str
    until: datetime | None = None
    replacement: str = ""
    has_room: bool = False


@dataclass(frozen=True, slots=True)
class RecordedLoss:
    """A lost member as a status has it; attributes as those of :class:`LostMember`."""

    name: str
    node_name: str
    index: str
    until: datetime
    replacement: str = ""


def owner_and_index(pod: Pod) -> str:
    """Return the owner and the index of a pod, which its replacement has, too; "" if it has no index."""
    labels, controller = pod.metadata.labels, _controller_of(pod)
    job_index = labels.get(_JOB_INDEX, "")
    job_set = labels.get(f"{_JOBSET}jobset-uid") or labels.get(f"{_JOBSET}jobset-name")
    if job_set:
        # A JobSet that restarts replaces its Jobs, so that their UIDs differ.
        parts = (labels.get(f"{_JOBSET}replicatedjob-name"), labels.get(f"{_JOBSET}job-index"), job_index)
        return f"JobSet/{job_set}/{'/'.join(map(str, parts))}" if all(parts) else ""
    worker = labels.get(f"{_LWS}worker-index")
    if worker:
        return f"LeaderWorkerSet/{labels.get(f'{_LWS}name')}/{labels.get(f'{_LWS}group-index')}/{worker}"
    if controller is None:
        return ""
    if controller.kind == "StatefulSet":
        return f"StatefulSet/{controller.uid}/{pod.metadata.name}"
    return f"{controller.kind}/{controller.uid}/{job_index}" if job_index else ""


def _controller_of(pod: Pod) -> OwnerReference | None:
    return next((owner for owner in pod.metadata.owner_references if owner.controller), None)


def is_preempted(pod: Pod) -> bool:
    """Return whether a preemption evicts a pod, so that its room belongs to the preemptor."""
    conditions = pod.status.conditions
    return any(each.type == "DisruptionTarget" and each.reason == "PreemptionByScheduler" for each in conditions)
