"""The image of this checkout, built once for the session, and what happens when it cannot be built or run.

The first build on a machine makes a base, which takes minutes: the time limit of tests with the image allows for it.
"""

import atexit
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from hack.image import image_build
from hack.image.engines import Engine, ImageError, choose, discard
from hack.image.image_build import Image, Provenance
from tests.charts import conftest as charts
from tests.image.layer_files import LayerFile, read_files

_TAG = "localhost/bayplan:tested"

helm = charts.helm


@dataclass(frozen=True, slots=True)
class BuiltImage:
    """An image in an engine's storage.

    Args:
        engine: What has built it and can run it.
        tag: Its name.
        origin: The origin that it was built with.
        context: What it was built from.
    """

    engine: Engine
    tag: str
    origin: Provenance
    context: Path


_BUILD_SECONDS = 1800.0

# What `.dockerignore` lets through, and the recipe.
_CONTEXT = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "uv.lock", "README.md", "LICENSE", "CHANGELOG.md"),
    *("crds", "hack/image", "operator", "scheduler_core"),
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Allow tests with the image the time to build it."""
    for item in items:
        if "image" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.timeout(_BUILD_SECONDS))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Find or build Helm when a collected test needs it."""
    charts.pytest_collection_finish(session)


@pytest.fixture(scope="session")
def image(request: pytest.FixtureRequest) -> BuiltImage:
    """Build the image; a test without it is skipped, and fails in CI."""
    try:
        with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
            return _build()
    except ImageError as problem:
        if os.environ.get("CI"):
            pytest.fail(str(problem), pytrace=False)
        pytest.skip(str(problem))


@pytest.fixture(scope="session")
def archive(image: BuiltImage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Image]:
    """The image in an archive, which is removed at the end: pytest keeps directories of several sessions."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    image.engine.save(image.tag, path)
    yield image_build.read_archive(path)
    path.unlink()


@pytest.fixture(scope="session")
def files(archive: Image) -> dict[str, LayerFile]:
    """Every file of the image by its path, without the leading slash."""
    return read_files(archive.archive)


def rebuilt(image: BuiltImage, directory: Path) -> Image:
    """Build once more, with nothing kept of earlier builds but the base, and throw the storage away.

    Args:
        image: What to build again.
        directory: Takes the storage and the archive.

    Returns:
        The image; its archive stays.
    """
    storage = directory / "storage"
    engine = choose(image.engine.name, storage)
    image_build.build(engine, _TAG, image.origin, context=image.context, cached=False)
    engine.save(_TAG, directory / "again.tar")
    if engine.name != "docker":
        engine.run("rmi", "--all", "--force")
        discard(engine)
    return image_build.read_archive(directory / "again.tar")


def _build() -> BuiltImage:
    engine = choose()
    if engine.name == "buildah":
        raise ImageError("buildah builds the image and cannot run it: install podman, `apt-get install podman runc`")
    origin, context = image_build.provenance(), _copied_context()
    image_build.build(engine, _TAG, origin, context=context)
    return BuiltImage(engine, _TAG, origin, context)


def _copied_context() -> Path:
    """Copy the sources: somebody may edit them between two builds that are to be compared."""
    copy = Path(tempfile.mkdtemp(prefix="bayplan-image-context-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in _CONTEXT:
        source, target = image_build.ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return copy
