"""Decoding of null as Go's ``encoding/json`` decodes it: a value of null is the zero value of its type.

The API server sends null for a nil slice or map of a field without ``omitempty``, and clients may write null anywhere.
The structs of the model accept it only where it is frequent, so that readers need not handle it and decoding stays
fast. An object that does not match its struct is parsed as plain JSON, in which null is replaced by its types::

    bytes ──struct──▶ object
            └─error─▶ plain JSON ──nulls and missing fields replaced──struct──▶ object, or the error that remains

=========================  =============================================================================
null                       is read as
=========================  =============================================================================
field with a default       a missing field: its default, which is that of the API server
field that may be None     None: a nil pointer
required field             the zero value of its type; an error for ``metadata`` and its ``name``
element or map value       the zero value of its type
=========================  =============================================================================
"""

from __future__ import annotations

from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType
from msgspec.structs import FieldInfo, fields

from scheduler_core.model.meta import ObjectMeta

T = TypeVar("T")

_ZEROS: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, bytes: "", dict: {}, list: [], tuple: []}
_SEQUENCES = (list, tuple, set, frozenset)
_NULL = Raw(b"null")
_METADATA = "metadata"


def convert(value: Any, kind: type[T]) -> T:
    """Convert parsed YAML or JSON of a manifest to a struct; null is read as described above.

    A required field that is missing or null is an error, as the API server's validation reports it.

    Raises:
        msgspec.ValidationError: It does not match, or lacks a required field.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError:
        return msgspec.convert(without_nulls(value, kind, of_manifest=True), kind)


def without_nulls(value: Any, kind: Any, *, of_manifest: bool = False) -> Any:
    """Return parsed JSON with null replaced as described above, and uninterpreted JSON as :class:`msgspec.Raw`.

    Args:
        of_manifest: Whether required fields that are missing or null stay so; else they get the zero value, as in a Go
            client, except those that identify an object.
    """
    origin, args = get_origin(kind), get_args(kind)
    if kind is Raw:
        return Raw(msgspec.json.encode(value))
    if origin is Annotated:
        return without_nulls(value, args[0], of_manifest=of_manifest)
    if value is None:
        zero = _zero(kind, of_manifest=of_manifest)
        return None if zero is UNSET else zero
    if origin in (Union, UnionType):
        arms = _arms(args)
        return without_nulls(value, arms[0], of_manifest=of_manifest) if len(arms) == 1 else value
    if isinstance(value, list) and _is_sequence(kind):
        return [without_nulls(each, args[0], of_manifest=of_manifest) for each in value]
    if isinstance(value, dict) and origin is dict:
        return {name: without_nulls(each, args[1], of_manifest=of_manifest) for name, each in value.items()}
    return (
        _fields_filled(value, kind, of_manifest=of_manifest) if isinstance(value, dict) and _is_struct(kind) else value
    )


def _fields_filled(value: dict[str, Any], kind: type[Struct], *, of_manifest: bool) -> dict[str, Any]:
    filled = dict(value)
    for info in _fields(kind):
        name, given = info.encode_name, value.get(info.encode_name)
        if given is not None or (name in value and _accepts_null(info.type, of_manifest=of_manifest)):
            filled[name] = None if given is None else without_nulls(given, info.type, of_manifest=of_manifest)
            continue
        filled.pop(name, None)
        if info.required and not of_manifest and not _is_identity(kind, info):
            zero = _zero(info.type, of_manifest=of_manifest)
            if zero is not UNSET:
                filled[name] = zero
    return filled


def _zero(kind: Any, *, of_manifest: bool) -> Any:
    """Return the JSON of a type's zero value, that of a struct with its required fields; UNSET if it has none."""
    args = get_args(kind)
    if kind is Raw:
        return _NULL
    if kind is Any or NoneType in args:
        return None
    if get_origin(kind) is Annotated:
        return _zero(args[0], of_manifest=of_manifest)
    if get_origin(kind) in (Union, UnionType):
        # Of several types, as of quantities and IntOrString, Go's zero value is the number.
        arms = _arms(args)
        chosen = (
            arms[0] if len(arms) == 1 else next((arm for arm in (int, *arms) if arm in arms and arm in _ZEROS), None)
        )
        return UNSET if chosen is None else _zero(chosen, of_manifest=of_manifest)
    if _is_struct(kind):
        return _fields_filled({}, kind, of_manifest=of_manifest)
    return [] if _is_sequence(kind) else _ZEROS.get(get_origin(kind) or kind, UNSET)


def _arms(args: tuple[Any, ...]) -> list[Any]:
    return [arm for arm in args if arm not in (NoneType, UnsetType)]


def _accepts_null(kind: Any, *, of_manifest: bool) -> bool:
    if get_origin(kind) in (Union, UnionType):
        args, arms = get_args(kind), _arms(get_args(kind))
        return NoneType in args or (len(arms) == 1 and _accepts_null(arms[0], of_manifest=of_manifest))
    return kind is Any or (kind is Raw and not of_manifest)


def _is_sequence(kind: Any) -> bool:
    origin = get_origin(kind)
    return origin in _SEQUENCES and (origin is not tuple or get_args(kind)[-1:] == (Ellipsis,))


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct) and not kind.__struct_config__.array_like


@cache
def _fields(kind: type[Struct]) -> tuple[FieldInfo, ...]:
    return fields(kind)


def _is_identity(kind: type[Struct], info: FieldInfo) -> bool:
    """Return whether a field identifies an object, or is one: a guess would apply a change to another object."""
    if info.name == _METADATA or (info.name == "name" and issubclass(kind, ObjectMeta)):
        return True
    return _is_struct(info.type) and any(each.required and _is_identity(info.type, each) for each in _fields(info.type))


def readable_part(value: Any, kind: type[T]) -> T:
    """Return an object with the fields that can be read; the others have their default or zero value.

    A struct whose defaults would be read as less than the object has replaces them in its method ``restored``.

    Raises:
        msgspec.ValidationError: Its name cannot be read.
    """
    found: dict[str, Any] = {}
    content = value if isinstance(value, dict) else {}
    for info in _fields(cast("Any", kind)):
        try:
            if info.encode_name in content:
                found[info.name] = _readable_value(content[info.encode_name], info.type)
            elif info.required:
                found[info.name] = msgspec.convert(_zero(info.type, of_manifest=False), info.type)
        except msgspec.ValidationError:
            zero = UNSET if _is_identity(cast("Any", kind), info) else _zero(info.type, of_manifest=False)
            if zero is UNSET:
                raise
            if info.required:
                found[info.name] = msgspec.convert(zero, info.type)
    restored = getattr(kind, "restored", None)
    return kind(**found) if restored is None else cast("T", restored(kind(**found), content))


def _readable_value(value: Any, hint: Any) -> Any:
    try:
        return convert(value, hint)
    except msgspec.ValidationError:
        structs = [arm for arm in (get_args(hint) or (hint,)) if isinstance(arm, type) and issubclass(arm, Struct)]
        if len(structs) == 1 and get_origin(hint) in (None, Union, UnionType) and isinstance(value, dict):
            return readable_part(value, structs[0])
        raise
