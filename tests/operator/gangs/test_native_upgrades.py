"""Native PodGroups while API servers are upgraded and downgraded, and those that cannot be obeyed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from scheduler_core.model.pod_group import GroupSource
from tests.operator.gangs.served_world import (
    NATIVE,
    NATIVE_KEY,
    OLDER,
    Manifest,
    World,
    group,
    listed,
    served_world,
    serves,
)
from tests.support.background import until
from tests.support.fake_api import Hang, Stream, refusal


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for made in served_world():
        yield made


def serves_native(world: World, path: str, *streams: Stream) -> None:
    """Serve native groups in one version only, with a watch that is lost when it ends."""
    for each in (NATIVE, OLDER):
        is_served = each == path
        world.api.on("GET", each, serves("podgroups") if is_served else refusal(404, "not found"))
        world.api.on("GET", f"{each}/podgroups", *(streams if is_served else [refusal(404, "not found")]))


def native_group(name: str, least: int) -> Manifest:
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    return group(spec=spec, metadata={"name": name, "uid": f"uid-{name}"})


async def test_a_server_that_is_upgraded(world: World) -> None:
    """The newer version is read as soon as the watch of the older one breaks; members wait until it is listed.

    Groups that were deleted meanwhile are gone, the others stay with the rules of the newer version.
    """
    upgraded, complete = asyncio.Event(), asyncio.Event()
    serves_native(world, OLDER, Stream(*listed(native_group("train", 2), native_group("old", 2)), upgraded))
    async with world.running():
        await world.ready()
        assert world.sources.version(GroupSource.NATIVE) == "v1alpha2"
        first, *rest = listed(native_group("train", 2))
        serves_native(world, NATIVE, Stream(first, complete, *rest, Hang()))
        upgraded.set()
        reason = "the PodGroups of scheduling.k8s.io/v1beta1 have not been listed yet"
        await until(lambda: world.unread(GroupSource.NATIVE) == reason)
        complete.set()
        await until(lambda: world.unread(GroupSource.NATIVE) is None)
        found = world.group_of(NATIVE_KEY)
        assert found is not None
        assert (found.api_version, found.is_uniform) == ("scheduling.k8s.io/v1beta1", True)
        assert world.group_of(NATIVE_KEY._replace(name="old")) is None
        assert world.sources.version(GroupSource.NATIVE) == "v1beta1"
    assert world.observer.versions == ["v1alpha2", "v1alpha2", "v1beta1"]


async def test_a_newer_version_beside_the_older_one(world: World) -> None:
    """It is found by the next lookup, although the watch works."""
    serves_native(world, OLDER, Stream(*listed(native_group("train", 2)), Hang()))
    async with world.running():
        await world.ready()
        await until(lambda: world.clock.pending == len(world.sources.served))
        world.api.on("GET", NATIVE, serves("podgroups"))
        world.api.on("GET", f"{NATIVE}/podgroups", Stream(*listed(native_group("train", 3)), Hang()))
        world.clock.advance(30)
        await until(lambda: (now := world.group_of(NATIVE_KEY)) is not None and now.min_member == 3)


async def test_an_api_that_is_served_no_more(world: World) -> None:
    """Its members are gated when it is absent for 30 seconds; a server that starts serves definitions a bit later."""
    ended = asyncio.Event()
    serves_native(world, NATIVE, Stream(*listed(native_group("train", 2)), ended))
    async with world.running():
        await world.ready()
        serves_native(world, "")
        ended.set()
        looks = len(world.api.requests("GET", NATIVE))
        await until(lambda: len(world.api.requests("GET", NATIVE)) > looks)
        assert world.unread(GroupSource.NATIVE) is None

        def is_withheld() -> bool:
            world.clock.advance(10)
            return "serves no PodGroups" in str(world.unread(GroupSource.NATIVE))

        await until(is_withheld)
        assert world.group_of(NATIVE_KEY) is not None


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({"schedulingPolicy": {"elastic": {}}}, id="unknown policy"),
        pytest.param({"schedulingPolicy": {"basic": {}}, "nodeClass": "fast"}, id="unknown field"),
        pytest.param({"schedulingPolicy": {"basic": {}}, "parentCompositePodGroupName": "all"}, id="group of groups"),
        pytest.param({"schedulingPolicy": {"basic": {}}, "resourceClaims": [{"name": "c"}]}, id="claims"),
    ],
)
async def test_a_group_that_cannot_be_obeyed(world: World, spec: Manifest) -> None:
    """Its members are gated with the field in question."""
    serves_native(world, NATIVE, Stream(*listed(group(spec=spec)), Hang()))
    async with world.running():
        await world.ready()
        obstacle = world.scheduler.context.queue.gangs.obstacle(NATIVE_KEY)
    assert obstacle.startswith('waiting for pods\'s pod group "train" to appear in scheduling queue: PodGroup ml/train')
    assert f"spec.{list(spec)[-1]}" in obstacle
    assert obstacle.endswith("or create the pod without spec.schedulingGroup")
