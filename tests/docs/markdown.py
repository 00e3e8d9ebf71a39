"""The pages of the documentation as the tests read them: fenced blocks, links and headings.

The marker of a block is a comment before it, which renderers drop.
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
_OTHER_PAGES = (
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
        page: Path of the page from the root.
        line: Line of the opening fence, from 1.
        language: Language after the fence.
        text: Text between the fences without their indentation.
        marker: Text of the comment before the block; "run" without one.
    """

    page: str
    line: int
    language: str
    text: str
    marker: str

    @property
    def place(self) -> str:
        """Return the page and line of the block for messages."""
        return f"{self.page}:{self.line}"

    def steps(self) -> Iterator[tuple[str, str | None]]:
        """Yield the commands in order, each with the output that the page shows, or None if it shows none.

        A block without prompts is one script without shown output.
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
        place: Page and line of the link, for messages.
        target: Target as written.
    """

    place: str
    target: str


class Page:
    """A Markdown file.

    Args:
        root: Directory to which the page's name is relative.
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
        """Add the anchor that the repository's site generates from a heading; repeated headings get a number."""
        slug = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text).lower()).replace(" ", "-")
        anchor, count = slug, 0
        while anchor in self.anchors:
            count += 1
            anchor = f"{slug}-{count}"
        self.anchors.add(anchor)


def pages() -> list[Page]:
    """Return every page of the repository, README.md and docs/ first."""
    docs = sorted((ROOT / "docs").rglob("*.md"))
    return [Page(path) for path in (ROOT / "README.md", *docs, *(ROOT / name for name in _OTHER_PAGES))]
