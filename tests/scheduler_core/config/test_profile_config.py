"""Profiles: validation rules and revisions."""

from __future__ import annotations

from typing import Any

import pytest

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in


def profile(**fields: Any) -> ProfileConfig:
    return validate(ProfileConfig, {"schedulerName": "batch", **fields})


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        pytest.param({}, [], id="defaults"),
        pytest.param({"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5}, [], id="equal-backoffs"),
        pytest.param({"podMaxBackoffSeconds": 1}, [], id="only-max-backoff"),
        pytest.param(
            {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 4},
            ["podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (5), not 4"],
            id="max-backoff-below-initial-backoff",
        ),
        pytest.param({"podInitialBackoffSeconds": 0}, ["podInitialBackoffSeconds: must be at least 1, not 0"], id="0s"),
        pytest.param({"schedulerName": ""}, ["schedulerName: must not be empty; set a value or remove"], id="no-name"),
        pytest.param({"percentageOfNodesToScore": -1}, ["percentageOfNodesToScore: must be at least 0"], id="below-0"),
        pytest.param({"percentageOfNodesToScore": 101}, ["percentageOfNodesToScore: must be at most 100"], id="101"),
        pytest.param(
            {"pluginConfig": [{"name": "A"}, {"name": "A"}]},
            ['pluginConfig[1].name: "A" is already configured by an earlier entry'],
            id="configured-twice",
        ),
    ],
)
def test_rules(fields: dict[str, Any], expected: list[str]) -> None:
    """Each violated rule is reported with its path."""
    found = problems_in(lambda: profile(**fields))
    assert len(found) == len(expected)
    assert all(problem.startswith(words) for problem, words in zip(found, expected, strict=True))


WEIGHED = {"score": {"enabled": [{"name": "A", "weight": 2}]}}


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        pytest.param({}, {"plugins": {}, "pluginConfig": None}, True, id="empty-equals-unset"),
        pytest.param({"plugins": WEIGHED}, {"plugins": {**WEIGHED, "filter": {"enabled": []}}}, True, id="empty-set"),
        pytest.param(
            {"pluginConfig": [{"name": "A", "args": {"x": 1, "y": 2}}]},
            {"pluginConfig": [{"args": {"y": 2, "x": 1}, "name": "A"}]},
            True,
            id="order-of-keys",
        ),
        pytest.param({}, {"percentageOfNodesToScore": 0}, False, id="zero-is-not-unset"),
        pytest.param({"plugins": WEIGHED}, {}, False, id="plugins"),
        pytest.param({}, {"schedulerName": "other"}, False, id="name"),
        pytest.param(
            {"pluginConfig": [{"name": "A", "args": {"x": [1, 2]}}]},
            {"pluginConfig": [{"name": "A", "args": {"x": [2, 1]}}]},
            False,
            id="order-of-a-list",
        ),
    ],
)
def test_revision(one: dict[str, Any], other: dict[str, Any], equal: bool) -> None:
    """Profiles with equal content have equal revisions; different content has a different revision."""
    assert (profile(**one).revision() == profile(**other).revision()) is equal


def test_revision_is_stable() -> None:
    """A revision is the same in every process, because it is compared after a restart."""
    assert profile(plugins=WEIGHED).revision() == "3db7d32c"
