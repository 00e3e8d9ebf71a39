"""What became of each pod and gang, in a line each, for those who ask the log for it.

Owns the lines and the name of their logger, which is silent unless somebody lets it speak: a line a pod would cost more
than its scheduling. It must not know who reads them. Each carries its subject in fields of its own (``extra``), so that
structured logs can be searched by pod, profile, revision and node.
"""

from __future__ import annotations

import logging

from scheduler_core.cycle.context import Attempt

_log = logging.getLogger("scheduler_core.decisions")


def subject_of(attempt: Attempt) -> dict[str, str]:
    """The fields that say what an attempt is about; the node only where there is one."""
    instance = attempt.instance
    fields = {"pod": attempt.info.key, "profile": instance.name, "revision": instance.revision}
    return fields | {"node": attempt.node_name} if attempt.node_name else fields


def tell_bound(attempt: Attempt, nodes: int) -> None:
    """A pod was bound.

    Args:
        attempt: The attempt that succeeded.
        nodes: How many there are.
    """
    if not _log.isEnabledFor(logging.DEBUG):
        return
    attempts, fitting = attempt.queued.attempts, attempt.feasible_count
    extra = subject_of(attempt) | {"result": "scheduled", "attempts": attempts, "feasible_nodes": fitting}
    _log.debug(
        "pod %s is bound to node %s by profile %s: it fits %d of %d nodes, attempt %d",
        attempt.info.key,
        attempt.node_name,
        attempt.instance.name,
        fitting,
        nodes,
        attempts,
        extra=extra,
    )


def tell_unschedulable(attempt: Attempt, message: str) -> None:
    """A pod was turned away; what failed by an error is a warning of its own."""
    if not _log.isEnabledFor(logging.DEBUG):
        return
    extra = subject_of(attempt) | {"result": "unschedulable", "attempts": attempt.queued.attempts}
    key, profile = attempt.info.key, attempt.instance.name
    _log.debug("pod %s is unschedulable for profile %s: %s", key, profile, message, extra=extra)


def tell_gang(gang: str, profile: str, result: str, message: str) -> None:
    """A gang was tried.

    Args:
        gang: Its PodGroup, as ``namespace/name``.
        profile: Whose pods its members are.
        result: How the attempt ended.
        message: Why, in words.
    """
    if _log.isEnabledFor(logging.DEBUG):
        extra = {"podgroup": gang, "profile": profile, "result": result}
        _log.debug("gang %s of profile %s: %s", gang, profile, message, extra=extra)
