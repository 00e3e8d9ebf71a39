"""Evicted pods between the response to their deletion and its watch event."""

from __future__ import annotations

from datetime import UTC, datetime

from msgspec.structs import replace

from scheduler_core.errors import ClusterWriteError, NotFoundError
from scheduler_core.model.pod import Pod, PodCondition
from scheduler_core.ports import PodDeletion
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.preemption import PreemptionWorld
from tests.support.presence import present
from tests.support.scheduling import Rig, rig
from tests.support.tables import table

DELETED_AT = datetime(2026, 1, 1, tzinfo=UTC)
CONDITION = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", "preempted")
VICTIM = pod("victim", node_name="a", requests={"cpu": "4"}, priority=1)
AGAIN = pod("victim", uid="another", node_name="a", requests={"cpu": "4"}, priority=1)
PREEMPTOR = pod("preemptor", requests={"cpu": "4"}, priority=10)


def world() -> PreemptionWorld:
    """Return two nodes, each full with one victim, after an eviction of the first was sent."""
    made = PreemptionWorld([node("a"), node("b")], [VICTIM, pod("other", node_name="b", requests={"cpu": "4"})])
    made.scheduler.context.services.preemptions.attempted()
    made.handle.writer.delete_pod(PodDeletion("default", "victim", VICTIM.metadata.uid, CONDITION), lambda _: None)
    return made


def answer(made: PreemptionWorld, fault: Exception | None = None) -> None:
    made.writer.pending_deletions["victim"](fault)


def cached(made: PreemptionWorld, uid: str = VICTIM.metadata.uid) -> PodInfo | None:
    placed = made.scheduler.context.cache.get(uid)
    return None if placed is None else placed.info


def is_leaving(made: PreemptionWorld, uid: str = VICTIM.metadata.uid) -> bool:
    info = cached(made, uid)
    return info is not None and info.is_leaving


def terminating(version: Pod = VICTIM) -> Pod:
    metadata = replace(version.metadata, deletion_timestamp=DELETED_AT)
    return replace(version, metadata=metadata, status=replace(version.status, conditions=(CONDITION,)))


@table(
    "fault, terminates",
    ("accepted", None, True),
    ("pod-was-gone", NotFoundError("gone"), False),
    ("rejected", ClusterWriteError("rejected"), False),
)
def test_only_an_accepted_deletion_counts(fault: Exception | None, terminates: bool) -> None:
    """A pod terminates from the successful response on; after a failure it does not."""
    made = world()
    assert not is_leaving(made)
    answer(made, fault)
    assert is_leaving(made) is terminates


def test_a_version_from_before_the_deletion_does_not_undo_it() -> None:
    """A late version is taken with the deletion and its condition, and everything else as the watch shows it."""
    made = world()
    answer(made)
    late = replace(VICTIM, metadata=replace(VICTIM.metadata, labels={"changed": "yes"}))
    made.scheduler.feed.pod_updated(VICTIM, late)
    info = present(cached(made))
    assert info.is_leaving
    assert info.pod.metadata.labels == {"changed": "yes"}
    assert info.pod.status.conditions == (CONDITION,)
    assert made.columns.requested[0].tolist() == [4000, 4000]


def test_the_watch_confirms_the_deletion() -> None:
    """When the watch shows the deletion, its version counts; when the pod is gone, nothing is stored about it."""
    made = world()
    answer(made)
    made.scheduler.feed.pod_updated(VICTIM, terminating())
    info = present(cached(made))
    assert info.pod.metadata.deletion_timestamp == DELETED_AT
    made.scheduler.feed.pod_deleted(terminating())
    assert cached(made) is None


@table("is_replaced", ("deleted-and-added", False), ("updated-to-another-uid", True))
def test_another_pod_of_the_name_does_not_terminate(is_replaced: bool) -> None:
    """A new pod of the same name has no deletion, whichever way the watch reports it."""
    made = world()
    answer(made)
    if is_replaced:
        made.scheduler.feed.pod_updated(VICTIM, AGAIN)
    else:
        made.scheduler.feed.pod_deleted(VICTIM)
        made.scheduler.feed.pod_added(AGAIN)
    assert cached(made) is None
    assert cached(made, "another") is not None
    assert not is_leaving(made, "another")


def test_a_response_after_the_watch_event_changes_nothing() -> None:
    """If the watch was faster, a later version of the pod, or its absence, stays as the watch reported it."""
    made = world()
    made.scheduler.feed.pod_deleted(terminating())
    answer(made)
    assert cached(made) is None
    made.scheduler.feed.pod_added(AGAIN)
    assert not is_leaving(made, "another")


def test_a_preemptor_waits_for_an_accepted_deletion() -> None:
    """A preemptor whose status shows no nomination yet does not evict from another node either."""
    made = world()
    answer(made)
    info = made.columns.compile_pod(PREEMPTOR)
    made.scheduler.context.queue.nominator.nominate(info, "a")
    result = made.post_filter(PREEMPTOR)
    assert result.status.message == ("preemption: not eligible due to a terminating pod on the nominated node.")
    assert list(made.writer.pending_deletions) == ["victim"]


async def test_an_assumed_pod_stays_assumed() -> None:
    """A pod whose bind is in flight is not released: the bind may have taken effect before the deletion."""
    made: Rig = rig()
    made.add(node("a"), pod("web", requests={"cpu": "3"}))
    queued = present(made.queue.pop())
    attempt = present(made.scheduler.cycles.pods.schedule(queued))
    version, uid = attempt.info.pod, attempt.info.uid
    made.scheduler.feed.deletion_accepted(PodDeletion("default", "web", uid), DELETED_AT)
    made.scheduler.feed.pod_updated(version, replace(version, metadata=replace(version.metadata, labels={"a": "b"})))
    placed = present(made.context.cache.get(uid))
    assert placed.info.is_leaving
    assert made.columns.pod_count.tolist() == [1]
    bound = replace(version, spec=replace(version.spec, node_name="a"))
    made.scheduler.feed.pod_updated(version, bound)
    placed = present(made.context.cache.get(uid))
    assert placed.info.is_leaving
    assert made.columns.pod_count.tolist() == [1]
