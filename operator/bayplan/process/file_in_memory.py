"""A file with content from memory, for the TLS library, which reads keys and certificates only from files.

In memory where the system supports it: disks may be read-only, and a private key does not belong on a disk.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_file(content: bytes) -> Iterator[str]:
    """Yield the path of a file with this content, readable by this user only and removed afterwards."""
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
