"""Fixtures that start one operator per module, on the session's control plane or on an empty one."""

from __future__ import annotations

import pytest

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.live_servers import operator

__all__ = ["operator"]


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the session's control plane with Bayplan's CRDs installed."""
    install_crds(control_plane)
    return control_plane
