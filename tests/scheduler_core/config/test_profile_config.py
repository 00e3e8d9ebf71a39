"""Profiles: validation rules and revisions."""

from __future__ import annotations

from typing import Any

from scheduler_core.config.profile_config import ProfileConfig
from scheduler_core.config.validation import validate
from tests.support.problems import problems_in
from tests.support.tables import table


def profile(**fields: Any) -> ProfileConfig:
    return validate(ProfileConfig, {"schedulerName": "batch", **fields})


@table(
    "fields, expected",
    ("defaults", {}, []),
    ("equal-backoffs", {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 5}, []),
    ("only-max-backoff", {"podMaxBackoffSeconds": 1}, []),
    (
        "max-backoff-below-initial-backoff",
        {"podInitialBackoffSeconds": 5, "podMaxBackoffSeconds": 4},
        ["podMaxBackoffSeconds: must be at least podInitialBackoffSeconds (5), not 4"],
    ),
    ("0s", {"podInitialBackoffSeconds": 0}, ["podInitialBackoffSeconds: must be at least 1, not 0"]),
    ("no-name", {"schedulerName": ""}, ["schedulerName: must not be empty; set a value or remove"]),
    ("below-0", {"percentageOfNodesToScore": -1}, ["percentageOfNodesToScore: must be at least 0"]),
    ("101", {"percentageOfNodesToScore": 101}, ["percentageOfNodesToScore: must be at most 100"]),
    (
        "configured-twice",
        {"pluginConfig": [{"name": "A"}, {"name": "A"}]},
        ['pluginConfig[1].name: "A" is already configured by an earlier entry'],
    ),
)
def test_rules(fields: dict[str, Any], expected: list[str]) -> None:
    """Each violated rule is reported with its path."""
    found = problems_in(lambda: profile(**fields))
    assert len(found) == len(expected)
    assert all(problem.startswith(words) for problem, words in zip(found, expected, strict=True))


WEIGHED = {"score": {"enabled": [{"name": "A", "weight": 2}]}}


@table(
    "one, other, equal",
    ("empty-equals-unset", {}, {"plugins": {}, "pluginConfig": None}, True),
    ("empty-set", {"plugins": WEIGHED}, {"plugins": {**WEIGHED, "filter": {"enabled": []}}}, True),
    (
        "order-of-keys",
        {"pluginConfig": [{"name": "A", "args": {"x": 1, "y": 2}}]},
        {"pluginConfig": [{"args": {"y": 2, "x": 1}, "name": "A"}]},
        True,
    ),
    ("zero-is-not-unset", {}, {"percentageOfNodesToScore": 0}, False),
    ("plugins", {"plugins": WEIGHED}, {}, False),
    ("name", {}, {"schedulerName": "other"}, False),
    (
        "order-of-a-list",
        {"pluginConfig": [{"name": "A", "args": {"x": [1, 2]}}]},
        {"pluginConfig": [{"name": "A", "args": {"x": [2, 1]}}]},
        False,
    ),
)
def test_revision(one: dict[str, Any], other: dict[str, Any], equal: bool) -> None:
    """Profiles with equal content have equal revisions; different content has a different revision."""
    assert (profile(**one).revision() == profile(**other).revision()) is equal


def test_revision_is_stable() -> None:
    """A revision is the same in every process, because it is compared after a restart."""
    assert profile(plugins=WEIGHED).revision() == "3db7d32c"
