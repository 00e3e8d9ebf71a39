"""The document that answers "would it fit?"; its fields are those of the JSON and YAML, in camel case."""

from __future__ import annotations

from msgspec import Struct

from scheduler_core.explain.findings import Victim
from scheduler_core.fit.fit_search import FitVerdict


class PlacedPod(Struct, frozen=True, rename="camel"):
    """Node of a pod of the request.

    Attributes:
        pod: ``namespace/name``; a controller appends a random suffix to most names.
    """

    pod: str
    node: str


class UnplacedItem(Struct, frozen=True, rename="camel"):
    """A pod or group without nodes, and why.

    Attributes:
        name: ``namespace/name`` of a pod, or of a PodGroup.
        kind: Pod, PodGroup or CompositePodGroup.
    """

    name: str
    kind: str
    message: str


class FitGroup(Struct, frozen=True, rename="camel"):
    """Topology domain of a gang."""

    name: str
    domain: str


class FitEvictions(Struct, frozen=True, rename="camel"):
    """Evictions after which all pods fit.

    Attributes:
        pods: Number of pods that are evicted.
        victims: Those of them that the reader may see, lowest priority first.
        awaited: Number of pods that terminate already and must end.
        pdb_violations: Number of victims whose eviction violates a PodDisruptionBudget.
    """

    pods: int
    victims: tuple[Victim, ...]
    awaited: int
    pdb_violations: int


class FitNewNodes(Struct, frozen=True, rename="camel"):
    """New nodes of the template with which all pods fit, without evictions.

    Attributes:
        count: The least number; None if the allowed number is too small, or if no number helps.
        at_least: With fewer new nodes the pods are proved not to fit; None if no number helps.
        tried: Maximum number that was allowed.
    """

    count: int | None
    at_least: int | None
    tried: int


class FitDocument(Struct, frozen=True, rename="camel", kw_only=True):
    """Answer to "would it fit?".

    Attributes:
        headline: The verdict in a sentence.
        pods: Number of pods of the request.
        placed: Nodes of the pods in the case that the verdict is about; with less than all pods what fits now.
        nodes: Number of different nodes among them.
        groups: Topology domains of gangs.
        evictions: Evictions after which all pods fit; None if there are none.
        new_nodes: Result for the node template; None without a template, or if all pods fit now.
        unplaced: What has no node now, and why.
        reason: Proof that the pods never fit, or why the search was given up; None otherwise.
        steps: Steps that the search took.
        notices: Limitations of the answer.
    """

    verdict: FitVerdict
    headline: str
    pods: int
    placed: tuple[PlacedPod, ...] = ()
    nodes: int = 0
    groups: tuple[FitGroup, ...] = ()
    evictions: FitEvictions | None = None
    new_nodes: FitNewNodes | None = None
    unplaced: tuple[UnplacedItem, ...] = ()
    reason: str | None = None
    steps: int = 0
    notices: tuple[str, ...] = ()


EXIT_CODES = {
    FitVerdict.FITS_NOW: 0,
    FitVerdict.FITS_AFTER_EVICTIONS: 10,
    FitVerdict.FITS_WITH_NEW_NODES: 11,
    FitVerdict.DOES_NOT_FIT: 12,
    FitVerdict.IMPOSSIBLE: 13,
    FitVerdict.GAVE_UP: 14,
}
"""Exit code of the command by verdict; 1 and 2 are those of errors and of bad input."""
