"""The comparison of shown and printed output."""

from __future__ import annotations

import pytest

from tests.docs.shown_output import agrees


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param("pod/web created", "pod/web created\n", id="the-same"),
        pytest.param("NAME  AGE\nx  5s", "NAME AGE\nx    2m9s", id="another-age-and-other-columns"),
        pytest.param("pack True 2789037c", "pack True 6f4d2221", id="another-revision"),
        pytest.param("must\nbe one", "must be one", id="a-wrapped-line"),
        pytest.param("first\n...\nlast", "first\nsecond\nthird\nlast", id="lines-left-out"),
        pytest.param("first\n...", "first", id="nothing-left-out"),
        pytest.param("since 2026-01-01T12:00:00Z", "since 2027-02-03T01:02:03Z", id="another-time"),
    ],
)
def test_the_same_output(shown: str, printed: str) -> None:
    """Outputs agree if they differ only in values that change from run to run."""
    assert agrees(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        pytest.param("pod/web created", "pod/web unchanged", id="another-word"),
        pytest.param("pack True", "pack True False", id="more-than-is-shown"),
        pytest.param("pack True False", "pack True", id="less-than-is-shown"),
        pytest.param("BOUND 2", "BOUND 3", id="another-number"),
        pytest.param("first\n...\nlast", "first\nlast\nmore", id="more-after-the-end"),
        pytest.param("(a|b)*", "aaa", id="no-pattern"),
    ],
)
def test_another_output(shown: str, printed: str) -> None:
    """Outputs disagree in every other case."""
    assert not agrees(shown, printed)
