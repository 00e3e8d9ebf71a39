"""Bounds on the files and hosts that a SchedulerProfile's extenders may use, and reading files within them.

A SchedulerProfile may be written by any user with that right, while files and network are the operator's own. Without
bounds a profile could make the operator read an endless device, probe for files, or send the pods of all namespaces to
any reachable host. The author of a KubeSchedulerConfiguration has the operator's rights anyway, so it has no bounds.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct
from yarl import URL

from scheduler_core.config.profile_config import Extender
from scheduler_core.errors import ConfigError, Problem

_LONGEST_FILE_BYTES = 1 << 18


class AllowedFilesAndHosts(Struct, frozen=True):
    """Bounds for extenders of profiles that are custom resources.

    Attributes:
        files: Directory of the files of ``tlsConfig``.
        hosts: Allowed hosts: names, addresses, and ``*.`` before the end of names; empty allows any.
    """

    files: Path
    hosts: tuple[str, ...] = ()

    def check(self, extender: Extender) -> None:
        """Validate the location of an extender.

        Raises:
            ConfigError: It is out of bounds; paths from the extender's root.
        """
        url = URL(extender.url_prefix)
        if url.raw_user is not None or url.raw_password is not None:
            message = "must not contain a user or password, which is readable in the profile; use tlsConfig"
            raise ConfigError([Problem("urlPrefix", message)])
        host = (url.host or "").lower().rstrip(".")
        if self.hosts and not any(_is(host, allowed.lower()) for allowed in self.hosts):
            message = f'must be on a host of the operator\'s setting allowedExtenderHosts; "{host}" is not allowed'
            raise ConfigError([Problem("urlPrefix", message)])


def read_file(path: str, field: str, bounds: AllowedFilesAndHosts | None) -> str:
    """Read a PEM file.

    Args:
        field: Field of ``tlsConfig``, for messages. The content of the file is never in a message.
        bounds: Bounds of the path; None for no bounds.

    Raises:
        ConfigError: It is out of bounds, is not a regular file, is too long, or cannot be read.
    """
    try:
        # Symbolic links are resolved first: the files of a mounted Secret are links within its directory.
        real = Path(path).resolve()
        if bounds is not None and not real.is_relative_to(bounds.files.resolve()):
            message = f"must be in {bounds.files}, the operator's setting extenderFilesDirectory; mount it there"
            raise tls_problem(field, message)
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK)  # opening a pipe must not block
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise tls_problem(field, "is not a regular file; correct the path")
            text = file.read(_LONGEST_FILE_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is not a path"
        raise tls_problem(field, f"cannot be read: {reason}; mount the file, or correct the path") from error
    if len(text) > _LONGEST_FILE_BYTES:
        raise tls_problem(field, f"is longer than {_LONGEST_FILE_BYTES >> 10} KiB; use a PEM file")
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise tls_problem(field, "is not PEM; correct the path or the file") from None


def _is(host: str, allowed: str) -> bool:
    return host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def tls_problem(field: str, message: str) -> ConfigError:
    """Return the error of a field of an extender's ``tlsConfig``."""
    return ConfigError([Problem(f"tlsConfig.{field}", message)])
