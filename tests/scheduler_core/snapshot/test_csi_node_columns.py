"""Volume limits and migrated plugins of CSINodes, by node row."""

from scheduler_core.snapshot.row_cache import CsiNodeColumns
from tests.support.builders import node
from tests.support.storage import columns_with_storage, csi_node


def test_limits_and_migration_by_row() -> None:
    """A node without a CSINode has no limits, and a CSINode without a node is ignored."""
    nodes = columns_with_storage(
        [node("a"), node("b"), node("c")],
        [csi_node("a", {"d": 3, "e": None}, migrated="p,q"), csi_node("c", {"d": 0}), csi_node("x", {"d": 9})],
    )
    found = CsiNodeColumns(nodes)
    limits, migrated = found.limits("d"), found.migrated("q")
    assert limits is not None
    assert migrated is not None
    assert (found.present().tolist(), limits.tolist()) == ([True, False, True], [3, -1, 0])
    assert migrated.tolist() == [True, False, False]
    assert (found.limits("e"), found.migrated("r")) == (None, None)


def test_columns_follow_changes() -> None:
    """Changed CSINodes and added or removed nodes change the columns."""
    nodes = columns_with_storage([node("a")], [csi_node("a", {"d": 3})])
    found = CsiNodeColumns(nodes)
    assert found.present().tolist() == [True]
    nodes.storage.assign(csi_node("a", {"d": 4}))
    limits = found.limits("d")
    assert limits is not None
    assert limits.tolist() == [4]
    nodes.add_node(node("b"))
    nodes.storage.assign(csi_node("b"))
    nodes.remove_node("a")
    assert found.present().tolist() == [False, True]
    assert found.limits("d") is None
