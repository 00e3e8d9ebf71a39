"""Pages are parsed into blocks, steps, links and anchors, and shown output is compared with printed output."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import Page
from tests.docs.shown_output import agrees
from tests.support.tables import table


def _page(directory: Path, *lines: str) -> Page:
    path = directory / "page.md"
    path.write_text("\n".join(lines) + "\n")
    return Page(path, directory)


def test_a_script_is_one_step(tmp_path: Path) -> None:
    """A block without prompts is one command."""
    page = _page(tmp_path, "```sh", "one", "two", "```")
    assert list(page.blocks[0].steps()) == [("one\ntwo", None)]


def test_lines_after_a_prompt_are_its_output(tmp_path: Path) -> None:
    """A command may span several lines, and a command without shown output may print anything."""
    page = _page(tmp_path, "```console", "$ one \\", "  two", "out", "more", "$ three", "```")
    assert list(page.blocks[0].steps()) == [("one \\\n  two", "out\nmore"), ("three", None)]


def test_a_marker_applies_to_the_next_block_only(tmp_path: Path) -> None:
    """The marker of a block does not apply to the next block, whose default is run."""
    page = _page(tmp_path, "<!-- test: exit 2 -->", "```sh", "a", "```", "", "```sh", "b", "```")
    assert [block.marker for block in page.blocks] == ["exit 2", "run"]


def test_a_block_in_a_list_loses_its_indentation(tmp_path: Path) -> None:
    """The indentation of a block in a list is removed."""
    page = _page(tmp_path, "- so:", "", "  ```sh", "  a", "    b", "  ```")
    assert page.blocks[0].text == "a\n  b"


def test_links_and_anchors(tmp_path: Path) -> None:
    """External links and links in code are ignored; anchors equal those of the site."""
    text = ("## A `sp`, and more!", "## Twice", "## Twice", "[a](b.md#c) [d](https://e) `[f](g)`")
    page = _page(tmp_path, *text)
    assert page.anchors == {"a-sp-and-more", "twice", "twice-1"}
    assert [link.target for link in page.links] == ["b.md#c"]


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
