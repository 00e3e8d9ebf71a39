"""Law of VolumeBinding: results for all rows equal those for single nodes, and no volume is assigned twice."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.storage import StorageObject
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.storage import (
    VolumeFields,
    capacity,
    claim,
    columns_with_storage,
    csi_driver,
    mounts,
    storage_class,
    volume,
)

SELECTED_NODE = "volume.kubernetes.io/selected-node"
DRIVER = "disk.example.com"
ZONES = ("a", "b", "c")
OUT_OF_REACH, CANNOT_BIND, NO_SPACE, NO_VOLUME = 1, 2, 4, 8


@dataclass(frozen=True)
class Disk:
    """Short description of a volume."""

    size: int
    zones: tuple[str, ...] | None
    claim_ref: int | None
    mode: str
    available: bool


@dataclass(frozen=True)
class Claim:
    """Short description of a claim, which is unbound or bound to a volume by index (a too large index is missing)."""

    size: int
    mode: str
    bound_to: int | None
    selected: str | None


@dataclass(frozen=True)
class Case:
    """Generated objects; ``capacity_gi`` by zone, or None if the driver reports no capacity."""

    disks: tuple[Disk, ...]
    claims: tuple[Claim, ...]
    provisions: bool
    allowed: tuple[str, ...] | None
    capacity_gi: dict[str, int] | None


_ZONES = st.one_of(st.none(), st.lists(st.sampled_from(ZONES), min_size=1, max_size=2, unique=True).map(tuple))
_MODES = st.sampled_from(["RWO", "ROX"])
_DISKS = st.builds(
    Disk,
    st.integers(1, 4),
    _ZONES,
    st.one_of(st.none(), st.integers(0, 2)),
    _MODES,
    st.sampled_from([True, True, False]),
)
_CLAIMS = st.builds(
    Claim,
    st.integers(1, 4),
    _MODES,
    st.one_of(st.none(), st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.none(), st.sampled_from(["n0", "n1", "gone"])),
)
_CASES = st.builds(
    Case,
    st.lists(_DISKS, max_size=5).map(tuple),
    st.lists(_CLAIMS, min_size=1, max_size=3).map(tuple),
    st.booleans(),
    _ZONES,
    st.one_of(st.none(), st.dictionaries(st.sampled_from(ZONES), st.integers(1, 4))),
)


def _node_code(case: Case, zone: str, name: str) -> int:
    """Return the code of one node, in the order in which kube-scheduler checks the claims."""
    code = 0
    for each_claim in case.claims:
        if each_claim.bound_to is None:
            continue
        if each_claim.bound_to >= len(case.disks):
            code |= NO_VOLUME
            break
        zones = case.disks[each_claim.bound_to].zones
        if zones is not None and zone not in zones:
            code |= OUT_OF_REACH
            break
    unbound = [(number, each_claim) for number, each_claim in enumerate(case.claims) if each_claim.bound_to is None]
    selected = [each_claim for _, each_claim in unbound if each_claim.selected is not None]
    if any(each_claim.selected != name for each_claim in selected):
        return code | CANNOT_BIND
    to_provision = list(selected)
    used: set[int] = set()
    for number, each_claim in sorted(
        (each for each in unbound if each[1].selected is None), key=lambda each: each[1].size
    ):
        chosen = _chosen(case, number, each_claim, zone, used)
        if chosen is None:
            to_provision.append(each_claim)
        else:
            used.add(chosen)
    for each_claim in to_provision:
        if not case.provisions or (case.allowed is not None and zone not in case.allowed):
            return code | CANNOT_BIND
        if case.capacity_gi is not None and case.capacity_gi.get(zone, 0) < each_claim.size:
            return code | NO_SPACE
    return code


def _chosen(case: Case, number: int, each_claim: Claim, zone: str, used: set[int]) -> int | None:
    fitting = [
        (disk.size, position)
        for position, disk in enumerate(case.disks)
        if position not in used and disk.size >= each_claim.size and disk.claim_ref in (None, number)
    ]
    for _, position in sorted(fitting):
        disk = case.disks[position]
        if disk.claim_ref == number:
            return position if disk.zones is None or zone in disk.zones else None
    for _, position in sorted(fitting):
        disk = case.disks[position]
        if disk.available and disk.mode == each_claim.mode and (disk.zones is None or zone in disk.zones):
            return position
    return None


def _storage(case: Case) -> list[StorageObject]:
    allowed = None if case.allowed is None else {"zone": case.allowed}
    storage: list[StorageObject] = [storage_class("local", DRIVER if case.provisions else "", on=allowed)]
    for position, disk in enumerate(case.disks):
        fields: VolumeFields = {
            "size": f"{disk.size}Gi",
            "modes": [disk.mode],
            "phase": "Available" if disk.available else "Released",
        }
        if disk.claim_ref is not None:
            fields["claim_ref"] = f"default/c{disk.claim_ref}"
        if disk.zones is not None:
            fields["on"] = {"zone": disk.zones}
        storage.append(volume(f"v{position}", **fields))
    for number, each_claim in enumerate(case.claims):
        storage.append(
            claim(
                f"c{number}",
                size=f"{each_claim.size}Gi",
                modes=[each_claim.mode],
                volume="" if each_claim.bound_to is None else f"v{each_claim.bound_to}",
                annotations={} if each_claim.selected is None else {SELECTED_NODE: each_claim.selected},
            )
        )
    if case.capacity_gi is not None:
        storage.append(csi_driver(DRIVER))
        storage += [
            capacity(zone, "local", f"{capacity_gi}Gi", on={"zone": zone})
            for zone, capacity_gi in case.capacity_gi.items()
        ]
    return storage


@given(_CASES)
def test_all_nodes_at_once_equal_one_at_a_time(case: Case) -> None:
    """Codes equal those of single nodes, and Reserve assigns different volumes to different claims."""
    nodes = columns_with_storage(
        [node(f"n{number}", labels={"zone": zone}) for number, zone in enumerate(ZONES)], _storage(case)
    )
    plugin, state = VolumeBinding(None, FakeHandle(nodes=nodes)), CycleState()
    info = nodes.compile_pod(pod(volumes=mounts(*(f"c{number}" for number in range(len(case.claims))))))
    assert plugin.pre_filter(state, info, nodes).status.is_success
    codes = present(plugin.filter(state, info, nodes, ALL_ROWS))
    assert codes.tolist() == [_node_code(case, zone, f"n{number}") for number, zone in enumerate(ZONES)]
    for row in [row for row, code in enumerate(codes.tolist()) if not code][:1]:
        assert plugin.reserve(state, info, nodes.node_name(row)).is_success
        storage = nodes.storage
        assigned = [
            known.volume.metadata.name
            for number in range(len(case.claims))
            for known in storage.volumes_reserved_for(claim(f"c{number}"))
            if known.volume.spec.claim_ref is not None and known.volume.spec.claim_ref.uid
        ]
        assert len(assigned) == len(set(assigned))
