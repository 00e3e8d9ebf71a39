"""Objects that an object holds, directly or through others: what of a long life is never given back."""

from __future__ import annotations

import gc
import types
from collections import Counter, deque

import numpy as np

_SHARED = (
    int,
    float,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.GenericAlias,
)


def census(*roots: object) -> Counter[str]:
    """Count the objects that are reachable, by the name of their type.

    Args:
        roots: Where to begin.

    Returns:
        With entries of containers and bytes of arrays. Numbers are left out, and modules, types and the globals of
        functions, which all instances share.
    """
    gc.collect()
    seen: dict[int, object] = {}
    waiting = list(roots)
    counts: Counter[str] = Counter()
    while waiting:
        found = waiting.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen[id(found)] = found
        counts[type(found).__name__] += 1
        if isinstance(found, np.ndarray) and found.base is None:
            counts["bytes of arrays"] += found.nbytes
        if isinstance(found, (dict, list, set, frozenset, tuple, deque)):
            counts[f"entries of {type(found).__name__}"] += len(found)
        if isinstance(found, types.FunctionType):
            waiting += [found.__closure__, found.__defaults__, found.__kwdefaults__]
        else:
            waiting += gc.get_referents(found)
    return counts
