"""Default StorageClasses, and admission of claims and classes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from bayplan.simulation.storage_admission import WrittenStorageClass, admitted_storage, default_class

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.storage import BETA_STORAGE_CLASS, PersistentVolumeClaim, StorageClass
from tests.support.storage import claim

MARK = "storageclass.kubernetes.io/is-default-class"


def marked(name: str, day: int | None = None, mark: str = MARK, value: str = "true") -> WrittenStorageClass:
    """Return a class that is marked as the default, created on a day of January."""
    created = None if day is None else datetime(2026, 1, day, tzinfo=UTC)
    return WrittenStorageClass(AnnotatedMeta(name, creation_timestamp=created, annotations={mark: value}))


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        pytest.param([], None, id="no class"),
        pytest.param([marked("a", value="false")], None, id="none marked"),
        pytest.param([marked("a", value="false"), marked("b")], "b", id="one"),
        pytest.param(
            [marked("a", mark="storageclass.beta.kubernetes.io/is-default-class")], "a", id="the beta annotation"
        ),
        pytest.param([marked("a", 1), marked("b", 3), marked("c", 2)], "b", id="the newest"),
        pytest.param([marked("b", 1), marked("a", 1)], "a", id="the first by name"),
        pytest.param([marked("b"), marked("a", 1)], "a", id="one from a cluster before a hand-written one"),
    ],
)
def test_the_default_class(classes: list[StorageClass], name: str | None) -> None:
    """Of several that are marked the newest is the default."""
    assert default_class(classes) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(claim(storage_class=None), "default", id="names none"),
        pytest.param(claim(storage_class=""), "", id="an empty name"),
        pytest.param(claim(storage_class="own"), "own", id="names one"),
        pytest.param(
            claim(storage_class=None, annotations={BETA_STORAGE_CLASS: "old"}),
            "old",
            id="names one by the beta annotation",
        ),
    ],
)
def test_a_claim_keeps_the_class_that_it_names(given: PersistentVolumeClaim, name: str) -> None:
    """Only a claim that names no class gets the default."""
    admitted = admitted_storage(given, "default")
    assert isinstance(admitted, PersistentVolumeClaim)
    assert admitted.class_name == name


def test_the_default_binding_mode_is_immediate() -> None:
    """The admitted object has the type that the scheduler uses."""
    admitted = admitted_storage(marked("a"), None)
    assert type(admitted) is StorageClass
    assert admitted.volume_binding_mode == "Immediate"
