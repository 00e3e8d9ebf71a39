"""Tests of the order in which versions of an object arrive."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.resources.object_store import ObjectStore

from tests.support.manifests import Manifest, profile_manifest


def version(number: int, *, generation: int = 1, name: str = "a", **metadata: Any) -> Manifest:
    return profile_manifest(name, resourceVersion=str(number), generation=generation, **metadata)


def names(store: ObjectStore) -> list[str]:
    return [body["metadata"]["name"] for body in store.bodies()]


def test_status_writes_are_no_change() -> None:
    """The watch event of a status write causes no reconcile."""
    store = ObjectStore()
    assert store.seen(version(1))
    assert not store.seen({**version(2), "status": {"pending": 1}})
    assert store.seen(version(3, generation=2))


def test_older_versions_are_ignored() -> None:
    """An event that comes after a newer list changes nothing."""
    store = ObjectStore()
    store.seen(version(5, generation=2))
    assert not store.seen(version(4))
    assert store.bodies()[0]["metadata"]["generation"] == 2


def test_a_deleted_object_does_not_come_back() -> None:
    """A list from before a deletion does not undo it; a new object of the name is a different one."""
    store = ObjectStore()
    store.seen(version(1))
    assert store.gone(version(3))
    assert not store.listed([version(1)], "2")
    assert names(store) == []
    assert store.seen(version(4, uid="another"))


def test_a_late_deletion_spares_the_next_object() -> None:
    """A deletion with another UID is that of an earlier object."""
    store = ObjectStore()
    store.seen(version(4, uid="new"))
    assert not store.gone(version(3, uid="old"))
    assert names(store) == ["a"]


@pytest.mark.parametrize(
    ("list_version", "expected", "changed"),
    [pytest.param("9", [], True, id="later"), pytest.param("4", ["a"], False, id="earlier-than-the-event")],
)
def test_objects_missing_in_a_list_are_deleted(list_version: str, expected: list[str], changed: bool) -> None:
    """A list shows deletions that the watch missed, but nothing about objects newer than itself."""
    store = ObjectStore()
    store.seen(version(5))
    assert store.listed([], list_version) == changed
    assert names(store) == expected
