"""Files, labels and configuration of the image."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath

import pytest

from hack.image.image_build import ROOT, Image
from hack.image.runtime_root import NONROOT
from tests.image.conftest import BuiltImage, rebuilt
from tests.image.layer_files import LayerFile
from tests.support.tables import table

_LABEL = "org.opencontainers.image."
# The interpreter, the dynamic loader and the command, with versions in their names.
_PROGRAMS = re.compile(r"usr/(local/)?bin/python3\.\d+|.*/ld-linux[-\w.]*\.so\.\d|opt/bayplan/bin/bayplan")
_MEGABYTES = 300.0


def test_the_user_is_a_number(archive: Image) -> None:
    """The user is numeric, so that the kubelet can verify that the image does not run as root."""
    assert archive.config["config"]["User"] == f"{NONROOT}:{NONROOT}"


def test_the_command_is_bayplan(archive: Image) -> None:
    """The entrypoint is bayplan, so arguments of the chart are Bayplan's, and the default command runs the operator."""
    config = archive.config["config"]
    assert (config["Entrypoint"], config["Cmd"]) == (["bayplan"], ["run"])


def test_labels_name_the_origin(archive: Image, image: BuiltImage) -> None:
    """Labels have version, commit and commit time."""
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


def test_the_build_time_is_omitted(archive: Image) -> None:
    """Neither the image nor a step of it contains its build time; a label has the commit's time."""
    times = {archive.config["created"], *(step["created"] for step in archive.config["history"])}
    assert {time[:10] for time in times} == {"1970-01-01"}


def test_it_has_a_health_check(archive: Image) -> None:
    """The health check of engines without probes runs a program of the image."""
    assert archive.config["config"]["Healthcheck"]["Test"] == ["CMD", "python3", "/opt/bayplan/healthcheck.py"]


def test_only_the_entrypoint_is_executable(files: dict[str, LayerFile]) -> None:
    """The image has no shell, package manager, compiler or command of a dependency."""
    runnable = [
        path
        for path, file in files.items()
        if file.kind == "file" and file.mode & 0o111 and not re.search(r"\.so(\.[\d.]+)?$", path)
    ]
    assert [path for path in runnable if not _PROGRAMS.fullmatch(path)] == []
    assert "opt/bayplan/bin/bayplan" in runnable


@table(
    "name",
    ("pip", "pip"),
    ("pip's wheel", "ensurepip"),
    ("setuptools", "setuptools"),
    ("build backend", "hatchling"),
    ("uv", "uv"),
    ("test dependencies", "pytest"),
    ("documentation dependencies", "mkdocs"),
    ("build secrets", "secrets"),
)
def test_build_tools_are_absent(files: dict[str, LayerFile], name: str) -> None:
    """No layer contains what only the build needs."""
    assert [path for path in files if name in PurePosixPath(path).parts] == []


def test_no_file_grants_rights(files: dict[str, LayerFile]) -> None:
    """No file is setuid or setgid, and none is a device."""
    odd = [path for path, file in files.items() if file.kind == "other" or (file.kind == "file" and file.mode & 0o6000)]
    assert odd == []


def test_only_tmp_is_writable(files: dict[str, LayerFile]) -> None:
    """Every file belongs to root and is writable by root only, except the directory for temporary files."""
    writable = [path for path, file in files.items() if file.kind != "link" and file.mode & 0o022]
    assert writable == ["tmp"]
    assert files["tmp"].mode == 0o1777
    assert {file.owner for file in files.values()} == {(0, 0)}


def test_links_resolve(files: dict[str, LayerFile]) -> None:
    """The target of every link is in the image."""
    links = {path: file.target for path, file in files.items() if file.kind == "link"}
    assert [path for path, target in links.items() if _resolved(path, target, links) not in files] == []


def test_modules_are_compiled(files: dict[str, LayerFile]) -> None:
    """Every module of Bayplan has bytecode, since the read-only file system would prevent storing it at start."""
    sources = [
        PurePosixPath(path) for path in files if re.search(r"/site-packages/(bayplan|scheduler_core)/.*\.py$", path)
    ]
    assert len(sources) > 100
    compiled = {PurePosixPath(path) for path in files if path.endswith(".pyc")}
    tags = {path.name.split(".")[-2] for path in compiled}
    (tag,) = tags
    assert [path for path in sources if path.parent / "__pycache__" / f"{path.stem}.{tag}.pyc" not in compiled] == []


def test_debian_packages_are_listed(files: dict[str, LayerFile]) -> None:
    """Each Debian package is listed with its licence, so that scanners find it."""
    status = [PurePosixPath(path) for path in files if re.fullmatch(r"var/lib/dpkg/status\.d/[^/]+", path)]
    assert "libc6" in {path.name for path in status}
    assert [path.name for path in status if f"usr/share/doc/{path.name}/copyright" not in files] == []


def test_the_image_is_small(archive: Image) -> None:
    """The size of the layers is below the limit."""
    assert sum(archive.layer_bytes) / 1e6 < _MEGABYTES


@pytest.mark.nightly
def test_builds_are_reproducible(archive: Image, image: BuiltImage, tmp_path: Path) -> None:
    """A second build without cache has equal layers and an equal configuration."""
    again = rebuilt(image, tmp_path)
    again.archive.unlink()
    assert again.config["rootfs"] == archive.config["rootfs"]
    # Buildah stores the host name of the build, and names its stages in the history.
    assert again.config["config"] | {"Hostname": ""} == archive.config["config"] | {"Hostname": ""}


def test_build_tools_equal_the_lock_file() -> None:
    """The versions that pip installs in the build are those of uv.lock."""
    listed = re.findall(r"^([\w-]+)==(\S+)", (ROOT / "hack/image/build-tools.txt").read_text(), re.MULTILINE)
    lock = (ROOT / "uv.lock").read_text()
    assert {"uv", "hatchling"} <= {name for name, _ in listed}
    assert [one for one in listed if f'name = "{one[0]}"\nversion = "{one[1]}"' not in lock] == []


def _resolved(path: str, target: str, links: dict[str, str]) -> str:
    """Return the path to which a link resolves, including links on the way."""
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
