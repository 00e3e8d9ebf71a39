"""Fixtures of tests beside real controllers; each module starts a control plane of its own with its peers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.operator_process import OperatorProcess


@pytest.fixture(scope="module")
def operator(plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[OperatorProcess]:
    """Start the only operator of the module's cluster."""
    with OperatorProcess(plane.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log") as operator:
        operator.start()
        yield operator
