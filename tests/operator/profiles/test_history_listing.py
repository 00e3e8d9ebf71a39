"""Tests of reading revisions and rolling back, with different permissions, against a scripted API server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.profiles.rollback import (
    PLUGIN_CONFIGS,
    PROFILES,
    ProfileHistory,
    RollbackError,
    changes,
    changes_summary,
    plan_rollback,
    read_history,
    target,
    unified_diff,
    write_spec,
)

from scheduler_core.errors import ConfigError, ConflictError, ForbiddenError, NotFoundError
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

ALL_NAMESPACES = "/apis/apps/v1/controllerrevisions"
PROFILE = f"{PROFILES}/batch"


def revisions_path(namespace: str) -> str:
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
        made.on("GET", PROFILE, Response(body=profile(20, "hash20")))
        yield made


async def read_profile_history(api: FakeApi, namespace: str | None = None) -> ProfileHistory:
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        return await read_history(connection, "batch", namespace, "own")


def serve_revisions(api: FakeApi, path: str, *revisions: dict[str, Any]) -> None:
    api.on("GET", path, Response(body={"items": list(revisions)}))


async def test_all_namespaces_are_searched(api: FakeApi) -> None:
    """Without a namespace all namespaces are searched, and revisions of an earlier profile object are ignored."""
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20), revision(3, 30, uid="earlier"))
    found = await read_profile_history(api)
    assert [each.number for each in found.revisions] == [2, 1]
    assert found.current is found.revisions[0]


async def test_a_forbidden_list_falls_back_to_the_context_namespace(api: FakeApi) -> None:
    """Without permission to list all namespaces, the namespace of the kubeconfig's context is searched."""
    api.on("GET", ALL_NAMESPACES, error_response(403, "no"))
    serve_revisions(api, revisions_path("own"), revision(1, 20, "own"))
    assert [each.number for each in (await read_profile_history(api)).revisions] == [1]


@table(
    "namespace, words",
    ("none", None, "in all namespaces or in own; name the operator's namespace with --revision-namespace"),
    ("named", "ops", "in namespace ops; name the operator's namespace with --revision-namespace"),
)
async def test_a_forbidden_list_is_an_error(api: FakeApi, namespace: str | None, words: str) -> None:
    """Without permission to list any namespace, the error names the searched namespaces and the flag."""
    for path in (ALL_NAMESPACES, revisions_path("own"), revisions_path("ops")):
        api.on("GET", path, error_response(403, "no"))
    with pytest.raises(ForbiddenError, match=words):
        await read_profile_history(api, namespace)


async def test_revisions_in_two_namespaces_are_an_error(api: FakeApi) -> None:
    """Revisions of two operators in two namespaces are not mixed."""
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10, "a"), revision(1, 20, "b"))
    with pytest.raises(ConfigError, match="in a, b; name one of them"):
        await read_profile_history(api)


async def test_a_missing_profile_is_an_error(api: FakeApi) -> None:
    """The error names the missing profile."""
    api.on("GET", PROFILE, error_response(404, "not found"))
    with pytest.raises(NotFoundError, match='there is no SchedulerProfile "batch"'):
        await read_profile_history(api)


@table("name", ("number", "1"), ("hash", "hash1"))
async def test_a_revision_has_two_names(api: FakeApi, name: str) -> None:
    """A revision is found by its number, as history lists it, or by its hash, as kubectl prints it."""
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20))
    found = await read_profile_history(api)
    assert found.named(name).number == 1
    with pytest.raises(NotFoundError, match=r"no revision 3; existing: 1 \(hash10\), 2 \(hash20\)"):
        found.named("3")
    with pytest.raises(NotFoundError, match="several revisions hash"):
        found.named("hash")


@table(
    "body, number",
    ("newest live: previous revision", profile(20, "hash20"), 1),
    ("first live: none", profile(10, "hash10"), None),
    ("rejected: last good revision", profile(99, "hash20", accepted=False), 2),
    ("rejected with an older one live: previous revision", profile(99, "hash10", accepted=False), 1),
    ("none live: newest revision", profile(99), 2),
    ("not validated yet: previous revision", {**profile(20), "status": {}}, 1),
)
async def test_the_default_target(api: FakeApi, body: dict[str, Any], number: int | None) -> None:
    """Without a number, the target is the newest valid revision that differs from the current spec."""
    api.on("GET", PROFILE, Response(body=body))
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20))
    found = await read_profile_history(api)
    if number is None:
        with pytest.raises(NotFoundError, match="no earlier revision"):
            target(found, None)
    else:
        assert target(found, None).number == number


async def test_revisions_that_differ_by_versions_of_plugins_are_no_target(api: FakeApi) -> None:
    """A revision with the same spec and another version of a plugin cannot be restored by writing its spec."""
    old, new = ({"pluginVersions": {"Mine": f"mine {version}"}} for version in (1, 2))
    live = revision(3, 20, profile=new, revision="newer")
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20, profile=old), live)
    api.on("GET", PROFILE, Response(body=profile(20, "newer")))
    found = await read_profile_history(api)
    assert found.current is not None
    assert (found.current.number, target(found, None).number) == (3, 1)
    assert "pluginVersions" not in found.spec_of(found.current, resolved=True)


@table(
    "response, words",
    ("gone", error_response(404, "not found"), 'PluginConfig "pack" no longer exists'),
    (
        "changed",
        Response(body={"spec": {"plugin": "NodeResourcesFit", "args": {"x": 2}}}),
        'PluginConfig "pack" has changed since',
    ),
    ("other-plugin", Response(body={"spec": {"plugin": "Other", "args": {"x": 1}}}), "has changed"),
)
async def test_a_changed_plugin_config_prevents_references(api: FakeApi, response: Response, words: str) -> None:
    """If a PluginConfig has changed, a rollback cannot write the references, but it can write the resolved args."""
    entry = {"name": "NodeResourcesFit", "args": {"x": 1}}
    referring: dict[str, Any] = {"profile": {"pluginConfig": [entry]}, "spec": {"pluginConfigRefs": [{"name": "pack"}]}}
    serve_revisions(
        api, ALL_NAMESPACES, revision(1, 10, references={"pack": "NodeResourcesFit"}, **referring), revision(2, 20)
    )
    api.on("GET", f"{PLUGIN_CONFIGS}/pack", response)
    found = await read_profile_history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        with pytest.raises(RollbackError, match=words):
            await plan_rollback(connection, found, "1", resolved=False)
        planned = await plan_rollback(connection, found, "1", resolved=True)
    assert planned.spec == {"percentageOfNodesToScore": 10, "pluginConfig": [entry]}


async def test_the_rollback_replaces_the_object(api: FakeApi) -> None:
    """A rollback writes the whole object with the version that was read, and a change cause."""
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20))
    api.on("PUT", PROFILE, Response(body=profile(10)))
    found = await read_profile_history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        planned = await plan_rollback(connection, found, None, resolved=False)
        await write_spec(connection, planned.change, dry_run=True)
    (request,) = api.requests("PUT", PROFILE)
    sent = json.loads(request.body)
    assert (sent["spec"], sent["metadata"]["resourceVersion"]) == ({"percentageOfNodesToScore": 10}, "9")
    assert sent["metadata"]["annotations"] == {"kubernetes.io/change-cause": "rollback to revision 1"}


@table(
    "status, error, words",
    ("conflict", 409, ConflictError, "was changed in the meantime; check it and run"),
    ("forbidden", 403, ForbiddenError, "you may not change SchedulerProfile"),
    ("invalid", 422, RollbackError, "rejects the spec of revision 1"),
)
async def test_rejected_writes(api: FakeApi, status: int, error: type[Exception], words: str) -> None:
    """Each rejected write raises an error with a remedy."""
    serve_revisions(api, ALL_NAMESPACES, revision(1, 10), revision(2, 20))
    api.on("PUT", PROFILE, error_response(status, "no"))
    found = await read_profile_history(api)
    async with ApiConnection(api, ConnectionOptions(), InstantClock()) as connection:
        planned = await plan_rollback(connection, found, None, resolved=False)
        with pytest.raises(error, match=words):
            await write_spec(connection, planned.change, dry_run=False)


FIT = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "LeastAllocated"}}}
PACK = {"name": "NodeResourcesFit", "args": {"scoringStrategy": {"type": "MostAllocated"}}}
TAINTS = {"name": "TaintToleration"}


@table(
    "old, new, expected",
    ("equal", {}, {}, []),
    ("changed-value", {"a": 1}, {"a": 2}, ["a: 1 → 2"]),
    ("added-field", {}, {"a": "x"}, ["+a: x"]),
    ("removed-field", {"a": [1, 2]}, {}, ["-a: [1, 2]"]),
    (
        "entries-by-name",
        {"pluginConfig": [TAINTS, FIT]},
        {"pluginConfig": [PACK, TAINTS]},
        ["pluginConfig[NodeResourcesFit].args.scoringStrategy.type: LeastAllocated → MostAllocated"],
    ),
    ("added-entry", {"enabled": []}, {"enabled": [TAINTS]}, ["+enabled[TaintToleration]", "-enabled: []"]),
    ("order", {"x": [TAINTS, FIT]}, {"x": [FIT, TAINTS]}, ["order of entries"]),
    ("long-values-are-cut", {"a": "x" * 99}, {"a": "y"}, [f"a: {'x' * 44} ... → y"]),
    (
        "extenders-by-url",
        {"extenders": [{"urlPrefix": "http://e", "weight": 1}]},
        {"extenders": [{"urlPrefix": "http://e", "weight": 2}]},
        ["extenders[http://e].weight: 1 → 2"],
    ),
)
def test_changes(old: dict[str, Any], new: dict[str, Any], expected: list[str]) -> None:
    """Each difference has its path, and list entries are identified by their names."""
    assert sorted(changes(old, new)) == sorted(expected)


@table("differences, text", ("none", [], "nothing"), ("one", ["a"], "a"), ("several", ["a", "b", "c"], "a and 2 more"))
def test_summary(differences: list[str], text: str) -> None:
    """The summary has the first difference and the number of the others."""
    assert changes_summary(differences) == text


def test_diff() -> None:
    """The unified diff has the format of ``diff -u`` and is empty for equal specs."""
    assert unified_diff({"a": 1}, {"a": 2}, ("now", "revision 1")).splitlines()[-2:] == ["-a: 1", "+a: 2"]
    assert unified_diff({"a": 1}, {"a": 1}, ("now", "revision 1")) == ""
