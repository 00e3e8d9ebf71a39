"""Two processes without leader election on one API server: the second one warns, and a restart does not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
WARNING = "Another scheduler is active: "


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """Create a namespace for the Lease of one test."""
    name = f"second-{uuid.uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def first(plane: ControlPlane, tmp_path: Path, namespace: str) -> Iterator[OperatorProcess]:
    """Run the first process, and wait until it holds the Lease."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "first.log", [f"--namespace={namespace}"]) as first:
        first.start()
        first.until(lambda: bool(holder(plane, namespace)), "the first process holds the Lease")
        yield first


def holder(plane: ControlPlane, namespace: str) -> str:
    """Return the holder of the Lease, "" if there is none."""
    found: dict[str, Any] = json.loads(plane.kubectl("get", "leases", f"--namespace={namespace}", "--output=json"))
    return str(next((item["spec"]["holderIdentity"] for item in found["items"]), ""))


@table(
    "other",
    ("same namespace", False),
    ("other namespace", True),
)
def test_a_second_process_warns(
    plane: ControlPlane, tmp_path: Path, first: OperatorProcess, namespace: str, other: bool
) -> None:
    """A process without leader election warns of one that runs, in whichever namespace that one stores revisions."""
    own = "default" if other else namespace
    with OperatorProcess(plane.kubeconfig, tmp_path / "second.log", [f"--namespace={own}"]) as second:
        second.start()
        second.until(lambda: WARNING in second.log, "the second process warns")
        assert f"{holder(plane, namespace)} holds Lease {namespace}/bayplan" in second.log
        assert second.log.count(WARNING) == 1
        second.terminate()
    first.terminate()
    assert holder(plane, namespace) == ""
    assert WARNING not in first.log


def test_a_candidate_waits(plane: ControlPlane, tmp_path: Path, first: OperatorProcess, namespace: str) -> None:
    """A process with leader election is a standby while a process without it runs."""
    with OperatorProcess(
        plane.kubeconfig, tmp_path / "second.log", [f"--namespace={namespace}", "--leader-elect"]
    ) as second:
        second.start()
        assert "standby" in second.get("/readyz")[1]
        first.terminate()
        second.until(lambda: "Leading: " in second.log, "the second process leads")


def test_a_restart_does_not_warn(plane: ControlPlane, first: OperatorProcess, namespace: str) -> None:
    """After a crash the next process schedules at once, does not warn, and holds the Lease when it has expired."""
    crashed = holder(plane, namespace)
    first.kill()
    first.start()
    assert holder(plane, namespace) == crashed
    first.until(lambda: holder(plane, namespace) != crashed, "the Lease of the crashed process expires")
    assert WARNING not in first.log
