"""Whether the process is ready, and what it waits for.

Owns the list of conditions. It must not know what they mean: each is named by whoever fulfils it.
"""

from __future__ import annotations

from collections.abc import Iterable


class Readiness:
    """What must be fulfilled before the process is ready.

    Args:
        conditions: Their names.
    """

    def __init__(self, conditions: Iterable[str]) -> None:
        self._fulfilled: dict[str, bool] = dict.fromkeys(conditions, False)
        self._stopping = False

    def fulfil(self, condition: str) -> None:
        """A condition holds from now on."""
        self._fulfilled[condition] = True

    def stop(self) -> None:
        """The process stops: it is not ready any more."""
        self._stopping = True

    @property
    def missing(self) -> list[str]:
        """What is not fulfilled; empty when the process is ready."""
        if self._stopping:
            return ["the process is stopping"]
        return [condition for condition, fulfilled in self._fulfilled.items() if not fulfilled]
