"""Output of the demo: numbered steps, commands as a user would type them, and what they print.

Colours are left out if the output is no terminal.
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
        """Print the heading of a step."""
        self._step += 1
        self._console.print(f"\n[bold cyan]{self._step}. {escape(title)}[/]")

    def say(self, text: str) -> None:
        """Print a sentence."""
        self._console.print(f"   {escape(text)}")

    def command(self, *words: str) -> None:
        """Print a command."""
        self._console.print(f"   [bold]$ {escape(' '.join(words))}[/]")

    def output(self, text: str, limit: int = 0) -> None:
        """Print the output of a command, or its first lines if it is long."""
        lines = text.rstrip().split("\n")
        shown: Iterable[str] = lines if not limit or len(lines) <= limit else lines[:limit]
        for line in shown:
            self._console.print(f"   {escape(line)}")
        if limit and len(lines) > limit:
            self._console.print(f"   [dim]... {len(lines) - limit} more lines[/]")

    def summary(self, text: str) -> None:
        """Print the last line."""
        self._console.print(f"\n[bold green]{escape(text)}[/]")
