"""Law: what changes or deletes an object tests its UID or its version, because another object may have its name now.

The watch lags behind: an object that was deleted and created again with the same name would get what was determined
for the deleted one. Each function that sends such a request has a row here or a reason in :data:`EXEMPT`.
"""

from __future__ import annotations

import ast
import datetime as dt
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import cast

import bayplan
import msgspec
import pytest
from bayplan.gangs.group_status import GroupStatusWrite, GroupStatusWrites
from bayplan.gangs.owner_groups import PodGroupRequests
from bayplan.kube.custom_resources import ControllerRevisions, CustomResources
from bayplan.kube.http.api_request import APPLY_PATCH, JSON_PATCH, ApiRequest
from bayplan.kube.http.connection import ApiConnection
from bayplan.kube.writes.api_dispatcher import ApiDispatcher, Write
from bayplan.kube.writes.claim_writes import ClaimWrites, StorageWrites
from bayplan.kube.writes.pod_writes import PodWrites
from bayplan.kueue.fit_checks import StateWrite
from bayplan.kueue.kueue_api import KueueRequests
from bayplan.kueue.workloads import AdmissionCheck, Workload
from bayplan.profiles.rollback import SpecWrite, write_spec
from bayplan.rebalancing.plan_controller import ApiPlanRequests
from bayplan.reservations.reservation_controller import ReservationWrites

from scheduler_core.errors import NotFoundError
from scheduler_core.model.devices import ResourceClaim
from scheduler_core.model.pod import ExtendedResourceClaimStatus, PodCondition
from scheduler_core.model.pod_group import GroupKey, GroupSource
from scheduler_core.model.storage import PersistentVolume, PersistentVolumeClaim
from scheduler_core.ports import PodDeletion, PodStatusPatch
from tests.support.builders import pod
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

UID, VERSION = "uid-1", "7"
META = {"name": "x", "namespace": "n", "uid": UID, "resourceVersion": VERSION}
NOW = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

EXEMPT = {
    "kube.leader_election.LeaderElection._write": "the Lease is written as it was read, with its version",
    "kube.writes.event_recorder._EventWrite.carry_out": "the name of an Event is generated for one object and UID",
    "profiles.profile_sources.InitialProfiles._create_unless_present": "creates objects that a read did not find",
    "profiles.webhook_certificate.GeneratedCertificate._publish": "the first operation tests the version that was read",
}
"""Functions whose requests no row sends, with the reason."""


class GoneObjects:
    """Connection that records what changes an object, and responds that the object is gone."""

    def __init__(self) -> None:
        self.requests: list[ApiRequest] = []

    async def request(self, request: ApiRequest) -> bytes:
        self.requests.append(request)
        raise NotFoundError("gone")


class Immediately:
    """Dispatcher that sends nothing itself."""

    def __init__(self) -> None:
        self.writes: list[Write] = []

    def submit(self, write: Write) -> None:
        self.writes.append(write)


def claim() -> ResourceClaim:
    return msgspec.convert({"metadata": META}, ResourceClaim)


async def group_status(connection: ApiConnection, source: GroupSource) -> None:
    dispatcher = Immediately()
    writes = GroupStatusWrites(connection, cast("ApiDispatcher", dispatcher))
    writes.write(GroupStatusWrite(GroupKey(source, "n", "x"), UID, lambda: {"phase": "Pending"}, lambda _: None))
    await dispatcher.writes[0].carry_out()


def state_write() -> StateWrite:
    return StateWrite(msgspec.convert({"metadata": META}, Workload), ("fit",), "Ready", "", NOW)


def admission_check() -> AdmissionCheck:
    return msgspec.convert({"metadata": META, "spec": {"controllerName": "bayplan.dev/fit"}}, AdmissionCheck)


def pod_writes(connection: ApiConnection) -> PodWrites:
    return PodWrites(connection, VirtualClock(), None, 5.0)


def group_writes(source: GroupSource) -> tuple[str, str, Callable[[ApiConnection], Awaitable[object]]]:
    site = "gangs.group_status._QueuedStatus.carry_out"
    if source in (GroupSource.BAYPLAN, GroupSource.SCHEDULER_PLUGINS):
        site = "kube.custom_resources.replace_status"
    return f"status of {source.name}", site, lambda connection: group_status(connection, source)


KEY = GroupKey(GroupSource.BAYPLAN, "n", "x")
REPLACE, CLAIMS = "kube.custom_resources.replace_status", "kube.writes.claim_writes"
ROWS: tuple[tuple[str, str, Callable[[ApiConnection], Awaitable[object]]], ...] = (
    *(group_writes(source) for source in GroupSource if source is not GroupSource.COMPOSITE),
    ("size of a group", "gangs.owner_groups.PodGroupRequests.set_spec",
     lambda connection: PodGroupRequests(connection).set_spec(KEY, UID, {"minMember": 2})),
    ("group of a deleted owner", "gangs.owner_groups.PodGroupRequests.delete",
     lambda connection: PodGroupRequests(connection).delete(KEY, UID)),
    ("status of a profile", REPLACE,
     lambda connection: CustomResources(connection).replace_status("schedulerprofiles", "x", UID, {"pending": 1})),
    ("status of a plan", REPLACE, lambda connection: ApiPlanRequests(connection).write_status("x", UID, {})),
    ("status of a reservation", REPLACE,
     lambda connection: ReservationWrites(connection).write_status("n", "x", UID, {})),
    ("cause of a revision", "kube.custom_resources.ControllerRevisions.annotate",
     lambda connection: ControllerRevisions(connection, "n").annotate("x", UID, {"a": "b"})),
    ("old revision", "kube.custom_resources.ControllerRevisions.delete",
     lambda connection: ControllerRevisions(connection, "n").delete("x", UID)),
    ("finalizers of a claim", f"{CLAIMS}._Writes._patch",
     lambda connection: ClaimWrites(connection, 5).write_finalizers(claim())),
    ("allocation", f"{CLAIMS}._Writes._patch", lambda connection: ClaimWrites(connection, 5).write_allocation(claim())),
    ("reservation of a claim", f"{CLAIMS}._Writes._patch",
     lambda connection: ClaimWrites(connection, 5).write_reservation(claim())),
    ("deallocation", f"{CLAIMS}._Writes._patch", lambda connection: ClaimWrites(connection, 5).deallocate(claim())),
    ("end of a claim's reservation", f"{CLAIMS}._Writes._patch",
     lambda connection: ClaimWrites(connection, 5).end_reservation(claim(), "consumer")),
    ("claim", f"{CLAIMS}.ClaimWrites.delete", lambda connection: ClaimWrites(connection, 5).delete(claim())),
    ("claim of extended resources", f"{CLAIMS}._Writes._patch",
     lambda connection: ClaimWrites(connection, 5).write_extended_claim(
         pod("x", uid=UID), ExtendedResourceClaimStatus((), "claim"))),
    ("volume", f"{CLAIMS}._Writes._patch",
     lambda connection: StorageWrites(connection, 5).bind_volume(
         msgspec.convert({"metadata": META}, PersistentVolume))),
    ("volume claim", f"{CLAIMS}._Writes._patch",
     lambda connection: StorageWrites(connection, 5).select_node(
         msgspec.convert({"metadata": META}, PersistentVolumeClaim))),
    ("condition of a pod", "kube.writes.pod_writes.PodWrites._patch",
     lambda connection: pod_writes(connection).patch_status(
         PodStatusPatch("n", "x", UID, PodCondition("PodScheduled", "False")))),
    ("victim", "kube.writes.pod_writes.PodWrites._delete",
     lambda connection: pod_writes(connection).delete(PodDeletion("n", "x", UID))),
    ("state of a Workload", "kueue.kueue_api.KueueRequests._apply",
     lambda connection: KueueRequests(connection).write_state(state_write())),
    ("condition of an AdmissionCheck", "kueue.kueue_api.KueueRequests._apply",
     lambda connection: KueueRequests(connection).write_active(admission_check(), "", NOW)),
    ("rollback", "profiles.rollback.write_spec",
     lambda connection: write_spec(
         connection, SpecWrite({"metadata": META}, {}, "cause", "manager", "the spec"), dry_run=False)),
)  # fmt: skip
"""What is written, the function that sends the request, and the write."""


def is_tested(request: ApiRequest) -> bool:
    """Return whether the API server rejects a request if the object is another one.

    References: the API server's ``customresource/status_strategy.go``, which takes the metadata of the stored object,
    and ``generic/registry/store.go``, which compares the version before that.
    """
    body = msgspec.json.decode(request.body or b"{}")
    if request.method == "DELETE":
        return not {"uid", "resourceVersion"}.isdisjoint(body.get("preconditions") or ())
    if request.content_type == JSON_PATCH:
        return body[0]["op"] == "test" and body[0]["path"] in ("/metadata/uid", "/metadata/resourceVersion")
    metadata = body["metadata"]
    if metadata.get("resourceVersion"):
        return True
    group = request.path.split("/")[2]
    is_builtin = request.path.startswith("/api/") or "." not in group or group.endswith(".k8s.io")
    is_custom_status = request.path.endswith("/status") and not is_builtin
    return bool(metadata.get("uid")) and not is_custom_status and request.content_type != APPLY_PATCH


def sending_functions() -> Iterator[str]:
    """Yield the functions of the operator that name a method which changes an object, without the package's name."""
    package = Path(bayplan.__file__).parent
    for file in sorted(package.rglob("*.py")):
        module = ".".join(file.relative_to(package).with_suffix("").parts)
        yield from _sending(ast.parse(file.read_text()), module)


def _sending(tree: ast.AST, scope: str) -> Iterator[str]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _sending(node, f"{scope}.{node.name}")
            continue
        if isinstance(node, ast.Constant) and node.value in ("PATCH", "PUT", "DELETE"):
            yield scope
        yield from _sending(node, scope)


async def sent(write: Callable[[ApiConnection], Awaitable[object]]) -> list[ApiRequest]:
    """Return the requests of a write that change an object."""
    connection = GoneObjects()
    with suppress(NotFoundError):
        await write(cast("ApiConnection", connection))
    return [each for each in connection.requests if each.method != "GET"]


@pytest.mark.parametrize(("site", "write"), [pytest.param(site, write, id=name) for name, site, write in ROWS])
async def test_a_write_names_its_object(site: str, write: Callable[[ApiConnection], Awaitable[object]]) -> None:
    """The API server rejects the write if another object has the name now."""
    (request,) = await sent(write)
    assert is_tested(request), f"{site}: {request.method} {request.path} {request.body!r}"


def test_every_function_that_writes_has_a_row() -> None:
    """A new function that changes objects needs a row, or a reason why it needs none."""
    assert set(sending_functions()) == {site for _, site, _ in ROWS} | set(EXEMPT)


CUSTOM, WITH_UID = "/apis/bayplan.dev/v1/x/y", b'{"metadata":{"uid":"u"}}'


@table(
    "request_, expected",
    ("merge patch by name", ApiRequest("PATCH", f"{CUSTOM}/status", b'{"metadata":{}}'), False),
    ("UID in a custom status", ApiRequest("PATCH", f"{CUSTOM}/status", WITH_UID), False),
    ("UID in a custom resource", ApiRequest("PATCH", CUSTOM, WITH_UID), True),
    ("UID in a status", ApiRequest("PATCH", "/api/v1/namespaces/n/pods/y/status", WITH_UID), True),
    ("apply with a UID", ApiRequest("PATCH", CUSTOM, WITH_UID, APPLY_PATCH), False),
    ("deletion by name", ApiRequest("DELETE", "/api/v1/namespaces/n/pods/y", b"{}"), False),
    ("no test first", ApiRequest("PATCH", "/x", b'[{"op":"add","path":"/status"}]', JSON_PATCH), False),
)  # fmt: skip
def test_the_law(request_: ApiRequest, *, expected: bool) -> None:
    """The law finds requests by name."""
    assert is_tested(request_) is expected
