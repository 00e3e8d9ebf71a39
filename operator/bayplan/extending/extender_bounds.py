"""What a profile may make the operator open and call.

Owns the bounds and the reading of files within them. It must not know TLS or HTTP. Why bounds: a SchedulerProfile is an
object that can be written by whoever has that right in the API, while files and network are the operator's own. Without
them a profile could have it read a device without an end, learn which files there are, or send the pods of all
namespaces to any host that it can reach. Who writes a KubeSchedulerConfiguration has the operator's own rights already,
so nothing bounds that.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from msgspec import Struct
from yarl import URL

from scheduler_core.config.extender_config import Extender
from scheduler_core.errors import ConfigError, Problem

_LONGEST_FILE_BYTES = 1 << 18


class ExtenderBounds(Struct, frozen=True):
    """Bounds for extenders of profiles that are custom resources.

    Attributes:
        files: Where the files of ``tlsConfig`` lie.
        hosts: Who may be called: host names, addresses, and ``*.`` before the end of names; empty for anybody.
    """

    files: Path
    hosts: tuple[str, ...] = ()

    def check(self, extender: Extender) -> None:
        """Judge where an extender is.

        Raises:
            ConfigError: It is out of bounds; paths from the extender's root.
        """
        url = URL(extender.url_prefix)
        if url.raw_user is not None or url.raw_password is not None:
            message = "must hold no user and password, which everybody would read; use tlsConfig or the network's rules"
            raise ConfigError([Problem("urlPrefix", message)])
        host = (url.host or "").lower().rstrip(".")
        if self.hosts and not any(_is(host, allowed.lower()) for allowed in self.hosts):
            message = f'must be on a host of the operator\'s setting allowedExtenderHosts, and "{host}" is none of them'
            raise ConfigError([Problem("urlPrefix", message)])


def read_file(path: str, field: str, bounds: ExtenderBounds | None) -> str:
    """Read a PEM file.

    Args:
        path: Where it lies.
        field: Of ``tlsConfig``, to name in problems. What is in the file is never named.
        bounds: Where it may lie; None for anywhere.

    Raises:
        ConfigError: It is out of bounds, is no plain file, is too long, or cannot be read.
    """
    try:
        # Links are followed first: the files of a mounted Secret are links within its directory.
        real = Path(path).resolve()
        if bounds is not None and not real.is_relative_to(bounds.files.resolve()):
            message = f"must lie in {bounds.files}, the operator's setting extenderFilesDirectory; mount it there"
            raise _problem(field, message)
        descriptor = os.open(real, os.O_RDONLY | os.O_NONBLOCK)  # a pipe must not be waited for
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _problem(field, "is no plain file; correct the path")
            text = file.read(_LONGEST_FILE_BYTES + 1)
    except (OSError, ValueError, RuntimeError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "it is no path"
        raise _problem(field, f"cannot be read: {reason}; mount the file, or correct the path") from error
    if len(text) > _LONGEST_FILE_BYTES:
        raise _problem(field, f"is longer than {_LONGEST_FILE_BYTES >> 10} KiB; give PEM")
    try:
        return text.decode("ascii")
    except UnicodeDecodeError:
        raise _problem(field, "is not PEM; correct the path or the file") from None


def _is(host: str, allowed: str) -> bool:
    return host == allowed or (allowed.startswith("*.") and host.endswith(allowed[1:]))


def _problem(field: str, message: str) -> ConfigError:
    return ConfigError([Problem(f"tlsConfig.{field}", message)])
