"""Assignability of CEL types and substitution of type parameters, as cel-go's type checker defines them."""

from __future__ import annotations

from scheduler_core.cel.value_types import DYN, Type

Substitutions = dict[Type, Type]
_DYNAMIC = frozenset({"dyn", "any"})
_DYNAMIC_OR_ERROR = frozenset({"dyn", "any", "error"})
_NULLABLE = frozenset({"opaque", "struct", "any", "duration", "timestamp"})
_STRUCTURAL = frozenset({"opaque", "list", "map"})


def is_dyn(kind: Type) -> bool:
    """Return whether the type is dynamic."""
    return kind.kind in _DYNAMIC


def is_dyn_or_error(kind: Type) -> bool:
    """Return whether the type is dynamic or the result of an error."""
    return kind.kind in _DYNAMIC_OR_ERROR


def unwrap_optional(kind: Type) -> tuple[Type, bool]:
    """Return the type in an optional type, and whether it is one."""
    if kind.kind == "opaque" and kind.name == "optional_type":
        return kind.params[0], True
    return kind, False


def assign_all(substitutions: Substitutions, sources: list[Type], targets: tuple[Type, ...]) -> Substitutions | None:
    """Return the substitutions under which *sources* are assignable to *targets*, None if there are none."""
    copied = dict(substitutions)
    return copied if _assignable_all(copied, tuple(sources), targets) else None


def assign(substitutions: Substitutions, source: Type, target: Type) -> Substitutions | None:
    """Return the substitutions under which *source* is assignable to *target*, None if there are none."""
    copied = dict(substitutions)
    return copied if _assignable(copied, source, target) else None


def _assignable_all(known: Substitutions, sources: tuple[Type, ...], targets: tuple[Type, ...]) -> bool:
    if len(sources) != len(targets):
        return False
    return all(_assignable(known, source, target) for source, target in zip(sources, targets, strict=True))


def _assignable(known: Substitutions, source: Type, target: Type) -> bool:
    if target.kind == "param":
        valid, substituted = _substitutable(known, source, target)
        if valid:
            return True
        if substituted:
            return False
    if source.kind == "param":
        return _substitutable(known, target, source)[0]
    if source.kind in _DYNAMIC_OR_ERROR or target.kind in _DYNAMIC_OR_ERROR:
        return True
    if source.kind == "null":
        return target.kind in _NULLABLE or target.kind == "null"
    if target.kind == "null":
        return source.kind in _NULLABLE
    if source.kind == "type":
        return target.kind == "type"
    if source.kind in _STRUCTURAL:
        return (
            source.kind == target.kind
            and source.name == target.name
            and _assignable_all(known, source.params, target.params)
        )
    return source.kind == target.kind and source.name == target.name


def _substitutable(known: Substitutions, source: Type, param: Type) -> tuple[bool, bool]:
    """Return whether *param* stands for *source*, and whether *param* had a substitution before."""
    if source == param:
        return True, True
    current = known.get(param)
    if current is not None:
        if source == current:
            return True, True
        if _assignable(known, source, current):
            general = most_general(source, current)
            if _absent(known, param, general):
                known[param] = general
            return True, True
        return False, True
    if _absent(known, param, source):
        known[param] = source
        return True, False
    return False, False


def _absent(known: Substitutions, param: Type, within: Type) -> bool:
    if param == within:
        return False
    if within.kind == "param":
        current = known.get(within)
        return current is None or _absent(known, param, current)
    return all(_absent(known, param, inner) for inner in within.params)


def most_general(one: Type, two: Type) -> Type:
    """Return the more general of two types that agree."""
    return one if _less_specific(one, two) else two


def _less_specific(one: Type, two: Type) -> bool:
    if one.kind in _DYNAMIC or one.kind == "param":
        return True
    if two.kind in _DYNAMIC or two.kind == "param" or one.kind != two.kind:
        return False
    if one.kind in _STRUCTURAL:
        if one.name != two.name or len(one.params) != len(two.params):
            return False
        return all(_less_specific(left, right) for left, right in zip(one.params, two.params, strict=True))
    return one.kind == "type" or one == two


def substitute(known: Substitutions, kind: Type, *, params_to_dyn: bool = False) -> Type:
    """Return *kind* with all type parameters replaced that have a substitution, the others by dyn if requested."""
    current = known.get(kind)
    if current is not None:
        return substitute(known, current, params_to_dyn=params_to_dyn)
    if kind.kind == "param":
        return DYN if params_to_dyn else kind
    if not kind.params:
        return kind
    params = []
    changed = False
    for param in kind.params:
        replaced = substitute(known, param, params_to_dyn=params_to_dyn)
        changed = changed or replaced is not param
        params.append(replaced)
    return Type(kind.kind, kind.name, tuple(params)) if changed else kind
