"""Reserve, and Unreserve in reverse.

Owns the order only. Unreserve always runs through: a plugin that fails to give back is logged and does not keep the
others from giving back theirs.
"""

from __future__ import annotations

import logging

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.status import SUCCESS, Status, error
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.snapshot.pod_info import PodInfo

log = logging.getLogger(__name__)


def run_reserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> Status:
    """Run Reserve until a plugin does not succeed; its status comes back with its name. Unreserve is the caller's."""
    for plugin in instance.reserve:
        try:
            status = plugin.reserve(state, pod, node_name)
        except Exception as fault:
            log.exception("plugin %s raised at reserve for pod %s", plugin.name, pod.key)
            return error(f'plugin "{plugin.name}" failed at reserve: raised {type(fault).__name__}: {fault}').of(
                plugin.name
            )
        if not status.is_success:
            return status.of(plugin.name)
    return SUCCESS


def run_unreserve(instance: FrameworkInstance, state: CycleState, pod: PodInfo, node_name: str) -> None:
    """Run Unreserve of every plugin, last first."""
    for plugin in reversed(instance.reserve):
        try:
            plugin.unreserve(state, pod, node_name)
        except Exception:
            log.exception("plugin %s raised at unreserve for pod %s; what it held may leak", plugin.name, pod.key)
