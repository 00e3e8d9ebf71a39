"""Bound pods that no watch event confirms, which are read from the API server."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.filter_and_score import REGION_LABEL, ZONE_LABEL
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.framework.status import unresolvable
from scheduler_core.model.pod import Pod
from scheduler_core.snapshot.pod_info import PodInfo
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, member, members
from tests.support.presence import present
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, default_rig, gang_rig, rig
from tests.support.tables import table

WEB = pod("web", requests={"cpu": "3"})


async def rig_after_bind() -> Rig:
    """Return a scheduler with a pod whose bind succeeded 20 seconds ago."""
    made = default_rig(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.clock.advance(20)
    return made


async def settle(made: Rig, after: float = 15.0) -> None:
    await made.scheduler.unconfirmed_pods.settle(made.scheduler.feed, after)


@table(
    "found, assumed, pod_count, place",
    ("bound", pod("web", requests={"cpu": "3"}, node_name="n0"), 0, 1, ""),
    ("deleted", None, 0, 0, ""),
    ("another-pod", pod("web", uid="another"), 0, 0, ""),
    ("never-bound", WEB, 0, 0, "active"),
    ("ended", pod("web", node_name="n0", phase="Succeeded"), 0, 0, ""),
)
async def test_the_pod_that_is_read(found: Pod | None, assumed: int, pod_count: int, place: str) -> None:
    """An unconfirmed pod is confirmed, removed or queued again, as the read pod requires."""
    made = await rig_after_bind()
    if found is not None:
        made.writer.pods["default/web"] = found
    await settle(made)
    assert made.context.cache.assumed_count == assumed
    assert made.columns.pod_count.tolist() == [pod_count]
    assert made.place_of(WEB) == place


async def test_an_unreadable_pod_stays_assumed() -> None:
    """A pod that cannot be read stays assumed, however late its confirmation is."""
    made = await rig_after_bind()
    made.writer.read_failure = ServerUnavailableError("away")
    made.clock.advance(100_000)
    await settle(made)
    assert made.columns.pod_count.tolist() == [1]


async def test_a_pod_that_is_not_late_is_not_read() -> None:
    """A pod is not read before its confirmation is late."""
    made = await rig_after_bind()
    await settle(made, after=25)
    assert made.context.cache.assumed_count == 1


async def test_a_bind_without_effect_requeues_other_pods() -> None:
    """A pod that was infeasible because of a bind without effect is requeued."""
    made = await rig_after_bind()
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    assert made.place_of(other) == "unschedulable"
    made.writer.pods["default/web"] = WEB
    await settle(made)
    assert made.place_of(other) == "backoff"


async def test_a_pod_that_is_bound_elsewhere_requeues_other_pods() -> None:
    """An assumed pod that another scheduler binds to another node frees its node for other pods."""
    made = await rig_after_bind()
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    made.scheduler.feed.pod_updated(WEB, replace(WEB, spec=replace(WEB.spec, node_name="n1")))
    assert made.place_of(other) == "backoff"


@pytest.mark.parametrize("is_answered", [True, False])
async def test_lower_requests_during_the_bind_requeue_other_pods(is_answered: bool) -> None:
    """Lower requests of an assumed pod requeue other pods when a watch event confirms its bind."""
    made = default_rig(node("n0"), WEB)
    attempt = present(made.decide())
    if is_answered:
        assert await made.scheduler.cycles.binding.bind(attempt)
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    small = pod("web", requests={"cpu": "1"})
    made.scheduler.feed.pod_updated(WEB, small)
    assert made.place_of(other) == "unschedulable"
    made.scheduler.feed.pod_updated(small, replace(small, spec=replace(small.spec, node_name="n0")))
    assert made.place_of(other) == "backoff"


@table(
    "labels, place",
    ("equal", {"app": "db"}, "unschedulable"),
    ("copied-from-the-node", {"app": "db", ZONE_LABEL: "a", REGION_LABEL: "r"}, "unschedulable"),
    ("changed", {"app": "web"}, "backoff"),
)
async def test_labels_that_change_while_a_pod_is_being_bound(labels: dict[str, str], place: str) -> None:
    """A changed label is an event, but not a label that the API server copies from the node at the bind."""
    label_changed = EventRegistration(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL))
    journal = Journal(registrations={"Rec": [label_changed]})
    made = rig([recorder("Rec", journal)])
    web, other = pod("web", labels={"app": "db"}), pod("other")
    made.add(node("n0"), web)
    assert await made.attempt() == "n0"
    journal.results["Rec.preFilter"] = PreFilterResult(unresolvable("no"))
    made.add(other)
    assert made.decide() is None
    made.scheduler.feed.pod_updated(web, pod("web", labels=labels, node_name="n0"))
    assert made.place_of(other) == place


# -- events that are older than the read ----------------------------------------------------------------------------


def labelled(of: Pod) -> Pod:
    """Return the pod with another label."""
    return replace(of, metadata=replace(of.metadata, labels={**of.metadata.labels, "patched-by": "a-controller"}))


@table("found", ("ended", pod("web", requests={"cpu": "3"}, node_name="n0", phase="Succeeded")), ("deleted", None))
async def test_a_state_from_before_the_bind_does_not_queue_the_pod(found: Pod | None) -> None:
    """A late watch event with a state from before the bind does not queue an ended or deleted pod."""
    made = await rig_after_bind()
    if found is not None:
        made.writer.pods["default/web"] = found
    await settle(made)
    patched = labelled(WEB)
    made.scheduler.feed.pod_updated(WEB, patched)
    assert made.place_of(WEB) == ""
    made.scheduler.feed.pod_updated(patched, replace(patched, spec=replace(patched.spec, node_name="n0")))
    assert made.columns.pod_count.tolist() == [0]


async def test_reads_are_dropped_after_newer_watch_events() -> None:
    """The reads of a deleted, an ended and a bound pod are dropped when watch events confirm them."""
    made = default_rig()
    pods = [pod(f"web-{number}") for number in range(3)]
    made.add(node("n0"), *pods)
    for _ in pods:
        assert await made.attempt() == "n0"
    deleted, ended, runs = ((old, replace(old, spec=replace(old.spec, node_name="n0"))) for old in pods)
    ended = (ended[0], replace(ended[1], status=replace(ended[1].status, phase="Succeeded")))
    made.writer.pods = {new.key: new for _, new in (ended, runs)}
    made.clock.advance(20)
    await settle(made)
    reads, feed = made.scheduler.feed.reads, made.scheduler.feed
    assert len(reads) == 3
    feed.pod_updated(*ended)
    feed.pod_updated(*runs)
    feed.pod_deleted(deleted[0])
    assert len(reads) == 0


# -- gangs ----------------------------------------------------------------------------------------------------------


async def gang_bound() -> Rig:
    """Return a scheduler with two bound members of a gang; the first bind was answered 20 seconds ago, the second 5."""
    made = gang_rig(node("n0"))
    made.scheduler.group_feed.group_changed(group(min_member=2))
    made.add(*members(2))
    entry = made.pop()
    assert isinstance(entry, QueuedGang)
    first, second = await made.scheduler.cycles.gangs.schedule(entry)
    binds = [asyncio.ensure_future(made.scheduler.cycles.binding.bind(each)) for each in (first, second)]
    assert await asyncio.gather(*binds) == [True, True]
    made.clock.advance(15)
    made.context.cache.finish_binding(second.info.uid, made.clock.now())
    made.clock.advance(5)
    return made


async def test_a_gang_whose_binds_had_no_effect_is_queued_again() -> None:
    """Members whose binds had no effect are queued again as one gang."""
    made = await gang_bound()
    made.writer.pods = {each.key: each for each in members(2)}
    await settle(made)
    gang = gang_of(made)
    assert (gang.placed, gang.needed, sorted(gang.waiting)) == (set(), 2, [each.metadata.uid for each in members(2)])
    assert made.columns.pod_count.tolist() == [0]
    assert isinstance(made.pop(), QueuedGang)


async def test_a_gang_is_not_settled_in_part() -> None:
    """While one member of a gang cannot be read, the other members are not requeued."""
    made = await gang_bound()
    made.writer.pods = {"default/train-0": members(2)[0]}
    made.writer.unreadable.add("default/train-1")
    await settle(made)
    assert (gang_of(made).needed, made.context.cache.assumed_count) == (0, 2)


async def test_a_deleted_member_does_not_count_again() -> None:
    """A late watch event of a deleted member does not count for the quorum."""
    made = await gang_bound()
    await settle(made)
    assert not gang_of(made).pods
    made.scheduler.feed.pod_updated(members(2)[0], labelled(members(2)[0]))
    made.add(member("train-2"))
    assert (sorted(gang_of(made).pods), made.queue.pop()) == (["uid-of-default-train-2"], None)


async def test_a_nomination_whose_write_a_bind_displaced_does_not_count() -> None:
    """A pod that is queued again has the nomination of its status, not one that was never written."""
    made = default_rig(node("n0"), WEB)
    made.queue.nominator.written(WEB.metadata.uid, "n1")
    assert await made.attempt() == "n0"
    made.clock.advance(20)
    made.writer.pods["default/web"] = WEB
    await settle(made)
    assert made.place_of(WEB) == "active"
    assert made.queue.nominator.node_of(WEB.metadata.uid) == ""


def raise_in_add(made: Rig, monkeypatch: pytest.MonkeyPatch, times: int) -> None:
    """Let the queue raise as often when WEB is added."""
    queue, faults = made.queue, [RuntimeError("no memory")] * times
    unbroken = queue.add

    def broken(info: PodInfo) -> None:
        if info.uid == WEB.metadata.uid and faults:
            raise faults.pop()
        unbroken(info)

    monkeypatch.setattr(queue, "add", broken)


async def test_a_pod_that_cannot_be_requeued_stays_assumed(monkeypatch: pytest.MonkeyPatch) -> None:
    """No watch event adds a pod whose bind had no effect, so it is settled again if that raised twice."""
    made = await rig_after_bind()
    made.writer.pods["default/web"] = WEB
    raise_in_add(made, monkeypatch, 2)
    with pytest.raises(ExceptionGroup, match="could not be settled"):
        await settle(made)
    assert (made.context.cache.assumed_count, made.place_of(WEB)) == (1, "")
    assert made.columns.pod_count.tolist() == [1]
    await settle(made)
    assert (made.context.cache.assumed_count, made.place_of(WEB)) == (0, "active")


async def test_a_pod_that_raised_once_is_settled_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """One exception delays nothing, so the members of a gang are requeued together."""
    made = await rig_after_bind()
    made.writer.pods["default/web"] = WEB
    raise_in_add(made, monkeypatch, 1)
    await settle(made)
    assert (made.context.cache.assumed_count, made.place_of(WEB)) == (0, "active")


@pytest.mark.parametrize("broken", ["requeue", "read", "gang"])
async def test_other_pods_are_settled_if_one_raises(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An exception for one pod, wherever it is raised, does not delay the others."""
    made = default_rig()
    other = pod("other")
    made.add(node("n0"), WEB, other)
    assert [await made.attempt(), await made.attempt()] == ["n0", "n0"]
    made.clock.advance(20)
    made.writer.pods = {"default/web": WEB, "default/other": other}
    if broken == "requeue":
        raise_in_add(made, monkeypatch, 2)
    else:
        of, name = (made.writer, "read_pod") if broken == "read" else (made.queue.gangs, "of_uid")
        unbroken = getattr(of, name)

        def raises(*of_pod: str) -> object:
            if of_pod[-1] in ("web", WEB.metadata.uid):
                raise RuntimeError("no memory")
            return unbroken(*of_pod)

        monkeypatch.setattr(of, name, raises)
    with pytest.raises(ExceptionGroup) as raised:
        await settle(made)
    assert [str(each) for each in raised.value.exceptions] == ["no memory"]
    assert (made.context.cache.assumed_count, made.place_of(WEB), made.place_of(other)) == (1, "", "active")


async def test_a_read_counts_although_handling_it_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    """A late state from before the bind does not queue a deleted pod, even if its deletion was handled only in part."""
    made = await rig_after_bind()

    def broken(*_: object) -> None:
        raise RuntimeError("no memory")

    with monkeypatch.context() as patched:
        patched.setattr(made.scheduler.feed.invalid_pods, "remove", broken)
        with pytest.raises(ExceptionGroup):
            await settle(made)
    made.scheduler.feed.pod_updated(WEB, labelled(WEB))
    assert made.place_of(WEB) == ""
