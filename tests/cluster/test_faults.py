"""Servers that die or freeze half-way through a drain of 2,000 pods, on a control plane of their own.

Every test ends with the same accounts: nothing lost, nothing bound twice, no node overcommitted, no condition left
false; and the operator lived through it, or the one that replaced it took up where the other had left.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import install_crds
from hack.controlplane.servers import Options
from tests.support.drain import PODS, Drain
from tests.support.operator_process import OperatorProcess

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

UNDER_WAY = PODS // 5
OUTAGE_SECONDS = 20.0
MOST_LINES = 40  # of the log, for one outage of all watches, writes and kopf's own watches; usually less than 20


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """A control plane whose servers may be killed."""
    with ControlPlane(Options(audit=True)) as plane:
        install_crds(plane)
        yield plane


@pytest.fixture
def drain(plane: ControlPlane, operator: OperatorProcess) -> Iterator[Drain]:
    """A backlog of which a fifth is bound."""
    with closing(Drain(plane, operator)) as drain:
        drain.begin()
        drain.until_bound(UNDER_WAY)
        yield drain


def kill_the_api_server(plane: ControlPlane) -> None:
    """It dies as by a fault of the machine and comes back at once."""
    plane.stop_apiserver(crash=True)
    plane.start_apiserver()


def kill_etcd(plane: ControlPlane) -> None:
    """It dies as by a fault of the machine and comes back at once."""
    plane.stop_etcd(crash=True)
    plane.start_etcd()


def freeze_etcd(plane: ControlPlane) -> None:
    """Every write hangs until the API server gives up."""
    plane.etcd.pause()
    # What is waited for is the outage itself.
    time.sleep(OUTAGE_SECONDS)
    plane.etcd.resume()


@pytest.mark.parametrize(
    "trouble",
    [
        pytest.param(kill_the_api_server, id="the API server is killed"),
        pytest.param(kill_etcd, id="etcd is killed"),
        pytest.param(freeze_etcd, id="etcd hangs for 20 s"),
    ],
)
def test_a_drain_survives(
    trouble: Callable[[ControlPlane], None], drain: Drain, plane: ControlPlane, operator: OperatorProcess
) -> None:
    """Every pod is bound once, the same operator goes on, and its log says in few lines what happened."""
    before = operator.log.count("\n")
    assert drain.bound < PODS
    trouble(plane)
    drain.finish()
    assert drain.wrongs() == []
    operator.until(operator.is_alive, "it is alive")
    assert operator.log.count("\n") - before <= MOST_LINES, operator.log


def test_an_operator_that_is_killed_is_replaced(drain: Drain, operator: OperatorProcess) -> None:
    """The next one finds which pods are bound, and which were on their way."""
    operator.kill()
    assert drain.bound < PODS
    operator.start()
    drain.finish()
    assert drain.wrongs() == []
