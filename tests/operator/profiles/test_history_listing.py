"""Tests of finding revisions and rolling back, with and without rights, against a scripted API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.profiles.history_listing import PROFILES, ProfileHistory, read_history
from bayplan.profiles.rollback import PLUGIN_CONFIGS, RollbackError, plan_rollback, target, write

from scheduler_core.errors import ConfigError, ConflictError, ForbiddenError, NotFoundError
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import Answer, FakeApi, refusal

EVERYWHERE = "/apis/apps/v1/controllerrevisions"
PROFILE = f"{PROFILES}/batch"


def within(namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/controllerrevisions"


def revision(number: int, percentage: int, namespace: str = "ops", **data: Any) -> dict[str, Any]:
    owner = {"kind": "SchedulerProfile", "name": "batch", "uid": data.pop("uid", "u")}
    content = {"schedulerName": "batch", "percentageOfNodesToScore": percentage}
    return {
        "metadata": {"name": f"batch-{number}", "namespace": namespace, "ownerReferences": [owner]},
        "revision": number,
        "data": {
            "revision": f"hash{percentage}",
            "profile": {**content, **data.pop("profile", {})},
            "spec": {"percentageOfNodesToScore": percentage, **data.pop("spec", {})},
            **data,
        },
    }


def profile(percentage: int, active: str = "", *, accepted: bool = True) -> dict[str, Any]:
    conditions = [
        {"type": "Accepted", "status": "True" if accepted else "False"},
        {"type": "Ready", "status": "True", "reason": "Live" if accepted else "LastGoodRevision"},
    ]
    return {
        "metadata": {"name": "batch", "uid": "u", "generation": 3, "resourceVersion": "9"},
        "spec": {"percentageOfNodesToScore": percentage},
        "status": {"observedGeneration": 3, "activeRevision": active, "conditions": conditions},
    }


@pytest.fixture
async def api() -> AsyncIterator[FakeApi]:
    async with FakeApi() as made:
        made.on("GET", PROFILE, Answer(body=profile(20, "hash20")))
        yield made


async def history(api: FakeApi, namespace: str | None = None) -> ProfileHistory:
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        return await read_history(connection, "batch", namespace, "own")


def keeps(api: FakeApi, path: str, *revisions: dict[str, Any]) -> None:
    api.on("GET", path, Answer(body={"items": list(revisions)}))


async def test_all_namespaces_are_searched(api: FakeApi) -> None:
    """Without a namespace the revisions are found in the operator's; those of an earlier object are ignored."""
    keeps(api, EVERYWHERE, revision(1, 10), revision(2, 20), revision(3, 30, uid="earlier"))
    found = await history(api)
    assert [each.number for each in found.revisions] == [2, 1]
    assert found.current is found.revisions[0]


async def test_the_own_namespace_is_searched_without_the_right_to_list_all(api: FakeApi) -> None:
    """A user who may not list everywhere gets those in the namespace of the kubeconfig's context."""
    api.on("GET", EVERYWHERE, refusal(403, "no"))
    keeps(api, within("own"), revision(1, 20, "own"))
    assert [each.number for each in (await history(api)).revisions] == [1]


@pytest.mark.parametrize(
    ("namespace", "words"),
    [
        pytest.param(None, "in all namespaces or in own; name the operator's namespace with --namespace", id="none"),
        pytest.param("ops", "in namespace ops; name the operator's namespace with --namespace", id="named"),
    ],
)
async def test_without_any_right(api: FakeApi, namespace: str | None, words: str) -> None:
    """The message says where, and what to do."""
    for path in (EVERYWHERE, within("own"), within("ops")):
        api.on("GET", path, refusal(403, "no"))
    with pytest.raises(ForbiddenError, match=words):
        await history(api, namespace)


async def test_two_operators(api: FakeApi) -> None:
    """Revisions in two namespaces are not mixed."""
    keeps(api, EVERYWHERE, revision(1, 10, "a"), revision(1, 20, "b"))
    with pytest.raises(ConfigError, match="in a, b; name one of them"):
        await history(api)


async def test_a_missing_profile(api: FakeApi) -> None:
    """The error names it."""
    api.on("GET", PROFILE, refusal(404, "not found"))
    with pytest.raises(NotFoundError, match='there is no SchedulerProfile "batch"'):
        await history(api)


@pytest.mark.parametrize(
    ("body", "number"),
    [
        pytest.param(profile(20, "hash20"), 1, id="live: the one before"),
        pytest.param(profile(10, "hash10"), None, id="the first is live: none"),
        pytest.param(profile(99, "hash20", accepted=False), 2, id="refused: the last good one"),
        pytest.param(profile(99, "hash10", accepted=False), 1, id="refused while an older one is live"),
        pytest.param(profile(99), 2, id="nothing is live: the newest"),
        pytest.param({**profile(20), "status": {}}, 1, id="not judged, and written as the newest: the one before"),
    ],
)
async def test_the_previous_good_one(api: FakeApi, body: dict[str, Any], number: int | None) -> None:
    """Without a number, the target is the newest valid revision that differs from the current spec."""
    api.on("GET", PROFILE, Answer(body=body))
    keeps(api, EVERYWHERE, revision(1, 10), revision(2, 20))
    found = await history(api)
    if number is None:
        with pytest.raises(NotFoundError, match="no earlier revision"):
            target(found, None)
    else:
        assert target(found, None).number == number


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        pytest.param(refusal(404, "not found"), 'PluginConfig "pack" no longer exists', id="gone"),
        pytest.param(
            Answer(body={"spec": {"plugin": "NodeResourcesFit", "args": {"x": 2}}}),
            'PluginConfig "pack" has changed since',
            id="changed",
        ),
        pytest.param(Answer(body={"spec": {"plugin": "Other", "args": {"x": 1}}}), "has changed", id="other-plugin"),
    ],
)
async def test_references(api: FakeApi, answer: Answer, words: str) -> None:
    """A PluginConfig that has changed prevents writing the references, but not the args themselves."""
    entry = {"name": "NodeResourcesFit", "args": {"x": 1}}
    referring: dict[str, Any] = {"profile": {"pluginConfig": [entry]}, "spec": {"pluginConfigRefs": [{"name": "pack"}]}}
    keeps(api, EVERYWHERE, revision(1, 10, references={"pack": "NodeResourcesFit"}, **referring), revision(2, 20))
    api.on("GET", f"{PLUGIN_CONFIGS}/pack", answer)
    found = await history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        with pytest.raises(RollbackError, match=words):
            await plan_rollback(connection, found, 1, resolved=False)
        planned = await plan_rollback(connection, found, 1, resolved=True)
    assert planned.spec == {"percentageOfNodesToScore": 10, "pluginConfig": [entry]}


async def test_what_is_written(api: FakeApi) -> None:
    """The whole object with the version that was read, so that no other change is lost, and the change cause."""
    keeps(api, EVERYWHERE, revision(1, 10), revision(2, 20))
    api.on("PUT", PROFILE, Answer(body=profile(10)))
    found = await history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        await write(connection, await plan_rollback(connection, found, None, resolved=False), dry_run=True)
    (request,) = api.requests("PUT", PROFILE)
    sent = json.loads(request.body)
    assert (sent["spec"], sent["metadata"]["resourceVersion"]) == ({"percentageOfNodesToScore": 10}, "9")
    assert sent["metadata"]["annotations"] == {"kubernetes.io/change-cause": "rollback to revision 1"}


@pytest.mark.parametrize(
    ("status", "error", "words"),
    [
        pytest.param(409, ConflictError, "was changed in the meantime; check it and run", id="conflict"),
        pytest.param(403, ForbiddenError, "you may not change SchedulerProfile", id="forbidden"),
        pytest.param(422, RollbackError, "rejects the spec of revision 1", id="invalid"),
    ],
)
async def test_refused_writes(api: FakeApi, status: int, error: type[Exception], words: str) -> None:
    """Each refusal has a message with what to do."""
    keeps(api, EVERYWHERE, revision(1, 10), revision(2, 20))
    api.on("PUT", PROFILE, refusal(status, "no"))
    found = await history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        planned = await plan_rollback(connection, found, None, resolved=False)
        with pytest.raises(error, match=words):
            await write(connection, planned, dry_run=False)
