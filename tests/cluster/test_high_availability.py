"""A leader is killed, stopped, cut off from the API server or terminated during a drain, and a standby takes over.

The Lease is short here (8 s, renewed within 6 s, retried every 0.5 s); docs/operate/high-availability.md has figures
for the defaults. After every test no pod is lost or bound twice, and the old leader has changed nothing after the new
one's first change.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.controlplane.launcher import ControlPlane
from tests.support.failover import LEASE_SECONDS, ONE, PODS, RENEW_SECONDS, TWO, Failover, failover_plane

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300), pytest.mark.usefixtures("figures")]
SETTLE_SECONDS = 60.0
"""Time to notice the expired Lease, read the profiles and bind the first pod, on a busy machine."""
IN_FLIGHT = 1
"""Requests that a stopped process may still send: the one it was writing when it was stopped."""


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """Start a control plane whose API server may be paused."""
    with failover_plane(tmp_path_factory.mktemp("plane")) as plane:
        yield plane


@pytest.fixture
def pair(plane: ControlPlane, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Failover]:
    """Start two processes, of which ``one`` leads and has bound a quarter of the pods."""
    name = request.node.name.removeprefix("test_").replace("_", "-")
    with Failover(plane, name, tmp_path) as pair:
        pair.begin()
        yield pair


@pytest.fixture
def figures(pair: Failover) -> Iterator[None]:
    """Print how many pods each process bound and the longest time without a bind; pytest shows it with -rP."""
    yield
    binds = [pair.binds(user) for user in (ONE, TWO)]
    gap = binds[1][0].at - binds[0][-1].at
    shares = f"{len(binds[0])} + {len(binds[1])} of {PODS} pods"
    print(f"{pair.name}: no bind for {gap:.2f} s, {shares}, {len(pair.changes_after_takeover())} late changes")  # noqa: T201


def test_a_leader_is_killed(pair: Failover) -> None:
    """When the leader is killed, the standby binds the remaining pods after the Lease has expired."""
    began = time.time()
    pair.one.kill()
    pair.finish()
    seconds = pair.takeover_seconds(began)
    assert pair.changes_after_takeover() == []
    assert pair.violations() == []
    assert LEASE_SECONDS - RENEW_SECONDS < seconds < LEASE_SECONDS + SETTLE_SECONDS


def test_a_leader_is_stopped_and_continued(pair: Failover) -> None:
    """A leader that is stopped until its Lease has expired sends no further request when continued, and exits."""
    began = time.time()
    pair.one.send(signal.SIGSTOP)
    pair.until(lambda: pair.binds(TWO), "the standby binds")
    assert len(pair.binds(TWO)) < PODS - len(pair.binds(ONE)), "the drain ended before the old leader was continued"
    pair.one.send(signal.SIGCONT)
    assert pair.one.wait() == 1
    pair.finish()
    seconds = pair.takeover_seconds(began)
    assert "was lost" in pair.one.log
    assert len(pair.changes_after_takeover()) <= IN_FLIGHT
    assert pair.violations() == []
    assert seconds < LEASE_SECONDS + SETTLE_SECONDS


def test_the_api_server_freezes(plane: ControlPlane, pair: Failover) -> None:
    """The leader exits by its own clock; requests it sent earlier are executed before the new leader's first one."""
    plane.apiserver.pause()
    assert pair.one.wait() == 1
    # The Lease must expire while the API server is paused.
    time.sleep(LEASE_SECONDS)
    began = time.time()
    plane.apiserver.resume()
    pair.finish()
    seconds = pair.takeover_seconds(began)
    assert pair.changes_after_takeover() == []
    assert pair.violations() == []
    assert seconds < LEASE_SECONDS + SETTLE_SECONDS


def test_a_leader_is_terminated(pair: Failover) -> None:
    """A terminated leader finishes its binds and releases the Lease, so the standby need not wait for it to expire."""
    code, _ = pair.one.terminate()
    released = time.time()
    pair.finish()
    assert code == 0
    assert "was released" in pair.one.log
    assert pair.changes_after_takeover() == []
    assert pair.violations() == []
    assert pair.takeover_seconds(released) < SETTLE_SECONDS
