"""Which of two accounts of an object is newer."""

from __future__ import annotations

from typing import Any

import pytest
from bayplan.object_store import ObjectStore

from tests.support.manifests import Manifest, profile_manifest


def version(number: int, *, generation: int = 1, name: str = "a", **metadata: Any) -> Manifest:
    return profile_manifest(name, resourceVersion=str(number), generation=generation, **metadata)


def names(store: ObjectStore) -> list[str]:
    return [body["metadata"]["name"] for body in store.bodies()]


def test_status_writes_are_no_change() -> None:
    """The echo of a status write does not lead to another reconcile."""
    store = ObjectStore()
    assert store.seen(version(1))
    assert not store.seen({**version(2), "status": {"pending": 1}})
    assert store.seen(version(3, generation=2))


def test_older_versions_are_passed_over() -> None:
    """An event that comes after a newer list changes nothing."""
    store = ObjectStore()
    store.seen(version(5, generation=2))
    assert not store.seen(version(4))
    assert store.bodies()[0]["metadata"]["generation"] == 2


def test_a_deleted_object_does_not_come_back() -> None:
    """A list that was made before a deletion does not undo it; a new object of the name is another one."""
    store = ObjectStore()
    store.seen(version(1))
    assert store.gone(version(3))
    assert not store.listed([version(1)], "2")
    assert names(store) == []
    assert store.seen(version(4, uid="another"))


def test_a_late_deletion_spares_the_next_object() -> None:
    """A deletion of another UID is of an earlier object."""
    store = ObjectStore()
    store.seen(version(4, uid="new"))
    assert not store.gone(version(3, uid="old"))
    assert names(store) == ["a"]


@pytest.mark.parametrize(
    ("list_version", "kept", "changed"),
    [pytest.param("9", [], True, id="later"), pytest.param("4", ["a"], False, id="earlier-than-the-event")],
)
def test_what_a_list_lacks_is_gone(list_version: str, kept: list[str], changed: bool) -> None:
    """A list tells of deletions that the watch missed, but not about what is newer than itself."""
    store = ObjectStore()
    store.seen(version(5))
    assert store.listed([], list_version) == changed
    assert names(store) == kept
