"""Tests of PodWrites: bodies, transition times, and UIDs of status patches and deletions."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.kube.http.api_request import InvalidRequestError
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.kube.writes.pod_writes import PodWrites, merged

from scheduler_core.errors import ClusterWriteError, ConflictError, NotFoundError, ServerUnavailableError
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.pod import Pod, PodCondition, PodStatus
from scheduler_core.ports import PodDeletion, PodStatusPatch
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

POD = "/api/v1/namespaces/n/pods/a"
NOW = "2026-01-01T00:00:00Z"
UNSCHEDULABLE = PodCondition("PodScheduled", "False", "Unschedulable", "0/1 nodes", observed_generation=2)
OTHER_UID = error_response(422, 'Pod "a" is invalid: metadata.uid: Invalid value: "x": field is immutable')
DISRUPTED = PodCondition("DisruptionTarget", "True", "PreemptionByScheduler", "preempting")


def patch(condition: PodCondition | None = None, nominated: str | None = None) -> PodStatusPatch:
    return PodStatusPatch("n", "a", "uid-a", condition, nominated)


def pod_with(*conditions: PodCondition, uid: str = "uid-a") -> Pod:
    return Pod(ObjectMeta("a", "n", uid), status=PodStatus(conditions=conditions))


class InformerLookup:
    """Lookup of the informer's pod."""

    def __init__(self) -> None:
        self.pod: Pod | None = None

    def __call__(self, namespace: str, name: str) -> Pod | None:
        return self.pod if (namespace, name) == ("n", "a") else None


@pytest.fixture
def lookup() -> InformerLookup:
    return InformerLookup()


@pytest.fixture
async def writes(api: FakeApi, lookup: InformerLookup) -> AsyncIterator[PodWrites]:
    time = VirtualClock()
    async with ApiConnection(api, ConnectionOptions(), time) as connection:
        yield PodWrites(connection, time, lookup, 5.0)


async def test_patch_as_sent(api: FakeApi, writes: PodWrites) -> None:
    """A patch is sent to the status subresource as a strategic merge patch with the UID."""
    api.on("PATCH", f"{POD}/status", Response())
    await writes.patch_status(patch(UNSCHEDULABLE, "node-1"))
    [seen] = api.received
    assert seen.headers["Content-Type"] == "application/strategic-merge-patch+json"
    assert seen.json == {
        "metadata": {"uid": "uid-a"},
        "status": {
            "nominatedNodeName": "node-1",
            "conditions": [
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes",
                    "observedGeneration": 2,
                    "lastProbeTime": None,
                    "lastTransitionTime": NOW,
                }
            ],
        },
    }


@table(
    "nominated, status",
    ("unchanged", None, {}),
    ("cleared", "", {"nominatedNodeName": None}),
    ("set", "x", {"nominatedNodeName": "x"}),
)
async def test_nomination(api: FakeApi, writes: PodWrites, nominated: str | None, status: dict[str, Any]) -> None:
    """The nomination is left unchanged, cleared or set."""
    api.on("PATCH", f"{POD}/status", Response())
    await writes.patch_status(patch(nominated=nominated))
    assert api.received[0].json["status"] == status


@table(
    "known, sent",
    ("unknown-pod", None, True),
    ("new-condition", pod_with(), True),
    ("same-status", pod_with(UNSCHEDULABLE), False),
    ("other-status", pod_with(PodCondition("PodScheduled", "True")), True),
    ("another-pod-of-the-name", pod_with(UNSCHEDULABLE, uid="other"), True),
)
async def test_transition_time(
    api: FakeApi, writes: PodWrites, lookup: InformerLookup, known: Pod | None, sent: bool
) -> None:
    """The transition time is sent only if the status changes; otherwise the server's time stays."""
    lookup.pod = known
    api.on("PATCH", f"{POD}/status", Response())
    await writes.patch_status(patch(UNSCHEDULABLE))
    assert ("lastTransitionTime" in api.received[0].json["status"]["conditions"][0]) == sent


async def test_transition_time_before_the_informer_has_the_pod(api: FakeApi, writes: PodWrites) -> None:
    """A status just written counts until the informer has the pod."""
    api.on("PATCH", f"{POD}/status", Response())
    await writes.patch_status(patch(UNSCHEDULABLE))
    await writes.patch_status(patch(UNSCHEDULABLE))
    assert ["lastTransitionTime" in seen.json["status"]["conditions"][0] for seen in api.received] == [True, False]


async def test_patch_of_another_pod_of_the_name(api: FakeApi, writes: PodWrites) -> None:
    """A patch of a pod with another UID is a conflict, whatever error the server returns."""
    api.on("PATCH", f"{POD}/status", OTHER_UID)
    with pytest.raises(ConflictError, match="UID uid-a is gone"):
        await writes.patch_status(patch(UNSCHEDULABLE))


async def test_invalid_patch(api: FakeApi, writes: PodWrites) -> None:
    """An invalid patch raises InvalidRequestError."""
    api.on("PATCH", f"{POD}/status", error_response(422, "status.conditions: odd"))
    with pytest.raises(InvalidRequestError, match="odd"):
        await writes.patch_status(patch(UNSCHEDULABLE))


async def test_deletion(api: FakeApi, writes: PodWrites) -> None:
    """A victim gets its condition first and is then deleted by UID."""
    api.on("PATCH", f"{POD}/status", Response())
    api.on("DELETE", POD, Response())
    await writes.delete(PodDeletion("n", "a", "uid-a", DISRUPTED))
    assert [seen.method for seen in api.received] == ["PATCH", "DELETE"]
    assert api.received[0].json["status"]["conditions"][0]["reason"] == "PreemptionByScheduler"
    assert api.received[1].json["preconditions"] == {"uid": "uid-a"}


@table(
    "patched, deleted, read",
    ("gone-before-the-condition", error_response(404, "gone"), Response(), Response()),
    ("gone-before-the-deletion", Response(), error_response(404, "gone"), Response()),
    ("another-pod-of-the-name", OTHER_UID, Response(), Response(body={"metadata": {"uid": "other"}})),
    ("gone-while-reading", Response(), error_response(409, "uid"), error_response(404, "gone")),
)
async def test_deletion_of_a_deleted_pod(
    api: FakeApi, writes: PodWrites, patched: Response, deleted: Response, read: Response
) -> None:
    """The deletion of a deleted pod raises NotFoundError, also if another pod has its name."""
    api.on("PATCH", f"{POD}/status", patched)
    api.on("DELETE", POD, deleted)
    api.on("GET", POD, read)
    with pytest.raises(NotFoundError):
        await writes.delete(PodDeletion("n", "a", "uid-a", DISRUPTED))


async def test_conflict_on_the_same_pod_is_retried(api: FakeApi, writes: PodWrites) -> None:
    """A conflict although the UID matches means concurrent writes and may be retried."""
    api.on("DELETE", POD, error_response(409, "odd"))
    api.on("GET", POD, Response(body={"metadata": {"uid": "uid-a"}}))
    with pytest.raises(ServerUnavailableError, match="odd"):
        await writes.delete(PodDeletion("n", "a", "uid-a"))


@table(
    "uid_now, error", ("same pod", "uid-a", ServerUnavailableError), ("another pod of the name", "other", ConflictError)
)
async def test_conflict_of_a_patch(api: FakeApi, writes: PodWrites, uid_now: str, error: type[Exception]) -> None:
    """A patch in conflict with other writers may be retried, but not if the pod is gone."""
    api.on("PATCH", f"{POD}/status", error_response(409, "odd"))
    api.on("GET", POD, Response(body={"metadata": {"uid": uid_now}}))
    with pytest.raises(error, match="odd"):
        await writes.patch_status(patch(UNSCHEDULABLE))


@table(
    "lost",
    ("connection broken", Response(disconnect=True)),
    ("500", error_response(500, "failed")),
    ("504", error_response(504, "late")),
)
async def test_deletion_without_a_response(api: FakeApi, writes: PodWrites, lost: Response) -> None:
    """A pod that is gone after a deletion without a response counts as deleted by it."""
    api.on("DELETE", POD, Response(), lost, error_response(404, "gone"))
    await writes.delete(PodDeletion("n", "a", "uid-0"))  # so that the connection is a keep-alive one
    with pytest.raises(ClusterWriteError):
        await writes.delete(PodDeletion("n", "a", "uid-a"))
    await writes.delete(PodDeletion("n", "a", "uid-a"))
    with pytest.raises(NotFoundError):
        await writes.delete(PodDeletion("n", "a", "uid-a"))


@table(
    "earlier, later, both",
    ("two-conditions", patch(UNSCHEDULABLE, "x"), patch(DISRUPTED), None),
    ("condition-and-nomination", patch(UNSCHEDULABLE), patch(nominated=""), patch(UNSCHEDULABLE, "")),
    ("later-nomination", patch(UNSCHEDULABLE, "x"), patch(nominated="y"), patch(UNSCHEDULABLE, "y")),
    (
        "later-condition-earlier-nomination",
        patch(PodCondition("PodScheduled", "False", "SchedulerError"), "x"),
        patch(UNSCHEDULABLE),
        patch(UNSCHEDULABLE, "x"),
    ),
)
def test_merging(earlier: PodStatusPatch, later: PodStatusPatch, both: PodStatusPatch | None) -> None:
    """The later patch wins field by field, and two different conditions stay two patches."""
    assert merged(earlier, later) == both


@table("spec, statuses", ("bound meanwhile", {"nodeName": "node-1"}, ["False", "True"]), ("not bound", {}, ["False"]))
async def test_unschedulable_of_a_bound_pod_is_corrected(
    api: FakeApi, writes: PodWrites, spec: dict[str, str], statuses: list[str]
) -> None:
    """The condition of a pod that was bound in the meantime is corrected to True."""
    api.on("PATCH", f"{POD}/status", Response(body={"spec": spec}), Response())
    await writes.patch_status(patch(UNSCHEDULABLE))
    assert [seen.json["status"]["conditions"][0]["status"] for seen in api.received] == statuses
