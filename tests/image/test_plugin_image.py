"""The Dockerfile of docs/write-a-plugin.md: an image with plugins, based on the image of this checkout."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hack.image.image_build import ROOT, choose_base
from tests.image.conftest import BuiltImage
from tests.image.container import Container, container_flags

_EXAMPLE = ROOT / "examples" / "plugins"
_TAG = "localhost/bayplan-plugins:tested"


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel of the example plugins into a directory, which is the context of the image build."""
    directory = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", f"--wheel-dir={directory}", str(_EXAMPLE)]
    subprocess.run(command, check=True)
    return directory


@pytest.fixture(scope="module")
def plugin_image(image: BuiltImage, wheels: Path) -> Iterator[str]:
    """Build the image with plugins; return its name."""
    arguments = {"BASE_IMAGE": choose_base(image.engine), "BAYPLAN_IMAGE": image.tag}
    flags = [f"--build-arg={name}={value}" for name, value in arguments.items()]
    command = image.engine.build_command(cached=False)
    image.engine.run(*command, *flags, f"--tag={_TAG}", f"--file={_EXAMPLE / 'Dockerfile'}", str(wheels))
    yield _TAG
    image.engine.run("rmi", "--force", _TAG)


def test_the_container_uses_the_plugins(image: BuiltImage, plugin_image: str) -> None:
    """The container finds and uses the plugins with a read-only root file system and without privileges."""
    manifests = _EXAMPLE / "manifests"
    flags = [*container_flags({}), f"--volume={manifests}:/manifests:ro"]
    files = [f"/manifests/{name}.yaml" for name in ("profile", "nodes", "pods")]
    with Container(image.engine, plugin_image, flags, ["simulate", *files]) as container:
        assert container.wait() == 0
        lines = container.log().splitlines()
    assert "2 of 3 pods scheduled to 2 of 2 nodes; 1 unschedulable" in lines
    placed = dict(line.split()[::2] for line in lines if line.startswith(("default/web ", "default/solve ")))
    assert placed == {"default/solve": "dear", "default/web": "cheap"}
