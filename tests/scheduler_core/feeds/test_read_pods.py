"""Watch events of pods that are older than a read of the pod."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from scheduler_core.feeds.pod_versions import ReadPods
from scheduler_core.model.pod import Pod
from tests.support.builders import pod
from tests.support.tables import table

WAITING = pod("web")
BOUND = pod("web", node_name="n0")
ENDED = pod("web", node_name="n0", phase="Succeeded")
ENDED_WITHOUT_NODE = pod("web", phase="Failed")


def terminating(of: Pod) -> Pod:
    return replace(of, metadata=replace(of.metadata, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC)))


@table(
    "read, delivered, is_overtaken",
    ("deleted-then-waiting", None, WAITING, True),
    ("deleted-then-ended", None, ENDED, True),
    ("ended-then-waiting", ENDED, WAITING, True),
    ("ended-then-bound", ENDED, BOUND, True),
    ("ended", ENDED, ENDED, False),
    ("ended-without-a-node", ENDED_WITHOUT_NODE, WAITING, True),
    ("bound-then-waiting", BOUND, WAITING, True),
    ("bound-then-waiting-and-deleting", BOUND, terminating(WAITING), True),
    ("bound", BOUND, BOUND, False),
    ("bound-then-ended", BOUND, ENDED, False),
    ("deleting-then-waiting", terminating(WAITING), WAITING, True),
    ("deleting-then-bound", terminating(BOUND), BOUND, True),
    ("terminating", terminating(WAITING), terminating(WAITING), False),
    ("waiting", WAITING, WAITING, False),
    ("waiting-then-bound", WAITING, BOUND, False),
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
