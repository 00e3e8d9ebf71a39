"""Field selection and indexing, with presence tests and optional chains, as cel-go's attributes resolve them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from scheduler_core.cel.overloads import Frame
from scheduler_core.cel.problems import EvaluationError
from scheduler_core.cel.values import MAX_INT, MISSING, NONE, Mapping, Optional, Uint, go_text, go_type

Run = Callable[[Frame], Any]
_KEY_TYPES = frozenset({bool, int, float, str, Uint})


@dataclass(frozen=True, slots=True)
class Qualifier:
    """One selection or index.

    Attributes:
        key: The key; MISSING if it is computed.
        optional: Whether an absent key yields ``optional.none()``.
    """

    key: Any
    compute: Run | None = None
    optional: bool = False
    test_only: bool = False


@dataclass(frozen=True, slots=True)
class Attribute:
    """A value and the qualifiers applied to it in order; or a choice between two attributes.

    Attributes:
        choices: The attributes for true and false; empty for no choice.
    """

    base: Run
    qualifiers: tuple[Qualifier, ...] = ()
    choices: tuple[Attribute, ...] = ()
    is_device: bool = False

    def qualified(self, qualifier: Qualifier) -> Attribute:
        if self.choices:
            return replace(self, choices=tuple([choice.qualified(qualifier) for choice in self.choices]))
        return replace(self, qualifiers=(*self.qualifiers, qualifier))

    def resolver(self) -> Run:
        """Return a function that resolves the attribute. The cost of qualifiers is counted, that of the base is not."""
        if self.choices:
            return _choice(self.base, self.choices[0].resolver(), self.choices[1].resolver())
        if not self.qualifiers:
            return self.base
        general = _path(self.base, self.qualifiers)
        names = [each.key for each in self.qualifiers if each == Qualifier(each.key) and type(each.key) is str]
        is_value = self.is_device and len(self.qualifiers) == len(names) == 3
        return _device_path(general, *names) if is_value else general


def _choice(condition: Run, if_true: Run, if_false: Run) -> Run:
    def resolve(frame: Frame) -> Any:
        value = condition(frame)
        if value is True:
            return if_true(frame)
        if value is False:
            return if_false(frame)
        raise EvaluationError("no such overload")

    return resolve


def _device_path(general: Run, field: str, domain: str, name: str) -> Run:
    def resolve(frame: Frame) -> Any:
        try:
            value = frame.device.entries[field].entries[domain].entries[name]
        except (AttributeError, KeyError):
            return general(frame)
        frame.cost += 3
        return value

    return resolve


def _path(base: Run, qualifiers: tuple[Qualifier, ...]) -> Run:
    def resolve(frame: Frame) -> Any:
        value = base(frame)
        optional = type(value) is Optional
        if optional:
            if value.value is MISSING:
                return value
            value = value.value
        for qualifier in qualifiers:
            optional = optional or qualifier.optional
            frame.cost += not optional
            key = qualifier.key if qualifier.compute is None else _computed(qualifier.compute(frame))
            if not optional:
                value = _find(value, key) is not MISSING if qualifier.test_only else _qualify(value, key)
                continue
            value = _find(value, key)
            if value is MISSING:
                return NONE
            frame.cost += 1
        return Optional(value) if optional else value

    return resolve


def _computed(key: Any) -> Any:
    if type(key) not in _KEY_TYPES:
        raise EvaluationError(f"invalid qualifier type: {go_type(key)}")
    return key


def _qualify(value: Any, key: Any) -> Any:
    """Return the field, entry or element *key* of *value*. Raises EvaluationError: there is none."""
    found = _find(value, key)
    if found is MISSING:
        problem = "index out of bounds" if type(value) is tuple else "no such key"
        raise EvaluationError(f"{problem}: {go_text(key)}")
    return found


def _find(value: Any, key: Any) -> Any:
    """Return the field, entry or element *key* of *value*, MISSING if there is none."""
    if isinstance(value, Mapping):
        return value.find(key)
    if type(value) is tuple:
        index = _index(key)
        return value[index] if 0 <= index < len(value) else MISSING
    return MISSING


def _index(key: Any) -> int:
    if type(key) is int or (type(key) is Uint and key <= MAX_INT) or (type(key) is float and key.is_integer()):
        return int(key)
    if type(key) in (float, Uint):
        raise EvaluationError(f"unsupported index value {go_text(key)} in list")
    kind = {bool: "bool", str: "string"}.get(type(key), "value")
    raise EvaluationError(f"unsupported index type '{kind}' in list")
