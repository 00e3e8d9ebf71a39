"""A file for a library that reads only files, of what is in memory: keys and certificates, for the TLS library.

Owns the file. It must not know what is in it. Why in memory where the system can: disks may be read-only, and a private
key has no business on one.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """A path under which there is a content; no other user can read it, and afterwards it is gone."""
    if sys.platform == "linux":
        with os.fdopen(os.memfd_create("bayplan", os.MFD_CLOEXEC), "wb") as memory:
            memory.write(content)
            memory.flush()
            yield f"/proc/self/fd/{memory.fileno()}"
    else:
        with tempfile.NamedTemporaryFile() as file:
            file.write(content)
            file.flush()
            yield file.name
