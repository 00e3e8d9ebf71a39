"""The pages of the documentation as the tests read them: fenced blocks, links, headings.

Owns the little of Markdown that the pages use. It must not know what is done with a block. Why no Markdown library: a
block's marker is a comment just before it, which renderers drop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMAND_LANGUAGES = frozenset({"console", "sh"})

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\S*)\s*$")
_MARKER = re.compile(r"^ *<!-- test: (?P<marker>.*?) -->$")
_LINK = re.compile(r"\[[^\]]*\]\((?P<target>[^)\s]+)\)")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$")
_CODE = re.compile(r"`[^`]*`")
_PROMPT = "$ "
_ELSEWHERE = (
    "charts/bayplan/README.md",
    "examples/plugins/README.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "CHANGELOG.md",
)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block.

    Attributes:
        page: The page's path from the root.
        line: Of the opening fence, from 1.
        language: What follows the fence.
        text: What stands between the fences, its indentation taken off.
        marker: What the comment before it says to the tests; "run" without one.
    """

    page: str
    line: int
    language: str
    text: str
    marker: str

    @property
    def place(self) -> str:
        """Where it stands, for people."""
        return f"{self.page}:{self.line}"

    def steps(self) -> Iterator[tuple[str, str | None]]:
        """Its commands in order, each with the output that is shown; None where none is.

        A block without prompts is one script, of which no output is shown.
        """
        lines = self.text.splitlines()
        if not any(line.startswith(_PROMPT) for line in lines):
            yield self.text, None
            return
        command, shown = "", list[str]()
        for line in lines:
            if line.startswith(_PROMPT):
                if command:
                    yield command, "\n".join(shown) if shown else None
                command, shown = line.removeprefix(_PROMPT), []
            elif command.endswith("\\"):
                command += f"\n{line}"
            else:
                shown.append(line)
        yield command, "\n".join(shown) if shown else None


@dataclass(frozen=True, slots=True)
class Link:
    """A link to a file or heading of this repository.

    Attributes:
        place: Where it stands, for people.
        target: As it is written.
    """

    place: str
    target: str


class Page:
    """One Markdown file.

    Args:
        path: The file.
        root: From where the page's name counts.
    """

    def __init__(self, path: Path, root: Path = ROOT) -> None:
        self.path = path
        self.name = str(path.relative_to(root))
        self.blocks: list[Block] = []
        self.links: list[Link] = []
        self.anchors: set[str] = set()
        self._read()

    def _read(self) -> None:
        fence: re.Match[str] | None = None
        began, marker, text = 0, "run", list[str]()
        for number, line in enumerate(self.path.read_text(encoding="utf-8").splitlines(), start=1):
            found = _FENCE.match(line)
            if fence is not None:
                if found and not found["language"]:
                    self.blocks.append(Block(self.name, began, fence["language"], "\n".join(text), marker))
                    fence, marker = None, "run"
                else:
                    text.append(line.removeprefix(fence["indent"]))
            elif found:
                fence, began, text = found, number, []
            elif marked := _MARKER.match(line):
                marker = marked["marker"]
            else:
                self._read_prose(line, number)
        assert fence is None, f"{self.name}:{began}: the block is not closed"

    def _read_prose(self, line: str, number: int) -> None:
        if heading := _HEADING.match(line):
            self._add_anchor(heading["text"])
        for link in _LINK.finditer(_CODE.sub("", line)):
            if "://" not in link["target"] and not link["target"].startswith("mailto:"):
                self.links.append(Link(f"{self.name}:{number}", link["target"]))

    def _add_anchor(self, text: str) -> None:
        """Make of a heading what the repository's site makes of it; the second of a name is numbered."""
        kept = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).lower()).replace(" ", "-")
        anchor, count = kept, 0
        while anchor in self.anchors:
            count += 1
            anchor = f"{kept}-{count}"
        self.anchors.add(anchor)


def pages() -> list[Page]:
    """Every page of the repository, the README and docs/ first."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [Page(path) for path in (ROOT / "README.md", *docs, *(ROOT / name for name in _ELSEWHERE))]
