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
from scheduler_core.config.plugin_set_types import BUILT_IN_BEHAVIOUR
from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.scheduler_configuration import KubeSchedulerConfiguration
from scheduler_core.config.validation import (
    did_you_mean,
    extended_resource_problems,
    field_path,
    label_value_problems,
    path_steps,
    qualified_name_problems,
    repeated,
    validate,
)
from scheduler_core.errors import ConfigError
from scheduler_core.in_tree import default_plugins, in_tree_registry
from scheduler_core.runtime.framework_instance import ProfilePlan, plan_profile
from tests.parity.conformance.cases import IN_TREE_NAMES
from tests.support.problems import paths_in, problems_in
from tests.support.tables import table


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


@table(
    "location, path",
    ("the-document", (), "spec"),
    ("index", ("profiles", 0, "plugins"), "spec.profiles[0].plugins"),
    ("key", ("minResources", "example.com/gpu"), "spec.minResources[example.com/gpu]"),
    ("key-marker-of-pydantic", ("labels", "a", "[key]"), "spec.labels.a"),
)
def test_field_path(location: tuple[str | int, ...], path: str) -> None:
    """Paths have the notation of Kubernetes' API validation."""
    assert field_path("spec", location) == path


@table(
    "path, steps",
    ("the-document", "", []),
    ("fields", "spec.a", [("", "spec"), ("", "a")]),
    ("index", "spec.a[2].b", [("", "spec"), ("", "a"), ("2", ""), ("", "b")]),
    ("key", "spec.a[example.com/gpu]", [("", "spec"), ("", "a"), ("example.com/gpu", "")]),
)
def test_path_steps(path: str, steps: list[tuple[str, str]]) -> None:
    """path_steps() splits a path into the steps that field_path() joins."""
    assert path_steps(path) == steps


@table(
    "document, expected",
    ("typo", {"itmes": []}, 'box.itmes: unknown field; remove it or correct its name (did you mean "items"?)'),
    ("unknown", {"qqq": 1}, "box.qqq: unknown field; remove it or correct its name"),
    (
        "typo-within",
        {"items": [{"name": "a", "sizes": 1}]},
        'box.items[0].sizes: unknown field; remove it or correct its name (did you mean "size"?)',
    ),
    ("missing", {"items": [{}]}, "box.items[0].name: is required; add it"),
    ("empty", {"items": [{"name": ""}]}, "box.items[0].name: must not be empty; set a value or remove the field"),
    ("too-small", {"items": [{"name": "a", "size": 0}]}, "box.items[0].size: must be greater than 0, not 0"),
    ("too-large", {"items": [{"name": "a", "size": 10}]}, "box.items[0].size: must be at most 9, not 10"),
    ("choice", {"kind": "huge"}, 'box.kind: must be one of small, large, not "huge"'),
    ("boolean", {"sealed": "yes"}, 'box.sealed: must be true or false, not "yes"'),
    ("list", {"items": {}}, "box.items: must be a list, not a mapping"),
    ("mapping", {"items": ["a"]}, 'box.items[0]: must be a mapping of fields, not "a"'),
    ("value-of-a-key", {"labels": {"a b": "x"}}, 'box.labels[a b]: must be a whole number, not "x"'),
    ("long-value", {"sealed": "x" * 1000}, "box.sealed: must be true or false, not a long text"),
    ("list-value", {"sealed": [1]}, "box.sealed: must be true or false, not a list"),
    ("mapping-value", {"sealed": {"a": 1}}, "box.sealed: must be true or false, not a mapping"),
    ("number-value", {"kind": 1.5}, "box.kind: must be one of small, large, not 1.5"),
    ("boolean-value", {"kind": True}, "box.kind: must be one of small, large, not true"),
)
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


@table(
    "names, indices",
    ("none", [], []),
    ("different", ["a", "b"], []),
    ("all-but-the-first", ["a", "b", "a", "a"], [2, 3]),
)
def test_repeated(names: list[str], indices: list[int]) -> None:
    """repeated() returns the indices of all duplicates except the first occurrence."""
    assert repeated(names) == indices


@table(
    "name, hint",
    ("case", "noderesourcesfit", ' (did you mean "NodeResourcesFit"?)'),
    ("letter", "NodeResourceFit", ' (did you mean "NodeResourcesFit"?)'),
    ("no-similar-name", "Coscheduling", ""),
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


LONG_PREFIX = ".".join(["a" * 49] * 5)  # 249 characters, a valid DNS name


@table(
    "name",
    ("plain", "cpu"),
    ("one-letter", "A"),
    ("prefixed", "topology.kubernetes.io/zone"),
    ("inner-marks", "a_b.c-d"),
    ("longest-name", "a" * 63),
    ("long-prefix", LONG_PREFIX + "/a"),
)
def test_valid_qualified_names(name: str) -> None:
    """Label keys that the API server accepts are valid."""
    assert qualified_name_problems(name) == []


@table(
    "name, expected",
    ("empty", "", ["1 to 63 letters"]),
    ("space", "a b", ["1 to 63 letters"]),
    ("mark-at-the-start", "-a", ["1 to 63 letters"]),
    ("mark-at-the-end", "a.", ["1 to 63 letters"]),
    ("line-end", "a\n", ["1 to 63 letters"]),
    ("too-long", "a" * 64, ["1 to 63 letters"]),
    ("two-slashes", "a/b/c", ["at most one slash"]),
    ("upper-case-prefix", "Example.com/a", ["lower case"]),
    ("empty-prefix", "/a", ["lower case"]),
    ("prefix-too-long", LONG_PREFIX + ".abcd/a", ["at most 253"]),
    ("both-parts", "A/", ["lower case", "1 to 63 letters"]),
)
def test_invalid_qualified_names(name: str, expected: list[str]) -> None:
    """Each invalid part of a name is reported."""
    problems = qualified_name_problems(name)
    assert len(problems) == len(expected)
    assert all(words in problem for words, problem in zip(expected, problems, strict=True))


@table(
    "value, good",
    ("empty", "", True),
    ("marks", "europe-west1_b.2", True),
    ("longest", "a" * 63, True),
    ("too-long", "a" * 64, False),
    ("begins-with-a-mark", "-5", False),
    ("slash", "a/b", False),
    ("line-end", "a\n", False),
)
def test_label_values(value: str, good: bool) -> None:
    """A label value is empty, or has at most 63 characters and a letter or digit at both ends."""
    assert (label_value_problems(value) == []) is good


@table(
    "name, expected",
    ("good", "example.com/gpu", ""),
    ("native", "cpu", "is reserved for Kubernetes"),
    ("kubernetes-domain", "kubernetes.io/gpu", "is reserved for Kubernetes"),
    ("below-the-kubernetes-domain", "a.kubernetes.io/gpu", "is reserved for Kubernetes"),
    ("quota-prefix", "requests.example.com/gpu", "must not begin with"),
    ("space", "example.com/g pu", "1 to 63 letters"),
    ("too-long-with-the-quota-prefix", LONG_PREFIX + "/gpu", "too long"),
)
def test_extended_resources(name: str, expected: str) -> None:
    """An extended resource name has its own domain and is short enough for the quota prefix."""
    problems = extended_resource_problems(name)
    assert expected in problems[0] if expected else problems == []


def planned(plugins: dict[str, Any], *plugin_config: dict[str, Any]) -> ProfilePlan:
    document = {"schedulerName": "s", "plugins": plugins, "pluginConfig": list(plugin_config)}
    return plan_profile(validate(ProfileConfig, document), in_tree_registry(), default_plugins())


def entry(point: str, name: str, action: str = "enabled") -> dict[str, Any]:
    return {point: {action: [{"name": name}]}}


@pytest.mark.parametrize("name", sorted(IN_TREE_NAMES))
def test_every_plugin_of_kube_scheduler_is_accepted(name: str) -> None:
    """Each of kube-scheduler's plugins is either registered or built-in behaviour, and a profile may list it."""
    registered = name in in_tree_registry()
    assert registered + (name in BUILT_IN_BEHAVIOUR) == 1
    assert not planned(entry("multiPoint", name)).problems


def test_an_entry_has_no_effect() -> None:
    """A profile with the entries runs the same plugins as one without; empty args are accepted."""
    plugins = {"multiPoint": {"enabled": [{"name": name, "weight": 7} for name in BUILT_IN_BEHAVIOUR]}}
    named = planned(plugins, {"name": "GangScheduling"})
    assert (named.problems, named.resolved) == ((), planned({}).resolved)


@table(
    "plugins, path, message",
    (
        "disabled",
        entry("multiPoint", "GangScheduling", "disabled"),
        "plugins.multiPoint.disabled[0].name",
        'plugin "GangScheduling" cannot be disabled: Bayplan schedules the members of a pod group together',
    ),
    (
        "disabled-at-a-point",
        entry("preEnqueue", "GangScheduling", "disabled"),
        "plugins.preEnqueue.disabled[0].name",
        'plugin "GangScheduling" cannot be disabled',
    ),
    (
        "another-point",
        entry("score", "GangScheduling"),
        "plugins.score.enabled[0].name",
        'plugin "GangScheduling" does not serve score; it serves preEnqueue, permit: move the entry there',
    ),
    (
        "deferred-resizes-have-no-score",
        entry("score", "DeferredPodScheduling"),
        "plugins.score.enabled[0].name",
        'plugin "DeferredPodScheduling" does not',
    ),
    (
        "unknown",
        entry("permit", "GangSchedulin"),
        "plugins.permit.enabled[0].name",
        'there is no plugin "GangSchedulin" (did you mean "GangScheduling"?)',
    ),
)
def test_rejected_entries(plugins: dict[str, Any], path: str, message: str) -> None:
    """An entry that would change Bayplan's behaviour is rejected at its path."""
    (problem,) = planned(plugins).problems
    assert problem.path == path
    assert problem.message.startswith(message)


def test_all_defaults_can_be_disabled() -> None:
    """``*`` disables the default plugins, but not the built-in behaviour."""
    assert planned({"permit": {"disabled": [{"name": "*"}]}}).problems == ()


def test_args_are_rejected() -> None:
    """A plugin without effect accepts no args."""
    (problem,) = planned({}, {"name": "GangScheduling", "args": {"timeout": 3}}).problems
    assert str(problem) == 'pluginConfig[0].args: plugin "GangScheduling" takes no args; remove timeout'
