"""Builds a base image from Debian's packages with debootstrap, for machines that reach no image registry.

debootstrap needs only a mirror of Debian's packages. The image is as old as the suite's last point release and lacks
later security updates; for production use a base image from a registry.
"""

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
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
_EXCLUDED = (
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt",
    "var/log",
)
_RECIPE = 1  # counts changes of this file that change what it makes
_DOCKER_HUB = "registry-1.docker.io"
_PROBE_SECONDS = 5.0


def registry_reached(image: str) -> bool:
    """Return whether the registry of an image answers at all.

    Args:
        image: A name such as "python:3.13-slim-trixie" or "registry.example/python:3.11".
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
    """Return the name of the base in an engine's storage; each recipe has another name."""
    return f"localhost/bayplan-base:{_SUITE}-{_key()}"


def base_archive(cache: Path) -> Path:
    """Return a tar archive of the base's file system, which is built unless it is cached.

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
    recipe = (_RECIPE, _SUITE, _PACKAGES, _EXCLUDED, platform.machine())
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
            output = "\n".join(outcome.stdout.splitlines()[-10:])
            raise ImageError(
                f"debootstrap failed; is {mirror} a mirror of Debian that is reached? DEBIAN_MIRROR names another one. "
                f"Its output:\n{output}"
            )
        packed = Path(scratch) / "packed.tar"
        excluded = [f"--exclude=./{name}/*" for name in _EXCLUDED]
        subprocess.run(["tar", "--create", f"--file={packed}", f"--directory={tree}", *excluded, "."], check=True)
        packed.rename(archive)
    sys.stderr.write(f" {time.monotonic() - began:.0f} s\n")
