"""Tests of the label selectors of ``--profiles``."""

from __future__ import annotations

import pytest
from bayplan.settings.profile_selection import MAX_LENGTH, ProfileSelection

from scheduler_core.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        pytest.param("tier=a", {"tier": "a", "x": "y"}, True, id="equal"),
        pytest.param("tier=a", {"tier": "b"}, False, id="another value"),
        pytest.param("tier==a", {"tier": "a"}, True, id="double equals sign"),
        pytest.param("tier = a", {"tier": "a"}, True, id="with spaces"),
        pytest.param("tier=", {"tier": ""}, True, id="empty value"),
        pytest.param("tier=", {}, False, id="empty value without the label"),
        pytest.param("tier!=a", {"tier": "b"}, True, id="unequal"),
        pytest.param("tier!=a", {}, True, id="unequal without the label"),
        pytest.param("tier in (a, b)", {"tier": "b"}, True, id="in"),
        pytest.param("tier in (a,b)", {}, False, id="in without the label"),
        pytest.param("tier in(a,)", {"tier": ""}, True, id="in with an empty value"),
        pytest.param("tier notin (a,b)", {"tier": "b"}, False, id="not in"),
        pytest.param("tier notin (a,b)", {}, True, id="not in without the label"),
        pytest.param("tier", {"tier": "x"}, True, id="exists"),
        pytest.param("!tier", {"tier": "x"}, False, id="does not exist"),
        pytest.param("!tier", {}, True, id="does not exist, without the label"),
        pytest.param(
            "tier=a,!old,example.com/team in (x,y)",
            {"tier": "a", "example.com/team": "y"},
            True,
            id="all requirements met",
        ),
        pytest.param("tier=a,!old", {"tier": "a", "old": ""}, False, id="one requirement not met"),
        pytest.param("in in (in)", {"in": "in"}, True, id="operator names as key and value"),
    ],
)
def test_selectors_match_as_in_kubectl(text: str, labels: dict[str, str], matches: bool) -> None:
    """A selector has the same meaning as in kubectl."""
    assert ProfileSelection(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("  ", "remove it to serve them all", id="empty"),
        pytest.param("tier=a,", "found the end, expected a label key", id="trailing comma"),
        pytest.param(",tier", 'found ",", expected a label key', id="leading comma"),
        pytest.param("tier in a", 'found "a", expected values in parentheses', id="no parentheses"),
        pytest.param("tier in (a", 'found the end, expected a comma or "\\)"', id="unclosed parenthesis"),
        pytest.param("tier in (a b)", 'found "b", expected a comma or', id="missing comma in a set"),
        pytest.param("tier=a old", 'found "old", expected a comma', id="missing comma"),
        pytest.param("tier > 3", 'found ">", expected one of =, !=, in and notin', id="greater"),
        pytest.param("!tier=a", 'found "=", expected a comma', id="negated key with a value"),
        pytest.param("-tier=a", '"-tier" is not a label key', id="invalid key"),
        pytest.param("tier=a_", '"a_" of key "tier" is not a label value', id="invalid value"),
        pytest.param("x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}", id="too long"),
    ],
)
def test_invalid_selectors_are_rejected(text: str, message: str) -> None:
    """The error has what was found and what is expected."""
    with pytest.raises(ConfigError, match=message):
        ProfileSelection(text)


def test_digest() -> None:
    """The digest is the start of the trimmed selector's SHA-256, which the chart computes, too."""
    assert ProfileSelection(" tier=a\n").digest == ProfileSelection("tier=a").digest == "cde32450"
    assert ProfileSelection("tier=b").digest != "cde32450"
