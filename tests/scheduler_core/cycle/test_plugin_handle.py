"""The handle through which plugins use the scheduler."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_set_types import Plugins
from scheduler_core.errors import PluginError
from scheduler_core.framework.status import Code
from scheduler_core.snapshot.pod_info import NO_ROW
from tests.support.builders import node, pod
from tests.support.scheduling import BARE, plugin_set, rig


def test_filters_run_on_one_row() -> None:
    """``run_filters_on`` returns the status of the profile's filters on one node, and requires a row."""
    made = rig(defaults=Plugins(multi_point=plugin_set("NodeUnschedulable", *BARE)))
    made.add(node("open"), node("closed", unschedulable=True))
    (instance,) = made.context.profiles
    handle, columns = instance.bind[0].handle, made.context.cache.columns
    info = columns.compile_pod(pod("web"))
    assert handle.run_filters_on(info, columns.row_of("open")).is_success
    status = handle.run_filters_on(info, columns.row_of("closed"))
    assert (status.code, status.plugin) == (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, "NodeUnschedulable")
    with pytest.raises(PluginError, match="look its row up first"):
        handle.run_filters_on(info, NO_ROW)
