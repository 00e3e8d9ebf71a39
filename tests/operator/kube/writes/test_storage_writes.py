"""Tests of the requests that bind volumes and claims."""

from __future__ import annotations

import pytest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.writes.claim_writes import StorageWrites

from tests.support.fake_api import FakeApi, Response
from tests.support.storage import claim, volume

VOLUME = "/api/v1/persistentvolumes/pv"
CLAIM = "/api/v1/namespaces/default/persistentvolumeclaims/data"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"


@pytest.fixture
def writes(connection: ApiConnection) -> StorageWrites:
    return StorageWrites(connection, 5.0)


async def test_volume_is_bound_to_its_claim(api: FakeApi, writes: StorageWrites) -> None:
    """The patch has UID and version, so that it applies only to that version."""
    api.on("PATCH", VOLUME, Response(body={"metadata": {"name": "pv", "resourceVersion": "8"}}))
    written = await writes.bind_volume(
        volume(claim_ref=claim(), annotations={BOUND_BY_CONTROLLER: "yes", "x": "y"}, version="7")
    )
    assert written.metadata.resource_version == "8"
    assert api.received[0].headers["Content-Type"] == "application/merge-patch+json"
    assert api.received[0].json == {
        "metadata": {"uid": "uid-of-pv", "resourceVersion": "7", "annotations": {BOUND_BY_CONTROLLER: "yes"}},
        "spec": {
            "claimRef": {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "namespace": "default",
                "name": "data",
                "uid": "uid-of-default-data",
            }
        },
    }


async def test_a_volume_without_the_annotation(api: FakeApi, writes: StorageWrites) -> None:
    """The annotations of a volume without the bound-by-controller annotation are not changed."""
    api.on("PATCH", VOLUME, Response(body={"metadata": {"name": "pv"}}))
    await writes.bind_volume(volume(claim_ref=claim()))
    assert "annotations" not in api.received[0].json["metadata"]


async def test_node_is_selected(api: FakeApi, writes: StorageWrites) -> None:
    """A node is selected by one annotation on the claim."""
    api.on(
        "PATCH", CLAIM, Response(body={"metadata": {"name": "data", "namespace": "default", "resourceVersion": "8"}})
    )
    written = await writes.select_node(claim(annotations={SELECTED_NODE: "n"}))
    assert written.metadata.resource_version == "8"
    assert api.received[0].json == {
        "metadata": {"uid": "uid-of-default-data", "resourceVersion": "1", "annotations": {SELECTED_NODE: "n"}}
    }
