"""Families of cases by name.

A case depends only on seed, family, index and whether it is bent. A longer run starts with the cases of a shorter one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from tests.parity.oracle.generation.alpha_devices import ALPHA_GATES, fam_draalpha
from tests.parity.oracle.generation.attribute_devices import ATTRIBUTE_GATES, fam_draattributes
from tests.parity.oracle.generation.bending import bend
from tests.parity.oracle.generation.dynamic_resources import fam_dra
from tests.parity.oracle.generation.images import fam_images
from tests.parity.oracle.generation.node_rules import fam_nodeaffinity, fam_ports, fam_taints
from tests.parity.oracle.generation.pod_rules import fam_podaffinity
from tests.parity.oracle.generation.preemption import fam_gates, fam_preemption
from tests.parity.oracle.generation.profiles import fam_mixed, fam_profiles
from tests.parity.oracle.generation.requests import fam_resources, fam_scoring
from tests.parity.oracle.generation.spreading import fam_spread
from tests.parity.oracle.generation.volumes import fam_volumes
from tests.parity.oracle.generation.world import Json, World

FAMILIES: Mapping[str, Callable[[World], None]] = MappingProxyType(
    {
        "resources": fam_resources,
        "scoring": fam_scoring,
        "taints": fam_taints,
        "nodeaffinity": fam_nodeaffinity,
        "ports": fam_ports,
        "podaffinity": fam_podaffinity,
        "spread": fam_spread,
        "images": fam_images,
        "volumes": fam_volumes,
        "preemption": fam_preemption,
        "gates": fam_gates,
        "profiles": fam_profiles,
        "mixed": fam_mixed,
        "dra": fam_dra,
        "draalpha": fam_draalpha,
        "draattributes": fam_draattributes,
    }
)
GATES: Mapping[str, Mapping[str, bool]] = MappingProxyType({"draalpha": ALPHA_GATES, "draattributes": ATTRIBUTE_GATES})
"""Feature gates of a family that differ from their defaults; value of the oracle's flag ``-feature-gates``."""
DEFAULT_FAMILIES = tuple(family for family in FAMILIES if family not in GATES)
"""Families with all feature gates at their defaults."""


def generate(family: str, seed: int, index: int, *, bent: bool = False) -> Json:
    """Generate a case as a user submits it; ``oracle -admit`` sets the defaults of the API server.

    Args:
        family: Key of :data:`FAMILIES`.
        bent: Whether to add rare notations and features of other families; the API server rejects some of these cases.
    """
    world = World(family, seed, index)
    FAMILIES[family](world)
    if bent:
        world.name += "-bent"
        bend(world)
    return world.case()
