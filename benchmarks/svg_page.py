"""SVG pages of the benchmarks' charts: colours for light and dark, text, lines, and the file.

Colours occur twice, in attributes and in a style sheet: a reader without style sheets then shows the light form. A page
has its own background, because an image cannot use the colour of the surrounding page.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape, quoteattr

COLOURS = {
    "paper": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    "dim": ("#59636e", "#9198a1"),
    "grid": ("#d8dee4", "#30363d"),
    "own": ("#2a6fdb", "#6aa5ff"),
    "pale": ("#a9c7f5", "#2b4f86"),
    "hue-0": ("#2a6fdb", "#6aa5ff"),
    "hue-1": ("#bf5b0b", "#f0883e"),
    "hue-2": ("#1a7f4b", "#4cc38a"),
    "hue-3": ("#7b4bc4", "#b48cf2"),
    "hue-4": ("#bf3989", "#f47ab8"),
    "hue-5": ("#0b7a8a", "#4cc5d6"),
}
"""Colours by name, for the light and the dark theme."""
HUES = tuple(name for name in COLOURS if name.startswith("hue-"))


@dataclass(frozen=True, slots=True)
class Font:
    """Style of text.

    Attributes:
        size: Size in pixels.
        anchor: Alignment at the position: start, middle or end.
        colour: One of :data:`COLOURS`.
    """

    size: int = 12
    anchor: str = "start"
    colour: str = "ink"
    weight: str = "normal"


PLAIN = Font()


@dataclass(slots=True)
class Page:
    """A drawing to which elements are added.

    Attributes:
        title: Description for screen readers.
    """

    width: int
    height: int
    title: str
    _parts: list[str] = field(default_factory=list)

    def text(self, x: float, y: float, words: str, font: Font = PLAIN) -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" font-size="{font.size}" text-anchor="{font.anchor}" '
            f'font-weight="{font.weight}" {_filled(font.colour)}>{escape(words)}</text>'
        )

    def bar(self, corner: tuple[float, float], width: float, height: float, colour: str) -> None:
        """Draw a filled rectangle from its upper left corner."""
        x, y = corner
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="1.5" {_filled(colour)}/>'
        )

    def line(self, points: list[tuple[float, float]], colour: str, width: float = 1.0, dashes: str = "none") -> None:
        coordinates = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        self._parts.append(
            f'<polyline points="{coordinates}" fill="none" stroke-width="{width}" stroke-dasharray="{dashes}" '
            f'stroke-linejoin="round" class="s-{colour}" stroke="{COLOURS[colour][0]}"/>'
        )

    def dot(self, x: float, y: float, colour: str) -> None:
        """Draw a measured point."""
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {_filled(colour)}/>')

    def write(self, path: Path) -> None:
        """Write the file, and create its parent folders."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.drawn(), encoding="utf-8")

    def drawn(self) -> str:
        dark = "".join(
            f".f-{name}{{fill:{colour}}}.s-{name}{{stroke:{colour}}}" for name, (_, colour) in COLOURS.items()
        )
        return "\n".join(
            [
                (
                    f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
                    f'width="{self.width}" height="{self.height}" role="img" aria-label={quoteattr(self.title)} '
                    'font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif">'
                ),
                f"<title>{escape(self.title)}</title>",
                f"<style>@media (prefers-color-scheme: dark){{{dark}}}</style>",
                f'<rect width="{self.width}" height="{self.height}" {_filled("paper")}/>',
                *self._parts,
                "</svg>",
                "",
            ]
        )


def _filled(colour: str) -> str:
    return f'class="f-{colour}" fill="{COLOURS[colour][0]}"'
