"""Tests of the profiles that the leader creates if they do not exist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bayplan.kube.http.connection import ApiConnection, ConnectionOptions
from bayplan.profiles.profile_sources import InitialProfiles, read_initial_profiles

from scheduler_core.errors import ConfigError
from tests.operator.kube.conftest import InstantClock
from tests.support.fake_api import FakeApi, Response, error_response
from tests.support.tables import table

PATH = "/apis/bayplan.dev/v1alpha1/schedulerprofiles/steady"
PROFILE: dict[str, Any] = {
    "apiVersion": "bayplan.dev/v1alpha1",
    "kind": "SchedulerProfile",
    "metadata": {"name": "steady", "labels": {"app.kubernetes.io/managed-by": "Helm"}},
    "spec": {"percentageOfNodesToScore": 50},
}


async def create(api: FakeApi, *profiles: dict[str, Any]) -> None:
    clock = InstantClock()
    async with ApiConnection(api, ConnectionOptions(), clock) as connection:
        await InitialProfiles(connection, clock, list(profiles)).run()


def patches(api: FakeApi) -> list[tuple[str, dict[str, str], Any]]:
    return [(one.path, one.query, one.json) for one in api.received if one.method == "PATCH"]


async def test_a_missing_profile_is_applied_as_by_the_tool() -> None:
    """A profile that does not exist is created by server-side apply, with the field manager of its tool."""
    async with FakeApi() as api:
        api.on("GET", PATH, error_response(404, "not found"))
        api.on("PATCH", PATH, Response(201))
        await create(api, PROFILE)
        assert patches(api) == [(PATH, {"fieldManager": "helm"}, PROFILE)]
        assert api.received[-1].headers["Content-Type"] == "application/apply-patch+yaml"


async def test_an_existing_profile_is_not_changed() -> None:
    """A profile that exists keeps its spec, even if another client wrote it."""
    async with FakeApi() as api:
        api.on("GET", PATH, Response(body={"metadata": {"name": "steady"}}))
        await create(api, PROFILE)
        assert patches(api) == []


@table(
    "failure",
    ("the role binding is not applied yet", error_response(403, "forbidden")),
    ("the definition is not served yet", error_response(404, "no such kind")),
    ("created by another", error_response(409, "conflict")),
    ("the server fails", error_response(503, "unavailable")),
)
async def test_a_failure_is_repeated(failure: Response) -> None:
    """A failure that may end is retried."""
    async with FakeApi() as api:
        api.on("GET", PATH, error_response(404, "not found"))
        api.on("PATCH", PATH, failure, Response(201))
        await create(api, PROFILE)
        assert len(patches(api)) == 2


async def test_an_invalid_profile_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """A profile that the API server rejects is logged once, and the next one is created."""
    other = {**PROFILE, "metadata": {"name": "other"}}
    async with FakeApi() as api:
        api.on("GET", PATH, error_response(404, "not found"))
        api.on("PATCH", PATH, error_response(422, "spec is wrong"))
        api.on("GET", PATH.replace("steady", "other"), error_response(404, "not found"))
        api.on("PATCH", PATH.replace("steady", "other"), Response(201))
        await create(api, PROFILE, other)
        assert [query for _, query, _ in patches(api)] == [{"fieldManager": "helm"}, {"fieldManager": "bayplan"}]
    assert [one for one in caplog.messages if "steady of initialProfiles is invalid" in one] != []


@table(
    "text, problem",
    ("no YAML", "kind: [", "cannot be read"),
    ("another kind", "kind: ConfigMap", "document 1 of"),
    ("no name", "{apiVersion: bayplan.dev/v1alpha1, kind: SchedulerProfile}", "with metadata.name"),
)
def test_an_invalid_file_is_rejected(tmp_path: Path, text: str, problem: str) -> None:
    """The operator does not start with a file that contains something else."""
    file = tmp_path / "profiles.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_initial_profiles(file)
    assert [(one.path, problem in one.message) for one in caught.value.problems] == [("initialProfiles", True)]


def test_a_missing_file_is_rejected(tmp_path: Path) -> None:
    """The operator does not start without the file."""
    with pytest.raises(ConfigError, match="initialProfiles"):
        read_initial_profiles(tmp_path / "none.yaml")
