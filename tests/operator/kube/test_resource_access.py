"""Tests of ControllerRevisions and status patches: requests and responses."""

from __future__ import annotations

import pytest
from bayplan.kube.custom_resources import (
    ControllerRevision,
    ControllerRevisions,
    ObjectPath,
    replace_status,
)
from bayplan.kube.http.connection import ApiConnection

from scheduler_core.errors import ClusterWriteError, ForbiddenError, NotFoundError
from scheduler_core.model.meta import AnnotatedMeta, OwnerReference
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

PATH = "/apis/apps/v1/namespaces/ops/controllerrevisions"


async def test_list_is_sorted_by_revision(api: FakeApi, connection: ApiConnection) -> None:
    """Revisions are selected by label and sorted, oldest first."""
    items = [{"metadata": {"name": name}, "revision": n, "data": {"x": n}} for name, n in [("b", 2), ("a", 10)]]
    api.on("GET", PATH, Response(body={"items": items[::-1]}))
    found = await ControllerRevisions(connection, "ops").list({"z": "1", "a": "2"})
    assert [(one.metadata.name, one.data) for one in found] == [("b", {"x": 2}), ("a", {"x": 10})]
    assert api.received[0].query == {"labelSelector": "a=2,z=1"}


async def test_create_sends_labels_owner_and_data(api: FakeApi, connection: ApiConnection) -> None:
    """A revision is created with its labels, owner and data."""
    api.on("POST", PATH, Response(201, {"metadata": {"name": "r", "uid": "u"}, "revision": 3}))
    owner = OwnerReference("SchedulerProfile", "batch", "uid-p", "bayplan.dev/v1alpha1", controller=True)
    meta = AnnotatedMeta("r", labels={"l": "1"}, owner_references=(owner,))
    made = await ControllerRevisions(connection, "ops").create(ControllerRevision(meta, 3, {"spec": [1]}))
    assert made.metadata.uid == "u"
    assert api.received[0].json == {
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": "r",
            "namespace": "ops",
            "labels": {"l": "1"},
            "annotations": {},
            "ownerReferences": [
                {
                    "apiVersion": "bayplan.dev/v1alpha1",
                    "kind": "SchedulerProfile",
                    "name": "batch",
                    "uid": "uid-p",
                    "controller": True,
                }
            ],
        },
        "revision": 3,
        "data": {"spec": [1]},
    }


@table(
    "response",
    ("exists", Response()),
    ("gone", error_response(404, "no")),
    ("created again", error_response(409, "Precondition failed: UID in precondition: u, UID in object meta: v")),
)
async def test_delete_by_uid(api: FakeApi, connection: ApiConnection, response: Response) -> None:
    """A revision is deleted by UID, and a missing revision is no error."""
    api.on("DELETE", f"{PATH}/r", response)
    await ControllerRevisions(connection, "ops").delete("r", "u")
    assert api.received[0].json["preconditions"] == {"uid": "u"}


async def test_an_unreadable_list_is_an_error(api: FakeApi, connection: ApiConnection) -> None:
    """A response that is not a list raises an error of the core's tree."""
    api.on("GET", PATH, Response(body=b"<html>"))
    with pytest.raises(ClusterWriteError, match="cannot be read"):
        await ControllerRevisions(connection, "ops").list({})


@table(
    "namespace, path",
    ("cluster-scoped", None, "/apis/bayplan.dev/v1alpha1/schedulerprofiles/x/status"),
    ("namespaced", "n", "/apis/bayplan.dev/v1alpha1/namespaces/n/schedulerprofiles/x/status"),
)
async def test_status_path(api: FakeApi, connection: ApiConnection, namespace: str | None, path: str) -> None:
    """A status is replaced through the status subresource."""
    api.on("PATCH", path, Response())
    resource = ObjectPath("bayplan.dev", "v1alpha1", "schedulerprofiles", "x", namespace)
    await replace_status(connection, resource, "u", {"pending": 3})
    (request,) = api.received
    assert request.path == path


async def test_a_replaced_status(api: FakeApi, connection: ApiConnection) -> None:
    """The request tests the UID; if that fails, the object is gone, and otherwise the status is invalid."""
    resource = ObjectPath("bayplan.dev", "v1alpha1", "rebalanceplans", "x")
    api.on("PATCH", f"{resource.path}/status", Response(), *[error_response(422, "invalid")] * 3)
    found = [[{"metadata": {"name": "x", "uid": uid}}] for uid in ("other", "u")]
    api.on("GET", resource.collection, *(Response(body={"items": items}) for items in (*found, [])))
    await replace_status(connection, resource, "u", {"moved": 3})
    assert api.received[0].headers["Content-Type"] == "application/json-patch+json"
    assert api.received[0].json == [
        {"op": "test", "path": "/metadata/uid", "value": "u"},
        {"op": "add", "path": "/status", "value": {"moved": 3}},
    ]
    for error in (NotFoundError, ForbiddenError, NotFoundError):
        with pytest.raises(error):
            await replace_status(connection, resource, "u", {"moved": 3})
    assert api.requests("GET")[0].query == {"fieldSelector": "metadata.name=x"}
