"""Family ``draalpha``: cases of family ``dra`` with devices that need alpha feature gates of Kubernetes v1.37."""

from __future__ import annotations

from tests.parity.oracle.generation.dynamic_resources import device_case
from tests.parity.oracle.generation.world import Json, World

ALPHA_GATES = {"DRADeviceCompatibilityGroups": True, "DRAOptionalNodeOperations": True}
"""Feature gates of these cases."""
_THEMES = ["partition"] * 10 + ["basic", "basic", "list", "constraints", "shared", "network", "extended", "pools"]
_THEMES += ["allocated"] * 3 + ["binding", "everything", "errors"]
_GROUPS: list[list[str]] = [[], ["a"], ["a", "b"], ["b"], ["b", "c"]]
_SKIPPED = [["*"], ["NodePrepareResources", "NodeUnprepareResources"], ["NodeUnprepareResources"]]
_FEATURE = "DRAOptionalNodeOperations"


def fam_draalpha(w: World) -> None:
    """Generate a case of the family ``draalpha``."""
    w.feature_gates = dict(ALPHA_GATES)
    device_case(w, w.pick(_THEMES))
    _group(w)
    if w.p(0.6):
        _skip_operations(w)


def _group(w: World) -> None:
    """Add compatibility groups to devices that consume counters."""
    for each in w.resource_slices:
        share = w.pick([0.0, 0.6, 1.0])
        groups = w.some(_GROUPS, 2, len(_GROUPS)) if w.p(0.5) else _GROUPS[1:3]
        for device in each["spec"].get("devices", ()):
            for consumption in device.get("consumesCounters", ()):
                if w.p(share) and (chosen := w.pick(groups)):
                    consumption["compatibilityGroups"] = list(chosen)


def _skip_operations(w: World) -> None:
    """Let slices skip operations, and let nodes and allocations declare them."""
    share = w.pick([0.3, 0.6, 1.0])
    skipped: dict[tuple[str, str, str], list[str]] = {}
    for each in w.resource_slices:
        spec = each["spec"]
        if "devices" in spec and w.p(share):
            operations = spec["skipNodeOperations"] = list(w.pick(_SKIPPED))
            for device in spec["devices"]:
                skipped[spec["driver"], spec["pool"]["name"], device["name"]] = operations
    declaring = w.pick([0.0, 0.5, 0.5, 0.8, 1.0])
    for node in w.nodes:
        if w.p(declaring):
            features = {*node["status"].get("declaredFeatures", ()), _FEATURE}
            node["status"]["declaredFeatures"] = sorted(features)
    for claim in w.resource_claims:
        for result in _results(claim):
            operations = skipped.get((result["driver"], result["pool"], result["device"]), [])
            if operations and w.p(0.8):
                result["skipNodeOperations"] = list(operations)


def _results(claim: Json) -> list[Json]:
    allocation = claim.get("status", {}).get("allocation", {})
    results: list[Json] = allocation.get("devices", {}).get("results", [])
    return results
