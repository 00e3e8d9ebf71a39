"""The files of an image, read from its archive, so that neither a program of the image nor a mount is needed."""

import json
import tarfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class LayerFile:
    """A file, directory or link of an image.

    Args:
        kind: "file", "directory", "link", or "other" for devices and the like.
        mode: Permission bits, including setuid and setgid.
        owner: UID and GID.
        target: Target of a link; "" for other kinds.
    """

    kind: str
    mode: int
    owner: tuple[int, int]
    target: str = ""


def read_files(archive: Path) -> dict[str, LayerFile]:
    """Read every layer of an archive in docker's format, later layers over earlier ones.

    Args:
        archive: The archive of one image.

    Returns:
        The files by their path in the image, without the leading slash.
    """
    files: dict[str, LayerFile] = {}
    with tarfile.open(archive) as tar:
        (entry,) = json.load(tar.extractfile("manifest.json"))  # type: ignore[arg-type]  # a regular file
        for layer in entry["Layers"]:
            with tarfile.open(fileobj=tar.extractfile(layer)) as members:
                for member in members:
                    files[member.name.strip("/").removeprefix("./")] = _described(member)
    return files


def _described(member: tarfile.TarInfo) -> LayerFile:
    kinds = {tarfile.REGTYPE: "file", tarfile.DIRTYPE: "directory", tarfile.SYMTYPE: "link", tarfile.LNKTYPE: "file"}
    target = member.linkname if member.issym() else ""
    return LayerFile(kinds.get(member.type, "other"), member.mode & 0o7777, (member.uid, member.gid), target)
