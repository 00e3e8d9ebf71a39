"""``bayplan record``: shows what a record contains, and cuts it."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import click
import msgspec

from bayplan.cli.object_names import GroupName, NamedObject, chosen_namespace, namespace_options, object_name, pod_key
from bayplan.explanation.documents import Explanation
from bayplan.explanation.rendering import RENDERERS
from bayplan.recording import RecordFiles, open_record
from bayplan.replaying import Moment, ReplayOptions, ReplayResult, replay
from bayplan.texts.document_formats import printable_record
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.recording.record_entries import Entry, Evicted, Fed, Placed, Rejected
from scheduler_core.recording.record_file import RecordError, frame_of, start_of_file
from scheduler_core.shadows.shadow_profiles import ComparisonRecord, DifferenceKind

_MICROSECONDS = 1_000_000
_TIMES = click.DateTime(["%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S"])

_Stamped = tuple[int, Entry]
"""Microseconds since 1970 (UTC) of the frame, and an entry of it."""


_NAMED = msgspec.json.Decoder(NamedObject)


@click.group("record", short_help="Show or cut a record of the operator.")
def record() -> None:
    """Show or cut a record that `bayplan run --record` wrote."""


@record.command("show", short_help="List the decisions of a record.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--since", type=_TIMES, help="Only decisions from this time on, UTC, such as 2026-11-23T04:00:00Z.")
@click.option("--until", type=_TIMES, help="Only decisions before this time, UTC.")
@click.option("--pod", metavar="[NAMESPACE/]POD", help="Only decisions on this pod.")
@namespace_options(
    "Only decisions on pods of this namespace.", "Decisions on pods of all namespaces, which is the default."
)
@click.option("-o", "--output", type=click.Choice(["table", "json"]), default="table", help="Output format.")
def show(
    *,
    path: Path,
    since: datetime | None,
    until: datetime | None,
    pod: str | None,
    namespace: str | None,
    is_all_namespaces: bool,
    output: str,
) -> None:
    """List the decisions in FILE, or in the newest record of a directory, with the diagnosis of each rejection.

    A pod without a namespace is of that of -n, otherwise of "default".
    """
    prefix = chosen_namespace(namespace, is_all_namespaces=is_all_namespaces)
    prefix += "/" if prefix else ""
    wanted = None if pod is None else pod_key(namespace, pod)
    files = open_record(path)
    low, high = _microseconds(since, 0), _microseconds(until, 1 << 63)
    for at, entry in _entries(files):
        if not isinstance(entry, Placed | Rejected | Evicted) or not low <= at < high:
            continue
        if wanted in (None, entry.pod) and entry.pod.startswith(prefix):
            click.echo(_as_json(at, entry) if output == "json" else printable_record(_as_line(at, entry)))
    _echo_notes(files)


@record.command("export", short_help="Cut a record at a time or after the last entry about a pod.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.argument("target", type=click.Path(path_type=Path), metavar="TARGET")
@click.option("--until", type=_TIMES, help="End of the exported record, UTC, such as 2026-11-23T04:00:00Z.")
@click.option("--pod", metavar="[NAMESPACE/]POD", help="End the exported record with the last entry about this pod.")
@click.option("-n", "--namespace", help="With --pod: namespace of the pod.  [default: default]")
def export(path: Path, target: Path, until: datetime | None, pod: str | None, namespace: str | None) -> None:
    """Write the record of FILE up to a time, or to the last entry about a pod, to the single file TARGET.

    The exported record begins where the record begins, because a replay needs all that has happened before.
    """
    if (until is None) == (pod is None):
        raise click.UsageError("specify one of --until and --pod")
    if namespace is not None and pod is None:
        raise click.UsageError("-n is the namespace of --pod; leave it out without --pod")
    pod = None if pod is None else pod_key(namespace, pod)
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


def cut_record(path: Path, target: Path, until: datetime | None) -> int:
    """Write a record, up to a time, to one file, and return its length; raises RecordError if none can be read."""
    count = _length(open_record(path), _microseconds(until, 1 << 63), None)
    if count:
        _write(open_record(path), target, count)
    return count


def _entries(files: RecordFiles) -> Iterator[_Stamped]:
    for frame in files.frames():
        for entry in frame.entries:
            yield frame.wall_microseconds, entry


def _length(files: RecordFiles, high: int, pod: str | None) -> int:
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


EXIT_DIFFERENT = 1


@click.command("replay", short_help="Replay a record of the operator, and compare every decision.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--until", metavar="[NAMESPACE/]POD", help="Stop at the decision on this pod, and explain it.")
@click.option("-n", "--namespace", help="With --until and -i: namespace of names without one.  [default: default]")
@click.option(
    "--attempt", type=click.IntRange(min=1), default=1, show_default=True, help="With --until: which decision on it."
)
@click.option(
    "--interactive",
    "-i",
    is_flag=True,
    help="With --until: then explain other pods and gangs at that moment, by their names on standard input.",
)
@click.option(
    "--profile",
    type=click.Path(),
    metavar="FILE",
    help="Also make every decision with the SchedulerProfile of this file, and list what it would decide otherwise.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0),
    default=0,
    help="Times as fast as recorded; 0 is as fast as possible.  [default: 0]",
)
@click.option(
    "-o", "--output", type=click.Choice(["table", "json", "yaml"]), default="table", help="Format of --until."
)
@click.pass_context
def replay_command(
    context: click.Context, /, *, path: Path, output: str, interactive: bool, namespace: str | None, **given: Any
) -> None:
    """Replay FILE, or the newest record in a directory, and compare every decision with the recorded one.

    The scheduler gets the recorded input in the recorded order, on virtual time and without a cluster. After a pod was
    placed on another node than recorded, the replay goes on from the recorded node, so that a replay by another version
    of Bayplan lists the decisions that changed. The exit code is 0 if all decisions are equal, 1 if one differs, and 2
    if the record cannot be replayed.
    """
    options = ReplayOptions(**{name: value for name, value in given.items() if value is not None})
    if options.until:
        options = dataclasses.replace(options, until=pod_key(namespace, options.until))
    if interactive and not options.until:
        raise ConfigError([Problem("--interactive", "requires --until, which selects the moment")])
    record = open_record(path)
    result = replay(
        record, dataclasses.replace(options, look=partial(_look, output, namespace)) if interactive else options
    )
    for note in record.notes:
        click.echo(printable_record(f"note: {note}"), err=True)
    if result.explanation is not None:
        if not interactive:
            _show(output, RENDERERS[output](result.explanation))
        return
    click.echo(printable_record(_summary(record, result)))
    if result.shadow is not None:
        for line in _of_profile(result.shadow.record):
            click.echo(printable_record(line))
    differences = [*result.changed, *([result.difference] if result.difference else ())]
    for each in differences:
        click.echo(printable_record(f"recorded: {_text(each.recorded)}"))
        click.echo(printable_record(f"computed: {_text(each.computed)}"))
    if differences:
        context.exit(EXIT_DIFFERENT)


def _look(output: str, namespace: str | None, moment: Moment, decided: Explanation | None) -> None:
    """Explain the pod that was decided, then the names that are entered, until an empty line."""
    if decided is not None:
        _show(output, RENDERERS[output](decided))
    click.echo(
        "Enter [NAMESPACE/]POD or podgroup/[NAMESPACE/]NAME to explain it at this moment; an empty line ends.", err=True
    )
    for line in iter(lambda: sys.stdin.readline().strip(), ""):
        try:
            target = object_name(namespace if "/" not in line.removeprefix("podgroup/") else None, line)
        except click.UsageError as error:
            click.echo(printable_record(error.message), err=True)
            continue
        if isinstance(target, GroupName):
            gang = moment.explain_gang(target.namespace, target.name)
            shown = None if gang is None else RENDERERS[output](gang)
        else:
            pod = moment.explain_pod(target.namespace, target.name)
            shown = None if pod is None else RENDERERS[output](pod)
        if shown is None:
            click.echo(printable_record(f'"{line}" does not exist at this moment'), err=True)
        else:
            _show(output, f"\n{shown}" if output == "table" else shown)


def _show(output: str, text: str) -> None:
    click.echo(text, nl=output != "yaml")


def _summary(record: RecordFiles, result: ReplayResult) -> str:
    kinds = f"{result.placed} placements, {result.rejected} rejections"
    when = "" if result.first is None else f", {result.first:%Y-%m-%d %H:%M:%S} to {result.last:%H:%M:%S} UTC"
    origin = f"recorded by Bayplan {record.header.bayplan}{when}"
    if result.changed:
        moved = sum(isinstance(each.computed, Placed) for each in result.changed)
        kinds += f", {moved} of them on other nodes, {len(result.changed) - moved} diagnoses that changed"
    if result.difference is None and result.changed:
        return f"{result.decisions} decisions are equal, the others changed ({kinds}; {origin})"
    if result.difference is None:
        return f"{result.decisions} decisions, all equal ({kinds}; {origin})"
    return f"{result.decisions} decisions are equal, then one differs ({kinds}; {origin})"


def _of_profile(found: ComparisonRecord) -> Iterator[str]:
    counts = ", ".join(f"{found.kinds[kind]} {kind.value}" for kind in DifferenceKind)
    yield f"profile of --profile: {found.compared} of {found.decided} decisions made, {found.agreed} equal, {counts}"
    for reason, count in found.skipped.items():
        yield f"  not made: {count} {reason}"
    if found.errors:
        yield f"  failed: {found.errors}, last: {found.last_error}"
    for each in found.differences:
        nodes = f"{each.live_node or 'no node'} -> {each.shadow_node or 'no node'}"
        yield f"  {each.pod}  {each.kind.value}  {nodes}  {each.reason}"


def _text(entry: Entry | None) -> str:
    match entry:
        case Placed():
            return f"pod {entry.pod} on node {entry.node}, profile {entry.profile}, attempt {entry.attempts}"
        case Rejected():
            return f"pod {entry.pod} is rejected by profile {entry.profile}: {entry.message}"
        case Evicted():
            return f"pod {entry.pod} is preempted"
        case None:
            return "nothing"
        case _:
            return repr(entry)
