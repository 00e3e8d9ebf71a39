"""What CSINodes say, by row."""

from scheduler_core.snapshot.csi_node_columns import CsiNodeColumns
from tests.support.builders import node
from tests.support.storage import csi_node, stored


def test_limits_and_migration_by_row() -> None:
    """A node without CSINode, and a CSINode without node, say nothing."""
    nodes = stored(
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


def test_changes_are_followed() -> None:
    """Of a CSINode and of the nodes."""
    nodes = stored([node("a")], [csi_node("a", {"d": 3})])
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
