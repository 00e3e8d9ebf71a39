"""How the tests read a page."""

from __future__ import annotations

from pathlib import Path

from tests.docs.markdown import Page


def _page(directory: Path, *lines: str) -> Page:
    path = directory / "page.md"
    path.write_text("\n".join(lines) + "\n")
    return Page(path, directory)


def test_a_script_is_one_step(tmp_path: Path) -> None:
    """A block without prompts is run as it stands."""
    page = _page(tmp_path, "```sh", "one", "two", "```")
    assert list(page.blocks[0].steps()) == [("one\ntwo", None)]


def test_what_follows_a_prompt_is_what_it_prints(tmp_path: Path) -> None:
    """A command may go over several lines; one without output after it may print anything."""
    page = _page(tmp_path, "```console", "$ one \\", "  two", "out", "more", "$ three", "```")
    assert list(page.blocks[0].steps()) == [("one \\\n  two", "out\nmore"), ("three", None)]


def test_a_marker_is_for_the_next_block_alone(tmp_path: Path) -> None:
    """Blocks are run unless the comment before them says otherwise."""
    page = _page(tmp_path, "<!-- test: exit 2 -->", "```sh", "a", "```", "", "```sh", "b", "```")
    assert [block.marker for block in page.blocks] == ["exit 2", "run"]


def test_a_block_in_a_list_loses_its_indentation(tmp_path: Path) -> None:
    """What is run is what a reader copies."""
    page = _page(tmp_path, "- so:", "", "  ```sh", "  a", "    b", "  ```")
    assert page.blocks[0].text == "a\n  b"


def test_links_and_anchors(tmp_path: Path) -> None:
    """Links out of the repository and in code are none of ours; headings are named as the site names them."""
    text = ("## A `sp`, and more!", "## Twice", "## Twice", "[a](b.md#c) [d](https://e) `[f](g)`")
    page = _page(tmp_path, *text)
    assert page.anchors == {"a-sp-and-more", "twice", "twice-1"}
    assert [link.target for link in page.links] == ["b.md#c"]
