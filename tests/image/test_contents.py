"""What is in the image and what it says of itself."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from hack.image.image_build import ROOT, Image
from hack.image.runtime_root import NOBODY
from tests.image.conftest import BuiltImage, rebuilt
from tests.image.layer_files import LayerFile

_LABEL = "org.opencontainers.image."
# The interpreter, the loader of shared libraries and the command; in names of several versions.
_PROGRAMS = re.compile(r"usr/(local/)?bin/python3\.\d+|.*/ld-linux[-\w.]*\.so\.\d|opt/bayplan/bin/bayplan")
_MEGABYTES = 300.0


def test_the_user_is_a_number(archive: Image) -> None:
    """The kubelet can verify that the image does not run as root."""
    assert archive.config["config"]["User"] == f"{NOBODY}:{NOBODY}"


def test_the_command_is_bayplan(archive: Image) -> None:
    """Arguments of the chart are Bayplan's own, and without any it runs the operator."""
    config = archive.config["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["bayplan"], ["run"])


def test_labels_name_the_origin(archive: Image, image: BuiltImage) -> None:
    """Version, commit and its time can be read from the image."""
    labels = archive.config["config"]["Labels"]
    labelled = {name.removeprefix(_LABEL): value for name, value in labels.items() if name.startswith(_LABEL)}
    assert labelled.pop("base.name")
    assert labelled.pop("description")
    assert labelled == {
        "title": "bayplan",
        "licenses": "Apache-2.0",
        "version": image.origin.version,
        "revision": image.origin.revision,
        "created": image.origin.created,
        "source": image.origin.source,
    }


def test_the_time_of_the_build_is_unknown(archive: Image) -> None:
    """Neither the image nor a step of it contains its build time; a label has the commit's time."""
    times = {archive.config["created"], *(step["created"] for step in archive.config["history"])}
    assert {time[:10] for time in times} == {"1970-01-01"}


def test_it_has_a_health_check(archive: Image) -> None:
    """An engine without probes asks the program that is in the image."""
    assert archive.config["config"]["Healthcheck"]["Test"] == ["CMD", "python3", "/opt/bayplan/healthcheck.py"]


def test_nothing_can_be_executed_but_what_runs(files: dict[str, LayerFile]) -> None:
    """No shell, no package manager, no compiler, no command of a dependency."""
    runnable = [
        path
        for path, file in files.items()
        if file.kind == "file" and file.mode & 0o111 and not re.search(r"\.so(\.[\d.]+)?$", path)
    ]
    assert [path for path in runnable if not _PROGRAMS.fullmatch(path)] == []
    assert "opt/bayplan/bin/bayplan" in runnable


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("pip", id="pip"),
        pytest.param("ensurepip", id="pip's wheel"),
        pytest.param("setuptools", id="setuptools"),
        pytest.param("hatchling", id="the build backend"),
        pytest.param("uv", id="uv"),
        pytest.param("pytest", id="tests' dependencies"),
        pytest.param("mkdocs", id="the documentation's dependencies"),
        pytest.param("secrets", id="the build's secrets"),
    ],
)
def test_the_builds_tools_are_left_behind(files: dict[str, LayerFile], name: str) -> None:
    """What the build needs is in none of the layers."""
    assert [path for path in files if name in PurePosixPath(path).parts] == []


def test_nobody_gains_rights_by_a_file(files: dict[str, LayerFile]) -> None:
    """No file runs as its owner or group, and none is a device."""
    odd = [path for path, file in files.items() if file.kind == "other" or (file.kind == "file" and file.mode & 0o6000)]
    assert odd == []


def test_the_user_can_write_nothing(files: dict[str, LayerFile]) -> None:
    """Everything is root's and writable by root alone, but the directory for temporary files."""
    writable = [path for path, file in files.items() if file.kind != "link" and file.mode & 0o022]
    assert writable == ["tmp"]
    assert files["tmp"].mode == 0o1777
    assert {file.owner for file in files.values()} == {(0, 0)}


def test_links_lead_somewhere(files: dict[str, LayerFile]) -> None:
    """Nothing that a file of the image points at was left behind."""
    links = {path: file.target for path, file in files.items() if file.kind == "link"}
    assert [path for path, target in links.items() if _resolved(path, target, links) not in files] == []


def test_modules_are_compiled(files: dict[str, LayerFile]) -> None:
    """Nothing of Bayplan is compiled at each start, since the file system is read-only."""
    sources = [
        PurePosixPath(path) for path in files if re.search(r"/site-packages/(bayplan|scheduler_core)/.*\.py$", path)
    ]
    assert len(sources) > 100
    compiled = {PurePosixPath(path) for path in files if path.endswith(".pyc")}
    tags = {path.name.split(".")[-2] for path in compiled}
    (tag,) = tags
    assert [path for path in sources if path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc" not in compiled] == []


def test_debian_packages_are_listed(files: dict[str, LayerFile]) -> None:
    """Scanners find what is of Debian, with its licence."""
    status = [PurePosixPath(path) for path in files if re.fullmatch(r"var/lib/dpkg/status\.d/[^/]+", path)]
    assert "libc6" in {path.name for path in status}
    assert [path.name for path in status if f"usr/share/doc/{path.name}/copyright" not in files] == []


def test_it_is_slim(archive: Image) -> None:
    """The image does not grow unnoticed."""
    assert sum(archive.layer_bytes) / 1e6 < _MEGABYTES


@pytest.mark.nightly
def test_one_commit_is_one_image(archive: Image, image: BuiltImage, tmp_path: Path) -> None:
    """Built again from nothing, every layer has the same content, and the image the same settings."""
    again = rebuilt(image, tmp_path)
    again.archive.unlink()
    assert again.config["rootfs"] == archive.config["rootfs"]
    # Buildah leaves the build's own host name, and names its stages in the history.
    assert again.config["config"] | {"Hostname": ""} == archive.config["config"] | {"Hostname": ""}


def test_the_locked_tools_build_it() -> None:
    """What pip reads in the build is what the lock says of the group."""
    listed = re.findall(r"^([\w-]+)==(\S+)", (ROOT / "hack/image/build-tools.txt").read_text(), re.MULTILINE)
    lock = (ROOT / "uv.lock").read_text()
    assert {"uv", "hatchling"} <= {name for name, _ in listed}
    assert [one for one in listed if f'name = "{one[0]}"\nversion = "{one[1]}"' not in lock] == []


def _resolved(path: str, target: str, links: dict[str, str]) -> str:
    """The path that a link leads to, links on the way followed."""
    pending = [*reversed(PurePosixPath("/" + str(PurePosixPath(path).parent / target)).parts[1:])]
    if target.startswith("/"):
        pending = [*reversed(PurePosixPath(target).parts[1:])]
    done: list[str] = []
    while pending:
        part = pending.pop()
        if part == "..":
            done.pop()
        elif part != ".":
            done.append(part)
        further = links.get("/".join(done))
        if further is not None:
            done = [] if further.startswith("/") else done[:-1]
            pending += reversed([one for one in PurePosixPath(further).parts if one != "/"])
    return "/".join(done)
