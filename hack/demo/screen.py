"""How the demo speaks: numbered steps, commands as a user would type them, and what they print.

Owns the terminal. Colours are left out where the output is no terminal.
"""

from collections.abc import Iterable

from rich.console import Console
from rich.markup import escape


class Screen:
    """Prints a demonstration."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        self._step = 0

    def step(self, title: str) -> None:
        """Begin a step."""
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}. {escape(title)}[/]")

    def say(self, text: str) -> None:
        """Say a sentence."""
        self._console.print(f"   {escape(text)}")

    def command(self, *words: str) -> None:
        """Show a command."""
        self._console.print(f"   [bold]$ {escape(' '.join(words))}[/]")

    def output(self, text: str, limit: int = 0) -> None:
        """Show what a command printed, its first lines where it is long."""
        lines = text.rstrip().split("\n")
        shown: Iterable[str] = lines if not limit or len(lines) <= limit else lines[:limit]
        for line in shown:
            self._console.print(f"   {escape(line)}")
        if limit and len(lines) > limit:
            self._console.print(f"   [dim]... {len(lines) - limit} more lines[/]")

    def summary(self, text: str) -> None:
        """End with a line."""
        self._console.print(f"\n[bold green]{escape(text)}[/]")
