"""Renders the part of an explanation about resource claims and devices as text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from bayplan.explanation.device_model import ClaimRejection, DeviceExplanation, DeviceGroup, request_key
from bayplan.texts.tables import plain_table


def device_sections(devices: DeviceExplanation) -> Iterator[RenderableType]:
    """Yield the obstacles of claims, and for each request the devices that do not serve it."""
    if devices.claims:
        yield Group(Text("Resource claims", style="bold"), _claims(devices.claims))
    for (claim, request), groups in groupby(devices.rejected, key=lambda each: (each.claim, each.request)):
        parts: list[RenderableType] = [
            Text(f"Devices that do not serve request {request} of claim {claim}, nearest first", style="bold"),
            _groups(list(groups)),
        ]
        omitted = devices.omitted.get(request_key(claim, request))
        if omitted:
            parts.append(Text(f"and {omitted} more", style="dim"))
        yield Group(*parts)


def _claims(claims: tuple[ClaimRejection, ...]) -> Table:
    table = plain_table("CLAIM", "REQUEST", "NODES", "REASON")
    for each in claims:
        nodes = f"{each.nodes}" if each.nodes > 1 else f"1 ({each.example})"
        table.add_row(Text(each.claim), Text(each.request or "-"), Text(nodes), Text(each.reason))
    return table


def _groups(groups: list[DeviceGroup]) -> Table:
    table = plain_table("DEVICES", "NODES", "EXAMPLE", "UNMET CONDITION", "REQUIRED BY")
    for group in groups:
        cells = (str(group.devices), str(group.nodes), Text(group.example))
        for each in group.unmet:
            words = each.what + (f" by {_holders(group)}" if each.by_holders and group.held_by else "")
            table.add_row(*cells, Text(words), Text(each.required_by or "-"))
            cells = ("", "", Text())
    return table


def _holders(group: DeviceGroup) -> str:
    more = f" and {group.more_holders} more" if group.more_holders else ""
    return f"claim{'s' if len(group.held_by) > 1 else ''} {', '.join(group.held_by)}{more}"
