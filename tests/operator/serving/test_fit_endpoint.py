"""Tests of the fit endpoint over a real socket."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from bayplan.fit.building import read_fit
from bayplan.fit.claim_templates import MAX_TEMPLATES, NamesByNamespace
from bayplan.kube.readiness import Readiness
from bayplan.process.copies import BackgroundDocuments, ForkedSearches
from bayplan.serving import FIT_PATH, fit_endpoint
from bayplan.serving.authorization import TOKEN_HEADER, Access, User
from bayplan.serving.fit_endpoint import MAX_BODY, MAX_NAMESPACES, MOST_AT_ONCE, FitAccess, FitEndpoint, FitSources
from bayplan.serving.http_server import HealthServer

from scheduler_core.errors import ClusterWriteError, ServerUnavailableError
from scheduler_core.fit.fit_search import FitVerdict
from tests.support.builders import node
from tests.support.builders import pod as existing
from tests.support.gang_preemption import running_pod, small_node
from tests.support.http_servers import authorized_fit, served
from tests.support.scheduler_state import scheduler_state
from tests.support.scheduling import Rig, gang_rig
from tests.support.tables import table
from tests.support.virtual_clock import VirtualClock

LOOPBACK = "127.0.0.1"
POD = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
JSON = {"Content-Type": "application/json"}


def pod(cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return the manifest of a pod."""
    resources = {"requests": {"cpu": cpu}}
    return {**POD, "spec": {"containers": [{"name": "main", "image": "x", "resources": resources}], **spec}}


@pytest.fixture
def cluster() -> Rig:
    """Return a scheduler with two nodes, one of them full."""
    return gang_rig(small_node("a"), small_node("b"), running_pod("v", "a", cpus=2))


async def high() -> list[dict[str, Any]]:
    """Return the PriorityClasses of the cluster."""
    meta = {"name": "high"}
    return [{"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": meta, "value": 9}]


async def unavailable() -> list[dict[str, Any]]:
    """Fail as an API server that is away."""
    raise ServerUnavailableError("away")


@pytest.fixture
async def server(cluster: Rig, readiness: Readiness) -> AsyncIterator[HealthServer]:
    """Return a server of the endpoint."""
    endpoint = FitEndpoint(FitSources(cluster.scheduler, readiness, lambda: False, high))
    async with served(endpoint.routes, readiness) as server:
        yield server


async def post(
    server: HealthServer, body: bytes, headers: dict[str, str] = JSON, host: str = LOOPBACK
) -> tuple[int, bytes]:
    """Post a body."""
    url = f"http://{host}:{server.port}{FIT_PATH}"
    async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as response:
        return response.status, await response.read()


async def query(server: HealthServer, *objects: dict[str, Any], **fields: Any) -> tuple[int, bytes]:
    """Send a request about some objects."""
    return await post(server, json.dumps({"objects": objects, **fields}).encode())


async def test_an_answer(server: HealthServer, cluster: Rig) -> None:
    """The response decodes to the document, and the scheduler is as before."""
    before = scheduler_state(cluster.scheduler)
    status, body = await query(server, pod())
    found = read_fit(body)
    assert (status, found.verdict) == (200, FitVerdict.FITS_NOW)
    assert [(each.pod, each.node) for each in found.placed] == [("default/p", "b")]
    assert scheduler_state(cluster.scheduler) == before


async def test_classes_of_the_cluster(server: HealthServer) -> None:
    """A pod has the priority of its class in the cluster, and may evict others."""
    _, body = await query(server, pod(priorityClassName="high"), count=2)
    assert read_fit(body).verdict is FitVerdict.FITS_NOW
    _, body = await query(server, pod("2", priorityClassName="high"), count=2)
    found = read_fit(body)
    assert found.verdict is FitVerdict.FITS_AFTER_EVICTIONS
    assert found.evictions is not None
    assert [each.name for each in found.evictions.victims] == ["v"]


@table(
    "count, padding, copies",
    ("many pods take many steps", 600, 0, 1),
    ("one pod of a short manifest", 1, 0, 0),
    ("a long manifest takes long to read", 1, MOST_AT_ONCE, 1),
)
async def test_long_requests_are_answered_by_copies(
    cluster: Rig, readiness: Readiness, count: int, padding: int, copies: int
) -> None:
    """A copy of the process answers a request that takes longer than a dry run may take in the scheduling loop."""
    cluster.add(node("large", allocatable={"cpu": "600", "pods": "600"}))
    documents = BackgroundDocuments(cluster.context, ForkedSearches())
    endpoint = FitEndpoint(FitSources(cluster.scheduler, readiness, lambda: False, high, documents))
    async with served(endpoint.routes, readiness) as server:
        metadata = {"name": "p", "annotations": {"a": "x" * padding}}
        _, body = await query(server, {**pod(), "metadata": metadata}, count=count)
    assert (read_fit(body).verdict, documents.count) == (FitVerdict.FITS_NOW, copies)


async def test_new_nodes(server: HealthServer) -> None:
    """A node of the cluster, or a manifest, is the template of new nodes."""
    _, body = await query(server, pod("2"), count=3, node="b")
    found = read_fit(body)
    assert found.new_nodes is not None
    assert (found.verdict, found.new_nodes.count) == (FitVerdict.FITS_WITH_NEW_NODES, 2)


@table(
    "body, status, text",
    ("no-json", b"{", 400, "the request cannot be read"),
    ("unknown-field", b'{"objects": [], "extra": 1}', 400, "unknown field `extra`"),
    ("no-pods", b'{"objects": []}', 400, "manifests: have no pods"),
    (
        "no-replicas",
        b'{"objects":[{"apiVersion":"apps/v1","kind":"ReplicaSet","spec":{"replicas":0,"template":{"spec":{}}}}]}',
        400,
        "manifests: have no pods, because the replicas",
    ),
    ("max-new", b'{"objects": [], "maxNew": 0}', 400, "maxNew: must be from 1"),
    ("node", b'{"objects": [], "node": "x"}', 400, 'there is no node "x"'),
    ("both", b'{"objects": [], "node": "x", "nodeTemplate": {}}', 400, "specify one of them"),
    ("no-template", b'{"objects": [], "nodeTemplateSlices": [{}]}', 400, "nodeTemplateSlices: requires nodeTemplate"),
    (
        "slice-of-another",
        b'{"objects": [], "nodeTemplate": {"kind": "Node"}, "nodeTemplateSlices": [{"kind": "ResourceSlice"}]}',
        400,
        'spec.nodeName: must be "template"',
    ),
    ("too-long", b" " * (MAX_BODY + 1), 413, "at most 256 KiB"),
    ("class", json.dumps({"objects": [pod(priorityClassName="none")]}).encode(), 400, 'no PriorityClass "none"'),
)
async def test_rejected_requests(server: HealthServer, body: bytes, status: int, text: str) -> None:
    """An error names the field, and what to do."""
    code, answer = await post(server, body)
    assert code == status
    assert text in json.loads(answer)["error"]


async def test_another_content_type(server: HealthServer) -> None:
    """A web site cannot post a form."""
    code, _ = await post(server, b"{}", {"Content-Type": "text/plain"})
    assert code == 415


async def test_a_proxy_is_refused(server: HealthServer) -> None:
    """A request that came through a proxy is not local."""
    code, _ = await post(server, b"{}", {**JSON, "X-Forwarded-For": "192.0.2.1"})
    assert code == 403


@table(
    "is_suspended, is_away, text",
    ("suspended", True, False, "a scheduling cycle is suspended"),
    ("api-server", False, True, "PriorityClasses cannot be listed"),
)
async def test_not_now(cluster: Rig, readiness: Readiness, is_suspended: bool, is_away: bool, text: str) -> None:
    """A request that must not be answered now is to be repeated."""
    classes = unavailable if is_away else high
    endpoint = FitEndpoint(FitSources(cluster.scheduler, readiness, lambda: is_suspended, classes))
    async with served(endpoint.routes, readiness) as server:
        code, answer = await query(server, pod())
        assert code == 503
        assert text in json.loads(answer)["error"]


async def test_requests_are_rejected_until_ready(cluster: Rig) -> None:
    """Requests are rejected until the process is ready, because nodes and pods are missing."""
    waiting = Readiness(("pods are being listed",))
    endpoint = FitEndpoint(FitSources(cluster.scheduler, waiting, lambda: False, high))
    async with served(endpoint.routes, waiting) as server:
        code, answer = await query(server, pod())
    assert (code, json.loads(answer)["error"]) == (503, "not ready: pods are being listed; retry")


class Reviewer:
    """Reviewer of ``team``, who may request in namespace ``team``, and of ``reader``, who may also list pods there.

    ``auditor`` may request in all namespaces, list all pods and get nodes.
    """

    def __init__(self) -> None:
        self.calls = 0

    async def user_of(self, token: str, audience: str = "") -> User | None:
        self.calls += 1
        return User(token) if token in ("team", "reader", "auditor") and not audience else None

    async def access(self, user: User, verb: str, path: str) -> Access:
        """Allow every path, which authorizes no request."""
        return Access(allowed=True)

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        self.calls += 1
        rights = {"team": {"create fits.bayplan.dev"}, "reader": {"create fits.bayplan.dev", "list pods"}}
        may = user.username == "auditor" or (
            namespace == "team" and f"{verb} {resource}" in rights.get(user.username, ())
        )
        return Access(may, "by no role")


@pytest.fixture
def reviewer() -> Reviewer:
    return Reviewer()


@pytest.fixture
async def authorized(cluster: Rig, readiness: Readiness, reviewer: Reviewer) -> AsyncIterator[HealthServer]:
    """Return a server that trusts no caller, with a cluster whose running pods are in two namespaces."""
    cluster.add(existing("w", namespace="team", node_name="b", priority=0, requests={"cpu": "2"}))

    sources = FitSources(cluster.scheduler, readiness, lambda: False, high)
    async with authorized_fit(sources, reviewer, VirtualClock()) as server:
        yield server


async def sent_by(server: HealthServer, headers: dict[str, str], **fields: Any) -> tuple[int, dict[str, Any]]:
    """Request two pods that evict all others, in namespace ``team``."""
    objects = [pod("2", priorityClassName="high")]
    body = json.dumps({"objects": objects, "namespace": "team", "count": 2, **fields}).encode()
    code, answer = await post(server, body, {**JSON, **headers})
    return code, json.loads(answer)


@table(
    "user, victims",
    ("no pods", "team", []),
    ("pods of a namespace", "reader", ["team/w"]),
    ("all pods", "auditor", ["default/v", "team/w"]),
)
async def test_victims_of_a_user(authorized: HealthServer, user: str, victims: list[str]) -> None:
    """A user reads the number of victims, and the names of those in namespaces in which the user may list pods."""
    code, found = await sent_by(authorized, {"Authorization": f"Bearer {user}"})
    assert (code, found["verdict"], found["evictions"]["pods"]) == (200, "FitsAfterEvictions", 2)
    assert [f"{each['namespace']}/{each['name']}" for each in found["evictions"]["victims"]] == victims


async def test_a_token_behind_the_proxy_of_the_api_server(authorized: HealthServer) -> None:
    """The proxy removes the Authorization header."""
    assert (await sent_by(authorized, {TOKEN_HEADER: "reader"}))[0] == 200


@table(
    "token, fields, status, text",
    ("no token", "", {}, 401, "send a bearer token"),
    ("unknown token", "unknown", {}, 401, "the token is not valid"),
    (
        "another namespace",
        "team",
        {"namespace": "other"},
        403,
        'User "team" cannot create fits.bayplan.dev in namespace "other": by no role',
    ),
    (
        "one object elsewhere",
        "team",
        {"objects": [pod("1"), {**pod("1"), "metadata": {"name": "q", "namespace": "other"}}], "count": None},
        403,
        'in namespace "other"',
    ),
    ("copies a node", "team", {"node": "b"}, 403, "cannot get nodes in all namespaces"),
    ("probes a node", "team", {"node": "absent"}, 403, "cannot get nodes in all namespaces"),
    (
        "too many namespaces",
        "auditor",
        {"objects": [{**POD, "metadata": {"namespace": f"n{number}"}} for number in range(MAX_NAMESPACES + 1)]},
        400,
        f"request at most {MAX_NAMESPACES} at once",
    ),
)
async def test_refused_users(
    authorized: HealthServer, token: str, fields: dict[str, Any], status: int, text: str
) -> None:
    """Without the permission in each namespace there is no answer."""
    code, found = await sent_by(authorized, {"Authorization": f"Bearer {token}"} if token else {}, **fields)
    assert code == status
    assert text in found["error"]


async def test_an_unauthenticated_body_is_not_read(authorized: HealthServer, reviewer: Reviewer) -> None:
    """A body of a caller without a valid token has no effect on the response, and reviews no permission."""
    code, _ = await post(authorized, b"{", {**JSON, "Authorization": "Bearer unknown"})
    assert (code, reviewer.calls) == (401, 1)


async def test_bodies_of_one_user_leave_room_for_others(
    authorized: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A user whose bodies do not arrive takes a part of the places, with or without permissions."""
    monkeypatch.setattr(fit_endpoint, "MOST_READING_OF_USER", 2)
    head = f"POST {FIT_PATH} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nAuthorization: Bearer team\r\n"
    writers = []
    for _ in range(2):
        _, writer = await asyncio.open_connection("127.0.0.1", authorized.port)
        writer.write(f"{head}Content-Length: 100\r\n\r\n{{".encode())
        writers.append(writer)
    await asyncio.sleep(0.1)
    code, found = await sent_by(authorized, {"Authorization": "Bearer team"})
    assert (code, found["error"]) == (429, 'the bodies of 2 requests of user "team" are being received; retry')
    assert (await sent_by(authorized, {"Authorization": "Bearer reader"}))[0] == 200
    for writer in writers:
        writer.close()
    await asyncio.sleep(0.1)
    assert (await sent_by(authorized, {"Authorization": "Bearer team"}))[0] == 200


async def test_other_hosts_without_authorization(cluster: Rig, readiness: Readiness) -> None:
    """Without authorizeRequests only local callers are answered."""
    sources = FitSources(cluster.scheduler, readiness, lambda: False, high)
    async with served(FitEndpoint(sources, FitAccess(None, lambda _: False)).routes, readiness) as server:
        code, answer = await query(server, pod())
        assert code == 403
        assert "set authorizeRequests" in json.loads(answer)["error"]


class Templates:
    """ResourceClaimTemplates of the cluster: ``one`` in each namespace that may be read.

    Attributes:
        read: What was requested.
    """

    def __init__(self, error: ClusterWriteError | None = None) -> None:
        self.read: list[NamesByNamespace] = []
        self.error = error

    async def __call__(self, missing: NamesByNamespace) -> tuple[list[dict[str, Any]], list[str]]:
        if self.error is not None:
            raise self.error
        self.read.append(missing)
        spec = {"spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}}
        metas = [{"name": "one", "namespace": each} for each, names in missing.items() if "one" in names]
        kind = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate"}
        return [{**kind, "metadata": meta, "spec": spec} for meta in metas], []


def with_claim(template: str, **meta: str) -> dict[str, Any]:
    """Return the manifest of a pod with a claim of a template."""
    claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
    return {**pod(resourceClaims=claims), "metadata": {"name": "p", **meta}}


@table(
    "objects, read, notices",
    ("in the cluster", [with_claim("one")], {"default": {"one"}}, []),
    (
        "nowhere",
        [with_claim("two")],
        {"default": {"two"}},
        ["ResourceClaimTemplate default/two is not in the manifests or the cluster; add it, or its pods do not fit"],
    ),
    (
        "in a workload",
        [
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"name": "j", "namespace": "team"},
                "spec": {"template": {"spec": {**with_claim("one")["spec"], "restartPolicy": "Never"}}},
            }
        ],
        {"team": {"one"}},
        [],
    ),
    ("none", [pod()], {}, []),
)
async def test_claim_templates_of_the_cluster(
    cluster: Rig, readiness: Readiness, objects: list[dict[str, Any]], read: NamesByNamespace, notices: list[str]
) -> None:
    """Templates that the manifests name and do not contain are read in the namespace of the pods."""
    templates = Templates()
    sources = FitSources(cluster.scheduler, readiness, lambda: False, high, claim_templates=templates)
    async with served(FitEndpoint(sources).routes, readiness) as server:
        _, body = await query(server, *objects)
    assert templates.read == [read]
    assert list(read_fit(body).notices) == notices


async def test_many_claim_templates(cluster: Rig, readiness: Readiness) -> None:
    """The number of templates that one request reads is bounded."""
    templates = Templates()
    sources = FitSources(cluster.scheduler, readiness, lambda: False, high, claim_templates=templates)
    claims = [{"name": f"c{number}", "resourceClaimTemplateName": f"t{number}"} for number in range(MAX_TEMPLATES + 1)]
    async with served(FitEndpoint(sources).routes, readiness) as server:
        code, answer = await query(server, pod(resourceClaims=claims))
    assert (code, templates.read) == (400, [])
    assert "more than 16 ResourceClaimTemplates" in json.loads(answer)["error"]


class SlowReviewer(Reviewer):
    """Reviewer that does not respond for ``stranger``, who may request nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.is_waited_for = asyncio.Event()

    async def user_of(self, token: str, audience: str = "") -> User | None:
        return User(token) if token == "stranger" else await super().user_of(token, audience)

    async def resource_access(self, user: User, verb: str, resource: str, namespace: str = "") -> Access:
        if user.username == "stranger":
            self.is_waited_for.set()
            await asyncio.Event().wait()
        return await super().resource_access(user, verb, resource, namespace)


async def test_users_without_permission_take_no_place(cluster: Rig, readiness: Readiness) -> None:
    """A user who may request gets an answer while many requests of a user who may not wait for their reviews."""
    reviewer, sources = SlowReviewer(), FitSources(cluster.scheduler, readiness, lambda: False, high)
    async with authorized_fit(sources, reviewer, VirtualClock()) as server:
        team, stranger = ({"Authorization": f"Bearer {user}"} for user in ("team", "stranger"))
        assert (await sent_by(server, team))[0] == 200
        strangers = [asyncio.create_task(sent_by(server, stranger)) for _ in range(16)]
        async with asyncio.timeout(10):
            await reviewer.is_waited_for.wait()
        await asyncio.sleep(0.1)
        code, _ = await sent_by(server, team)
        for each in strangers:
            each.cancel()
        await asyncio.gather(*strangers, return_exceptions=True)
    assert code == 200


class AbsentReviewer(Reviewer):
    """Reviewer that is away."""

    async def user_of(self, token: str, audience: str = "") -> User | None:
        raise ServerUnavailableError("away")


@table(
    "classes, reviewer, text",
    ("templates", high, None, "ResourceClaimTemplates cannot be read: away; retry"),
    ("classes", unavailable, None, "PriorityClasses cannot be listed: away; retry"),
    ("reviews", high, AbsentReviewer(), "the API server cannot authorize the request: away; retry"),
)
async def test_an_api_server_that_is_away(
    cluster: Rig, readiness: Readiness, classes: Any, reviewer: Reviewer | None, text: str
) -> None:
    """A request is to be repeated after the time in the header."""
    templates = Templates(ServerUnavailableError("away"))
    sources = FitSources(cluster.scheduler, readiness, lambda: False, classes, claim_templates=templates)
    body = json.dumps({"objects": [with_claim("one")]}).encode()
    endpoint = served(FitEndpoint(sources).routes, readiness)
    async with endpoint if reviewer is None else authorized_fit(sources, reviewer, VirtualClock()) as server:
        url, headers = f"http://{LOOPBACK}:{server.port}{FIT_PATH}", {**JSON, "Authorization": "Bearer team"}
        async with aiohttp.ClientSession() as client, client.post(url, data=body, headers=headers) as response:
            assert (response.status, response.headers.get("Retry-After")) == (503, "1")
            assert text in (await response.json())["error"]


@pytest.fixture
def templates() -> Templates:
    return Templates()


@pytest.fixture
async def reading(
    cluster: Rig, readiness: Readiness, reviewer: Reviewer, templates: Templates
) -> AsyncIterator[HealthServer]:
    """Return a server that trusts no caller, and reads templates."""
    sources = FitSources(cluster.scheduler, readiness, lambda: False, high, claim_templates=templates)
    async with authorized_fit(sources, reviewer, VirtualClock()) as server:
        yield server


@table(
    "token, read, notices",
    (
        "may not get them",
        "team",
        [{}],
        [
            "ResourceClaimTemplates of namespace team are not read: forbidden: ",
            "ResourceClaimTemplate team/one is not in the manifests; add it",
        ],
    ),
    ("may get them", "auditor", [{"team": {"one"}}], []),
)
async def test_claim_templates_of_a_user(
    reading: HealthServer, templates: Templates, token: str, read: list[NamesByNamespace], notices: list[str]
) -> None:
    """Templates are read only in namespaces in which the user may get them."""
    body = json.dumps({"objects": [with_claim("one", namespace="team")]}).encode()
    _, answer = await post(reading, body, {**JSON, "Authorization": f"Bearer {token}"})
    assert templates.read == read
    found = json.loads(answer)["notices"]
    assert [each[: len(text)] for each, text in zip(found, notices, strict=True)] == notices
    assert not found or 'cannot get resourceclaimtemplates.resource.k8s.io in namespace "team": by no role' in found[0]


@table(
    "body",
    ("kind", {"objects": [{"kind": []}]}),
    ("kind of two", {"objects": [pod(), {"kind": {}, "metadata": {"namespace": []}}]}),
    ("labels", {"objects": [{"apiVersion": "apps/v1", "kind": "Deployment", "spec": {"template": {
        "metadata": {"labels": "x"}, "spec": {}}}}]}),
    ("template name", {"objects": [with_claim("..")]}),
    ("kind of a template", {"objects": [], "nodeTemplate": {"kind": [], "metadata": []}}),
)  # fmt: skip
async def test_hostile_objects(server: HealthServer, body: dict[str, Any]) -> None:
    """Objects of other shapes are an error that names them."""
    code, answer = await post(server, json.dumps(body).encode())
    assert code in (200, 400), answer
