"""The image of this checkout, built once for the session; tests are skipped if it cannot be built or run.

The first build on a machine creates a base, which takes minutes: the timeout of tests with the image allows for it.
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
        engine: Engine that has built the image and can run it.
    """

    engine: Engine
    tag: str
    origin: Provenance
    context: Path


_BUILD_SECONDS = 1800.0

# The Dockerfile and everything that `.dockerignore` lets through.
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
    """Find or build Helm if a collected test needs it."""
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
    """Write the image to an archive; remove it at the end, since pytest retains the directories of several sessions."""
    path = tmp_path_factory.mktemp("image") / "image.tar"
    image.engine.save(image.tag, path)
    yield image_build.read_archive(path)
    path.unlink()


@pytest.fixture(scope="session")
def files(archive: Image) -> dict[str, LayerFile]:
    """Return every file of the image by its path without the leading slash."""
    return read_files(archive.archive)


def rebuilt(image: BuiltImage, directory: Path) -> Image:
    """Build again without any cache except the base, and remove the storage.

    Args:
        directory: Directory for the storage and the archive.

    Returns:
        The image, whose archive is not removed.
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
    """Copy the sources, because they may be edited between two builds that are compared."""
    copy = Path(tempfile.mkdtemp(prefix="bayplan-image-context-"))
    atexit.register(shutil.rmtree, copy, ignore_errors=True)
    for name in _CONTEXT:
        source, target = image_build.ROOT / name, copy / name
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return copy
