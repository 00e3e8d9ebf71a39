"""Validation of label keys, label values and extended resource names."""

from __future__ import annotations

import pytest

from scheduler_core.config.validation import (
    extended_resource_problems,
    label_value_problems,
    qualified_name_problems,
)

LONG_PREFIX = ".".join(["a" * 49] * 5)  # 249 characters, a valid DNS name


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("cpu", id="plain"),
        pytest.param("A", id="one-letter"),
        pytest.param("topology.kubernetes.io/zone", id="prefixed"),
        pytest.param("a_b.c-d", id="inner-marks"),
        pytest.param("a" * 63, id="longest-name"),
        pytest.param(LONG_PREFIX + "/a", id="long-prefix"),
    ],
)
def test_valid_qualified_names(name: str) -> None:
    """Label keys that the API server accepts are valid."""
    assert qualified_name_problems(name) == []


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("", ["1 to 63 letters"], id="empty"),
        pytest.param("a b", ["1 to 63 letters"], id="space"),
        pytest.param("-a", ["1 to 63 letters"], id="mark-at-the-start"),
        pytest.param("a.", ["1 to 63 letters"], id="mark-at-the-end"),
        pytest.param("a\n", ["1 to 63 letters"], id="line-end"),
        pytest.param("a" * 64, ["1 to 63 letters"], id="too-long"),
        pytest.param("a/b/c", ["at most one slash"], id="two-slashes"),
        pytest.param("Example.com/a", ["lower case"], id="upper-case-prefix"),
        pytest.param("/a", ["lower case"], id="empty-prefix"),
        pytest.param(LONG_PREFIX + ".abcd/a", ["at most 253"], id="prefix-too-long"),
        pytest.param("A/", ["lower case", "1 to 63 letters"], id="both-parts"),
    ],
)
def test_invalid_qualified_names(name: str, expected: list[str]) -> None:
    """Each invalid part of a name is reported."""
    problems = qualified_name_problems(name)
    assert len(problems) == len(expected)
    assert all(words in problem for words, problem in zip(expected, problems, strict=True))


@pytest.mark.parametrize(
    ("value", "good"),
    [
        pytest.param("", True, id="empty"),
        pytest.param("europe-west1_b.2", True, id="marks"),
        pytest.param("a" * 63, True, id="longest"),
        pytest.param("a" * 64, False, id="too-long"),
        pytest.param("-5", False, id="begins-with-a-mark"),
        pytest.param("a/b", False, id="slash"),
        pytest.param("a\n", False, id="line-end"),
    ],
)
def test_label_values(value: str, good: bool) -> None:
    """A label value is empty, or has at most 63 characters and a letter or digit at both ends."""
    assert (label_value_problems(value) == []) is good


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        pytest.param("example.com/gpu", "", id="good"),
        pytest.param("cpu", "is reserved for Kubernetes", id="native"),
        pytest.param("kubernetes.io/gpu", "is reserved for Kubernetes", id="kubernetes-domain"),
        pytest.param("a.kubernetes.io/gpu", "is reserved for Kubernetes", id="below-the-kubernetes-domain"),
        pytest.param("requests.example.com/gpu", "must not begin with", id="quota-prefix"),
        pytest.param("example.com/g pu", "1 to 63 letters", id="space"),
        pytest.param(LONG_PREFIX + "/gpu", "too long", id="too-long-with-the-quota-prefix"),
    ],
)
def test_extended_resources(name: str, expected: str) -> None:
    """An extended resource name has its own domain and is short enough for the quota prefix."""
    problems = extended_resource_problems(name)
    assert expected in problems[0] if expected else problems == []
