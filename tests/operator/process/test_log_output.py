"""Tests of the format of log lines."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from bayplan.process.log_output import DECISIONS, FloodFilter, JsonFormatter, TextFormatter, set_up_logging

from tests.support.tables import table

SECRET = "c2VjcmV0LXNlY3JldA"


def record(message: str, *args: object, **fields: object) -> logging.LogRecord:
    made = logging.LogRecord("bayplan.x", logging.WARNING, __file__, 1, message, args, None)
    made.__dict__.update(fields)
    return made


def test_json_lines() -> None:
    """A record is one line of JSON with its level, message and exception."""
    try:
        int("bad")
    except ValueError:
        made = logging.LogRecord("bayplan.x", logging.WARNING, __file__, 1, "pod %s", ("p",), sys.exc_info())
    line = JsonFormatter().format(made)
    assert "\n" not in line
    document = json.loads(line)
    assert (document["level"], document["logger"], document["message"]) == ("warning", "bayplan.x", "pod p")
    assert "ValueError: invalid literal" in document["exception"]


def test_fields_are_keys() -> None:
    """Fields are JSON keys, numbers stay numbers, and empty fields are omitted."""
    made = record("bound", pod="shop/web", profile="batch", node="", attempts=2, other="of somebody else")
    document = json.loads(JsonFormatter().format(made))
    assert {key: document[key] for key in document if key not in ("time", "level", "logger", "message")} == {
        "pod": "shop/web",
        "profile": "batch",
        "attempts": 2,
    }


def test_kopf_lines_have_their_object() -> None:
    """A line that kopf logs about an object has that object as a field."""
    made = record("Handler is invoked.", k8s_ref={"kind": "SchedulerProfile", "name": "batch", "uid": "u"})
    assert json.loads(JsonFormatter().format(made))["resource"] == "SchedulerProfile batch"


def test_fields_in_text() -> None:
    """Text does not repeat a field that its message contains."""
    line = TextFormatter().format(record("pod %s is bound", "shop/web", pod="shop/web", revision="5d6c"))
    assert line.endswith("bayplan.x: pod shop/web is bound revision=5d6c")


@table(
    "text, expected",
    ("bearer token", f"Authorization: Bearer {SECRET}", "Bearer [redacted]"),
    ("header in a dict", f"{{'Authorization': 'Basic {SECRET}'}}", "Authorization"),
    ("JSON", f'{{"token": "{SECRET}"}}', '"token": "[redacted]"'),
    ("kubeconfig", f"client-key-data: '{SECRET}'", "client-key-data"),
    ("JSON web token", f"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzeXN0ZW0i{SECRET}.x{SECRET}", "[redacted]"),
    ("private key", f"-----BEGIN EC PRIVATE KEY-----\n{SECRET}\n-----END EC PRIVATE KEY-----\nmore", "more"),
    ("truncated private key", f"-----BEGIN PRIVATE KEY-----\n{SECRET}", "PRIVATE KEY"),
    ("password in a URL", f"proxy http://me:{SECRET}@proxy:3128 refuses", "@proxy:3128 refuses"),
)
@table("form", ("json", JsonFormatter()), ("text", TextFormatter()))
def test_credentials_are_redacted(form: logging.Formatter, text: str, expected: str) -> None:
    """A credential is removed from a line, and the other text stays."""
    line = form.format(record("%s", text))
    assert SECRET not in line
    assert (json.loads(line)["message"] if line.startswith("{") else line).count(expected) == 1


@table(
    "text",
    ("message", "pod shop/web: 0/3 nodes are available: 3 Insufficient cpu."),
    ("words", "the bearer of bad news is https://127.0.0.1:6443"),
    ("name of a Secret", "secret shop/tls: not found"),
)
def test_other_text_stays(text: str) -> None:
    """Text without a credential is not changed."""
    assert json.loads(JsonFormatter().format(record("%s", text)))["message"] == text


@pytest.fixture
def restored() -> Iterator[None]:
    """Restore the loggers after a test."""
    root = logging.getLogger()
    names = (DECISIONS, "kopf", "aiohttp")
    before = root.handlers[:], root.level, [logging.getLogger(name).level for name in names]
    yield
    root.handlers[:], level, levels = before
    root.setLevel(level)
    for name, each in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(each)


@table(
    "level, verbosity, decisions, debug, kopf",
    ("default", "info", 0, False, False, False),
    ("v2", "info", 2, False, False, False),
    ("v3 logs decisions", "info", 3, True, False, False),
    ("v4 logs decisions at any level", "warning", 4, True, False, False),
    ("v5 is debug", "info", 5, True, True, True),
    ("v10 is debug", "error", 10, True, True, True),
    ("debug level logs all", "debug", 0, True, True, True),
)
@pytest.mark.usefixtures("restored")
def test_verbosity(level: str, verbosity: int, *, decisions: bool, debug: bool, kopf: bool) -> None:
    """Verbosity has the same meaning as in kube-scheduler."""
    set_up_logging(level, "text", verbosity)  # type: ignore[arg-type]  # a literal in the table
    assert logging.getLogger(DECISIONS).isEnabledFor(logging.DEBUG) == decisions
    assert logging.getLogger("bayplan.x").isEnabledFor(logging.DEBUG) == debug
    assert logging.getLogger("kopf.objects").isEnabledFor(logging.INFO) == kopf


class Lines(logging.Handler):
    """Log handler that records the lines that pass a flood filter of two lines in ten seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []
        self.addFilter(FloodFilter(self, most=2, window_seconds=10.0))

    def emit(self, record: logging.LogRecord) -> None:
        self.written.append(record.getMessage())

    def log(self, at: float, message: str, line: int = 1, level: int = logging.WARNING, exc: bool = False) -> None:
        error = ValueError("bad")
        trace = (ValueError, error, None) if exc else None
        record = logging.LogRecord("x", level, "x.py", line, message, (), trace)
        record.created = at
        self.handle(record)


def test_a_flood_is_summarized() -> None:
    """The first lines of a place are written, and the others become one line after the window."""
    lines = Lines()
    for number in range(100):
        lines.log(number / 100, f"pod {number}")
    lines.log(1.0, "another place", line=2)
    assert lines.written == ["pod 0", "pod 1", "another place"]
    lines.log(12.0, "an hour later", line=3)
    assert lines.written[3:] == [
        "98 more lines like the following were suppressed within 12 s: pod 99",
        "an hour later",
    ]


def test_lines_below_the_rate_pass() -> None:
    """Lines at a low rate are all written."""
    lines = Lines()
    for number in range(10):
        lines.log(number * 6.0, f"pod {number}")
    assert len(lines.written) == 10


@table("level, exc", ("info", logging.INFO, False), ("with a traceback", logging.ERROR, True))
def test_info_and_traceback_lines_pass(level: int, exc: bool) -> None:
    """Lines below WARNING and lines with a traceback always pass."""
    lines = Lines()
    for _ in range(9):
        lines.log(0.0, "a line", level=level, exc=exc)
    assert len(lines.written) == 9


def test_threads_log_at_the_same_time() -> None:
    """Lines of new places in four threads, as their windows end, are filtered without an error."""
    lines = Lines()

    def log(thread: int) -> None:
        for number in range(3000):
            lines.log(number / 100, "text", line=3000 * thread + number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(log, range(4)))
    finally:
        sys.setswitchinterval(before)
    assert len(lines.written) == 12000
