"""Log of decisions: one line for each pod that is bound or rejected, and for each attempt of a gang.

The logger ``scheduler_core.decisions`` logs at level DEBUG, because a line costs more than the cycle of its pod. The
subject is in fields of its own (``extra``), so that structured logs can be searched by pod, profile and node.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from scheduler_core.framework.queued_pod import QueuedPod

_log = logging.getLogger("scheduler_core.decisions")


def log_bound(queued: QueuedPod, log_fields: Callable[[], dict[str, str]], feasible: int, nodes: int) -> None:
    """Log that a pod was bound.

    Args:
        queued: The pod.
        log_fields: Returns the log fields of the attempt, with the node.
        feasible: Number of feasible nodes.
        nodes: Number of nodes.
    """
    if not _log.isEnabledFor(logging.DEBUG):
        return
    fields = log_fields()
    extra = fields | {"result": "scheduled", "attempts": queued.attempts, "feasible_nodes": feasible}
    _log.debug(
        "pod %s is bound to node %s by profile %s: %d of %d nodes are feasible, attempt %d",
        fields["pod"],
        fields["node"],
        fields["profile"],
        feasible,
        nodes,
        queued.attempts,
        extra=extra,
    )


def log_unschedulable(queued: QueuedPod, log_fields: Callable[[], dict[str, str]], message: str) -> None:
    """Log that a pod was rejected; errors are logged as warnings elsewhere."""
    if not _log.isEnabledFor(logging.DEBUG):
        return
    fields = log_fields()
    extra = fields | {"result": "unschedulable", "attempts": queued.attempts}
    _log.debug("pod %s is unschedulable for profile %s: %s", fields["pod"], fields["profile"], message, extra=extra)


def log_gang(gang: str, profile: str, result: str, message: str) -> None:
    """Log an attempt of a gang.

    Args:
        gang: ``namespace/name`` of the PodGroup.
        profile: The scheduler name.
        result: The result of the attempt.
        message: The reason.
    """
    if _log.isEnabledFor(logging.DEBUG):
        extra = {"podgroup": gang, "profile": profile, "result": result}
        _log.debug("gang %s of profile %s: %s", gang, profile, message, extra=extra)
