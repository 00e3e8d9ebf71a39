"""Comparison of two results of one case, aspect by aspect.

The aspects are in the order of the scheduling cycle, because a difference in one makes later ones differ, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from scheduler_core.model.pod_requests import nano

Result = Mapping[str, Any]
Aspect = Callable[[Result], object]
_WITH_CLAIMS = ("dra-", "draalpha-", "draattributes-")
"""Prefixes of the names of cases whose claims are compared."""


def _gated(result: Result) -> object:
    return (result["gated"] or {}).get("plugin")


def _prefilter(result: Result) -> object:
    verdict, nodes = result["prefilter"], result["prefilterNodes"]
    return (
        verdict and (verdict["status"], verdict["plugin"], sorted(verdict["reasons"])),
        None if nodes is None else sorted(nodes),
    )


def _filter(result: Result) -> object:
    return sorted(result["feasible"]), sorted(result["filter"])


def _reasons(result: Result) -> object:
    return {
        node: (verdict["code"], verdict["plugin"], sorted(verdict["reasons"]))
        for node, verdict in result["filter"].items()
    }


def _scores(result: Result) -> object:
    """Return the weighted scores, without plugins that score 0 for every node."""
    found = {
        plugin: {node: score["weighted"] for node, score in by_node.items()}
        for plugin, by_node in result["scores"].items()
    }
    return {plugin: by_node for plugin, by_node in found.items() if any(by_node.values())}


def _raw(result: Result) -> object:
    return {
        plugin: {node: score["raw"] for node, score in by_node.items()}
        for plugin, by_node in result["scores"].items()
        if any(score["weighted"] for score in by_node.values())
    }


def _totals(result: Result) -> object:
    return result["totals"]


def _best(result: Result) -> object:
    return sorted(result["best"])


def _message(result: Result) -> object:
    return result["message"]


def _preemption(result: Result) -> object:
    chosen = result["postFilter"]
    return chosen and (chosen["nominatedNode"], sorted(chosen["victims"]))


def _post_filter(result: Result) -> object:
    return result["postFilterCode"], result["preemptionMessage"]


def _candidates(result: Result) -> object:
    return {
        node: (sorted(candidate["victims"]), candidate["pdbViolations"])
        for node, candidate in result["candidates"].items()
    }


def _nominations(result: Result) -> object:
    return result["nominatedOnly"], sorted(result["clearedNominations"])


def _allocations(result: Result) -> object:
    """Return the claims by node after PreBind, and the claims that PostFilter deallocates."""
    by_node = result.get("allocations") or {}
    claims = {node: {name: _claim(claim) for name, claim in claims.items()} for node, claims in by_node.items()}
    return claims, sorted(result.get("deallocated") or ())


def _claim(claim: Mapping[str, Any]) -> object:
    """Return a normalized claim: without empty fields, with quantities by value, and with "*" for new share IDs."""
    written = _without_empty(claim)
    for device in written.get("devices", ()):
        if "shareID" in device and claim["new"]:
            device["shareID"] = "*"
        if "consumedCapacity" in device:
            device["consumedCapacity"] = {name: nano(text) for name, text in device["consumedCapacity"].items()}
    for term in written.get("nodeSelector", {}).get("nodeSelectorTerms", ()):
        for requirement in (*term.get("matchExpressions", ()), *term.get("matchFields", ())):
            requirement["values"] = sorted(requirement.get("values", ()))
    return written


def _without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        slim = {key: _without_empty(each) for key, each in value.items()}
        return {key: each for key, each in slim.items() if each not in (None, "", [], {}, False)}
    return [_without_empty(each) for each in value] if isinstance(value, list) else value


ASPECTS: Mapping[str, Aspect] = MappingProxyType(
    {
        "gated": _gated,
        "prefilter": _prefilter,
        "filter": _filter,
        "reasons": _reasons,
        "scores": _scores,
        "raw": _raw,
        "totals": _totals,
        "best": _best,
        "message": _message,
        "preemption": _preemption,
        "postfilter": _post_filter,
        "candidates": _candidates,
        "nominations": _nominations,
        "allocations": _allocations,
    }
)


def aspects_of(expected: Result) -> list[str]:
    """Return the aspects that apply to a case.

    Args:
        expected: The reference's result.

    Returns:
        Keys of :data:`ASPECTS`.
    """
    if expected["gated"]:
        return ["gated"]
    names = ["gated", "prefilter", "nominations"]
    if not expected["prefilter"]:
        names += ["filter", "reasons"]
    names += ["scores", "raw", "totals", "best"] if expected["feasible"] else ["message", "postfilter", "candidates"]
    if expected["postFilterCode"]:
        names.append("preemption")
    if str(expected["name"]).startswith(_WITH_CLAIMS) and (expected["feasible"] or expected["postFilterCode"]):
        names.append("allocations")
    return names


@dataclass(frozen=True, slots=True)
class Difference:
    """Aspect of a case in which the results differ."""

    name: str
    aspect: str
    expected: object
    actual: object


def differences(expected: Result, actual: Result | None) -> Iterator[Difference]:
    """Compare two results of a case.

    Args:
        expected: The reference's result.
        actual: Bayplan's result; None differs in every aspect.

    Yields:
        Each differing aspect.
    """
    for aspect in aspects_of(expected):
        wanted = ASPECTS[aspect](expected)
        found = None if actual is None else ASPECTS[aspect](actual)
        if actual is None or wanted != found:
            yield Difference(str(expected["name"]), aspect, wanted, "no result" if actual is None else found)


@dataclass(slots=True)
class Tally:
    """Agreement of a family.

    Attributes:
        applied: Number of cases by aspect that applies.
        agreed: Number of cases by aspect in which they agree.
        found: First differences.
    """

    limit: int = 3
    cases: int = 0
    applied: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    agreed: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    found: list[Difference] = field(default_factory=list)

    def add(self, expected: Result, actual: Result | None) -> None:
        """Count a case."""
        self.cases += 1
        differing = {each.aspect: each for each in differences(expected, actual)}
        for aspect in aspects_of(expected):
            self.applied[aspect] += 1
            self.agreed[aspect] += aspect not in differing
        self.found += list(differing.values())[: max(0, self.limit - len(self.found))]

    @property
    def agrees(self) -> bool:
        """Return whether every case agrees in every aspect."""
        return all(self.agreed[aspect] == count for aspect, count in self.applied.items())
