"""``bayplan record``: shows what a record contains, and cuts it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from bayplan.recording.record_files import RecordFiles, open_record
from bayplan.texts.printable import printable_record
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.recording.record_entries import Entry, Evicted, Fed, Placed, Rejected
from scheduler_core.recording.record_file import RecordError, frame_of, start_of_file

_MICROSECONDS = 1_000_000
_TIMES = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])

Moment = tuple[int, Entry]
"""Microseconds since 1970 (UTC) of the frame, and an entry of it."""


class _Meta(msgspec.Struct, frozen=True):
    name: str = ""
    namespace: str = ""


class _Named(msgspec.Struct, frozen=True):
    metadata: _Meta = _Meta()


_NAMED = msgspec.json.Decoder(_Named)


@click.group("record", short_help="Show or cut a record of the operator.")
def record() -> None:
    """Show or cut a record that `bayplan run --record` wrote."""


@record.command("show", short_help="List the decisions of a record.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--since", type=_TIMES, help="Only decisions from this time on, UTC, such as 2026-11-23T04:00:00Z.")
@click.option("--until", type=_TIMES, help="Only decisions before this time, UTC.")
@click.option("--pod", metavar="NAMESPACE/POD", help="Only decisions on this pod.")
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
def show(path: Path, since: datetime | None, until: datetime | None, pod: str | None, output: str) -> None:
    """List the decisions in FILE, or in the newest record of a directory, with the diagnosis of each rejection."""
    files = open_record(path)
    low, high = _microseconds(since, 0), _microseconds(until, 1 << 63)
    for at, entry in _entries(files):
        if isinstance(entry, Placed | Rejected | Evicted) and low <= at < high and pod in (None, entry.pod):
            click.echo(_as_json(at, entry) if output == "json" else printable_record(_as_line(at, entry)))
    _echo_notes(files)


@record.command("export", short_help="Cut a record at a time or after the last entry about a pod.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("target", type=click.Path(path_type=Path), metavar="TARGET")
@click.option("--until", type=_TIMES, help="End of the exported record, UTC, such as 2026-11-23T04:00:00Z.")
@click.option("--pod", metavar="NAMESPACE/POD", help="End the exported record with the last entry about this pod.")
def export(path: Path, target: Path, until: datetime | None, pod: str | None) -> None:
    """Write the record of FILE up to a time, or to the last entry about a pod, to the single file TARGET.

    The exported record begins where the record begins, because a replay needs all that has happened before.
    """
    if (until is None) == (pod is None):
        raise click.UsageError("specify one of --until and --pod")
    files = open_record(path)
    count = _length(files, _microseconds(until, 1 << 63), pod)
    if not count:
        raise ConfigError([Problem("--pod" if pod else "--until", "the record has no entry in this range")])
    try:
        written = _write(open_record(path), target, count)
    except OSError as error:
        raise ConfigError([Problem("TARGET", f"cannot write to {target} ({error}); specify another file")]) from error
    _echo_notes(files)
    click.echo(f"{count} entries, {written} bytes: {target}")


def _entries(files: RecordFiles) -> Iterator[Moment]:
    for frame in files.frames():
        for entry in frame.entries:
            yield frame.wall_microseconds, entry


def _length(files: RecordFiles, high: int, pod: str | None) -> int:
    """Return the number of entries to export."""
    count = 0
    for number, (at, entry) in enumerate(_entries(files), 1):
        if at >= high:
            break
        if pod is None or _is_about(entry, pod):
            count = number
    return count


def _is_about(entry: Entry, pod: str) -> bool:
    if isinstance(entry, Placed | Rejected | Evicted):
        return entry.pod == pod
    if not isinstance(entry, Fed) or not entry.args or entry.args[-1][0] != "Pod":
        return False
    try:
        meta = _NAMED.decode(entry.args[-1][1]).metadata
    except msgspec.DecodeError as error:
        raise RecordError(f"an entry about a pod cannot be decoded: {error}") from error
    return f"{meta.namespace}/{meta.name}" == pod


def _write(files: RecordFiles, target: Path, count: int) -> int:
    written = 0
    with target.open("wb") as file:
        for frame in files.frames():
            if not written:
                written += file.write(start_of_file(files.header, frame.wall_microseconds))
            taken = frame.entries[:count]
            encoded = b"".join(msgspec.json.encode(entry) + b"," for entry in taken)
            written += file.write(frame_of(encoded, frame.wall_microseconds))
            count -= len(taken)
            if not count:
                break
    return written


def _microseconds(time: datetime | None, default: int) -> int:
    return default if time is None else int(time.replace(tzinfo=UTC).timestamp() * _MICROSECONDS)


def _as_json(at: int, entry: Placed | Rejected | Evicted) -> str:
    fields = {name: getattr(entry, name) for name in entry.__struct_fields__}
    return json.dumps({"time": _time(at), "decision": type(entry).__name__, **fields})


def _as_line(at: int, entry: Placed | Rejected | Evicted) -> str:
    match entry:
        case Placed():
            return f"{_time(at)}  {entry.pod}  placed on {entry.node} by {entry.profile}, attempt {entry.attempts}"
        case Rejected():
            return f"{_time(at)}  {entry.pod}  rejected by {entry.profile}: {entry.message}"
    return f"{_time(at)}  {entry.pod}  preempted"


def _time(at: int) -> str:
    return datetime.fromtimestamp(at / _MICROSECONDS, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _echo_notes(files: RecordFiles) -> None:
    for note in files.notes:
        click.echo(printable_record(f"note: {note}"), err=True)
