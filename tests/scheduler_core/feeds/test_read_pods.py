"""Watch events of pods that are older than a read of the pod."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from scheduler_core.feeds.pod_versions import ReadPods
from scheduler_core.model.pod import Pod
from tests.support.builders import pod

WAITING = pod("web")
BOUND = pod("web", node_name="n0")
ENDED = pod("web", node_name="n0", phase="Succeeded")
ENDED_WITHOUT_NODE = pod("web", phase="Failed")


def terminating(of: Pod) -> Pod:
    return replace(of, metadata=replace(of.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))


@pytest.mark.parametrize(
    ("read", "delivered", "is_overtaken"),
    [
        pytest.param(None, WAITING, True, id="deleted-then-waiting"),
        pytest.param(None, ENDED, True, id="deleted-then-ended"),
        pytest.param(ENDED, WAITING, True, id="ended-then-waiting"),
        pytest.param(ENDED, BOUND, True, id="ended-then-bound"),
        pytest.param(ENDED, ENDED, False, id="ended"),
        pytest.param(ENDED_WITHOUT_NODE, WAITING, True, id="ended-without-a-node"),
        pytest.param(BOUND, WAITING, True, id="bound-then-waiting"),
        pytest.param(BOUND, terminating(WAITING), True, id="bound-then-waiting-and-deleting"),
        pytest.param(BOUND, BOUND, False, id="bound"),
        pytest.param(BOUND, ENDED, False, id="bound-then-ended"),
        pytest.param(terminating(WAITING), WAITING, True, id="deleting-then-waiting"),
        pytest.param(terminating(BOUND), BOUND, True, id="deleting-then-bound"),
        pytest.param(terminating(WAITING), terminating(WAITING), False, id="terminating"),
        pytest.param(WAITING, WAITING, False, id="waiting"),
        pytest.param(WAITING, BOUND, False, id="waiting-then-bound"),
    ],
)
def test_states_that_are_older_than_a_read(read: Pod | None, delivered: Pod, is_overtaken: bool) -> None:
    """A state is older if it lacks a permanent fact of the read; the first state that is not older drops the read."""
    reads = ReadPods()
    reads.record(WAITING.metadata.uid, read)
    assert reads.is_overtaken(delivered) is is_overtaken
    assert len(reads) == is_overtaken


def test_a_read_applies_to_one_uid() -> None:
    """A read does not apply to a recreated pod with another UID."""
    reads = ReadPods()
    reads.record(WAITING.metadata.uid, None)
    assert not reads.is_overtaken(pod("web", uid="another"))
    assert len(reads) == 1


def test_a_deletion_drops_the_read() -> None:
    """The deletion of a pod drops its read, because no event follows."""
    reads = ReadPods()
    reads.record(WAITING.metadata.uid, None)
    reads.deleted(WAITING.metadata.uid)
    reads.deleted(WAITING.metadata.uid)
    assert len(reads) == 0
