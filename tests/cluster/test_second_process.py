"""Two processes without leader election on one API server: the second one warns, and a restart does not."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = pytest.mark.cluster
WARNING = "Another scheduler is active: "
LEASE = {"leaseDuration": 3, "renewDeadline": 2, "retryPeriod": 0.5}
plane = module_plane()


@pytest.fixture
def namespace(plane: ControlPlane) -> str:
    """Create a namespace for the Lease of one test."""
    # A new process looks for one that renews its Lease until the Lease of a killed one has expired, and would find any.
    plane.reset()
    name = f"second-{uuid.uuid4().hex[:8]}"
    plane.kubectl("create", "namespace", name)
    return name


@pytest.fixture
def settings(tmp_path: Path) -> str:
    """Return the flag of a settings file with a short Lease."""
    file = tmp_path / "settings.yaml"
    file.write_text(json.dumps({"leaderElection": LEASE}))
    return f"--settings={file}"


@pytest.fixture
def first(plane: ControlPlane, tmp_path: Path, namespace: str, settings: str) -> Iterator[OperatorProcess]:
    """Run the first process, and wait until it holds the Lease."""
    with OperatorProcess(plane.kubeconfig, tmp_path / "first.log", [settings, f"--namespace={namespace}"]) as first:
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
    plane: ControlPlane, first: OperatorProcess, namespace: str, settings: str, other: bool
) -> None:
    """A process without leader election warns of one that runs, in whichever namespace that one stores revisions."""
    own = "default" if other else namespace
    with OperatorProcess(
        plane.kubeconfig, first.log_file.with_name("second.log"), [settings, f"--namespace={own}"]
    ) as second:
        second.start()
        second.until(lambda: WARNING in second.log, "the second process warns")
        assert f"{holder(plane, namespace)} holds Lease {namespace}/bayplan" in second.log
        assert second.log.count(WARNING) == 1
        second.terminate()
    first.terminate()
    assert holder(plane, namespace) == ""
    assert WARNING not in first.log


def test_a_candidate_waits(plane: ControlPlane, first: OperatorProcess, namespace: str, settings: str) -> None:
    """A process with leader election is a standby while a process without it runs."""
    with OperatorProcess(
        plane.kubeconfig,
        first.log_file.with_name("second.log"),
        [settings, f"--namespace={namespace}", "--leader-elect"],
    ) as second:
        second.start()
        assert "standby" in second.get("/readyz")[1]
        first.terminate()
        second.until(lambda: "Leading: " in second.log, "the second process leads")


def test_a_restart_does_not_warn(plane: ControlPlane, first: OperatorProcess, namespace: str) -> None:
    """After a crash the next process schedules, does not warn, and holds the Lease when it has expired."""
    crashed = holder(plane, namespace)
    first.kill()
    first.start(wait=False)
    first.until(lambda: first.log.count("Connecting to ") == 2, "the next process starts")
    first.until(lambda: holder(plane, namespace) != crashed, "the Lease of the crashed process expires")
    first.wait_until_ready()
    assert WARNING not in first.log
