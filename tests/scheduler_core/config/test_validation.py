"""Validation reports every problem, with its path and message."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from scheduler_core.config.config_model import ConfigModel, RuleProblem
from scheduler_core.config.plugin_args import PodTopologySpreadArgs
from scheduler_core.config.scheduler_configuration import KubeSchedulerConfiguration
from scheduler_core.config.validation import did_you_mean, field_path, path_steps, repeated, validate
from scheduler_core.errors import ConfigError
from tests.support.problems import paths_in, problems_in


class Item(ConfigModel):
    name: str = Field(min_length=1)
    size: int = Field(default=1, gt=0, le=9)


class Box(ConfigModel):
    kind: Literal["small", "large"] = "small"
    sealed: bool = False
    items: tuple[Item, ...] = Field(default=(), strict=False)
    labels: dict[str, int] = Field(default_factory=dict)

    def rule_problems(self) -> Iterator[RuleProblem]:
        for index in repeated([item.name for item in self.items]):
            yield RuleProblem(("items", index, "name"), "is repeated")


@pytest.mark.parametrize(
    ("location", "path"),
    [
        pytest.param((), "spec", id="the-document"),
        pytest.param(("profiles", 0, "plugins"), "spec.profiles[0].plugins", id="index"),
        pytest.param(("minResources", "example.com/gpu"), "spec.minResources[example.com/gpu]", id="key"),
        pytest.param(("labels", "a", "[key]"), "spec.labels.a", id="key-marker-of-pydantic"),
    ],
)
def test_field_path(location: tuple[str | int, ...], path: str) -> None:
    """Paths have the notation of Kubernetes' API validation."""
    assert field_path("spec", location) == path


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        pytest.param("", [], id="the-document"),
        pytest.param("spec.a", [("", "spec"), ("", "a")], id="fields"),
        pytest.param("spec.a[2].b", [("", "spec"), ("", "a"), ("2", ""), ("", "b")], id="index"),
        pytest.param("spec.a[example.com/gpu]", [("", "spec"), ("", "a"), ("example.com/gpu", "")], id="key"),
    ],
)
def test_path_steps(path: str, steps: list[tuple[str, str]]) -> None:
    """path_steps() splits a path into the steps that field_path() joins."""
    assert path_steps(path) == steps


MESSAGES = [
    pytest.param(
        {"itmes": []}, 'box.itmes: unknown field; remove it or correct its name (did you mean "items"?)', id="typo"
    ),
    pytest.param({"qqq": 1}, "box.qqq: unknown field; remove it or correct its name", id="unknown"),
    pytest.param(
        {"items": [{"name": "a", "sizes": 1}]},
        'box.items[0].sizes: unknown field; remove it or correct its name (did you mean "size"?)',
        id="typo-within",
    ),
    pytest.param({"items": [{}]}, "box.items[0].name: is required; add it", id="missing"),
    pytest.param(
        {"items": [{"name": ""}]},
        "box.items[0].name: must not be empty; set a value or remove the field",
        id="empty",
    ),
    pytest.param(
        {"items": [{"name": "a", "size": 0}]}, "box.items[0].size: must be greater than 0, not 0", id="too-small"
    ),
    pytest.param(
        {"items": [{"name": "a", "size": 10}]}, "box.items[0].size: must be at most 9, not 10", id="too-large"
    ),
    pytest.param({"kind": "huge"}, 'box.kind: must be one of small, large, not "huge"', id="choice"),
    pytest.param({"sealed": "yes"}, 'box.sealed: must be true or false, not "yes"', id="boolean"),
    pytest.param({"items": {}}, "box.items: must be a list, not a mapping", id="list"),
    pytest.param({"items": ["a"]}, 'box.items[0]: must be a mapping of fields, not "a"', id="mapping"),
    pytest.param({"labels": {"a b": "x"}}, 'box.labels[a b]: must be a whole number, not "x"', id="value-of-a-key"),
    pytest.param({"sealed": "x" * 1000}, "box.sealed: must be true or false, not a long text", id="long-value"),
    pytest.param({"sealed": [1]}, "box.sealed: must be true or false, not a list", id="list-value"),
    pytest.param({"sealed": {"a": 1}}, "box.sealed: must be true or false, not a mapping", id="mapping-value"),
    pytest.param({"kind": 1.5}, "box.kind: must be one of small, large, not 1.5", id="number-value"),
    pytest.param({"kind": True}, "box.kind: must be one of small, large, not true", id="boolean-value"),
]


@pytest.mark.parametrize(("document", "expected"), MESSAGES)
def test_messages(document: dict[str, Any], expected: str) -> None:
    """Every message states the correction and does not repeat long values."""
    assert problems_in(lambda: validate(Box, document, "box")) == [expected]


def test_rules_are_checked_despite_invalid_fields() -> None:
    """A rule between fields is checked even if another field is invalid; indices are those of the document."""
    items = [{"name": "a", "size": 0}, {"name": "b"}, {"nam": "c"}, {"name": "d"}, {"name": "b"}]
    assert paths_in(lambda: validate(Box, {"kind": "huge", "items": items})) == [
        "kind",
        "items[0].size",
        "items[2].name",
        "items[2].nam",
        "items[4].name",
    ]


def test_validation_does_not_change_the_document() -> None:
    """A valid document is read, and the caller's dict is unchanged."""
    document = {"items": [{"name": "a", "size": None}]}
    assert validate(Box, document).items == (Item(name="a"),)
    assert document == {"items": [{"name": "a", "size": None}]}


@pytest.mark.parametrize(
    ("names", "indices"),
    [
        pytest.param([], [], id="none"),
        pytest.param(["a", "b"], [], id="different"),
        pytest.param(["a", "b", "a", "a"], [2, 3], id="all-but-the-first"),
    ],
)
def test_repeated(names: list[str], indices: list[int]) -> None:
    """repeated() returns the indices of all duplicates except the first occurrence."""
    assert repeated(names) == indices


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        pytest.param("noderesourcesfit", ' (did you mean "NodeResourcesFit"?)', id="case"),
        pytest.param("NodeResourceFit", ' (did you mean "NodeResourcesFit"?)', id="letter"),
        pytest.param("Coscheduling", "", id="no-similar-name"),
    ],
)
def test_did_you_mean(name: str, hint: str) -> None:
    """A name is only suggested if it is similar."""
    assert did_you_mean(name, ["NodeName", "NodeResourcesFit"]) == hint


_NAMES = [
    "profiles",
    "schedulerName",
    "plugins",
    "score",
    "enabled",
    "name",
    "weight",
    "pluginConfig",
    "args",
    "extenders",
    "urlPrefix",
    "defaultConstraints",
    "maxSkew",
    "topologyKey",
    "leaderElection",
    "leaseDuration",
]
_DOCUMENTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*_NAMES, "", "\x00 é"]), inner, max_size=4)
    ),
    max_leaves=20,
)


@pytest.mark.parametrize("model", [KubeSchedulerConfiguration, PodTopologySpreadArgs])
@given(document=_DOCUMENTS)
def test_hostile_documents(model: type[ConfigModel], document: object) -> None:
    """Validation of any document either succeeds or reports problems; nothing else is raised."""
    try:
        read = validate(model, document)
    except ConfigError as error:
        problems = error.problems
    else:
        assert validate(model, read.document()) == read
        return
    assert problems
    assert all(problem.message for problem in problems)
