"""A base image made of Debian's packages, for machines that reach no registry of images.

Owns the recipe and its cache. It must not know what is built on it.

Why debootstrap: it needs a mirror of Debian's packages and nothing else. Its image is as old as the suite's last point
release, without the updates for security between two of them; what goes to production is better built on a base from a
registry.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

from hack.image.engines import ImageError

_SUITE = "bookworm"
_PACKAGES = ("ca-certificates", "python3", "python3-venv")
_MIRROR = "http://deb.debian.org/debian"
# Read by people and by package managers, neither of which the build has.
_STRIPPED = (
    "usr/share/doc/",
    "usr/share/info/",
    "usr/share/lintian/",
    "usr/share/locale/",
    "usr/share/man/",
    "var/cache/",
    "var/lib/apt/lists/",
    "var/log/",
)
_RECIPE = 1  # counts changes of this file that change what it makes
_DOCKER_HUB = "registry-1.docker.io"
_PROBE_SECONDS = 5.0


def registry_reached(image: str) -> bool:
    """Whether the registry of an image answers, whatever it says.

    Args:
        image: A name such as "python:3.11-slim-bookworm" or "registry.example/python:3.11".
    """
    host, _, rest = image.partition("/")
    if not rest or not ("." in host or ":" in host or host == "localhost") or host == "docker.io":
        host = _DOCKER_HUB
    try:
        with urllib.request.urlopen(f"https://{host}/v2/", timeout=_PROBE_SECONDS):
            return True
    except urllib.error.HTTPError:
        return True
    except OSError:
        return False


def base_name() -> str:
    """Name of the base in an engine's storage; another recipe is another name."""
    return f"localhost/bayplan-base:{_SUITE}-{_key()}"


def base_archive(cache: Path) -> Path:
    """Make the base, unless it is there.

    Args:
        cache: Directory that keeps it.

    Returns:
        A tar archive of its file system.

    Raises:
        ImageError: debootstrap is missing, the caller is not root, or it failed.
    """
    archive = cache / f"base-{_SUITE}-{_key()}.tar"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            _make(archive)
            for other in cache.glob("base-*.tar"):
                if other != archive:
                    other.unlink()
    return archive


def _key() -> str:
    recipe = (_RECIPE, _SUITE, _PACKAGES, _STRIPPED, platform.machine())
    return hashlib.sha256(repr(recipe).encode()).hexdigest()[:12]


def _make(archive: Path) -> None:
    program = shutil.which("debootstrap", path=f"{os.environ.get('PATH', os.defpath)}:/usr/sbin")
    if program is None or os.geteuid() != 0:
        raise ImageError(
            "no registry of images is reached, and a base of Debian's packages needs "
            + ("debootstrap: `apt-get install debootstrap`" if program is None else "root: call this as root")
            + ". Or set BASE_IMAGE to a Debian image with Python and venv that can be pulled"
        )
    mirror = os.environ.get("DEBIAN_MIRROR", _MIRROR)
    sys.stderr.write(f"image: making a base of {_SUITE}'s packages, about half a minute ...")
    sys.stderr.flush()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix=".base-", dir=archive.parent) as scratch:
        tree = Path(scratch) / "tree"
        command = [program, "--variant=minbase", f"--include={','.join(_PACKAGES)}", _SUITE, str(tree), mirror]
        outcome = subprocess.run(command, capture_output=True, text=True, check=False)
        if outcome.returncode:
            said = "\n".join(outcome.stdout.splitlines()[-10:])
            raise ImageError(
                f"debootstrap failed; is {mirror} a mirror of Debian that is reached? DEBIAN_MIRROR names another one. "
                f"It said:\n{said}"
            )
        packed = Path(scratch) / "packed.tar"
        with tarfile.open(packed, "w") as sink:
            for path in sorted(tree.rglob("*")):
                name = str(path.relative_to(tree))
                if _is_kept(name, path):
                    sink.add(path, name, recursive=False)
        packed.rename(archive)
    sys.stderr.write(f" {time.monotonic() - began:.0f} s\n")


def _is_kept(name: str, path: Path) -> bool:
    if name.startswith("usr/share/doc/"):
        return path.is_dir() or path.name == "copyright"
    return not name.startswith(_STRIPPED)
