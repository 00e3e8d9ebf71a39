"""Checks that what a plugin returns is allowed at its extension point.

The error for a wrong value names the plugin and the point, because it ends up in the event of the failed attempt.
"""

from __future__ import annotations

import logging
from typing import TypeVar

from scheduler_core.errors import AttemptLimitError, PluginError
from scheduler_core.framework.status import Status, error
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)

T = TypeVar("T")


def checked(answer: object, kind: type[T], plugin: str, point: str) -> T:
    """Return the value if it has the type that the extension point requires.

    Raises:
        PluginError: It has another type.
    """
    if not isinstance(answer, kind):
        raise PluginError(plugin, point, f"returned {answer!r}; return a {kind.__name__}")
    if kind is not Status and not isinstance(status := getattr(answer, "status", None), Status):
        raise PluginError(plugin, point, f"returned a {kind.__name__} with status {status!r}; set a Status")
    return answer


def raised(plugin: str, point: str, pod: PodInfo, fault: Exception) -> Status:
    """Log an exception of a plugin, or the error for a wrong result, with its traceback; return it as a status."""
    log.error(
        "plugin %s failed at %s for pod %s",
        plugin,
        point,
        pod.key,
        exc_info=fault,
        extra={"pod": pod.key, "plugin": plugin},
    )
    return error(str(as_plugin_error(plugin, point, fault))).of(plugin)


def as_plugin_error(plugin: str, point: str, fault: Exception) -> PluginError:
    """Return an exception of a plugin as an error that names the plugin and the point."""
    if isinstance(fault, AttemptLimitError):
        fault.plugin = fault.plugin or plugin
    if isinstance(fault, PluginError):
        return fault
    return PluginError(plugin, point, f"raised {type(fault).__name__}: {fault}")


def refused(status: Status, plugin: str, point: str) -> Status:
    """Return a failed status with its plugin: a rejection as it is, anything else as an error that names both."""
    if status.is_rejected:
        return status.of(plugin)
    return error(str(PluginError(plugin, point, status.message or f"returned {status.code_name}"))).of(plugin)
