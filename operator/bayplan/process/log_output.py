"""Format and levels of log lines, and redaction of credentials.

A caller passes structured fields with ``extra=``. In JSON each is a key of its own; in text, fields that the message
does not contain are appended. Whatever looks like a credential is redacted in every line, because libraries may log one
at debug level.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from threading import RLock

from bayplan.settings.operator_settings import LogFormat, LogLevel
from bayplan.texts.document_formats import printable_json, printable_record

_MOST = 5
_WINDOW_SECONDS = 30.0


@dataclass(slots=True)
class _Source:
    """Place in the code that logs."""

    began: float
    let_through: int = 0
    left_out: int = 0
    sample: logging.LogRecord | None = None


class FloodFilter(logging.Filter):
    """Filter that passes a few lines of each place per time window, and always errors with a traceback."""

    def __init__(self, handler: logging.Handler, most: int = _MOST, window_seconds: float = _WINDOW_SECONDS) -> None:
        super().__init__()
        self._handler = handler
        self._most = most
        self._window_seconds = window_seconds
        self._sources: dict[tuple[str, int], _Source] = {}
        # Reentrant, because the handler may log while it emits a summary.
        self._lock = RLock()

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line; lines below WARNING are few, and always pass."""
        # kopf logs in a thread of its own.
        with self._lock:
            return self._passes(record)

    def _passes(self, record: logging.LogRecord) -> bool:
        now = record.created
        for place, source in [item for item in self._sources.items() if now - item[1].began >= self._window_seconds]:
            del self._sources[place]
            self._sum_up(source, now)
        if record.levelno < logging.WARNING or record.exc_info:
            return True
        source = self._sources.setdefault((record.pathname, record.lineno), _Source(now))
        if source.let_through < self._most:
            source.let_through += 1
            return True
        source.left_out += 1
        source.sample = record
        return False

    def _sum_up(self, source: _Source, now: float) -> None:
        sample = source.sample
        if sample is None:
            return
        message = "%d more lines like the following were suppressed within %.0f s: %s"
        args = (source.left_out, now - source.began, sample.getMessage())
        summary = logging.LogRecord(sample.name, sample.levelno, sample.pathname, sample.lineno, message, args, None)
        self._handler.emit(summary)


FIELDS = (
    "pod",
    "podgroup",
    "profile",
    "revision",
    "node",
    "plugin",
    "resource",
    "result",
    "attempts",
    "feasible_nodes",
)
"""Structured fields of a line, in this order; pods and groups as ``namespace/name``."""

DECISIONS = "scheduler_core.decisions"
"""Logger of the decision about each pod; off by default because of its volume."""
_DECISIONS_FROM, _DEBUG_FROM = 3, 5

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_REDACTED = "[redacted]"
_SECRETS = re.compile(
    r"""
    (?P<scheme> \b(?:bearer|basic)\s+ ) [\w.~+/=-]{6,}                        # the Authorization header
    | (?P<name> ["']?\b(?:authorization|password|passwd|secret|token|client-key-data|client-certificate-data
        |keyData|certData|api[_-]?key)["']?\s*[:=]\s*["'] ) [^"']{4,}         # a quoted value of such a name
    | (?P<begin> -----BEGIN\ [A-Z\ ]*PRIVATE\ KEY----- ) .*? (?: -----END\ [A-Z\ ]*PRIVATE\ KEY----- | \Z )
    | (?P<user> ://[^\s/:@]{0,100}: ) [^\s/@]{1,200} (?=@)                      # the password of a URL
    | \beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*                                # a JSON web token, such as Kubernetes' own
    """,
    re.IGNORECASE | re.VERBOSE | re.DOTALL,
)


def redacted(text: str) -> str:
    """Replace what looks like a credential."""
    return _SECRETS.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    prefix = found["scheme"] or found["name"] or found["begin"] or found["user"] or ""
    return f"{prefix}{_REDACTED}"


class TextFormatter(logging.Formatter):
    """Formatter for text lines, with the fields that the message does not contain."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as text, with its traceback on the following lines."""
        return printable_record(redacted(super().format(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        line = super().formatMessage(record)
        more = (f" {name}={value}" for name, value in _fields(record).items() if str(value) not in record.message)
        return line + "".join(more)


class JsonFormatter(logging.Formatter):
    """Formatter that writes one JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": redacted(record.getMessage()),
        }
        document |= {
            name: redacted(value) if isinstance(value, str) else value for name, value in _fields(record).items()
        }
        if record.exc_info:
            document["exception"] = redacted(self.formatException(record.exc_info))
        return printable_json(json.dumps(document, ensure_ascii=False, default=str))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    carried = record.__dict__
    found = {name: carried[name] for name in FIELDS if carried.get(name) not in (None, "")}
    kopf_object = carried.get("k8s_ref")
    if isinstance(kopf_object, Mapping) and "resource" not in found:
        found["resource"] = f"{kopf_object.get('kind')} {kopf_object.get('name')}"
    return found


def set_up_logging(level: LogLevel, output: LogFormat, verbosity: int = 0) -> None:
    """Send all logging to standard error.

    Args:
        level: Minimum severity. kopf's own messages are logged from warning on, with debug all of them. Floods of
            similar warnings are summed up, except with debug.
        verbosity: As kube-scheduler's ``-v``: from 3 on each decision is logged, from 5 on debug is set whatever
            ``level`` is.
    """
    if verbosity >= _DEBUG_FROM:
        level = "debug"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if output == "json" else TextFormatter())
    if level != "debug":
        handler.addFilter(FloodFilter(handler))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    logs_decisions = level == "debug" or verbosity >= _DECISIONS_FROM
    logging.getLogger(DECISIONS).setLevel(logging.DEBUG if logs_decisions else logging.WARNING)
    for name in ("kopf", "aiohttp"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
