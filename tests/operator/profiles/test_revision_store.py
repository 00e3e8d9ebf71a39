"""Tests of RevisionHistory, which stores revisions as ControllerRevisions."""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any

import pytest
from bayplan.kube.custom_resources import ControllerRevision
from bayplan.profiles.revision_store import (
    REVISION_HISTORY_LIMIT,
    Origin,
    RevisionHistory,
    origin_of,
    read_revision,
    with_keys,
    without_keys,
)
from bayplan.resources.resource_model import ObjectMeta

from scheduler_core.config.plugin_set_types import PluginConfig
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from scheduler_core.errors import ConfigError, ConflictError
from scheduler_core.model.meta import AnnotatedMeta as RevisionMeta
from scheduler_core.model.meta import OwnerReference
from tests.support.fake_cluster_objects import FakeRevisions
from tests.support.tables import table

LABELS = {"app.kubernetes.io/managed-by": "bayplan"}


def profile(name: str = "batch", uid: str = "uid-1") -> ObjectMeta:
    return ObjectMeta(name=name, uid=uid, creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC))


def config(percentage: int) -> ProfileConfig:
    return ProfileConfig(scheduler_name="batch", percentage_of_nodes_to_score=percentage)


async def store_revisions(store: FakeRevisions, *percentages: int, uid: str = "uid-1") -> RevisionHistory:
    """Store revisions one after the other in a loaded history, and return the history."""
    history = RevisionHistory(store)
    await history.load()
    for percentage in percentages:
        history.note(profile(uid=uid), config(percentage))
        await history.save()
    return history


async def load_percentages(store: FakeRevisions, uid: str = "uid-1") -> list[int | None]:
    """Return the revisions that another process loads, newest first."""
    history = RevisionHistory(store)
    await history.load()
    return [one.percentage_of_nodes_to_score for one in history.last_good(uid)]


async def test_a_revision_is_owned_and_labelled() -> None:
    """A stored revision has its profile as owner and as label."""
    store = FakeRevisions()
    await store_revisions(store, 5)
    (stored,) = store.stored.values()
    owner = stored.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid) == ("SchedulerProfile", "batch", "uid-1")
    assert stored.metadata.labels["bayplan.dev/profile"] == "batch"
    assert stored.metadata.name == f"batch-{config(5).revision()}-1"
    assert stored.data["profile"] == config(5).document()


async def test_the_same_revision_is_stored_once() -> None:
    """A restart writes no revision; an older revision that is live again gets a new number."""
    store = FakeRevisions()
    await store_revisions(store, 5)
    await store_revisions(store, 5)
    assert await load_percentages(store) == [5]
    await store_revisions(store, 6, 5)
    assert await load_percentages(store) == [5, 6]
    assert [one.revision for one in await store.list(LABELS)] == [2, 3]


async def test_the_origin_of_a_revision_is_stored() -> None:
    """The written spec, its references, its field manager and the change cause are stored with the revision."""
    body: dict[str, Any] = {
        "metadata": {
            "annotations": {"kubernetes.io/change-cause": "pack"},
            "managedFields": [
                {"manager": "first", "time": "2026-01-01T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "editor", "time": "2026-01-02T00:00:00Z", "fieldsV1": {"f:spec": {}}},
                {"manager": "labeller", "time": "2026-01-03T00:00:00Z", "fieldsV1": {"f:metadata": {}}},
                {"manager": "bayplan", "time": "2026-01-04T00:00:00Z", "subresource": "status"},
            ],
        },
        "spec": {"pluginConfig": [{"name": "VolumeBinding"}], "pluginConfigRefs": [{"name": "packing"}]},
    }
    entries = tuple(PluginConfig(name=name) for name in ("VolumeBinding", "NodeResourcesFit"))
    made = ProfileConfig(scheduler_name="batch", plugin_config=entries)
    store = FakeRevisions()
    history = RevisionHistory(store)
    history.note(profile(), made, origin_of(body, made))
    await history.save()
    (stored,) = store.stored.values()
    origin = read_revision(stored).origin
    assert origin == Origin(body["spec"], {"packing": "NodeResourcesFit"}, "pack", "editor")


def written(manager: str, time: str, *, of_spec: bool = True) -> dict[str, Any]:
    fields: dict[str, Any] = {"f:spec": {}} if of_spec else {"f:metadata": {}}
    return {"manager": manager, "time": f"2026-01-01T00:00:0{time}Z", "fieldsV1": fields}


@table(
    "of_profile, of_config, manager",
    ("later-plugin-config", [written("apply", "1")], [written("patch", "2")], "patch"),
    ("earlier-plugin-config", [written("apply", "2")], [written("patch", "1")], "apply"),
    ("rollback", [written("apply", "1"), written("bayplan-rollback", "2", of_spec=False)], [], "bayplan-rollback"),
    ("edit-after-a-rollback", [written("bayplan-rollback", "1"), written("apply", "2")], [], "apply"),
    ("one-second", [written("apply", "1"), written("bayplan-rollback", "1")], [], "bayplan-rollback"),
)
def test_the_manager_is_that_of_the_last_change(
    of_profile: list[dict[str, Any]], of_config: list[dict[str, Any]], manager: str
) -> None:
    """A change of a referenced PluginConfig counts, and a rollback that only removes fields of the spec."""
    body = {"metadata": {"managedFields": of_profile}, "spec": {"pluginConfigRefs": [{"name": "packing"}]}}
    others = [written("other", "9")]
    configs = [
        {"metadata": {"name": name, "managedFields": managed}}
        for name, managed in (("packing", of_config), ("x", others))
    ]
    assert origin_of(body, ProfileConfig(scheduler_name="batch"), configs).manager == manager


async def test_a_rollback_to_the_live_revision_is_not_its_cause() -> None:
    """A rollback from a rejected spec to the revision that is still live leaves the cause of that revision."""
    store = FakeRevisions()
    history = await store_revisions(store, 5)
    for cause in ("rollback to revision 1", "rollback to revision 1: five is better"):
        history.explain("uid-1", config(5).revision(), cause)
        await history.save()
    assert [read_revision(one).origin.cause for one in await store.list(LABELS)] == [""]


async def test_a_late_change_cause_is_stored() -> None:
    """A change cause that is set after the edit is added to the live revision once."""
    store = FakeRevisions()
    history = await store_revisions(store, 5, 6)
    for cause in ("", "six is better", "six is better"):
        history.explain("uid-1", config(6).revision(), cause)
        await history.save()
    assert [read_revision(one).origin.cause for one in await store.list(LABELS)] == ["", "six is better"]


async def test_a_change_cause_of_a_deleted_revision_is_dropped() -> None:
    """The change cause of a revision that a user has deleted is dropped without an error."""
    store = FakeRevisions()
    history = await store_revisions(store, 5)
    history.explain("uid-1", config(5).revision(), "why")
    store.stored.clear()
    await history.save()
    assert store.stored == {}


async def test_old_revisions_are_deleted() -> None:
    """The newest ten revisions are stored and older ones are deleted."""
    store = FakeRevisions()
    await store_revisions(store, *range(1, REVISION_HISTORY_LIMIT + 4))
    assert await load_percentages(store) == list(range(REVISION_HISTORY_LIMIT + 3, 3, -1))
    assert len(store.stored) == REVISION_HISTORY_LIMIT


async def test_a_deleted_profile_has_no_history() -> None:
    """The stored and queued revisions of a deleted profile are dropped; other profiles keep theirs."""
    store = FakeRevisions()
    history = await store_revisions(store, 5)
    history.note(profile("other", "uid-2"), config(7))
    await history.save()
    history.note(profile(), config(6))
    history.forget("uid-1")
    await history.save()
    assert history.last_good("uid-1") == []
    assert history.last_good("uid-2") == [config(7)]
    assert len(store.stored) == 2


async def test_a_lost_response_stores_one_revision() -> None:
    """A revision whose create response was lost is found and not created again."""
    store = FakeRevisions()
    stale_history = await store_revisions(store)
    await store_revisions(store, 5)
    stale_history.note(profile(), config(5))
    await stale_history.save()
    assert await load_percentages(store) == [5]


async def test_revisions_that_cannot_be_read_are_ignored() -> None:
    """An unreadable revision is ignored, and the previous one is used."""
    store = FakeRevisions()
    await store_revisions(store, 5)
    owner = OwnerReference("SchedulerProfile", "batch", "uid-1")
    meta = RevisionMeta("odd", labels=LABELS, owner_references=(owner,))
    store.stored["odd"] = ControllerRevision(meta, 9, {"profile": {"schedulerName": "batch", "later": 1}})
    assert await load_percentages(store) == [5]


async def test_long_names_fit() -> None:
    """Names and labels stay within the API server's limits."""
    store = FakeRevisions()
    history = RevisionHistory(store)
    history.note(profile("x" * 199 + "." + "y" * 53), config(5))
    await history.save()
    (stored,) = store.stored.values()
    assert len(stored.metadata.name) <= 253
    assert len(stored.metadata.labels["bayplan.dev/profile"]) == 63
    assert ".-" not in stored.metadata.name


class SettledNames(FakeRevisions):
    """Store in which other objects, without the labels, have the first names of a revision."""

    def __init__(self, profile: str, percentage: int, taken: int) -> None:
        super().__init__()
        self.creations = 0
        for number in range(1, taken + 1):
            name = f"{profile}-{config(percentage).revision()}-{number}"
            self.stored[name] = ControllerRevision(RevisionMeta(name), number, {})

    async def create(self, revision: ControllerRevision) -> ControllerRevision:
        self.creations += 1
        return await super().create(revision)


@pytest.mark.parametrize("taken", [1, 2, 3, 50, 127])
async def test_names_taken_by_other_objects_are_skipped(taken: int) -> None:
    """A revision whose name is taken by an object without Bayplan's labels gets a later number, in few requests."""
    store = SettledNames("batch", 5, taken)
    history = RevisionHistory(store)
    history.note(profile(), config(5))
    await history.save()
    assert await load_percentages(store) == [5]
    assert store.creations <= 8


async def test_a_revision_that_always_conflicts_is_reported_and_delays_no_other() -> None:
    """A revision that cannot be stored is an error after a few requests; other profiles' revisions are stored."""
    store = SettledNames("batch", 5, 1000)
    history = RevisionHistory(store)
    history.note(profile(), config(5))
    history.note(profile("other", "uid-2"), config(7))
    with pytest.raises(
        ConflictError, match=r"SchedulerProfile batch cannot be stored: .* Delete the ControllerRevisions"
    ):
        await history.save()
    assert await load_percentages(store, "uid-2") == [7]
    assert store.creations == 9
    del store.stored[f"batch-{config(5).revision()}-1"]
    await history.save()
    assert await load_percentages(store) == [5]


KEY = base64.b64encode(b"-----BEGIN PRIVATE KEY-----").decode()


def with_key(key: str, percentage: int = 5) -> tuple[ProfileConfig, dict[str, Any]]:
    """Return a profile with an extender that has a client key, and its spec."""
    tls = {"certData": "Q0VSVA==", "keyData": key}
    extenders = [
        {"urlPrefix": "https://a"},
        {"urlPrefix": "https://b", "filterVerb": "f", "enableHTTPS": True, "tlsConfig": tls},
    ]
    spec = {"schedulerName": "batch", "percentageOfNodesToScore": percentage, "extenders": extenders}
    return validate(ProfileConfig, spec, ""), spec


async def test_client_keys_are_not_stored() -> None:
    """A revision has no client key, in no field; it is the same revision after a restart, and the key comes back."""
    store = FakeRevisions()
    history = RevisionHistory(store)
    live, spec = with_key(KEY)
    history.note(profile(), live, Origin(spec=spec))
    await history.save()
    (stored,) = store.stored.values()
    assert KEY not in repr(stored)
    assert "BEGIN" not in repr(stored)
    restarted = RevisionHistory(store)
    await restarted.load()
    restarted.note(profile(), live, Origin(spec=spec))
    await restarted.save()
    assert len(store.stored) == 1
    (config_without,) = restarted.last_good("uid-1")
    assert validate(ProfileConfig, with_keys(config_without.document(), spec), "") == live
    assert with_keys(stored.data["spec"], spec) == spec


@pytest.mark.parametrize("now", [{}, {"extenders": [{"urlPrefix": "https://b"}]}, with_key(KEY[:-4])[1]])
async def test_a_key_that_the_profile_no_longer_has(now: dict[str, Any]) -> None:
    """A stored revision whose key is not that of the profile cannot be restored; the error names the field."""
    _, spec = with_key(KEY)
    with pytest.raises(ConfigError, match=r"extenders\[1\].tlsConfig.keyData.*is not stored with revisions.*keyFile"):
        with_keys(without_keys(spec), now)
