"""What plugins answer, held against what their extension point allows.

Owns the check that an answer is of the right kind, and the words for one that is not, or that is an error: who reads
the event of a failed attempt must learn which plugin to look at. Must not know what follows from an answer.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from scheduler_core.errors import PluginError
from scheduler_core.framework.status import Status, error
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

T = TypeVar("T")


def checked(answer: object, kind: type[T], plugin: str, point: str) -> T:
    """The answer, if it is of the kind that the point asks for.

    Raises:
        PluginError: It is not.
    """
    if not isinstance(answer, kind):
        raise PluginError(plugin, point, f"answered {answer!r}; return a {kind.__name__}")
    status = getattr(answer, "status", None)
    if kind is not Status and not isinstance(status, Status):
        raise PluginError(plugin, point, f"answered a {kind.__name__} with status {status!r}; give it a Status")
    return answer


def raised(plugin: str, point: str, pod: PodInfo, fault: Exception) -> Status:
    """The error for a plugin that raised, or answered nonsense; logged with its traceback."""
    log.error(
        "plugin %s failed at %s for pod %s",
        plugin,
        point,
        pod.key,
        exc_info=fault,
        extra={"pod": pod.key, "plugin": plugin},
    )
    problem = fault
    if not isinstance(fault, PluginError):
        problem = PluginError(plugin, point, f"raised {type(fault).__name__}: {fault}")
    return error(str(problem)).of(plugin)


def refused(status: Status, plugin: str, point: str) -> Status:
    """A status that is no success, with its plugin: a rejection as it is, anything else as an error that names both."""
    if status.is_rejected:
        return status.of(plugin)
    return error(str(PluginError(plugin, point, status.message or f"answered {status.code_name}"))).of(plugin)
