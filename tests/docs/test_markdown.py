"""A page is parsed into blocks, steps, links and anchors."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import Page


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
