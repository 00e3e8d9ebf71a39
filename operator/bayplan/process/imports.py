"""Imports without Python's garbage collector.

Nearly everything that an import allocates stays. The collector would walk ever more objects and free next to nothing,
for a tenth of a command's CPU time, and later again in each full collection.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module
from types import ModuleType


def import_without_gc(name: str) -> ModuleType:
    """Import a module with the collector off, and exempt its objects from later collections.

    Args:
        name: Full name of the module.
    """
    if name in sys.modules:
        return sys.modules[name]
    was_on = gc.isenabled()
    gc.disable()
    try:
        return import_module(name)
    finally:
        gc.freeze()
        if was_on:
            gc.enable()
