"""MkDocs hook: add the pages outside of docs/ to the site, and show links to source files as plain text.

The Markdown files are written for readers of the repository, so they link to files beside docs/. MkDocs in strict mode
rejects links that leave docs/.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.structure.files import File

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
OUTSIDE = {
    "README.md": "repository/README.md",
    "CHANGELOG.md": "repository/CHANGELOG.md",
    "CONTRIBUTING.md": "repository/CONTRIBUTING.md",
    "SECURITY.md": "repository/SECURITY.md",
    "charts/bayplan/README.md": "repository/chart.md",
    "examples/plugins/README.md": "repository/example-plugins.md",
}
"""Pages outside of docs/, by path from the root of the repository, and their place in the site."""

_LINK = re.compile(r"(?P<mark>!?)\[(?P<text>[^\]]*)\]\((?P<target>[^)\s#]*)(?P<anchor>#[^)\s]*)?\)")
_FENCE = re.compile(r"^ *```")


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    for source, place in OUTSIDE.items():
        text = (ROOT / source).read_text(encoding="utf-8")
        file = File.generated(config, place, content=text)
        file.inclusion = file.inclusion.NOT_IN_NAV
        files.append(file)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point links to where their targets are in the site; a target that the site has not becomes text."""
    del config
    place = page.file.src_uri
    source = next((path for path, site in OUTSIDE.items() if site == place), f"docs/{place}")

    def relink(found: re.Match[str]) -> str:
        target = found["target"]
        if not target or "://" in target or target.startswith("mailto:"):
            return found[0]
        path = posixpath.normpath(posixpath.join(posixpath.dirname(source), target))
        uri = OUTSIDE.get(path, path.removeprefix("docs/"))
        if files.get_file_from_path(uri) is None:
            return found["text"]
        relative = posixpath.relpath(uri, posixpath.dirname(place))
        return f"{found['mark']}[{found['text']}]({relative}{found['anchor'] or ''})"

    lines, in_fence = [], False
    for line in markdown.split("\n"):
        in_fence ^= _FENCE.match(line) is not None
        lines.append(line if in_fence else _LINK.sub(relink, line))
    return "\n".join(lines)
