"""VolumeBinding's scores: by default, more free storage leads to a higher score."""

from __future__ import annotations

import pytest

from scheduler_core.config.plugin_args import UtilizationShapePoint, VolumeBindingArgs
from scheduler_core.framework.cycle_state import CycleState
from scheduler_core.model.affinity import LabelSelector
from scheduler_core.model.meta import ObjectMeta
from scheduler_core.model.storage import CsiStorageCapacity, StorageObject
from scheduler_core.plugins.volume_binding import VolumeBinding
from scheduler_core.snapshot.node_columns import ALL_ROWS
from tests.support.builders import node, pod
from tests.support.handles import FakeHandle
from tests.support.presence import present
from tests.support.storage import capacity, claim, columns_with_storage, csi_driver, mounts, storage_class, volume

DRIVER, ZONE = "disk.example.com", "zone"
NODES = (node("a", labels={ZONE: "a"}), node("b", labels={ZONE: "b"}))
DYNAMIC: tuple[StorageObject, ...] = (storage_class("local", DRIVER), csi_driver(DRIVER))


def scores(storage: list[StorageObject], *claims: str, args: VolumeBindingArgs | None = None) -> list[int]:
    """Return the scores of both nodes for a pod with claims."""
    nodes, state = columns_with_storage(NODES, storage), CycleState()
    plugin, info = VolumeBinding(args, FakeHandle(nodes=nodes)), nodes.compile_pod(pod(volumes=mounts(*claims)))
    assert plugin.pre_filter(state, info, nodes).status.is_success
    codes = present(plugin.filter(state, info, nodes, ALL_ROWS))
    assert not codes.any()
    assert plugin.pre_score(state, info, nodes, ALL_ROWS).is_success
    found: list[int] = plugin.score(state, info, nodes, ALL_ROWS).tolist()
    return found


def reported(zone: str, amount: str, of_class: str = "local") -> CsiStorageCapacity:
    """Return the storage capacity of a zone."""
    return capacity(f"{of_class}-{zone}", of_class, amount, on={ZONE: zone})


@pytest.mark.parametrize(
    ("storage", "claims", "expected"),
    [
        pytest.param(
            [claim("c", size="5Gi"), storage_class(), volume("v", size="10Gi", on={ZONE: ["a"]}),
             volume("w", size="20Gi", on={ZONE: ["b"]})],
            ["c"], [50, 75], id="size of the existing volume",
        ),
        pytest.param(
            [claim("c", size="1Gi"), claim("d", size="9Gi"), storage_class(), volume("v"), volume("w")],
            ["c", "d"], [50, 50], id="volumes of a class are summed",
        ),
        pytest.param(
            [claim("c", size="5Gi"), *DYNAMIC, reported("a", "10Gi"), reported("b", "50Gi")],
            ["c"], [50, 90], id="reported capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi"), *DYNAMIC, reported("a", "20Gi"), reported("b", "40Gi")],
            ["c", "d"], [50, 75], id="claims of a class share the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi"), *DYNAMIC, reported("a", "8Gi"), reported("b", "10Gi")],
            ["c", "d"], [0, 0], id="more than the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi", storage_class="fast"), *DYNAMIC,
             storage_class("fast", DRIVER), reported("a", "10Gi"), reported("b", "10Gi"),
             reported("a", "20Gi", "fast"), reported("b", "40Gi", "fast")],
            ["c", "d"], [63, 69], id="mean of the classes, half rounded up",
        ),
        pytest.param(
            [claim("c", size="5Gi"), claim("d", size="5Gi", storage_class="fast"), storage_class("local", DRIVER),
             storage_class("fast", DRIVER), csi_driver(DRIVER), volume("v", size="10Gi", on={ZONE: ["a"]}),
             reported("b", "50Gi"), reported("a", "20Gi", "fast"), reported("b", "20Gi", "fast")],
            ["c", "d"], [50, 83], id="a class with an existing volume ignores the capacity",
        ),
        pytest.param(
            [claim("c", size="5Gi"), storage_class("local", DRIVER), csi_driver(DRIVER, reports_capacity=False)],
            ["c"], [0, 0], id="nothing reported",
        ),
        pytest.param(
            [claim("c", size="5Gi"), *DYNAMIC,
             CsiStorageCapacity(ObjectMeta(name="s"), "local", LabelSelector(), None, "9Gi")],
            ["c"], [0, 0], id="a maximum volume size without a capacity",
        ),
    ],
)  # fmt: skip
def test_score(storage: list[StorageObject], claims: list[str], expected: list[int]) -> None:
    """The score is the mean over storage classes of the default shape's value at the utilization."""
    assert scores(storage, *claims) == expected


def test_shape() -> None:
    """A profile's shape can prefer full storage."""
    points = (UtilizationShapePoint(utilization=0, score=0), UtilizationShapePoint(utilization=100, score=10))
    storage = [claim("c", size="5Gi"), *DYNAMIC, reported("a", "10Gi"), reported("b", "50Gi")]
    assert scores(storage, "c", args=VolumeBindingArgs(shape=points)) == [50, 10]
