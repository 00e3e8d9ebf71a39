"""Lays out the file systems of the image's layers; runs inside the build, with the build's own interpreter.

It selects the files of the base and of the virtual environment that reach the image, sets their modes and times, and
compiles the byte code. The base itself is not the last stage: its shell, package manager and setuid programs would come
along, and removing them in a layer leaves them in the layer below. What is copied is the interpreter, the standard
library, the C libraries that `ldd` lists and the certificates; their Debian packages are listed in
``/var/lib/dpkg/status.d`` with their copyright files, where scanners look for them.

Layers, a directory each: ``runtime`` (from the base), ``dependencies`` (the virtual environment), ``bayplan``.

Byte code is unchecked because the other forms contain file times and the root file system is read-only at run time.
"""

import argparse
import compileall
import os
import py_compile
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

NONROOT = 65532
"""User and group of the image; a number above those that Debian assigns."""

FIXED_TIME = 1
"""Seconds since 1970 of every file and layer: times differ from build to build, and byte code no longer needs them."""

_LEFT_OUT_OF_STDLIB = frozenset(
    {"__pycache__", "ensurepip", "idlelib", "lib2to3", "pydoc_data", "site-packages", "test", "tkinter", "turtledemo"}
)
# A plugin of kubectl is for workstations.
_LEFT_OUT_OF_ENVIRONMENT = frozenset(
    {
        ".gitignore",
        ".lock",
        "CACHEDIR.TAG",
        "__pycache__",
        "direct_url.json",
        "kubectl-bayplan",
        "tests",
        "uv_cache.json",
    }
)
# Typed API classes, over a thousand modules that Bayplan does not import. A plugin that imports them compiles them.
_NOT_COMPILED = re.compile(r"/kubernetes/(aio/)?client/(models|api)/")
_LIBRARY = re.compile(r"(?:=> )?(/\S+) \(0x")
_CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
_PROJECT = "bayplan"


class LayoutError(Exception):
    """The base or the environment lacks something that the image needs."""


def main(arguments: list[str] | None = None) -> int:
    """Create the requested layers."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("part", choices=("runtime", "package"))
    parser.add_argument("--environment", type=Path, required=True, help="the virtual environment")
    parser.add_argument("--output", type=Path, required=True, help="directory that takes one directory a layer")
    given = parser.parse_args(arguments)
    if given.part == "runtime":
        lay_out_runtime(given.environment, given.output / "runtime")
        lay_out_dependencies(given.environment, given.output / "dependencies")
    else:
        lay_out_package(given.environment, given.output / "bayplan")
    return 0


def lay_out_runtime(environment: Path, root: Path) -> None:
    """Copy the interpreter and what it needs of the base.

    Args:
        environment: The virtual environment, whose interpreter is copied with the libraries that it and its extension
            modules need.

    Raises:
        LayoutError: The base has no certificates, or a library is not found.
    """
    _top_directories(root)
    taken: list[Path] = []
    for link in _chain(environment / "bin" / "python"):
        if not link.is_relative_to(environment):
            taken += _copy(link, root)
    stdlib = Path(sysconfig.get_path("stdlib"))
    for path in _files(stdlib, _LEFT_OUT_OF_STDLIB):
        taken += _copy(path, root)
    extensions = [path for path in (*taken, *_files(environment, frozenset())) if ".so" in path.name]
    interpreter = Path(os.path.realpath(sys.executable))
    libraries = _libraries([interpreter, *extensions])
    # The C library loads it when a thread ends, so no program is linked to it.
    libraries |= {path for library in libraries for path in library.parent.glob("libgcc_s.so.1")}
    for path in sorted(libraries):
        if not path.is_relative_to(environment):
            taken += _copy(path, root)
    if not _CERTIFICATES.exists():
        raise LayoutError(f"the base has no {_CERTIFICATES}: take one with Debian's package ca-certificates")
    for path in (_CERTIFICATES, Path("/etc/os-release"), Path("/etc/ld.so.conf"), *_conf_directory()):
        if path.exists():
            taken += _copy(path, root)
    subprocess.run(["/sbin/ldconfig", "-X", "-r", str(root)], check=True)
    shutil.rmtree(root / "var" / "cache", ignore_errors=True)
    _accounts(root / "etc")
    _packages(taken, root)
    _compile(root)
    _settle(root)


def lay_out_dependencies(environment: Path, root: Path) -> None:
    """Copy the virtual environment without the project, and without programs except the interpreter."""
    for path in _files(environment, _LEFT_OUT_OF_ENVIRONMENT):
        if path.parent != environment / "bin" or path.name.startswith("python"):
            _copy(path, root)
    _compile(root)
    _settle(root)


def lay_out_package(environment: Path, root: Path) -> None:
    """Copy the files that the project's own wheel installed, by its record.

    Raises:
        LayoutError: The project is not installed.
    """
    (library,) = environment.glob("lib/python3.*/site-packages")
    found = list(metadata.distributions(name=_PROJECT, path=[str(library)]))
    if not found:
        raise LayoutError(f"{_PROJECT} is not installed in {environment}: install its wheel first")
    for file in found[0].files or ():
        path = Path(os.path.normpath(library / file))
        if not _LEFT_OUT_OF_ENVIRONMENT.intersection(path.parts) and path.exists():
            _copy(path, root)
    for record in (root / library.relative_to("/")).glob("*.dist-info/RECORD"):
        # Excluded files have a row with their hash, and one of them contains the time of the installation.
        rows = record.read_text().splitlines(keepends=True)
        record.write_text("".join(row for row in rows if not _LEFT_OUT_OF_ENVIRONMENT.intersection(_parts(row))))
    _compile(root)
    _settle(root)


def _parts(row: str) -> tuple[str, ...]:
    """Return the path in a row of a distribution's record."""
    return Path(row.rpartition(",")[0].rpartition(",")[0]).parts


def _top_directories(root: Path) -> None:
    """Create the links of a merged /usr as the base has them, a directory for temporary files, and mount points."""
    for name in ("proc", "sys", "dev", "tmp", "etc"):
        (root / name).mkdir(parents=True)
    for name in ("lib", "lib32", "lib64"):
        link = Path("/") / name
        if link.is_symlink():
            (root / name).symlink_to(link.readlink())


def _chain(path: Path) -> Iterator[Path]:
    """Follow a link, yielding every step."""
    yield path
    while path.is_symlink():
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path


def _files(top: Path, left_out: frozenset[str]) -> Iterator[Path]:
    """Yield every file and link below a directory, in order."""
    for directory, names, files in os.walk(top):
        for name in names[:]:
            if name in left_out:
                names.remove(name)
            elif (Path(directory) / name).is_symlink():
                files.append(name)
        names.sort()
        yield from (Path(directory) / name for name in sorted(files) if name not in left_out)


def _copy(path: Path, root: Path) -> list[Path]:
    """Copy a file to the same place below another root, with the target of a link; return their paths in the build."""
    copied = []
    for step in _chain(path):
        place = Path(os.path.realpath(step.parent)) / step.name
        target = root / place.relative_to("/")
        if target.is_symlink() or target.exists() or (place.is_dir() and not place.is_symlink()):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(place, target, follow_symlinks=False)
        if not place.is_symlink():
            target.chmod(0o755 if _is_program(place) else 0o644)
        copied.append(place)
    return copied


def _is_program(path: Path) -> bool:
    """Return whether the kernel starts it; modules that may be called as scripts need no such right."""
    return bool(path.stat().st_mode & 0o111) and (path.parent.name == "bin" or path.name.startswith("ld-"))


def _libraries(programs: Iterable[Path]) -> set[Path]:
    """Return the shared libraries that programs and libraries need, by the loader.

    Raises:
        LayoutError: One of them is not found.
    """
    outcome = subprocess.run(
        ["ldd", *map(str, sorted(set(programs)))], capture_output=True, text=True, check=False, env={"LC_ALL": "C"}
    )
    lacking = sorted({line.strip() for line in outcome.stdout.splitlines() if line.endswith("not found")})
    if lacking:
        raise LayoutError(f"the base lacks libraries: {', '.join(lacking)}. Install them in the base")
    return {Path(found) for found in _LIBRARY.findall(outcome.stdout)}


def _conf_directory() -> list[Path]:
    return sorted(Path("/etc/ld.so.conf.d").glob("*.conf"))


def _accounts(etc: Path) -> None:
    (etc / "passwd").write_text(
        f"root:x:0:0:root:/nonexistent:/nonexistent\n{_PROJECT}:x:{NONROOT}:{NONROOT}:{_PROJECT}:/tmp:/nonexistent\n"
    )
    (etc / "group").write_text(f"root:x:0:\n{_PROJECT}:x:{NONROOT}:\n")
    (etc / "nsswitch.conf").write_text("hosts: files dns\n")


def _packages(taken: Iterable[Path], root: Path) -> None:
    """Record the Debian packages of the files; a file of no package (an interpreter in /usr/local) is skipped."""
    # Before /usr was merged, packages listed their libraries as /lib/...; some still do.
    names = {spelling for path in taken for spelling in (str(path), str(path).removeprefix("/usr"))}
    command = ["dpkg-query", "--search", "--", *sorted(names)]
    listed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    packages = {line.split(": ", 1)[0] for line in listed.splitlines() if not line.startswith("diversion ")}
    status = root / "var" / "lib" / "dpkg" / "status.d"
    status.mkdir(parents=True)
    for package in sorted({one for several in packages for one in several.split(", ")}):
        text = subprocess.run(["dpkg-query", "--status", package], capture_output=True, text=True, check=True).stdout
        name = HeaderParser().parsestr(text)["Package"]
        (status / name).write_text(text)
        terms = Path("usr/share/doc") / name / "copyright"
        if ("/" / terms).exists():
            # Packages of one source share a directory by a link; here each has its own.
            (root / terms).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile("/" / terms, root / terms)


def _compile(root: Path) -> None:
    """Compile every module in one process: byte code compiled in parallel differs from run to run.

    Raises:
        LayoutError: A module is not Python of this interpreter.
    """
    done = compileall.compile_dir(
        root,
        maxlevels=100,
        quiet=1,
        rx=_NOT_COMPILED,
        stripdir=str(root),
        prependdir="/",
        invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH,
    )
    if not done:
        raise LayoutError("a module does not compile; see the error above")


def _settle(root: Path) -> None:
    """Make root the owner of everything, writable by no other user, with one fixed time."""
    for directory, _, files in os.walk(root, topdown=False):
        for path in (Path(directory), *(Path(directory) / name for name in files)):
            os.chown(path, 0, 0, follow_symlinks=False)
            if path.is_dir() and not path.is_symlink():
                path.chmod(0o1777 if path == root / "tmp" else 0o755)
            os.utime(path, (FIXED_TIME, FIXED_TIME), follow_symlinks=False)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LayoutError as problem:
        sys.exit(f"runtime_root: {problem}")
