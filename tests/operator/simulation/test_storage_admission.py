"""Tests of default StorageClasses and of the admission of claims and classes."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from bayplan.simulation.object_admission import WrittenStorageClass, admitted_storage, default_class

from scheduler_core.model.meta import AnnotatedMeta
from scheduler_core.model.storage import BETA_STORAGE_CLASS, PersistentVolumeClaim, StorageClass
from tests.support.storage import claim

DEFAULT_ANNOTATION = "storageclass.kubernetes.io/is-default-class"


def annotated_class(
    name: str, day: int | None = None, annotation: str = DEFAULT_ANNOTATION, value: str = "true"
) -> WrittenStorageClass:
    """Return a class with the annotation of a default class, created on this day of January."""
    created = None if day is None else datetime(2026, 1, day, tzinfo=UTC)
    return WrittenStorageClass(AnnotatedMeta(name, creation_timestamp=created, annotations={annotation: value}))


@pytest.mark.parametrize(
    ("classes", "name"),
    [
        pytest.param([], None, id="no class"),
        pytest.param([annotated_class("a", value="false")], None, id="no default"),
        pytest.param([annotated_class("a", value="false"), annotated_class("b")], "b", id="one default"),
        pytest.param(
            [annotated_class("a", annotation="storageclass.beta.kubernetes.io/is-default-class")],
            "a",
            id="beta annotation",
        ),
        pytest.param([annotated_class("a", 1), annotated_class("b", 3), annotated_class("c", 2)], "b", id="newest"),
        pytest.param([annotated_class("b", 1), annotated_class("a", 1)], "a", id="first by name"),
        pytest.param(
            [annotated_class("b"), annotated_class("a", 1)], "a", id="class of a cluster before a hand-written class"
        ),
    ],
)
def test_the_default_class(classes: list[StorageClass], name: str | None) -> None:
    """Of several default classes the newest is used."""
    assert default_class(classes) == name


@pytest.mark.parametrize(
    ("given", "name"),
    [
        pytest.param(claim(storage_class=None), "default", id="no class"),
        pytest.param(claim(storage_class=""), "", id="empty name"),
        pytest.param(claim(storage_class="own"), "own", id="class"),
        pytest.param(
            claim(storage_class=None, annotations={BETA_STORAGE_CLASS: "old"}),
            "old",
            id="class by beta annotation",
        ),
    ],
)
def test_a_claim_keeps_the_class_that_it_names(given: PersistentVolumeClaim, name: str) -> None:
    """Only a claim without a class gets the default class."""
    admitted = admitted_storage(given, "default")
    assert isinstance(admitted, PersistentVolumeClaim)
    assert admitted.class_name == name


def test_the_default_binding_mode_is_immediate() -> None:
    """The admitted class has binding mode Immediate and the type that the scheduler uses."""
    admitted = admitted_storage(annotated_class("a"), None)
    assert type(admitted) is StorageClass
    assert admitted.volume_binding_mode == "Immediate"
