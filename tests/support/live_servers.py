"""Servers of a module of tests: an empty control plane with controllers, and the only operator of its cluster.

A module makes its fixture ``plane`` with :func:`module_plane`; a conftest imports the fixture :func:`operator`, which
uses it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from hack.controlplane.binaries import selected_minor
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.native_groups import native_groups
from hack.controlplane.schedulers import await_definitions, install_crds
from hack.controlplane.servers import Options
from tests.support.namespaces import new_namespace
from tests.support.operator_process import OperatorProcess

Step = Callable[[ControlPlane], object]
CONTROLLERS: tuple[Step, ...] = (ControlPlane.start_kwok, ControlPlane.start_kube_controller_manager)
"""Steps of a control plane whose pods run and end, and whose workloads have pods."""
SCHEDULER_PLUGINS_GROUPS = Path(__file__).with_name("scheduler-plugins-podgroups.yaml")
VOLCANO_GROUPS = Path(__file__).with_name("volcano-podgroups.yaml")


def peer_marks(*peers: str) -> list[pytest.MarkDecorator]:
    """Return the marks of a module of tests whose control plane has controllers and these peers."""
    servers = ("cluster", "kwok", "controllers", *peers)
    return [pytest.mark.timeout(240), *(getattr(pytest.mark, name) for name in servers)]


def module_plane(*steps: Step, options: Options | None = None) -> Callable[..., object]:
    """Return the fixture of a control plane that has only a module's objects: Bayplan's definitions, then the *steps*.

    A control plane of the session is used, and emptied before and after, if there is one with these options.
    """
    options = options or Options()
    wanted = replace(options, kubernetes=options.kubernetes or selected_minor())
    shared = {"empty_plane": Options(kubernetes=selected_minor()), "empty_native_plane": native_groups().options}
    name = next((name for name, each in shared.items() if each == wanted), "")

    @pytest.fixture(scope="module")
    def plane(request: pytest.FixtureRequest) -> Iterator[ControlPlane]:
        with nullcontext(request.getfixturevalue(name)) if name else ControlPlane(options) as plane:
            install_crds(plane)
            for step in steps:
                step(plane)
            yield plane

    return plane


def definitions(file: Path) -> Step:
    """Return a step that applies CustomResourceDefinitions of a file, and waits until they are served."""

    def apply(plane: ControlPlane) -> None:
        plane.kubectl("apply", "--server-side", f"--filename={file}")
        await_definitions(plane)

    return apply


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
