"""The programs that build and run images: docker, podman or buildah, whichever there is.

Owns the choice, the flags that each of them needs, and where podman and buildah keep what they make. It must not know
what is built.

Why a storage of its own and not the user's: what a build leaves there (a base, layers to start the next build from) can
be thrown away as a whole, and nobody's images are touched. What is built leaves as an archive, which every engine and
kind can load. Docker has one storage for all, behind its daemon.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

NAMES = ("docker", "podman", "buildah")
"""In order of preference."""

_REMEDY = (
    "Install one of them: on Debian `apt-get install podman buildah runc debootstrap`, elsewhere see "
    "https://docs.docker.com/engine/install or https://podman.io/docs/installation"
)
# The build's own processes need no container around them, and a container inside of one often cannot be had.
_BUILD_FLAGS = ("--isolation=chroot", "--format=docker")


_DAEMON_SECONDS = 10.0


class ImageError(Exception):
    """An image cannot be built, kept or run here; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A program that builds images.

    Args:
        name: One of `NAMES`.
        program: The executable.
        storage: Flags that name where it keeps images; none for docker.
        layered: Whether it keeps a layer for each step. Each would be a copy of everything where the file
            system shares none.
    """

    name: str
    program: Path
    storage: tuple[str, ...] = ()
    layered: bool = True

    def run(self, *args: str, cwd: Path | None = None) -> str:
        """Call it and return what it wrote to standard output.

        Raises:
            ImageError: It failed; the message ends with what it said.
        """
        return self._outcome(args, cwd).stdout

    def run_both(self, *args: str) -> str:
        """Call it and return what it wrote, standard error before standard output.

        Raises:
            ImageError: It failed; the message ends with what it said.
        """
        outcome = self._outcome(args, None)
        return outcome.stderr + outcome.stdout

    def _outcome(self, args: Sequence[str], cwd: Path | None) -> subprocess.CompletedProcess[str]:
        outcome = subprocess.run(
            [self.program, *self.storage, *args], capture_output=True, text=True, check=False, cwd=cwd
        )
        if outcome.returncode:
            said = "\n".join((outcome.stdout + outcome.stderr).splitlines()[-30:])
            raise ImageError(f"`{self.name} {' '.join(args)}` failed:\n{said}")
        return outcome

    def build_command(self, *, cached: bool) -> list[str]:
        """The first words of a build.

        Args:
            cached: Start from layers of earlier builds.
        """
        again = [] if cached else ["--no-cache"]
        if self.name == "docker":
            return ["build", *again]
        return ["build", *_BUILD_FLAGS, f"--layers={str(self.layered).lower()}", *again]

    def has(self, image: str) -> bool:
        """Whether it keeps an image of that name."""
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
    """Throw away the storage of an engine as a whole; docker has none of its own."""
    for flag in engine.storage:
        name, _, path = flag.partition("=")
        if name in {"--root", "--runroot"}:
            shutil.rmtree(path, ignore_errors=True)


def choose(name: str | None = None, storage: Path | None = None) -> Engine:
    """Find an engine.

    Args:
        name: The one to take; the first of `NAMES` that there is unless given.
        storage: Where podman and buildah keep images; a directory of the per-user cache unless given.

    Returns:
        The engine.

    Raises:
        ImageError: There is none, or none of that name.
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
    """Where a base and layers are kept between builds: `$XDG_CACHE_HOME/bayplan/image`, or below ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "bayplan" / "image"


def _daemon_answers(program: str) -> bool:
    """Whether docker has a daemon: the program alone builds nothing."""
    command = [program, "version", "--format={{.Server.Version}}"]
    try:
        return subprocess.run(command, capture_output=True, check=False, timeout=_DAEMON_SECONDS).returncode == 0
    except subprocess.TimeoutExpired:
        return False


def _storage_flags(program: str, given: Path | None) -> tuple[tuple[str, ...], bool]:
    """Name a storage, on overlay where that works and as plain copies elsewhere.

    Returns:
        The flags, and whether layers are shared.
    """
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
    raise ImageError(f"{program} can keep no image in {storage}: try `{program} --root={storage}/vfs info`")


def _run_root(root: Path) -> Path:
    """Where locks and mounts of a storage are, short-lived and on a short path: sockets' names have 108 bytes."""
    base = Path("/run") if os.geteuid() == 0 else Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = base / f"bayplan-image-{os.geteuid()}-{root.stat().st_ino:x}"
    path.mkdir(mode=0o700, exist_ok=True)
    if path.stat().st_uid != os.geteuid():
        raise ImageError(f"{path} belongs to somebody else: remove it")
    return path


def disk_bytes(directories: Sequence[Path]) -> int:
    """Bytes of all files below some directories, a file of several names once."""
    seen: set[int] = set()
    total = 0
    for top in directories:
        for directory, _, files in os.walk(top):
            for name in files:
                told = os.lstat(Path(directory) / name)
                if told.st_ino not in seen:
                    seen.add(told.st_ino)
                    total += told.st_blocks * 512
    return total
