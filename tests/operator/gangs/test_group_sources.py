"""Tests of the sources of PodGroups: APIs that are served, not served, or change while the API server is upgraded."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial

import pytest
from bayplan.gangs.group_sources import PRIORITY_CLASSES, GroupSources, UsedApis, watched_priority_classes
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.watches.cluster_informers import ClusterInformers
from bayplan.resources.pod_group import PodGroup as BayplanGroup

from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.scheduler import Scheduler
from tests.operator.gangs.served_world import (
    NATIVE,
    NATIVE_KEY,
    OLDER,
    PLUGINS,
    PLUGINS_KEY,
    Manifest,
    World,
    group,
    member,
    served_world,
)
from tests.operator.kube.conftest import InstantClock
from tests.support.background import until
from tests.support.builders import pod
from tests.support.fake_api import Hang, Response, Stream, error_response, listed, serves, watch_event
from tests.support.presence import present
from tests.support.recording_writer import RecordingWriter
from tests.support.tables import table


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for made in served_world():
        yield made


async def test_an_api_that_is_not_served_does_not_delay_the_start(world: World) -> None:
    """An API that is not served does not delay the start; its pods are gated with a reason that has the remedy."""
    async with world.running():
        await world.ready()
        assert world.unread(GroupSource.SCHEDULER_PLUGINS) == (
            "the API server serves no PodGroups of scheduling.x-k8s.io/v1alpha1; install the CustomResourceDefinition "
            "podgroups.scheduling.x-k8s.io, or turn off Bayplan's feature gate CompatiblePodGroups to ignore the label"
        )
        assert world.unread(GroupSource.NATIVE) == (
            "the API server serves no PodGroups of scheduling.k8s.io/v1beta1 or v1alpha3 or v1alpha2; enable it in the "
            "API server (--runtime-config, and feature gate GenericWorkload), or turn off Bayplan's feature gate "
            "CompatiblePodGroups to ignore spec.schedulingGroup"
        )
    assert not {"podgroups.scheduling.x-k8s.io", "podgroups.scheduling.k8s.io"} & world.informers.by_resource.keys()


async def test_an_unsupported_version_is_reported(world: World) -> None:
    """If the API server serves only an unsupported version, the reason names the versions."""
    group = "/apis/scheduling.k8s.io"
    world.api.on("GET", group, Response(body={"versions": [{"version": "v1"}, {"version": "v1alpha4"}]}))
    world.api.on("GET", f"{group}/v1", serves("priorityclasses"))
    world.api.on("GET", f"{group}/v1alpha4", serves("workloads", "podgroups"))
    async with world.running():
        await world.ready()
        assert world.unread(GroupSource.NATIVE) == (
            "the API server serves PodGroups of scheduling.k8s.io in v1alpha4, and this version of Bayplan reads "
            "v1beta1 or v1alpha3 or v1alpha2 only; upgrade Bayplan or serve "
            "scheduling.k8s.io/v1beta1 or v1alpha3 or v1alpha2"
        )


async def test_a_forbidden_list_does_not_delay_the_start(world: World) -> None:
    """A forbidden list delays nothing else, its reason names the missing permission, and it is retried."""
    collection = f"{PLUGINS}/podgroups"
    world.api.on("GET", PLUGINS, serves("podgroups"))
    world.api.on("GET", collection, error_response(403, "no"))
    async with world.running():
        await world.ready()
        assert world.unread(GroupSource.SCHEDULER_PLUGINS) == (
            f"the PodGroups of scheduling.x-k8s.io cannot be listed: WATCH {collection}: HTTP 403: no; grant this "
            'process\'s account the verbs list and watch on resource "podgroups" of API group "scheduling.x-k8s.io" in '
            "a ClusterRole"
        )
        world.api.on("GET", collection, Stream(*listed(group()), Hang()))
        await until(lambda: world.unread(GroupSource.SCHEDULER_PLUGINS) is None)
        assert world.group_of(PLUGINS_KEY) is not None


async def test_groups_stay_in_effect_during_a_relist(world: World) -> None:
    """After the resource version has expired, groups stay in effect while they are listed again."""
    again = asyncio.Event()
    world.api.on("GET", PLUGINS, serves("podgroups"))
    collection = f"{PLUGINS}/podgroups"
    other = group(11, metadata={"name": "other", "uid": "v"})
    world.api.on(
        "GET",
        collection,
        Stream(*listed(group())),
        error_response(410, "gone"),
        Stream(again, *listed(group(), other), Hang()),
    )
    informer = f"podgroups.{PLUGINS_KEY.source.value}"
    async with world.running():
        await world.ready()
        await until(lambda: world.informers.by_resource[informer].relists == 1)
        assert world.unread(GroupSource.SCHEDULER_PLUGINS) is None
        assert world.group_of(PLUGINS_KEY) is not None
        again.set()
        await until(lambda: world.group_of(PLUGINS_KEY._replace(name="other")) is not None)


async def test_a_process_without_custom_resources(world: World) -> None:
    """``run --config`` reads no PodGroups of bayplan.dev, so pods that name one are gated."""
    clock = world.clock
    alone = Scheduler(clock, RecordingWriter())
    connection = ApiConnection(world.api, ConnectionOptions(), InstantClock())
    GroupSources(alone, ClusterInformers(connection, alone, clock), connection, clock, apis=UsedApis(bayplan=False))
    unread = present(alone.context.queue.gangs.unread(GroupSource.BAYPLAN))
    assert "`bayplan run --config` reads no custom resources" in unread


async def test_a_disabled_feature_gate_ignores_other_apis(world: World) -> None:
    """With the feature gate off, the label and the field are ignored and the pod is scheduled as a single pod."""
    alone = Scheduler(world.clock, RecordingWriter())
    connection = ApiConnection(world.api, ConnectionOptions(), InstantClock())
    informers = ClusterInformers(connection, alone, world.clock)
    GroupSources(alone, informers, connection, world.clock, apis=UsedApis(others=False))
    gangs = alone.context.queue.gangs
    assert gangs.key_of(pod("p", labels={"scheduling.x-k8s.io/pod-group": "g"}, group="g")) is None


@table(
    "version, key, spec, min_member",
    ("scheduler-plugins", PLUGINS, PLUGINS_KEY, {"minMember": 3}, 3),
    ("native", NATIVE, NATIVE_KEY, {"schedulingPolicy": {"gang": {"minCount": 5}}}, 5),
    ("native, older version", OLDER, NATIVE_KEY, {"schedulingPolicy": {"gang": {"minCount": 5}}}, 5),
)
async def test_groups_are_listed_before_the_first_cycle(
    world: World, version: str, key: GroupKey, spec: Manifest, min_member: int
) -> None:
    """Groups of a served API are in the scheduler before the first cycle, and deleted groups are removed."""
    complete, deleted = asyncio.Event(), asyncio.Event()
    first, *rest = listed(group(spec=spec))
    stream = Stream(first, complete, *rest, deleted, watch_event("DELETED", group(10, spec)), Hang())
    world.api.on("GET", version, serves("podgroups", "podgroups/status"))
    world.api.on("GET", f"{version}/podgroups", stream)
    async with world.running():
        await until(world.informers.synced.is_set)
        await until(lambda: world.group_of(key) is not None)
        assert world.unread(key.source) == f"the PodGroups of {key.source.value} have not been listed yet"
        complete.set()
        await world.ready()
        assert world.unread(key.source) is None
        found = present(world.group_of(key))
        assert found.min_member == min_member
        assert world.sources._of(key.source).version == version.rpartition("/")[2]
        deleted.set()
        await until(lambda: world.group_of(key) is None)
    assert world.observer.calls == ["known ml/train u 1 {}", "gone ml/train"]


async def test_a_version_without_groups_is_not_used(world: World) -> None:
    """A version of the API without PodGroups counts as not served."""
    world.api.on("GET", NATIVE, serves("workloads"))
    async with world.running():
        await world.ready()
        assert "serves no PodGroups of scheduling.k8s.io/v1beta1" in str(world.unread(GroupSource.NATIVE))


async def test_an_api_that_is_installed_later_is_used(world: World) -> None:
    """The API is looked up again after 30 seconds, and pods created before, also terminated ones, become members."""
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    world.api.on("GET", "/api/v1/pods", Stream(*listed(member("Succeeded", **label)), Hang()))
    async with world.running():
        await world.ready()
        await until(lambda: world.clock.pending == len(world.sources.served))
        world.api.on("GET", PLUGINS, serves("podgroups"))
        world.api.on("GET", f"{PLUGINS}/podgroups", Stream(*listed(group()), Hang()))
        lookups = world.lookups()
        world.clock.advance(29)
        assert world.lookups() == lookups
        world.clock.advance(1)
        await until(lambda: world.group_of(PLUGINS_KEY) is not None)
        assert world.lookups() == lookups + 1
        gang = present(world.scheduler.context.queue.gangs.get(PLUGINS_KEY))
        assert list(gang.pods) == ["uid-p"]
        assert not world.readiness.missing


@table(
    "status, remedy, seconds",
    ("server error", 500, "", 10),
    ("forbidden", 403, "; allow this account to read discovery (ClusterRole system:discovery)", 30),
)
async def test_a_failed_lookup_is_repeated(
    world: World, caplog: pytest.LogCaptureFixture, status: int, remedy: str, seconds: float
) -> None:
    """While a lookup fails, only pods that name its groups wait; the reason is logged once."""
    world.api.on("GET", PLUGINS, error_response(status, "no"), error_response(status, "no"), serves("podgroups"))
    world.api.on("GET", f"{PLUGINS}/podgroups", Stream(*listed(group()), Hang()))
    reason = f"cannot determine whether scheduling.x-k8s.io is served: GET {PLUGINS}: HTTP {status}: no{remedy}"
    with caplog.at_level(logging.WARNING):
        async with world.running():
            await world.ready()
            for _ in range(2):
                assert world.unread(GroupSource.SCHEDULER_PLUGINS) == reason
                lookups = world.lookups()
                await until(lambda: world.clock.pending == len(world.sources.served))
                world.clock.advance(seconds)
                await until(partial(world.has_been_looked_up_since, lookups))
            await until(lambda: world.unread(GroupSource.SCHEDULER_PLUGINS) is None)
    lines = [record.getMessage() for record in caplog.records if record.name == "bayplan.gangs.discovered_group_source"]
    assert lines == [f"Pods that name a PodGroup of scheduling.x-k8s.io are gated: {reason}"]


async def test_an_invalid_edit_in_another_api_has_no_effect(world: World) -> None:
    """After an edit that Bayplan cannot translate, the last valid version stays in effect."""
    bad = group(10, {"minMember": 9, "minResources": {"cpu": "four"}}, metadata={"generation": 2})
    world.api.on("GET", PLUGINS, serves("podgroups"))
    world.api.on("GET", f"{PLUGINS}/podgroups", Stream(*listed(group()), watch_event("MODIFIED", bad), Hang()))
    async with world.running():
        await until(lambda: len(world.observer.calls) == 3)
    found = present(world.group_of(PLUGINS_KEY))
    assert found.min_member == 3
    assert world.observer.calls[1:] == ["known ml/train u 2 {}", "invalid ml/train u 2 spec.minResources.cpu"]


async def test_a_status_update_is_stored_but_not_reported(world: World) -> None:
    """After an update of the status alone, the stored object has it and observers are not notified."""
    written = group(10, status={"phase": "Pending"})
    world.api.on("GET", PLUGINS, serves("podgroups"))
    world.api.on("GET", f"{PLUGINS}/podgroups", Stream(*listed(group()), watch_event("MODIFIED", written), Hang()))
    async with world.running():
        await until(lambda: world.sources.status(PLUGINS_KEY) == {"phase": "Pending"})
    assert len(world.observer.calls) == 1


async def test_priority_classes_apply_to_bayplan_groups(world: World) -> None:
    """The first cycle waits for the list of priority classes, which determine the priority of a group."""
    named = {"metadata": {"name": "high", "uid": "c", "resourceVersion": "2"}, "value": 1000}
    world.api.on("GET", PRIORITY_CLASSES, Stream(*listed(named), Hang()))
    assert "priorityclasses are being listed" in world.readiness.missing
    world.sources.bayplan.listed(BayplanGroup, [group(spec={"minMember": 3, "priorityClassName": "high"})], "5")
    async with world.running():
        await world.ready()
    found = present(world.group_of(GroupKey(GroupSource.BAYPLAN, "ml", "train")))
    assert found.priority == 1000
    assert world.sources.status(found.key) == {}


async def test_watched_priority_classes_are_not_listed_again(world: World) -> None:
    """Fit requests read the PriorityClasses from the watch, and list them only before it has delivered them."""
    named = {"metadata": {"name": "high", "uid": "c", "resourceVersion": "2"}, "value": 1000}
    page = Response(body={"metadata": {"resourceVersion": "2"}, "items": [named]})
    world.api.on("GET", PRIORITY_CLASSES, page, Stream(*listed(named), Hang()))
    found = [await watched_priority_classes(world.informers, world.connection)]
    async with world.running():
        await world.ready()
        found.append(await watched_priority_classes(world.informers, world.connection))
    assert [[(each["metadata"]["name"], each["value"]) for each in classes] for classes in found] == [
        [("high", 1000)]
    ] * 2
    assert len(world.api.requests("GET", PRIORITY_CLASSES)) == 2


def serve_native_groups_in(world: World, path: str, *streams: Stream) -> None:
    """Serve native groups in one version only, with a watch that fails when it ends."""
    for each in (NATIVE, OLDER):
        is_served = each == path
        world.api.on("GET", each, serves("podgroups") if is_served else error_response(404, "not found"))
        world.api.on("GET", f"{each}/podgroups", *(streams if is_served else [error_response(404, "not found")]))


def native_group(name: str, least: int) -> Manifest:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return group(spec=spec, metadata={"name": name, "uid": f"uid-{name}"})


async def test_an_upgraded_server_is_read_in_the_newer_version(world: World) -> None:
    """When the watch of the older version breaks, the newer version is read and its groups are withheld until listed.

    Deleted groups are removed; the others follow the rules of the newer version.
    """
    upgraded, complete = asyncio.Event(), asyncio.Event()
    serve_native_groups_in(world, OLDER, Stream(*listed(native_group("train", 2), native_group("old", 2)), upgraded))
    async with world.running():
        await world.ready()
        assert world.sources._of(GroupSource.NATIVE).version == "v1alpha2"
        first, *rest = listed(native_group("train", 2))
        serve_native_groups_in(world, NATIVE, Stream(first, complete, *rest, Hang()))
        upgraded.set()
        reason = "the PodGroups of scheduling.k8s.io/v1beta1 have not been listed yet"
        await until(lambda: world.unread(GroupSource.NATIVE) == reason)
        complete.set()
        await until(lambda: world.unread(GroupSource.NATIVE) is None)
        found = present(world.group_of(NATIVE_KEY))
        assert (found.api_version, found.is_uniform) == ("scheduling.k8s.io/v1beta1", True)
        assert world.group_of(NATIVE_KEY._replace(name="old")) is None
        assert world.sources._of(GroupSource.NATIVE).version == "v1beta1"
    assert world.observer.versions == ["v1alpha2", "v1alpha2", "v1beta1"]


async def test_a_newer_version_is_found_by_the_next_lookup(world: World) -> None:
    """A newer version is used after the next lookup although the watch of the older version works."""
    serve_native_groups_in(world, OLDER, Stream(*listed(native_group("train", 2)), Hang()))
    async with world.running():
        await world.ready()
        await until(lambda: world.clock.pending == len(world.sources.served))
        world.api.on("GET", NATIVE, serves("podgroups"))
        world.api.on("GET", f"{NATIVE}/podgroups", Stream(*listed(native_group("train", 3)), Hang()))
        world.clock.advance(30)
        await until(lambda: (now := world.group_of(NATIVE_KEY)) is not None and now.min_member == 3)


async def test_an_api_that_is_no_longer_served(world: World) -> None:
    """Members are gated when the API is absent for 30 seconds, because a starting server serves CRDs late."""
    ended = asyncio.Event()
    serve_native_groups_in(world, NATIVE, Stream(*listed(native_group("train", 2)), ended))
    async with world.running():
        await world.ready()
        serve_native_groups_in(world, "")
        ended.set()
        lookups = len(world.api.requests("GET", NATIVE))
        await until(lambda: len(world.api.requests("GET", NATIVE)) > lookups)
        assert world.unread(GroupSource.NATIVE) is None

        def is_withheld() -> bool:
            world.clock.advance(10)
            return "serves no PodGroups" in str(world.unread(GroupSource.NATIVE))

        await until(is_withheld)
        assert world.group_of(NATIVE_KEY) is not None


@table(
    "spec",
    ("unknown policy", {"schedulingPolicy": {"elastic": {}}}),
    ("unknown field", {"schedulingPolicy": {"basic": {}}, "nodeClass": "fast"}),
    ("group of groups", {"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "all"}),
    ("claims", {"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "c"}]}),
)
async def test_members_of_an_unsupported_group_are_gated(world: World, spec: Manifest) -> None:
    """The members of an unsupported group are gated with the name of the unsupported field."""
    serve_native_groups_in(world, NATIVE, Stream(*listed(group(spec=spec)), Hang()))
    async with world.running():
        await world.ready()
        obstacle = world.scheduler.context.queue.gangs.obstacle(NATIVE_KEY)
    assert obstacle.startswith('waiting for pods\'s pod group "train" to appear in scheduling queue: PodGroup ml/train')
    assert f"spec.{list(spec)[-1]}" in obstacle
    assert obstacle.endswith("or create the pod without spec.schedulingGroup")
