"""The law of VolumeBinding: all nodes at once give what one node at a time gives, and no volume is given twice."""

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.storage import StorageObject
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
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
    """A volume in few words."""

    size: int
    zones: tuple[str, ...] | None
    claim_ref: int | None
    mode: str
    available: bool


@dataclass(frozen=True)
class Want:
    """A claim in few words: bound to a volume by number (one past the last is missing), or unbound."""

    size: int
    mode: str
    bound_to: int | None
    selected: str | None


@dataclass(frozen=True)
class Case:
    """What is drawn; ``room`` by zone in Gi, None where the driver reports nothing."""

    disks: tuple[Disk, ...]
    wants: tuple[Want, ...]
    provisions: bool
    allowed: tuple[str, ...] | None
    room: dict[str, int] | None


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
_WANTS = st.builds(
    Want,
    st.integers(1, 4),
    _MODES,
    st.one_of(st.none(), st.none(), st.integers(0, 4)),
    st.one_of(st.none(), st.none(), st.sampled_from(["n0", "n1", "gone"])),
)
_CASES = st.builds(
    Case,
    st.lists(_DISKS, max_size=5).map(tuple),
    st.lists(_WANTS, min_size=1, max_size=3).map(tuple),
    st.booleans(),
    _ZONES,
    st.one_of(st.none(), st.dictionaries(st.sampled_from(ZONES), st.integers(1, 4))),
)


def _judged(case: Case, zone: str, name: str) -> int:
    """One node, as the reference walks through its claims."""
    code = 0
    for want in case.wants:
        if want.bound_to is None:
            continue
        if want.bound_to >= len(case.disks):
            code |= NO_VOLUME
            break
        zones = case.disks[want.bound_to].zones
        if zones is not None and zone not in zones:
            code |= OUT_OF_REACH
            break
    unbound = [(number, want) for number, want in enumerate(case.wants) if want.bound_to is None]
    selected = [want for _, want in unbound if want.selected is not None]
    if any(want.selected != name for want in selected):
        return code | CANNOT_BIND
    to_make = list(selected)
    taken: set[int] = set()
    for number, want in sorted((each for each in unbound if each[1].selected is None), key=lambda each: each[1].size):
        chosen = _chosen(case, number, want, zone, taken)
        if chosen is None:
            to_make.append(want)
        else:
            taken.add(chosen)
    for want in to_make:
        if not case.provisions or (case.allowed is not None and zone not in case.allowed):
            return code | CANNOT_BIND
        if case.room is not None and case.room.get(zone, 0) < want.size:
            return code | NO_SPACE
    return code


def _chosen(case: Case, number: int, want: Want, zone: str, taken: set[int]) -> int | None:
    fitting = [
        (disk.size, position)
        for position, disk in enumerate(case.disks)
        if position not in taken and disk.size >= want.size and disk.claim_ref in (None, number)
    ]
    for _, position in sorted(fitting):
        disk = case.disks[position]
        if disk.claim_ref == number:
            return position if disk.zones is None or zone in disk.zones else None
    for _, position in sorted(fitting):
        disk = case.disks[position]
        if disk.available and disk.mode == want.mode and (disk.zones is None or zone in disk.zones):
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
    for number, want in enumerate(case.wants):
        storage.append(
            claim(
                f"c{number}",
                size=f"{want.size}Gi",
                modes=[want.mode],
                volume="" if want.bound_to is None else f"v{want.bound_to}",
                annotations={} if want.selected is None else {SELECTED_NODE: want.selected},
            )
        )
    if case.room is not None:
        storage.append(csi_driver(DRIVER))
        storage += [capacity(zone, "local", f"{room}Gi", on={"zone": zone}) for zone, room in case.room.items()]
    return storage


@given(_CASES)
def test_all_nodes_at_once_equal_one_at_a_time(case: Case) -> None:
    """Codes, and that claims which are given volumes are given different ones."""
    nodes = columns_with_storage(
        [node(f"n{number}", labels={"zone": zone}) for number, zone in enumerate(ZONES)], _storage(case)
    )
    plugin, state = VolumeBinding(None, FakeHandle(nodes=nodes)), CycleState()
    info = nodes.compile_pod(pod(volumes=mounts(*(f"c{number}" for number in range(len(case.wants))))))
    assert plugin.pre_filter(state, info, nodes).status.is_success
    codes = plugin.filter(state, info, nodes, ALL_ROWS)
    assert codes is not None
    assert codes.tolist() == [_judged(case, zone, f"n{number}") for number, zone in enumerate(ZONES)]
    for row in [row for row, code in enumerate(codes.tolist()) if not code][:1]:
        assert plugin.reserve(state, info, nodes.node_name(row)).is_success
        storage = nodes.storage
        given_out = [
            known.volume.metadata.name
            for number in range(len(case.wants))
            for known in storage.volumes_reserved_for(claim(f"c{number}"))
            if known.volume.spec.claim_ref is not None and known.volume.spec.claim_ref.uid
        ]
        assert len(given_out) == len(set(given_out))
