"""etcd and the API server are killed or frozen during a drain of 2,000 pods, on a separate control plane.

Every test ends with the same checks: no pod is lost or bound twice, no node is overcommitted and no condition is left
false. The operator survives, or its replacement continues the drain.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.servers import Options
from tests.support.drain import PODS, Drain
from tests.support.live_servers import module_plane
from tests.support.operator_process import OperatorProcess
from tests.support.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
UNDER_WAY = PODS // 5
OUTAGE_SECONDS = 20.0
MOST_LINES = 40  # of the log for one outage, which ends all watches and writes; usually there are less than 20

plane = module_plane(options=Options(audit=True))


@pytest.fixture
def drain(plane: ControlPlane, operator: OperatorProcess) -> Iterator[Drain]:
    """Return a backlog of pods of which a fifth is bound."""
    with closing(Drain(plane, operator)) as drain:
        drain.begin()
        drain.until_bound(UNDER_WAY)
        yield drain


def kill_api_server(plane: ControlPlane) -> None:
    """Kill the API server as a crash of its machine would, and restart it at once."""
    plane.stop_apiserver(crash=True)
    plane.start_apiserver()


def kill_etcd(plane: ControlPlane) -> None:
    """Kill etcd as a crash of its machine would, and restart it at once."""
    plane.stop_etcd(crash=True)
    plane.start_etcd()


def freeze_etcd(plane: ControlPlane) -> None:
    """Pause etcd, so that every write hangs until the API server times out."""
    plane.etcd.pause()
    # The sleep is the outage itself.
    time.sleep(OUTAGE_SECONDS)
    plane.etcd.resume()


@table(
    "fault", ("API server killed", kill_api_server), ("etcd killed", kill_etcd), ("etcd frozen for 20 s", freeze_etcd)
)
def test_a_drain_survives(
    fault: Callable[[ControlPlane], None], drain: Drain, plane: ControlPlane, operator: OperatorProcess
) -> None:
    """Every pod is bound once, the operator process survives, and it logs few lines."""
    before = operator.log.count("\n")
    assert drain.bound < PODS
    fault(plane)
    drain.finish()
    assert drain.violations() == []
    operator.until(operator.is_alive, "the operator is alive")
    assert operator.log.count("\n") - before <= MOST_LINES, operator.log


def test_an_operator_that_is_killed_is_replaced(drain: Drain, operator: OperatorProcess) -> None:
    """A restarted operator finds which pods are bound and schedules the rest."""
    operator.kill()
    assert drain.bound < PODS
    operator.start()
    drain.finish()
    assert drain.violations() == []
