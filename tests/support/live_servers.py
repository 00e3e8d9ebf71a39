"""Servers of a module of tests: a control plane with controllers, and the only operator of its cluster.

A conftest imports the fixture :func:`operator`, which uses the fixture ``plane`` of the module.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hack.controlplane.controllers import start_kube_controller_manager
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import Options
from tests.support.namespaces import new_namespace
from tests.support.operator_process import OperatorProcess


def peer_marks(*peers: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module of tests whose control plane has controllers and these peers."""
    servers = ("cluster", "kwok", "controllers", *peers)
    return [pytest.mark.timeout(240), *(getattr(pytest.mark, name) for name in servers)]


@contextmanager
def plane_with_controllers(
    *peers: Callable[[ControlPlane], object], options: Options | None = None
) -> Iterator[ControlPlane]:
    """Start a control plane with Bayplan's definitions, kwok, kube-controller-manager, and then *peers*."""
    with ControlPlane(options or Options()) as plane:
        install_crds(plane)
        plane.start_kwok()
        start_kube_controller_manager(plane)
        for start in peers:
            start(plane)
        yield plane


@pytest.fixture(scope="module")
def operator(
    plane: ControlPlane, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[OperatorProcess]:
    """Start the only operator of the module's cluster, with the flags ``OPERATOR_FLAGS`` of the module."""
    with OperatorProcess(plane.kubeconfig, tmp_path_factory.mktemp("operator") / "operator.log") as operator:
        operator.start(*getattr(request.module, "OPERATOR_FLAGS", ()))
        yield operator


@contextmanager
def operator_in_new_namespace(plane: ControlPlane, log: Path, prefix: str) -> Iterator[tuple[OperatorProcess, str]]:
    """Install Bayplan's definitions, and run an operator with its objects in a new namespace, which is returned."""
    install_crds(plane)
    with (
        new_namespace(plane, f"{prefix}-{uuid.uuid4().hex[:6]}") as namespace,
        OperatorProcess(plane.kubeconfig, log, [f"--namespace={namespace}"]) as process,
    ):
        process.start()
        yield process, namespace
