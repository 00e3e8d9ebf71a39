"""Finds docker, podman or buildah, and calls it with the flags that it needs.

podman and buildah get a storage of their own: what a build leaves there (a base, layers for the next build) can be
deleted as a whole, and the user's images are not touched. The result leaves as an archive, which every engine and kind
can load. Docker has only one storage, behind its daemon.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hack.controlplane.binaries import user_cache

NAMES = ("docker", "podman", "buildah")
"""In order of preference."""

_REMEDY = (
    "Install one of them: on Debian `apt-get install podman buildah runc debootstrap`, elsewhere see "
    "https://docs.docker.com/engine/install or https://podman.io/docs/installation"
)
# The build's processes need no container, and a container inside a container is often impossible.
_BUILD_FLAGS = ("--isolation=chroot", "--format=docker")


_DAEMON_SECONDS = 10.0


class ImageError(Exception):
    """An image cannot be built, stored or run on this machine; the message has the remedy."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that builds images.

    Args:
        storage: Flags that name where it keeps images; none for docker.
        layered: Whether it stores a layer for each step. If the file system shares no data, each layer is a full
            copy.
    """

    name: str
    program: Path
    storage: tuple[str, ...] = ()
    layered: bool = True

    def run(self, *args: str, cwd: Path | None = None) -> str:
        """Run a command of the engine and return its standard output.

        Raises:
            ImageError: It failed; the message ends with its output.
        """
        return self._outcome(args, cwd).stdout

    def run_both(self, *args: str) -> str:
        """Run a command of the engine and return its output, standard error before standard output.

        Raises:
            ImageError: It failed; the message ends with its output.
        """
        outcome = self._outcome(args, None)
        return outcome.stderr + outcome.stdout

    def _outcome(self, args: Sequence[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
        outcome = subprocess.run(
            [self.program, *self.storage, *args], capture_output=True, text=True, check=False, cwd=cwd
        )
        if outcome.returncode:
            output = "\n".join((outcome.stdout + outcome.stderr).splitlines()[-30:])
            raise ImageError(f"`{self.name} {' '.join(args)}` failed:\n{output}")
        return outcome

    def build_command(self, *, cached: bool) -> list[str]:
        """Return the first words of a build, which starts from layers of earlier builds if it is *cached*."""
        again = [] if cached else ["--no-cache"]
        if self.name == "docker":
            return ["build", *again]
        return ["build", *_BUILD_FLAGS, f"--layers={str(self.layered).lower()}", *again]

    def has(self, image: str) -> bool:
        try:
            self.run("inspect", "--type=image", image)
        except ImageError:
            return False
        return True

    def import_tree(self, archive: Path, image: str) -> None:
        """Make an image of one layer from a tar archive of a file system."""
        if self.name == "buildah":
            container = self.run("from", "scratch").strip()
            try:
                self.run("add", "--quiet", container, str(archive), "/")
                self.run("commit", "--quiet", container, image)
            finally:
                self.run("rm", container)
        else:
            self.run("import", str(archive), image)

    def save(self, image: str, archive: Path) -> None:
        """Write an image to an archive in docker's format."""
        archive.parent.mkdir(parents=True, exist_ok=True)
        archive.unlink(missing_ok=True)
        if self.name == "buildah":
            self.run("push", "--quiet", image, f"docker-archive:{archive}:{image}")
        else:
            self.run("save", "--output", str(archive), image)


def discard(engine: Engine) -> None:
    """Delete the whole storage of an engine; docker has none of its own."""
    for flag in engine.storage:
        name, _, path = flag.partition("=")
        if name in {"--root", "--runroot"}:
            shutil.rmtree(path, ignore_errors=True)


def choose(name: str | None = None, storage: Path | None = None) -> Engine:
    """Find the requested engine; by default the first installed of `NAMES`.

    Args:
        storage: Storage of podman and buildah; a directory of the per-user cache by default.

    Raises:
        ImageError: No engine, or not the requested one, is installed.
    """
    for candidate in NAMES if name is None else (name,):
        program = shutil.which(candidate)
        if program is None or (candidate == "docker" and name is None and not _daemon_answers(program)):
            continue
        if candidate == "docker":
            return Engine(candidate, Path(program))
        flags, shares = _storage_flags(program, storage)
        return Engine(candidate, Path(program), flags, layered=shares)
    raise ImageError(f"no {' or '.join(NAMES) if name is None else name} is there to build the image with. {_REMEDY}")


def cache_dir() -> Path:
    """Return the cache of bases and layers: `$XDG_CACHE_HOME/bayplan/image`, or below ``~/.cache``."""
    return user_cache() / "image"


def _daemon_answers(program: str) -> bool:
    """Return whether docker has a daemon: the program alone cannot build."""
    command = [program, "version", "--format={{.Server.Version}}"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_DAEMON_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _storage_flags(program: str, given: Path | None) -> tuple[tuple[str, ...], bool]:
    """Return flags for a storage with overlay, or with copies if that does not work; and whether layers are shared."""
    storage = given or cache_dir() / "storage"
    for driver in ("overlay", "vfs"):
        root = storage / driver
        root.mkdir(parents=True, exist_ok=True)
        flags = (
            f"--root={root}",
            f"--runroot={_run_root(root)}",
            f"--storage-driver={driver}",
        )
        if subprocess.run([program, *flags, "info"], capture_output=True, check=False).returncode == 0:
            return flags, driver == "overlay"
        shutil.rmtree(_run_root(root), ignore_errors=True)
    raise ImageError(f"{program} cannot store an image in {storage}: try `{program} --root={storage}/vfs info`")


def _run_root(root: Path) -> Path:
    """Return a short-lived directory for locks and mounts; its path is short because socket names have 108 bytes."""
    base = Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = base / f"bayplan-image-{os.geteuid()}-{root.stat().st_ino:x}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise ImageError(f"{path} belongs to another user: remove it")
    return path


def disk_bytes(directories: Sequence[Path]) -> int:
    """Return the bytes of all files below some directories; hard links count once."""
    seen: set[int] = set()
    total = 0
    for top in directories:
        for directory, _, files in os.walk(top):
            for name in files:
                info = os.lstat(Path(directory) / name)
                if info.st_ino not in seen:
                    seen.add(info.st_ino)
                    total += info.st_blocks * 512
    return total
