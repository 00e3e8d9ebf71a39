"""How log lines look, which are written, and what never stands in one.

Owns the root logger's handler and levels, and the fields that a line may carry beside its message. It must not know who
logs. Whoever does gives fields with ``extra=``; in JSON each is a key of its own, in text those that the message does
not name follow it.

Nobody logs a token or a key on purpose. What the libraries below write at debug is not ours to say, so what looks like
one is struck out of every line, whoever wrote it.
"""

from __future__ import annotations

import json
import logging
import re
import sys
from collections.abc import Mapping
from datetime import UTC, datetime

from bayplan.log_flood import FloodFilter
from bayplan.printable import printable_json, printable_record
from bayplan.settings import LogFormat, LogLevel

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
"""What a line may say beside its message, in this order; pods and groups as ``namespace/name``."""

DECISIONS = "scheduler_core.decisions"
"""The logger of what became of each pod; far too much to read unless one asks for it."""
_DECISIONS_FROM, _DEBUG_FROM = 3, 5

_TEXT = "%(asctime)s %(levelname)-7s %(name)s: %(message)s"
_STRUCK_OUT = "[struck out]"
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


def struck_out(text: str) -> str:
    """A text without what looks like a credential."""
    return _SECRETS.sub(_replacement, text)


def _replacement(found: re.Match[str]) -> str:
    kept = found["scheme"] or found["name"] or found["begin"] or found["user"] or ""
    return f"{kept}{_STRUCK_OUT}"


class TextFormatter(logging.Formatter):
    """A line to read, with the fields that its message does not name."""

    def __init__(self) -> None:
        super().__init__(_TEXT)

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as text, its traceback in lines below.

        Args:
            record: What is logged.

        Returns:
            The line without its end.
        """
        return printable_record(struck_out(super().format(record)))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the standard library's name
        """Write the first line."""
        line = super().formatMessage(record)
        more = (f" {name}={value}" for name, value in _fields(record).items() if str(value) not in record.message)
        return line + "".join(more)


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as JSON.

        Args:
            record: What is logged.

        Returns:
            The line without its end.
        """
        document: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": struck_out(record.getMessage()),
        }
        document |= {
            name: struck_out(value) if isinstance(value, str) else value for name, value in _fields(record).items()
        }
        if record.exc_info:
            document["exception"] = struck_out(self.formatException(record.exc_info))
        return printable_json(json.dumps(document, ensure_ascii=False, default=str))


def _fields(record: logging.LogRecord) -> dict[str, object]:
    """The fields that a record carries; empty ones say nothing."""
    carried = record.__dict__
    found = {name: carried[name] for name in FIELDS if carried.get(name) not in (None, "")}
    of_kopf = carried.get("k8s_ref")
    if isinstance(of_kopf, Mapping) and "resource" not in found:
        found["resource"] = f"{of_kopf.get('kind')} {of_kopf.get('name')}"
    return found


def set_up_logging(level: LogLevel, output: LogFormat, verbosity: int = 0) -> None:
    """Send all logging to standard error.

    Args:
        level: Least severity; kopf's own messages are shown from warning on, or all of them with debug. Floods of like
            warnings are summed up, except with debug.
        output: Text or JSON.
        verbosity: As kube-scheduler's ``-v``: from 3 on each decision is logged as well, from 5 on it is debug whatever
            ``level`` says.
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
    is_telling = level == "debug" or verbosity >= _DECISIONS_FROM
    logging.getLogger(DECISIONS).setLevel(logging.DEBUG if is_telling else logging.WARNING)
    for name in ("kopf", "aiohttp"):
        logging.getLogger(name).setLevel(logging.DEBUG if level == "debug" else logging.WARNING)
