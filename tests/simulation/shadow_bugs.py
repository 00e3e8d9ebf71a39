"""Planted bugs by which a shadow profile changes the live state; see :mod:`tests.simulation.planted_bugs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_core.shadows import slice_comparison
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.planted_bugs import Bug, Original, _patched


def _never_undone(original: Original) -> Original:
    class Kept(original):  # type: ignore[misc, valid-type]
        def restore(self, pods: object) -> None:
            """Leave the pods away."""

        def undo(self) -> None:
            """Leave everything as it is."""

    return Kept


def _left_on_no_node(original: Original) -> Original:
    del original

    @contextmanager
    def on_no_node(info: PodInfo) -> Iterator[None]:
        info.node_name = ""
        yield

    return on_no_node


SHADOW_BUGS: dict[str, Bug] = {
    "what a shadow undid stays undone": lambda: _patched(slice_comparison, "ColumnsOverlay", _never_undone),
    "a pod that a shadow decided is on no node": lambda: _patched(slice_comparison, "_on_no_node", _left_on_no_node),
}
"""Planted bugs by the defect that they cause."""
