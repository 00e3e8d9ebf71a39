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
        pytest.param("tier==a", {"tier": "a"}, True, id="two signs"),
        pytest.param("tier = a", {"tier": "a"}, True, id="with spaces"),
        pytest.param("tier=", {"tier": ""}, True, id="the empty value"),
        pytest.param("tier=", {}, False, id="the empty value is a value"),
        pytest.param("tier!=a", {"tier": "b"}, True, id="unequal"),
        pytest.param("tier!=a", {}, True, id="without the label unequal"),
        pytest.param("tier in (a, b)", {"tier": "b"}, True, id="in"),
        pytest.param("tier in (a,b)", {}, False, id="without the label in nothing"),
        pytest.param("tier in(a,)", {"tier": ""}, True, id="in, with the empty value"),
        pytest.param("tier notin (a,b)", {"tier": "b"}, False, id="not in"),
        pytest.param("tier notin (a,b)", {}, True, id="without the label not in"),
        pytest.param("tier", {"tier": "x"}, True, id="exists"),
        pytest.param("!tier", {"tier": "x"}, False, id="does not exist"),
        pytest.param("!tier", {}, True, id="lacks it"),
        pytest.param("tier=a,!old,example.com/team in (x,y)", {"tier": "a", "example.com/team": "y"}, True, id="all"),
        pytest.param("tier=a,!old", {"tier": "a", "old": ""}, False, id="one is not met"),
        pytest.param("in in (in)", {"in": "in"}, True, id="keys may be words of the grammar"),
    ],
)
def test_what_matches(text: str, labels: dict[str, str], matches: bool) -> None:
    """A selector has the same meaning as in kubectl."""
    assert ProfileSelection(text).matches(labels) is matches


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("  ", "remove it to serve them all", id="empty"),
        pytest.param("tier=a,", "found the end, expected a label key", id="a comma at the end"),
        pytest.param(",tier", 'found ",", expected a label key', id="a comma at the beginning"),
        pytest.param("tier in a", 'found "a", expected values in parentheses', id="no parentheses"),
        pytest.param("tier in (a", 'found the end, expected a comma or "\\)"', id="not closed"),
        pytest.param("tier in (a b)", 'found "b", expected a comma or', id="no comma in a set"),
        pytest.param("tier=a old", 'found "old", expected a comma', id="no comma"),
        pytest.param("tier > 3", 'found ">", expected one of =, !=, in and notin', id="greater"),
        pytest.param("!tier=a", 'found "=", expected a comma', id="not, and a value"),
        pytest.param("-tier=a", '"-tier" is not a label key', id="a bad key"),
        pytest.param("tier=a_", '"a_" of key "tier" is not a label value', id="a bad value"),
        pytest.param("x" * (MAX_LENGTH + 1), f"at most {MAX_LENGTH}", id="too long"),
    ],
)
def test_what_is_rejected(text: str, message: str) -> None:
    """The message names the error and what is expected."""
    with pytest.raises(ConfigError, match=message):
        ProfileSelection(text)


def test_the_digest_of_a_lease() -> None:
    """It is the head of the trimmed text's SHA-256, as ``sha256sum`` and the chart compute it."""
    assert ProfileSelection(" tier=a\n").digest == ProfileSelection("tier=a").digest == "cde32450"
    assert ProfileSelection("tier=b").digest != "cde32450"
