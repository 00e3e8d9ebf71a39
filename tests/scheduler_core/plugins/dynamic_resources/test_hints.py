"""Tests of the queueing hints: which changes of claims may help a pod."""

from __future__ import annotations

import pytest

from scheduler_core.framework.cluster_events import Hint
from scheduler_core.model.device_claims import ResourceClaim
from scheduler_core.model.meta import OwnerReference
from scheduler_core.model.pod import Pod
from scheduler_core.plugins.dynamic_resources.hints import DeviceHints
from tests.support.builders import pod
from tests.support.devices import claim, held, using, with_meta
from tests.support.handles import FakeHandle

USER = using(pod("p", namespace="ns", uid="uid-of-p"), "c0")
OWNED = with_meta(claim(name="made"), owner_references=(OwnerReference("Pod", "p", "uid-of-p", "v1", controller=True),))


def hints(*claims: ResourceClaim) -> DeviceHints:
    """Return the hints of a scheduler with claims."""
    handle = FakeHandle()
    for each in claims:
        handle.nodes.devices.assign(each)
    return DeviceHints(handle)


@pytest.mark.parametrize(
    ("stored", "old", "new", "hint"),
    [
        pytest.param([claim()], None, claim(), Hint.QUEUE, id="a claim of the pod is created"),
        pytest.param([claim()], None, claim(name="x"), Hint.SKIP, id="another claim is created"),
        pytest.param([], None, claim(name="x"), Hint.SKIP, id="a claim of the pod is still missing"),
        pytest.param(
            [claim()], held({"device": "d"}), claim(name="held"), Hint.QUEUE, id="another claim is deallocated"
        ),
        pytest.param([claim()], held({"device": "d"}, name="c0"), claim(), Hint.QUEUE, id="its claim is deallocated"),
        pytest.param([claim()], claim(), held({"device": "d"}, name="c0"), Hint.QUEUE, id="its claim is allocated"),
        pytest.param([claim()], claim(), with_meta(claim(), annotations={"a": "b"}), Hint.SKIP, id="same status"),
        pytest.param([claim()], held({"device": "d"}), None, Hint.QUEUE, id="an allocated claim is deleted"),
        pytest.param([claim()], claim(name="x"), None, Hint.SKIP, id="an unallocated claim is deleted"),
        pytest.param([claim()], None, USER, Hint.QUEUE, id="unknown object"),
    ],
)
def test_change_of_a_claim(
    stored: list[ResourceClaim], old: ResourceClaim | None, new: object | None, hint: Hint
) -> None:
    """The claims of the pod are those after the change."""
    assert hints(*stored).after_claim_change(USER, old, new) is hint


@pytest.mark.parametrize(
    ("stored", "new", "hint"),
    [
        pytest.param([OWNED], using(USER, templates={"t": "made"}), Hint.QUEUE, id="all claims exist"),
        pytest.param([], using(USER, templates={"t": "made"}), Hint.SKIP, id="the claim is not known yet"),
        pytest.param([], using(USER, templates={"t": None}), Hint.QUEUE, id="no claim is needed"),
    ],
)
def test_change_of_the_pod(stored: list[ResourceClaim], new: Pod, hint: Hint) -> None:
    """The pod is requeued once all claims of its status exist."""
    assert hints(*stored).after_pod_update(USER, USER, new) is hint
