"""Planted bugs in which a shadow profile changes the live state; see :mod:`tests.simulation.planted_bugs`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from scheduler_core.shadows import shadow_profiles
from scheduler_core.snapshot.pod_info import PodInfo
from tests.simulation.planted_bugs import Bug, Original, _patched


def _never_reverted(original: Original) -> Original:
    class Unreverted(original):  # type: ignore[misc, valid-type]
        def restore(self, pods: object) -> None:
            """Do nothing."""

        def undo(self) -> None:
            """Do nothing."""

    return Unreverted


def _without_node(original: Original) -> Original:
    del original

    @contextmanager
    def on_no_node(info: PodInfo) -> Iterator[None]:
        info.node_name = ""
        yield

    return on_no_node


SHADOW_BUGS: dict[str, Bug] = {
    "the overlay of a shadow is not reverted": lambda: _patched(shadow_profiles, "ColumnsOverlay", _never_reverted),
    "a pod that a shadow has scheduled loses its node": lambda: _patched(shadow_profiles, "_on_no_node", _without_node),
}
"""Planted bugs by the defect that they cause."""
