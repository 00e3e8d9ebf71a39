"""Bayplan and kube-scheduler on the same nodes, both busy: what is overcommitted is reported, pod by pod."""

from __future__ import annotations

import pytest

from benchmarks.shared_nodes import BACKLOG, FULL, SLOTS, share
from hack.controlplane.launcher import ControlPlane
from hack.controlplane.schedulers import BAYPLAN

pytestmark = [pytest.mark.cluster, pytest.mark.kube_scheduler, pytest.mark.timeout(300)]

NODES = 10


@pytest.mark.parametrize("situation", [pytest.param(each, id=each.replace(" ", "-")) for each in (BACKLOG, FULL)])
def test_pods_too_many_are_bounded_and_reported(empty_plane: ControlPlane, situation: str) -> None:
    """No node has more pods than two schedulers fit that cannot see each other; each pod too many is counted.

    Bayplan assumes no pod on a node that is full as far as it has received binds. So only a pod of the rival can be too
    many when it arrives, and the counter equals the pods too many, unless some of them have been deleted since.
    """
    empty_plane.reset()
    outcome = share(empty_plane, BAYPLAN, situation, NODES)
    assert sum(outcome.bound) == NODES * SLOTS + outcome.pods_too_many
    assert outcome.pods_too_many <= outcome.overcommitted_nodes * SLOTS
    assert outcome.reported >= outcome.pods_too_many
    if situation == BACKLOG:
        assert outcome.reported == outcome.pods_too_many
