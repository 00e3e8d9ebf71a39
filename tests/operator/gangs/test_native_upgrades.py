"""Tests of native PodGroups while the API server is upgraded or downgraded, and of unsupported groups."""

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
from tests.support.fake_api import Hang, Stream, error_response
from tests.support.presence import present
from tests.support.tables import table


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async for made in served_world():
        yield made


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
