"""Good revisions as ControllerRevisions."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from bayplan.kube.controller_revisions import ControllerRevision
from bayplan.resources.resource_model import ObjectMeta
from bayplan.revision_history import KEPT_REVISIONS, RevisionHistory
from bayplan.stored_revision import Origin, origin_of, read_revision

from scheduler_core.config.plugins_config import PluginConfig
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.errors import ServerUnavailableError
from scheduler_core.model.meta import AnnotatedMeta as RevisionMeta
from scheduler_core.model.meta import OwnerReference
from tests.support.fake_cluster_objects import FakeRevisions

LABELS = {"app.kubernetes.io/managed-by": "bayplan"}


def profile(name: str = "batch", uid: str = "uid-1") -> ObjectMeta:
    return ObjectMeta(name=name, uid=uid, creation_timestamp=datetime(2026, 1, 1, tzinfo=UTC))


def config(percentage: int) -> ProfileConfig:
    return ProfileConfig(scheduler_name="batch", percentage_of_nodes_to_score=percentage)


async def keep(store: FakeRevisions, *percentages: int, uid: str = "uid-1") -> RevisionHistory:
    """Keep revisions one after the other, by a history that was loaded before."""
    history = RevisionHistory(store)
    await history.load()
    for percentage in percentages:
        history.note(profile(uid=uid), config(percentage))
        await history.save()
    return history


async def loaded(store: FakeRevisions, uid: str = "uid-1") -> list[int | None]:
    """What another process finds, newest first."""
    history = RevisionHistory(store)
    await history.load()
    return [one.percentage_of_nodes_to_score for one in history.last_good(uid)]


async def test_a_revision_is_owned_and_labelled() -> None:
    """It goes with its profile, and people find it by label."""
    store = FakeRevisions()
    await keep(store, 5)
    (stored,) = store.stored.values()
    owner = stored.metadata.owner_references[0]
    assert (owner.kind, owner.name, owner.uid) == ("SchedulerProfile", "batch", "uid-1")
    assert stored.metadata.labels["bayplan.dev/profile"] == "batch"
    assert stored.metadata.name == f"batch-{config(5).revision()}-1"
    assert stored.data["profile"] == config(5).document()


async def test_another_process_finds_the_newest_first() -> None:
    """Numbers rise over restarts."""
    store = FakeRevisions()
    await keep(store, 5, 6)
    await keep(store, 7)
    assert await loaded(store) == [7, 6, 5]


async def test_the_same_revision_is_kept_once() -> None:
    """A restart with the newest live writes nothing; content that comes back takes a new number, its old one goes."""
    store = FakeRevisions()
    await keep(store, 5)
    await keep(store, 5)
    assert await loaded(store) == [5]
    await keep(store, 6, 5)
    assert await loaded(store) == [5, 6]
    assert [one.revision for one in await store.list(LABELS)] == [2, 3]


async def test_what_a_revision_came_from_is_kept() -> None:
    """The spec as written, its references, who wrote it and why survive beside the content."""
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


async def test_why_is_written_later() -> None:
    """What an annotation says after the edit is added to the revision that is live, once."""
    store = FakeRevisions()
    history = await keep(store, 5, 6)
    for cause in ("", "six is better", "six is better"):
        history.explain("uid-1", config(6).revision(), cause)
        await history.save()
    assert [read_revision(one).origin.cause for one in await store.list(LABELS)] == ["", "six is better"]


async def test_why_of_a_deleted_revision() -> None:
    """A revision that somebody has deleted cannot be told why, which stops nothing."""
    store = FakeRevisions()
    history = await keep(store, 5)
    history.explain("uid-1", config(5).revision(), "why")
    store.stored.clear()
    await history.save()
    assert store.stored == {}


async def test_old_revisions_are_deleted() -> None:
    """Ten are kept."""
    store = FakeRevisions()
    await keep(store, *range(1, KEPT_REVISIONS + 4))
    assert await loaded(store) == list(range(KEPT_REVISIONS + 3, 3, -1))
    assert len(store.stored) == KEPT_REVISIONS


async def test_a_profile_made_anew_has_no_past() -> None:
    """Revisions of an earlier object of the same name are not taken, and do not stand in the way."""
    store = FakeRevisions()
    await keep(store, 5, uid="uid-1")
    assert await loaded(store, "uid-2") == []
    await keep(store, 5, uid="uid-2")
    assert await loaded(store, "uid-2") == [5]


async def test_a_profile_that_is_gone_leaves_nothing() -> None:
    """Neither what is kept nor what waits to be; other profiles keep theirs."""
    store = FakeRevisions()
    history = await keep(store, 5)
    history.note(profile("other", "uid-2"), config(7))
    await history.save()
    history.note(profile(), config(6))
    history.forget("uid-1")
    await history.save()
    assert history.last_good("uid-1") == []
    assert history.last_good("uid-2") == [config(7)]
    assert len(store.stored) == 2


async def test_a_refused_write_is_repeated() -> None:
    """What could not be kept waits for the next try."""
    store = FakeRevisions()
    history = await keep(store)
    store.failures.append(ServerUnavailableError("away"))
    history.note(profile(), config(5))
    try:
        await history.save()
    except ServerUnavailableError:
        await history.save()
    assert await loaded(store) == [5]


async def test_a_lost_answer_keeps_one_revision() -> None:
    """A create that happened unseen is found again rather than doubled."""
    store = FakeRevisions()
    unaware = await keep(store)
    await keep(store, 5)
    unaware.note(profile(), config(5))
    await unaware.save()
    assert await loaded(store) == [5]


async def test_revisions_that_cannot_be_read_are_passed_over() -> None:
    """A revision of another version is no reason to stop; the one before is taken."""
    store = FakeRevisions()
    await keep(store, 5)
    owner = OwnerReference("SchedulerProfile", "batch", "uid-1")
    meta = RevisionMeta("odd", labels=LABELS, owner_references=(owner,))
    store.stored["odd"] = ControllerRevision(meta, 9, {"profile": {"schedulerName": "batch", "later": 1}})
    assert await loaded(store) == [5]


async def test_long_names_fit() -> None:
    """Names and labels stay within what the API server takes."""
    store = FakeRevisions()
    history = RevisionHistory(store)
    history.note(profile("x" * 199 + "." + "y" * 53), config(5))
    await history.save()
    (stored,) = store.stored.values()
    assert len(stored.metadata.name) <= 253
    assert len(stored.metadata.labels["bayplan.dev/profile"]) == 63
    assert ".-" not in stored.metadata.name
