"""Items of documents that cannot be built: the item shows the error, and the rest of the document is unaffected."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeVar

from scheduler_core.errors import SchedulerCoreError, error_message

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_LOGGED = 256
_logged: set[tuple[str, str]] = set()


def item_or_error(what: str, build: Callable[[], T], failed: Callable[[str], T]) -> T:
    """Build one item of a document.

    Args:
        what: Kind of item, for the log, such as ``the explanation of a pod``.
    """
    try:
        return build()
    except Exception as error:  # noqa: BLE001 - logged, and shown in the place of the item
        return failed(error_text(what, error))


def error_text(what: str, error: Exception) -> str:
    """Return the text of an error for readers; one that is not raised on purpose is logged, equal ones once."""
    text = error_message(error)
    if not isinstance(error, SchedulerCoreError) and (what, text) not in _logged:
        if len(_logged) >= _MAX_LOGGED:
            _logged.clear()
        _logged.add((what, text))
        log.error("%s cannot be built: %s", what, text, exc_info=error)
    return text
