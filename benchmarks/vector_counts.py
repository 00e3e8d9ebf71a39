"""Counts operations on arrays: their number, their elements, and the bytes that they allocate.

The arrays count their own operations, because a profiler does not record operators, indexing and calls of ufuncs, which
are most operations on arrays. An array computed from a counting array counts too, so only the first arrays are created
here. Functions without such an array, and methods that are not listed below, are not counted.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

_MAKERS = ("zeros", "ones", "empty", "full", "array", "arange")
_METHODS = ("argmax", "argmin", "argsort", "astype", "copy", "cumsum", "fill", "nonzero", "repeat", "sort", "take")
"""Methods of arrays that process elements without a ufunc."""


@dataclass(slots=True)
class VectorCounts:
    """Operations on arrays during the context.

    Attributes:
        long: Minimum number of elements of a vector operation.
        elements: Number of processed elements, including those of shorter arrays.
        allocated: Bytes of created arrays.
    """

    long: int
    operations: int = 0
    elements: int = 0
    allocated: int = 0

    def __enter__(self) -> Self:
        _counting.append(self)
        return self

    def __exit__(self, *_: object) -> None:
        _counting.remove(self)

    def add(self, elements: int, allocated: int) -> None:
        self.operations += elements >= self.long
        self.elements += elements
        self.allocated += allocated


_counting: list[VectorCounts] = []


class CountedArray(np.ndarray[Any, Any]):
    """An array of which every operation is counted."""

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        outputs = options.get("out", ())
        if outputs:
            options["out"] = tuple(_plain(each) for each in outputs)
        result = getattr(ufunc, method)(*map(_plain, inputs), **{name: _plain(each) for name, each in options.items()})
        _count((*inputs, *outputs, result), () if outputs else (result,))
        if method == "at" or not outputs:
            return _counted(result)
        return outputs[0] if len(outputs) == 1 else outputs

    def __array_function__(self, function: Any, types: Any, arguments: Any, options: Any) -> Any:
        """Count a function of numpy that is not a ufunc; the functions that it calls are counted as well."""
        result = super().__array_function__(function, types, arguments, options)
        _count((*arguments, *options.values(), result), ())
        return result

    def __getitem__(self, key: Any) -> Any:
        """Return a part; slices process no elements, selected rows are copied."""
        result = super().__getitem__(key)
        keys = _keys(key)
        if not isinstance(result, np.ndarray):
            _count((), ())
        elif any(isinstance(each, np.ndarray | list) for each in keys):
            _count((*keys, result), (result,))
        return result

    def __setitem__(self, key: Any, value: Any) -> None:
        _count((*_keys(key), value), ())
        super().__setitem__(key, value)


def _listed(name: str) -> Callable[..., Any]:
    plain = getattr(np.ndarray, name)

    @functools.wraps(plain)
    def method(self: CountedArray, *arguments: Any, **options: Any) -> Any:
        result = plain(self, *arguments, **options)
        _count((self, result), (result,))
        return result

    return method


for _name in _METHODS:
    setattr(CountedArray, _name, _listed(_name))


@contextmanager
def counted_arrays() -> Iterator[None]:
    """Let numpy create counting arrays during the context; not thread-safe."""
    plain = {name: getattr(np, name) for name in _MAKERS}

    def counting(name: str) -> Callable[..., Any]:
        @functools.wraps(plain[name])
        def make(*arguments: Any, **options: Any) -> Any:
            result = plain[name](*arguments, **options)
            _count((result,), (result,))
            return _counted(result)

        return make

    try:
        for name in _MAKERS:
            setattr(np, name, counting(name))
        yield
    finally:
        for name, function in plain.items():
            setattr(np, name, function)


def _count(touched: tuple[Any, ...], made: tuple[Any, ...]) -> None:
    if _counting:
        elements = max((each.size for each in touched if isinstance(each, np.ndarray)), default=1)
        allocated = sum(each.nbytes for each in made if isinstance(each, np.ndarray))
        for counts in _counting:
            counts.add(elements, allocated)


def _keys(key: Any) -> tuple[Any, ...]:
    return key if isinstance(key, tuple) else (key,)


def _plain(value: Any) -> Any:
    return value.view(np.ndarray) if isinstance(value, CountedArray) else value


def _counted(value: Any) -> Any:
    plain: NDArray[Any] | Any = value
    return plain.view(CountedArray) if type(value) is np.ndarray else value
