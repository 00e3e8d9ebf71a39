"""Decoding of null as Go's ``encoding/json`` decodes it: a value of null is the zero value of its type.

The API server sends null for a nil slice or map of a field without ``omitempty``, and clients may write null anywhere.
The structs of the model accept it only where it is frequent, so that readers need not handle it and decoding stays
fast. An object that does not match its struct is decoded a second time, in a form derived from the struct in which
every value may be null::

    bytes ──struct──▶ object
            └─error─▶ nullable form ──nulls and missing fields replaced──▶ object, or the error that remains

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

from collections.abc import Callable
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Generic, TypeVar, Union, cast, get_args, get_origin

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType, defstruct
from msgspec.structs import FieldInfo, fields

from scheduler_core.model.meta import ObjectMeta

T = TypeVar("T")

_ZEROS: dict[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, bytes: b""}
_SEQUENCES = (list, tuple, set, frozenset)
_METADATA = "metadata"


class _NoZeroError(ValueError):
    """A required field is missing or null, and its zero value would be wrong; ``path`` leads to it, innermost first."""

    def __init__(self, field: str) -> None:
        super().__init__(field)
        self.field = field
        self.path: list[str] = []


class _Form(Struct, frozen=True):
    """Nullable form of one type.

    Attributes:
        loose: Type to decode, in which values inside may be null.
        fill: Returns the value of the real type; None if both are equal.
        zero: Returns the zero value of the real type.
        is_nullable: Whether the real type accepts None, or reads null itself.
    """

    loose: Any
    fill: Callable[[Any], Any] | None
    zero: Callable[[], Any]
    is_nullable: bool = False

    def value(self, decoded: Any) -> Any:
        """Return the real value of a decoded one, which may be None."""
        if decoded is None:
            return None if self.is_nullable else self.zero()
        return decoded if self.fill is None else self.fill(decoded)


class NullableForm(Generic[T]):
    """A struct type in which every value may be null, and the way back to the struct.

    Args:
        of_manifest: Whether objects of manifests are converted: a required field that is missing or null is an error,
            as the API server's validation reports it, and uninterpreted JSON is given as Python values. If not, JSON
            of the API server is decoded, and such a field has the zero value, as in a Go client.

    Attributes:
        kind: The type to decode.
    """

    def __init__(self, kind: type[T], *, of_manifest: bool = False) -> None:
        self._form = _form(kind, of_manifest)
        self.kind: Any = self._form.loose

    def filled(self, decoded: Any) -> T:
        """Return the object of a decoded nullable form.

        Raises:
            msgspec.ValidationError: A required field without a zero value is missing or null.
        """
        try:
            return cast("T", self._form.value(decoded))
        except _NoZeroError as error:
            path = "".join(reversed(error.path))
            where = f" - at `${path}`" if path else ""
            raise msgspec.ValidationError(f"Object missing required field `{error.field}`{where}") from error


def nullable_form(kind: type[T], *, of_manifest: bool = False) -> NullableForm[T]:
    """Return the nullable form of a struct type; it is derived once."""
    key: Any = kind
    found: NullableForm[T] = _cached_form(key, of_manifest)
    return found


@cache
def _cached_form(kind: Any, of_manifest: bool) -> NullableForm[Any]:
    return NullableForm(kind, of_manifest=of_manifest)


def convert(value: Any, kind: type[T]) -> T:
    """Convert parsed YAML or JSON of a manifest to a struct; null is read as described above.

    Raises:
        msgspec.ValidationError: It does not match, or lacks a required field.
    """
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        form = nullable_form(kind, of_manifest=True)
        return second_try(form, lambda: msgspec.convert(value, form.kind), error)


def second_try(form: NullableForm[T], decode: Callable[[], Any], first: msgspec.ValidationError) -> T:
    """Decode an object in its nullable form.

    Raises:
        msgspec.ValidationError: The error that is left if null is accepted everywhere.
    """
    try:
        return form.filled(decode())
    except msgspec.ValidationError as error:
        # The form adds "| null" to each type in a message.
        raise (first if _place(error) == _place(first) else _without_null(error)) from None


def readable_part(value: Any, kind: type[T]) -> T:
    """Return an object with the fields that can be read; the others have their default or zero value.

    A struct whose defaults would be read as less than the object has replaces them in its method ``restored``.

    Args:
        value: The object as parsed JSON, which does not match its type.

    Raises:
        msgspec.ValidationError: Its name cannot be read.
    """
    found: dict[str, Any] = {}
    content = value if isinstance(value, dict) else {}
    for info in fields(cast("Any", kind)):
        form = _form(info.type, of_manifest=False)
        try:
            if info.encode_name in content:
                found[info.name] = _readable_value(content[info.encode_name], info.type)
            elif info.required:
                found[info.name] = form.zero()
        except msgspec.ValidationError as error:
            if _is_identity(cast("Any", kind), info.name):
                raise
            if info.required:
                found[info.name] = _zero(form, error)
        except _NoZeroError as error:
            raise msgspec.ValidationError(f"Object missing required field `{info.encode_name}`") from error
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


def _zero(form: _Form, error: msgspec.ValidationError) -> Any:
    try:
        return form.zero()
    except _NoZeroError:
        raise error from None


def _place(error: msgspec.ValidationError) -> str:
    return str(error).rpartition(" - at ")[2]


def _without_null(error: msgspec.ValidationError) -> msgspec.ValidationError:
    return msgspec.ValidationError(str(error).replace(" | null`", "`"))


# -- forms of types -----------------------------------------------------------------------------------------------


def _form(hint: Any, of_manifest: bool) -> _Form:
    origin, args = get_origin(hint), get_args(hint)
    if hint is Raw and of_manifest:
        return _Form(Any, lambda found: Raw(msgspec.json.encode(found)), lambda: Raw(b"null"))
    if hint is Any or hint is Raw:
        return _Form(hint, None, lambda: None, is_nullable=True)
    if origin is Annotated:
        return _Form(hint, None, _form(args[0], of_manifest).zero)
    if origin in (Union, UnionType):
        return _union(args, of_manifest)
    if origin in _SEQUENCES and (origin is not tuple or args[-1:] == (Ellipsis,)):
        return _sequence(origin, _form(args[0], of_manifest))
    if origin is dict:
        return _mapping(args[0], _form(args[1], of_manifest))
    if isinstance(hint, type) and issubclass(hint, Struct) and not hint.__struct_config__.array_like:
        return _struct(hint, of_manifest)
    return _leaf(hint)


def _leaf(hint: Any) -> _Form:
    if hint in _ZEROS:
        zero = _ZEROS[hint]
        return _Form(hint, None, lambda: zero)
    if isinstance(hint, type) and hint in (*_SEQUENCES, dict):
        return _Form(hint, None, hint)
    return _Form(hint, None, _no_zero)


def _no_zero() -> Any:
    raise _NoZeroError("")


def _union(args: tuple[Any, ...], of_manifest: bool) -> _Form:
    arms = [arm for arm in args if arm not in (NoneType, UnsetType)]
    is_nullable = NoneType in args
    if len(arms) == 1:
        form = _form(arms[0], of_manifest)
        return _Form(form.loose, form.fill, form.zero, is_nullable or form.is_nullable)
    # Of several types, as of quantities and IntOrString, Go's zero value is the number.
    zero = next((_ZEROS[arm] for arm in (int, *arms) if arm in arms and arm in _ZEROS), None)
    loose: Any = Union[tuple(arms)]  # noqa: UP007 - of types that are not known before
    return _Form(loose, None, _no_zero if zero is None else lambda: zero, is_nullable)


def _sequence(origin: Any, element: _Form) -> _Form:
    inner = _or_null(element)
    loose: Any = origin[(inner, ...)] if origin is tuple else origin[inner]
    return _Form(loose, lambda found: origin([element.value(each) for each in found]), origin)


def _mapping(key: Any, value: _Form) -> _Form:
    loose: Any = dict.__class_getitem__((key, _or_null(value)))
    return _Form(loose, lambda found: {name: value.value(each) for name, each in found.items()}, dict)


def _or_null(form: _Form) -> Any:
    return form.loose if form.loose in (Any, Raw) else form.loose | None


def _struct(kind: type[Struct], of_manifest: bool) -> _Form:
    if kind in _in_progress:
        return _leaf(kind)  # A type that contains itself is decoded as it is below its first level.
    _in_progress.append(kind)
    try:
        return _struct_forms(kind, of_manifest)
    finally:
        _in_progress.pop()


_in_progress: list[type[Struct]] = []


def _struct_forms(kind: type[Struct], of_manifest: bool) -> _Form:
    infos = fields(kind)
    forms = {info.name: _form(info.type, of_manifest) for info in infos}
    required = {info.name for info in infos if info.required}
    is_error = {name for name in required if of_manifest or _is_identity(kind, name)}
    loose = defstruct(
        kind.__name__,
        [_loose_field(info, forms[info.name], is_required=info.name in is_error) for info in infos],
        rename={info.name: info.encode_name for info in infos},
        forbid_unknown_fields=kind.__struct_config__.forbid_unknown_fields,
        kw_only=True,
        gc=False,
    )

    def zero() -> Any:
        missing = next((info.encode_name for info in infos if info.name in is_error), None)
        if missing is not None:
            raise _NoZeroError(missing)
        return kind(**{name: forms[name].zero() for name in required})

    return _Form(loose, _filler(kind, infos, forms, is_error), zero)


def _is_identity(kind: type[Struct], field: str) -> bool:
    """Return whether a field identifies the object: a guess would apply a change to another object."""
    return field == _METADATA or (field == "name" and issubclass(kind, ObjectMeta))


def _loose_field(info: FieldInfo, form: _Form, *, is_required: bool) -> tuple[str, Any] | tuple[str, Any, Any]:
    loose = _or_null(form)
    if is_required:
        return (info.name, loose)
    return (info.name, loose if loose is Any else loose | UnsetType, UNSET)


def _filler(
    kind: type[Struct], infos: tuple[FieldInfo, ...], forms: dict[str, _Form], is_error: set[str]
) -> Callable[[Any], Any]:
    required = {info.name for info in infos if info.required}
    encoded = {info.name: info.encode_name for info in infos}

    def fill(decoded: Any) -> Any:
        values: dict[str, Any] = {}
        for name, form in forms.items():
            found = getattr(decoded, name)
            if found is UNSET or (found is None and not form.is_nullable):
                if name not in required:
                    continue
                if name in is_error:
                    raise _NoZeroError(encoded[name])
                found = None
            try:
                values[name] = form.value(found)
            except _NoZeroError as error:
                if found is None:
                    raise _NoZeroError(encoded[name]) from None
                error.path.append(f".{encoded[name]}")
                raise
        return kind(**values)

    return fill
