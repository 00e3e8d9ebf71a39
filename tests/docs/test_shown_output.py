"""The comparison of shown and printed output."""

from __future__ import annotations

from tests.docs.shown_output import agrees
from tests.support.tables import table


@table(
    "shown, printed",
    ("the-same", "pod/web created", "pod/web created\n"),
    ("another-age-and-other-columns", "NAME  AGE\nx  5s", "NAME AGE\nx    2m9s"),
    ("another-revision", "pack True 2789037c", "pack True 6f4d2221"),
    ("a-wrapped-line", "must\nbe one", "must be one"),
    ("lines-left-out", "first\n...\nlast", "first\nsecond\nthird\nlast"),
    ("nothing-left-out", "first\n...", "first"),
    ("another-time", "since 2026-01-01T12:00:00Z", "since 2027-02-03T01:02:03Z"),
)
def test_the_same_output(shown: str, printed: str) -> None:
    """Outputs agree if they differ only in values that change from run to run."""
    assert agrees(shown, printed)


@table(
    "shown, printed",
    ("another-word", "pod/web created", "pod/web unchanged"),
    ("more-than-is-shown", "pack True", "pack True False"),
    ("less-than-is-shown", "pack True False", "pack True"),
    ("another-number", "BOUND 2", "BOUND 3"),
    ("more-after-the-end", "first\n...\nlast", "first\nlast\nmore"),
    ("no-pattern", "(a|b)*", "aaa"),
)
def test_another_output(shown: str, printed: str) -> None:
    """Outputs disagree in every other case."""
    assert not agrees(shown, printed)
