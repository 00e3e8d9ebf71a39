"""Builds the part of an explanation about resource claims and devices."""

from __future__ import annotations

from itertools import islice

from bayplan.explanation.device_model import (
    ClaimRejection,
    DeviceExplanation,
    DeviceGroup,
    UnmetCondition,
    request_key,
)
from scheduler_core.explain import device_findings as findings
from scheduler_core.explain.pod_dry_run import Examination
from scheduler_core.snapshot.node_columns import NodeColumns

_MAX_HOLDERS = 2


def explain_devices(
    columns: NodeColumns, found: Examination, devices: findings.DeviceFindings, limit: int
) -> DeviceExplanation | None:
    """Return what nodes and devices lack for the claims of a pod.

    Args:
        columns: The columns.
        found: The attempt, which rejected nodes.
        devices: What nodes lack.
        limit: Maximum number of groups of devices for each request.

    Returns:
        The explanation; None if other plugins rejected all nodes before devices were searched.
    """
    rows = [columns.row_of(name) for name, why in found.rejected.items() if why.plugin == devices.plugin_name]
    if not rows:
        return None
    claims = tuple(
        ClaimRejection(each.claim, each.request or None, each.reason, len(each.nodes), min(each.nodes))
        for each in devices.rejections(rows)
    )
    shown: list[DeviceGroup] = []
    count: dict[str, int] = {}
    omitted: dict[str, int] = {}
    for group in devices.groups(rows):
        key = request_key(group.terms.claim, group.terms.result_name)
        count[key] = count.get(key, 0) + 1
        if count[key] <= limit:
            shown.append(_convert_group(group))
        else:
            omitted[key] = omitted.get(key, 0) + group.devices
    return DeviceExplanation(claims, tuple(shown), omitted)


def _convert_group(group: findings.DeviceGroup) -> DeviceGroup:
    return DeviceGroup(
        claim=group.terms.claim,
        request=group.terms.result_name,
        devices=group.devices,
        nodes=len(group.nodes),
        example=group.example,
        unmet=tuple(UnmetCondition(each.text, each.required_by or None, each.is_use) for each in group.problems),
        held_by=tuple(each.text for each in islice(group.holders, _MAX_HOLDERS)),
        more_holders=max(0, len(group.holders) - _MAX_HOLDERS),
    )
