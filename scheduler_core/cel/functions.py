"""The functions and operators that device selectors may call, by name."""

from __future__ import annotations

from dataclasses import replace

from scheduler_core.cel import conversions, kubernetes_functions, list_functions, operators, string_functions
from scheduler_core.cel.overloads import Function, function

# No variable has these types, so that calls fail; expressions with dyn compile.
_AUTHORIZATION = [
    function("allowed", "Decision.() -> bool"),
    function("check", "PathCheck.(string) | ResourceCheck.(string) -> Decision", cost=350_000),
    function("error", "Decision.() -> string"),
    function("errored", "Decision.() -> bool"),
    function("fieldSelector", "ResourceCheck.(string) -> ResourceCheck"),
    function("group", "Authorizer.(string) -> GroupCheck"),
    function("labelSelector", "ResourceCheck.(string) -> ResourceCheck"),
    function("name", "ResourceCheck.(string) -> ResourceCheck"),
    function("namespace", "ResourceCheck.(string) -> ResourceCheck"),
    function("path", "Authorizer.(string) -> PathCheck"),
    function("reason", "Decision.() -> string"),
    function("resource", "GroupCheck.(string) -> ResourceCheck"),
    function("serviceAccount", "Authorizer.(string, string) -> Authorizer"),
    function("subresource", "ResourceCheck.(string) -> ResourceCheck"),
]
_ROWS = [
    *_AUTHORIZATION,
    *operators.FUNCTIONS,
    *conversions.FUNCTIONS,
    *string_functions.FUNCTIONS,
    *list_functions.FUNCTIONS,
    *kubernetes_functions.FUNCTIONS,
    function("cel.@mapInsert", "(map(K, V), K, V) | (map(K, V), map(K, V)) -> map(K, V)"),
]

FUNCTIONS: dict[str, Function] = {}
for _row in _ROWS:
    _known = FUNCTIONS.get(_row.name)
    FUNCTIONS[_row.name] = replace(_known, rows=_known.rows + _row.rows) if _known else _row
