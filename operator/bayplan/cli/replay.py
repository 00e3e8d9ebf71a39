"""``bayplan replay``: replays a record, and reports the first decision that differs."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import click

from bayplan.explanation import gang_rendering, pod_rendering
from bayplan.explanation.pod_model import Explanation
from bayplan.recording.record_files import RecordFiles, open_record
from bayplan.replaying.record_replay import Moment, ReplayOptions, ReplayResult, replay
from bayplan.texts.printable import printable_record
from scheduler_core.errors import ConfigError, Problem
from scheduler_core.recording.record_entries import Entry, Evicted, Placed, Rejected
from scheduler_core.shadows.comparison_record import ComparisonRecord, DifferenceKind

EXIT_DIFFERENT = 1


@click.command("replay", short_help="Replay a record of the operator, and compare every decision.")
@click.argument("path", type=click.Path(path_type=Path), metavar="FILE")
@click.option("--until", metavar="NAMESPACE/POD", help="Stop at the decision on this pod, and explain it.")
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
def replay_command(context: click.Context, /, *, path: Path, output: str, interactive: bool, **given: Any) -> None:
    """Replay FILE, or the newest record in a directory, and compare every decision with the recorded one.

    The scheduler gets the recorded input in the recorded order, on virtual time and without a cluster. After a pod was
    placed on another node than recorded, the replay goes on from the recorded node, so that a replay by another version
    of Bayplan lists the decisions that changed. The exit code is 0 if all decisions are equal, 1 if one differs, and 2
    if the record cannot be replayed.
    """
    options = ReplayOptions(**{name: value for name, value in given.items() if value is not None})
    if options.until and "/" not in options.until:
        raise ConfigError([Problem("--until", f'must be NAMESPACE/POD, not "{options.until}"')])
    if interactive and not options.until:
        raise ConfigError([Problem("--interactive", "requires --until, which selects the moment")])
    record = open_record(path)
    result = replay(record, dataclasses.replace(options, look=partial(_look, output)) if interactive else options)
    for note in record.notes:
        click.echo(printable_record(f"note: {note}"), err=True)
    if result.explanation is not None:
        if not interactive:
            _show(output, pod_rendering.RENDERERS[output](result.explanation))
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


def _look(output: str, moment: Moment, decided: Explanation | None) -> None:
    """Explain the pod that was decided, then the names that are entered, until an empty line."""
    if decided is not None:
        _show(output, pod_rendering.RENDERERS[output](decided))
    click.echo(
        "Enter NAMESPACE/POD or podgroup/NAMESPACE/NAME to explain it at this moment; an empty line ends.", err=True
    )
    for line in iter(lambda: sys.stdin.readline().strip(), ""):
        match line.split("/"):
            case ["podgroup", namespace, name]:
                gang = moment.explain_gang(namespace, name)
                shown = None if gang is None else gang_rendering.RENDERERS[output](gang)
            case [namespace, name]:
                pod = moment.explain_pod(namespace, name)
                shown = None if pod is None else pod_rendering.RENDERERS[output](pod)
            case _:
                shown = None
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
