"""Updates the data of PreFilter while a dry run adds and removes pods.

Follows kube-scheduler v1.37.1 (``RunPreFilterExtensionAddPod``, ``RunPreFilterExtensionRemovePod``).
"""

from __future__ import annotations

from collections.abc import Iterator

from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreFilterExtensions, PreFilterPlugin
from scheduler_core.framework.status import Status
from scheduler_core.runtime.framework_instance import FrameworkInstance
from scheduler_core.runtime.result_checks import as_plugin_error, checked
from scheduler_core.snapshot.node_columns import NodeColumns
from scheduler_core.snapshot.pod_info import PodInfo

_ADD_POD = "preFilterAddPod"
_REMOVE_POD = "preFilterRemovePod"


def extended(instance: FrameworkInstance, state: CycleState) -> Iterator[tuple[PreFilterPlugin, PreFilterExtensions]]:
    """Yield the plugins with AddPod and RemovePod, without those that PreFilter skipped."""
    for plugin in instance.pre_filter:
        if isinstance(plugin, PreFilterExtensions) and plugin.name not in state.skip_filter:
            yield plugin, plugin


def pod_added(instance: FrameworkInstance, state: CycleState, pod: PodInfo, added: PodInfo, nodes: NodeColumns) -> None:
    """Call AddPod of all plugins after ``added`` was added to its row.

    Raises:
        PluginError: A plugin raised, or returned a status other than Success.
    """
    for plugin, extension in extended(instance, state):
        try:
            status = checked(extension.add_pod(state, pod, added, nodes, added.row), Status, plugin.name, _ADD_POD)
        except Exception as fault:
            raise as_plugin_error(plugin.name, _ADD_POD, fault) from fault
        _expect_success(status, plugin.name, _ADD_POD)


def pod_removed(
    instance: FrameworkInstance,
    state: CycleState,
    pod: PodInfo,
    removal: tuple[PodInfo, int],
    nodes: NodeColumns,
) -> None:
    """Call RemovePod of all plugins after a pod was removed from a row.

    Args:
        nodes: The columns, without the removed pod.

    Raises:
        PluginError: A plugin raised, or returned a status other than Success.
    """
    removed, row = removal
    for plugin, extension in extended(instance, state):
        try:
            answer = extension.remove_pod(state, pod, removed, nodes, row)
            status = checked(answer, Status, plugin.name, _REMOVE_POD)
        except Exception as fault:
            raise as_plugin_error(plugin.name, _REMOVE_POD, fault) from fault
        _expect_success(status, plugin.name, _REMOVE_POD)


def _expect_success(status: Status, plugin: str, point: str) -> None:
    if not status.is_success:
        raise PluginError(plugin, point, status.message or f"returned {status.code_name}")
