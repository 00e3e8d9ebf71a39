"""The handle through which plugins use the scheduler: filters on one row, and dry runs that are left open."""

from __future__ import annotations

import asyncio

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.framework.extension_points import PreBindPlugin
from scheduler_core.framework.status import SUCCESS, Code, Status
from scheduler_core.snapshot.pod_info import NO_ROW, PodInfo
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, plugin_set, rig


def test_filters_run_on_one_row() -> None:
    """``run_filters_on`` returns the status of the profile's filters on one node, and requires a row."""
    made = rig(defaults=Plugins(multi_point=plugin_set("NodeUnschedulable", *BARE)))
    made.add(node("open"), node("closed", unschedulable=True))
    (instance,) = made.context.profiles
    handle, columns = instance.bind[0].handle, made.columns
    info = columns.compile_pod(pod("web"))
    assert handle.run_filters_on(info, columns.row_of("open")).is_success
    status = handle.run_filters_on(info, columns.row_of("closed"))
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "NodeUnschedulable")
    with pytest.raises(PluginError, match="look its row up first"):
        handle.run_filters_on(info, NO_ROW)


# -- dry runs that are left open ---------------------------------------------------------------------------------------


RUNNING = pod("running", node_name="n0", requests={"cpu": "3"})


class _LeavesOpen(PreBindPlugin):
    """Removes the running pod in a dry run that does not end, for the pod ``first``."""

    name = "LeavesOpen"

    async def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Await within the dry run."""
        del node_name
        if pod.pod.metadata.name == "first":
            with self.handle.dry_run(state, pod) as dry_run:
                for running in [info for info in self.handle.nodes.pods[0].values() if info.uid != pod.uid]:
                    dry_run.remove(running)
                await asyncio.Event().wait()
        return SUCCESS


async def test_no_cycle_begins_in_a_dry_run_that_is_left_open() -> None:
    """A dry run that a binding task never leaves frees no room, and other pods are scheduled."""
    made = rig([_LeavesOpen], defaults=Plugins(multi_point=plugin_set("LeavesOpen", "NodeResourcesFit", *BARE)))
    made.add(node("n0", allocatable={"cpu": "4", "memory": "8Gi", "pods": "9"}), RUNNING, pod("first", priority=9))
    async with made.running():
        await made.until(lambda: bool(made.columns.overlays))
        large, small = pod("large", priority=5, requests={"cpu": "3"}), pod("small", requests={"cpu": "500m"})
        made.add(large, small)
        await made.until(lambda: "small" in made.bound)
        assert made.place_of(large) == "unschedulable"
        assert made.columns.pod_count.tolist() == [3]
        assert not made.columns.overlays
