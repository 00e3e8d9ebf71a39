"""ImageLocality: scores by the size of images that nodes already have."""

from hypothesis import given
from hypothesis import strategies as st

from scheduler_core.model.node import ContainerImage
from scheduler_core.model.pod import ImageVolumeSource, Pod, Volume
from scheduler_core.plugins.image_locality import ImageLocality, full_image_name
from scheduler_core.snapshot.node_columns import NodeColumns
from tests.support.builders import container, node, pod
from tests.support.columns import columns
from tests.support.handles import FakeHandle
from tests.support.plugin_calls import scores_of
from tests.support.tables import table

MIB = 2**20


def _scores(nodes: NodeColumns, incoming: Pod) -> list[int]:
    return scores_of(ImageLocality(None, FakeHandle(nodes=nodes)), incoming, nodes)


@table(
    "written, full",
    ("no tag", "nginx", "nginx:latest"),
    ("a tag", "nginx:1.27", "nginx:1.27"),
    ("a port is not a tag", "registry:5000/nginx", "registry:5000/nginx:latest"),
    ("a port and a tag", "registry:5000/nginx:1", "registry:5000/nginx:1"),
    ("a digest", "nginx@sha256:abc", "nginx@sha256:abc"),
    ("no image", "", ":latest"),
)
def test_full_image_name(written: str, full: str) -> None:
    """A name without tag or digest has the tag ``latest``."""
    assert full_image_name(written) == full


def test_image_volumes_count_as_images() -> None:
    """The image of a volume counts with its size and raises the upper bound like a container."""
    nodes = columns([node("a", images={"app:1": 400 * MIB, "data:1": 300 * MIB})])
    volumes = [Volume(name="data", image=ImageVolumeSource("data:1")), Volume(name="scratch")]
    assert _scores(nodes, pod(image="app:1", volumes=volumes)) == [100 * (700 - 23) // (2000 - 23)]


def test_all_names_of_an_image_find_it() -> None:
    """An image is found by each name that a node reports."""
    image = ContainerImage(("app:1", "app@sha256:abc"), 1000 * MIB)
    nodes = columns([node("a", images=[image])])
    assert _scores(nodes, pod(image="app@sha256:abc")) == [100]


def test_removed_nodes_do_not_count() -> None:
    """The share of nodes with the image is computed from existing nodes only."""
    nodes = columns([node("a", images={"app:1": 1000 * MIB}), node("b"), node("c", images={"app:1": 1000 * MIB})])
    nodes.remove_node("b")
    scores = _scores(nodes, pod(image="app:1"))
    assert (scores[0], scores[2]) == (100, 100)


@given(
    st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(0, 3000)), min_size=1, max_size=6),
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4),
    st.lists(st.sampled_from("abcd"), max_size=2),
)
def test_equals_the_form_for_one_node(held: list[dict[str, int]], images: list[str], volumes: list[str]) -> None:
    """Scores equal the formula for single nodes; the size that the first node reports applies to all."""
    nodes = [
        node(f"n{row}", images={f"{name}:latest": size * MIB + row for name, size in here.items()})
        for row, here in enumerate(held)
    ]
    incoming = pod(
        containers=[container(image=image) for image in images],
        volumes=[Volume(name=str(number), image=ImageVolumeSource(each)) for number, each in enumerate(volumes)],
    )

    def plain(here: dict[str, int]) -> int:
        total = 0
        for image in images + volumes:
            if image not in here:
                continue
            first = next(row for row, other in enumerate(held) if image in other)
            holders = sum(image in other for other in held)
            total += int(float(held[first][image] * MIB + first) * (float(holders) / float(len(held))))
        lowest, highest = 23 * MIB, 1000 * MIB * len(images + volumes)
        return 100 * (min(max(total, lowest), highest) - lowest) // (highest - lowest)

    assert _scores(columns(nodes), incoming) == [plain(here) for here in held]
