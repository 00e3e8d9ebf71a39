"""Tables that the explanations of pods and of gangs share."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from bayplan.explanation.shared_model import Lack, NodeLacks, Unblocking
from bayplan.texts.tables import plain_table
from scheduler_core.explain.candidate_events import amount_text
from scheduler_core.framework.cluster_events import NODE_ADD


def nearest_table(nearest: tuple[NodeLacks, ...]) -> Table:
    """Return a table of what nodes lack, one row for each plugin."""
    table = plain_table("NODE", "PLUGIN", "LACKS")
    for miss in nearest:
        name = miss.node
        for lack in miss.lacks:
            table.add_row(Text(name), Text(lack.plugin), Text(lack_text(lack)))
            name = ""
    return table


def lack_text(lack: Lack) -> str:
    """Return what a node lacks as text, with amounts if there are any: ``needs 500m cpu, 320m free``."""
    if lack.details:
        return "; ".join(lack.details)
    if not lack.amounts:
        return "; ".join(lack.reasons)
    return "; ".join(
        f"needs {amount_text(amount.resource, amount.needed)} {amount.resource}, "
        f"{amount_text(amount.resource, max(0, amount.free))} free"
        for amount in lack.amounts
    )


def events_table(events: tuple[Unblocking, ...]) -> Table:
    """Return a table of events that would requeue the pod, with the result of each."""
    table = plain_table("EVENT", "RESULT", "QUEUEING HINT OF")
    for entry in events:
        place = "it" if entry.event == NODE_ADD.name else entry.fits_on
        result = f"fits on {place}" if entry.fits_on else "requeued"
        table.add_row(Text(entry.what), Text(result), Text(", ".join(entry.plugins) or "any"))
    return table
