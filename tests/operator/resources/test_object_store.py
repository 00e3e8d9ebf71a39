"""Tests of ObjectStore: versions of an object that arrive in any order."""

from __future__ import annotations

from typing import Any

from bayplan.resources.object_store import ObjectStore

from tests.support.manifests import Manifest, profile_manifest
from tests.support.tables import table


def version(number: int, *, generation: int = 1, name: str = "a", **metadata: Any) -> Manifest:
    return profile_manifest(name, resourceVersion=str(number), generation=generation, **metadata)


def names(store: ObjectStore) -> list[str]:
    return [body["metadata"]["name"] for body in store.bodies()]


def test_a_status_update_is_no_change() -> None:
    """The watch event of a status update does not count as a change."""
    store = ObjectStore()
    assert store.seen(version(1))
    assert not store.seen({**version(2), "status": {"pending": 1}})
    assert store.seen(version(3, generation=2))


def test_older_versions_are_ignored() -> None:
    """An event that arrives after a newer list is ignored."""
    store = ObjectStore()
    store.seen(version(5, generation=2))
    assert not store.seen(version(4))
    assert store.bodies()[0]["metadata"]["generation"] == 2


def test_an_older_list_does_not_restore_a_deleted_object() -> None:
    """A list from before a deletion does not restore the object, but a new object of its name is stored."""
    store = ObjectStore()
    store.seen(version(1))
    assert store.gone(version(3))
    assert not store.listed([version(1)], "2")
    assert names(store) == []
    assert store.seen(version(4, uid="another"))


def test_a_late_deletion_does_not_delete_a_new_object() -> None:
    """A deletion with the UID of an earlier object does not delete the new object of its name."""
    store = ObjectStore()
    store.seen(version(4, uid="new"))
    assert not store.gone(version(3, uid="old"))
    assert names(store) == ["a"]


@table("list_version, expected, changed", ("later", "9", [], True), ("earlier-than-the-event", "4", ["a"], False))
def test_objects_missing_in_a_list_are_deleted(list_version: str, expected: list[str], changed: bool) -> None:
    """Objects that are missing in a list are deleted unless they are newer than the list."""
    store = ObjectStore()
    store.seen(version(5))
    assert store.listed([], list_version) == changed
    assert names(store) == expected
