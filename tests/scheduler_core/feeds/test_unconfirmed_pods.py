"""Bound pods that no watch confirms are read, and the result decides."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from scheduler_core.cycle.percentage_of_nodes import REGION_LABEL, ZONE_LABEL
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.framework.cluster_events import Action, ClusterEvent, EventRegistration, Resource
from scheduler_core.framework.extension_points import PreFilterResult
from scheduler_core.framework.queued_pod import QueuedGang
from scheduler_core.framework.status import unresolvable
from scheduler_core.in_tree import default_plugins
from scheduler_core.model.pod import Pod
from scheduler_core.model.pod_group import GroupSource
from tests.support.builders import node, pod
from tests.support.gangs import gang_of, group, member, members
from tests.support.recording_plugins import Journal, recorder
from tests.support.scheduling import Rig, rig

WEB = pod("web", requests={"cpu": "3"})


async def bound() -> Rig:
    """A pod whose bind succeeded 20 seconds ago."""
    made = rig(defaults=default_plugins())
    made.add(node("n0"), WEB)
    assert await made.attempt() == "n0"
    made.clock.advance(20)
    return made


async def settle(made: Rig, after: float = 15.0) -> None:
    await made.scheduler.unconfirmed_pods.settle(made.scheduler.feed, after)


@pytest.mark.parametrize(
    ("found", "assumed", "placed", "place"),
    [
        pytest.param(pod("web", requests={"cpu": "3"}, node_name="n0"), 0, 1, "", id="bound"),
        pytest.param(None, 0, 0, "", id="gone"),
        pytest.param(pod("web", uid="another"), 0, 0, "", id="another-pod"),
        pytest.param(WEB, 0, 0, "active", id="never-bound"),
        pytest.param(pod("web", node_name="n0", phase="Succeeded"), 0, 0, "", id="ended"),
    ],
)
async def test_what_is_read_decides(found: Pod | None, assumed: int, placed: int, place: str) -> None:
    """Confirmed, deleted or scheduled again."""
    made = await bound()
    if found is not None:
        made.writer.pods["default/web"] = found
    await settle(made)
    assert made.context.cache.assumed_count == assumed
    assert made.context.cache.columns.pod_count.tolist() == [placed]
    assert made.place_of(WEB) == place


async def test_time_alone_decides_nothing() -> None:
    """A pod that cannot be read stays on its node, however late it is."""
    made = await bound()
    made.writer.read_failure = ServerUnavailableError("away")
    made.clock.advance(100_000)
    await settle(made)
    assert made.context.cache.columns.pod_count.tolist() == [1]


async def test_a_pod_that_is_not_late_is_not_read() -> None:
    """Reading costs a request."""
    made = await bound()
    await settle(made, after=25)
    assert made.context.cache.assumed_count == 1


async def test_a_place_that_is_given_back_wakes_others() -> None:
    """A pod that was infeasible beside a bind that never took effect is retried."""
    made = await bound()
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    assert made.place_of(other) == "unschedulable"
    made.writer.pods["default/web"] = WEB
    await settle(made)
    assert made.place_of(other) == "backoff"
    made.queue.close()


async def test_a_pod_that_is_bound_elsewhere_wakes_others() -> None:
    """Its bind was answered and never took effect; then another scheduler has bound it to another node."""
    made = await bound()
    other = pod("other", requests={"cpu": "2"})
    made.add(other)
    assert made.decide() is None
    made.scheduler.feed.pod_updated(WEB, replace(WEB, spec=replace(WEB.spec, node_name="n1")))
    assert made.place_of(other) == "backoff"
    made.queue.close()


@pytest.mark.parametrize("is_answered", [True, False])
async def test_a_pod_that_shrinks_while_it_is_being_bound_wakes_others(is_answered: bool) -> None:
    """Its node counts its old request until a watch shows it bound."""
    made = rig(defaults=default_plugins())
    made.add(node("n0"), WEB)
    attempt = made.decide()
    assert attempt is not None
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
    made.queue.close()


@pytest.mark.parametrize(
    ("labels", "place"),
    [
        pytest.param({"app": "db"}, "unschedulable", id="equal"),
        pytest.param({"app": "db", ZONE_LABEL: "a", REGION_LABEL: "r"}, "unschedulable", id="copied-from-the-node"),
        pytest.param({"app": "web"}, "backoff", id="changed"),
    ],
)
async def test_labels_that_change_while_a_pod_is_being_bound(labels: dict[str, str], place: str) -> None:
    """A label that the API server copies from the node at the bind is no change of a label."""
    label_changed = EventRegistration(ClusterEvent(Resource.POD, Action.UPDATE_POD_LABEL))
    journal = Journal(registrations={"Rec": [label_changed]})
    made = rig([recorder("Rec", journal)])
    web, apart = pod("web", labels={"app": "db"}), pod("apart")
    made.add(node("n0"), web)
    assert await made.attempt() == "n0"
    journal.results["Rec.preFilter"] = PreFilterResult(unresolvable("no"))
    made.add(apart)
    assert made.decide() is None
    made.scheduler.feed.pod_updated(web, pod("web", labels=labels, node_name="n0"))
    assert made.place_of(apart) == place
    made.queue.close()


# -- events that are older than the read ----------------------------------------------------------------------------


def labelled(of: Pod) -> Pod:
    """A later state of a pod, in which only a label has changed."""
    return replace(of, metadata=replace(of.metadata, labels={**of.metadata.labels, "patched-by": "a-controller"}))


@pytest.mark.parametrize(
    "found",
    [
        pytest.param(pod("web", requests={"cpu": "3"}, node_name="n0", phase="Succeeded"), id="ended"),
        pytest.param(None, id="gone"),
    ],
)
async def test_a_state_from_before_the_bind_does_not_bring_a_pod_back(found: Pod | None) -> None:
    """A late watch delivers a state from before the bind: the pod would be scheduled again, and evict others."""
    made = await bound()
    if found is not None:
        made.writer.pods["default/web"] = found
    await settle(made)
    patched = labelled(WEB)
    made.scheduler.feed.pod_updated(WEB, patched)
    assert made.place_of(WEB) == ""
    made.scheduler.feed.pod_updated(patched, replace(patched, spec=replace(patched.spec, node_name="n0")))
    assert made.context.cache.columns.pod_count.tolist() == [0]


async def test_reads_are_dropped_when_the_watch_has_caught_up() -> None:
    """Three pods were read: one is gone, one has ended, one is bound."""
    made = rig(defaults=default_plugins())
    pods = [pod(f"web-{number}") for number in range(3)]
    made.add(node("n0"), *pods)
    for _ in pods:
        assert await made.attempt() == "n0"
    gone, ended, runs = ((old, replace(old, spec=replace(old.spec, node_name="n0"))) for old in pods)
    ended = (ended[0], replace(ended[1], status=replace(ended[1].status, phase="Succeeded")))
    made.writer.pods = {new.key: new for _, new in (ended, runs)}
    made.clock.advance(20)
    await settle(made)
    reads, feed = made.scheduler.feed.reads, made.scheduler.feed
    assert len(reads) == 3
    feed.pod_updated(*ended)
    feed.pod_updated(*runs)
    feed.pod_deleted(gone[0])
    assert len(reads) == 0


# -- gangs ----------------------------------------------------------------------------------------------------------


async def gang_bound() -> Rig:
    """Two members of a gang of two, the second of which was bound 15 seconds after the first, five seconds ago."""
    made = rig(defaults=default_plugins())
    made.scheduler.group_feed.serve(GroupSource.BAYPLAN)
    made.add(node("n0"))
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


async def test_a_gang_that_was_never_bound_waits_as_a_whole() -> None:
    """A member whose bind never took effect does not count as placed; its siblings are read with it."""
    made = await gang_bound()
    made.writer.pods = {each.key: each for each in members(2)}
    await settle(made)
    gang = gang_of(made)
    assert (gang.placed, gang.needed, sorted(gang.waiting)) == (set(), 2, [each.metadata.uid for each in members(2)])
    assert made.context.cache.columns.pod_count.tolist() == [0]
    assert isinstance(made.pop(), QueuedGang)
    made.queue.close()


async def test_a_gang_is_not_settled_in_part() -> None:
    """As long as one of its members cannot be read, the others are not requeued without it."""
    made = await gang_bound()
    made.writer.pods = {"default/train-0": members(2)[0]}
    made.writer.unreadable.add("default/train-1")
    await settle(made)
    assert (gang_of(made).needed, made.context.cache.assumed_count) == (0, 2)
    made.queue.close()


async def test_a_member_that_is_gone_does_not_count_again() -> None:
    """A late state of a deleted member would complete the quorum of another one."""
    made = await gang_bound()
    await settle(made)
    assert not gang_of(made).pods
    made.scheduler.feed.pod_updated(members(2)[0], labelled(members(2)[0]))
    made.add(member("train-2"))
    assert (sorted(gang_of(made).pods), made.queue.pop()) == (["uid-of-default-train-2"], None)
    made.queue.close()
