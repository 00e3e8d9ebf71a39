"""Fixtures that start one operator per module, on the session's control plane or on the module's own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from tests.support.operator_process import OperatorProcess


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> ControlPlane:
    """Return the session's control plane with Bayplan's CRDs installed."""
    install_crds(control_plane)
    return control_plane


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start the only operator of the cluster."""
    with OperatorProcess(plane.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log") as operator:
        operator.start()
        yield operator
