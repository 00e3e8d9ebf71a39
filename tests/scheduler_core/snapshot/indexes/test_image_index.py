"""Index of the rows that have an image, and the image's size."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.node import ContainerImage
from scheduler_core.snapshot.indexes.row_indexes import ImageIndex


def rows_of(index: ImageIndex, name: str) -> list[int]:
    state = index.get(name)
    return [] if state is None else state.row_array().tolist()


def test_every_name_of_an_image_is_found() -> None:
    """An image is found by tag and by digest."""
    index = ImageIndex()
    index.add_node(2, [ContainerImage(("app:v1", "app@sha256:1"), 100)])
    index.add_node(0, [ContainerImage(("app:v1",), 100)])
    assert rows_of(index, "app:v1") == [0, 2]
    assert rows_of(index, "app@sha256:1") == [2]
    assert index.get("unknown") is None


def test_the_first_size_is_stored_until_no_node_has_the_image() -> None:
    """The size is that of the first node that reported the image, as in kube-scheduler."""
    index = ImageIndex()
    first, second = ContainerImage(("app",), 100), ContainerImage(("app",), 999)
    index.add_node(0, [first])
    index.add_node(1, [second])
    index.remove_node(0, [first])
    state = index.get("app")
    assert state is not None
    assert state.size_bytes == 100
    index.remove_node(1, [second])
    assert index.get("app") is None
    index.add_node(1, [second])
    added_again = index.get("app")
    assert added_again is not None
    assert added_again.size_bytes == 999


def test_every_change_raises_the_version() -> None:
    """Each added or removed image increases the version, which invalidates cached results."""
    index = ImageIndex()
    versions = [index.version]
    for _ in range(2):
        index.add_node(0, [ContainerImage(("app",), 1)])
        versions.append(index.version)
        index.remove_node(0, [ContainerImage(("app",), 1)])
        versions.append(index.version)
    assert versions == sorted(set(versions))


def test_rows_are_not_writeable() -> None:
    """Rows are read-only because plugins receive them."""
    index = ImageIndex()
    index.add_node(0, [ContainerImage(("app",), 1)])
    state = index.get("app")
    assert state is not None
    with pytest.raises(ValueError, match="read-only"):
        state.row_array()[0] = 1


_IMAGES = st.lists(st.sampled_from("abc"), max_size=3)


@given(st.lists(st.tuples(st.integers(0, 3), _IMAGES)))
def test_the_index_equals_what_nodes_report(reports: list[tuple[int, list[str]]]) -> None:
    """After any sequence of reports, the rows of an image are those of the nodes' last reports."""
    index = ImageIndex()
    current: dict[int, list[ContainerImage]] = {}
    for row, names in reports:
        index.remove_node(row, current.get(row, []))
        current[row] = [ContainerImage((name,), 1) for name in names]
        index.add_node(row, current[row])
        for name in "abc":
            holders = [each for each, images in sorted(current.items()) if any(name in image.names for image in images)]
            assert rows_of(index, name) == holders
