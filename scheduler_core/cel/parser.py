"""Parse a CEL expression into a syntax tree, with macros expanded.

Follows cel-go's grammar and positions; offsets count code points. Nesting is limited per grammar rule as in cel-go,
which makes deep nesting an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from scheduler_core.cel import syntax_tree as ast
from scheduler_core.cel.problems import InvalidExpressionError, Problems
from scheduler_core.cel.values import MAX_INT, MAX_UINT, MIN_INT, Uint

# -- macros, whose expansion carries the position of the macro call, as in cel-go ------------------------------------

_ACCUMULATOR = "@result"
_SORT_INPUT = "@__sortBy_input__"
_SIMPLE_NAME = "argument must be a simple name"
_IDENTIFIER = "argument is not an identifier"

_Macro = Callable[[int, ast.Node, list[ast.Node]], ast.Node | None]


class MacroError(Exception):
    """The arguments of a macro are not those that it expects."""

    def __init__(self, offset: int, message: str) -> None:
        super().__init__(message)
        self.offset = offset


def expand(offset: int, function: str, args: list[ast.Node], target: ast.Node | None) -> ast.Node | None:
    """Return the expansion of a call, None if the call is no macro. Raises MacroError: arguments are wrong."""
    if target is None:
        return _has(offset, args[0]) if function == "has" and len(args) == 1 else None
    macro, counts = _MACROS.get(function, (None, ()))
    return macro(offset, target, args) if macro is not None and len(args) in counts else None


def _has(offset: int, operand: ast.Node) -> ast.Node:
    if type(operand) is not ast.Select:
        place = offset if type(operand) is ast.Ident else operand.offset
        raise MacroError(place, "invalid argument to has() macro")
    return ast.Select(offset, operand.operand, operand.field, test_only=True)


def _variable(node: ast.Node, message: str) -> str:
    if type(node) is not ast.Ident:
        raise MacroError(node.offset, message)
    return node.name


def _variables(args: list[ast.Node], message: str) -> list[str]:
    names = [_variable(node, message) for node in args]
    if len(names) == 2 and names[0] == names[1]:
        raise MacroError(args[1].offset, f"duplicate variable name: {names[0]}")
    for name, node in zip(names, args, strict=True):
        if name in (_ACCUMULATOR, "__result__"):
            raise MacroError(node.offset, "iteration variable overwrites accumulator variable")
    return names


def _fold(
    target: ast.Node,
    names: list[str],
    initial: ast.Node,
    step: ast.Node,
    *,
    condition: ast.Node | None = None,
    result: ast.Node | None = None,
) -> ast.Node:
    offset = initial.offset
    return ast.Comprehension(
        offset=offset,
        iter_range=target,
        iter_var=names[0],
        iter_var2=names[1] if len(names) > 1 else "",
        accumulator=_ACCUMULATOR,
        initial=initial,
        condition=condition or ast.Literal(offset, value=True),
        step=step,
        result=result or ast.Ident(offset, _ACCUMULATOR),
    )


def _quantifier(kind: str) -> _Macro:
    def expand_quantifier(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:-1], _SIMPLE_NAME)
        accumulator, other = ast.Ident(offset, _ACCUMULATOR), ast.Ident(offset, _ACCUMULATOR)
        if kind == "exists_one":
            added = ast.Call(offset, "_+_", [accumulator, ast.Literal(offset, 1)])
            step = ast.Call(offset, "_?_:_", [args[-1], added, other])
            result = ast.Call(offset, "_==_", [ast.Ident(offset, _ACCUMULATOR), ast.Literal(offset, 1)])
            return _fold(target, names, ast.Literal(offset, 0), step, result=result)
        guard = accumulator if kind == "all" else ast.Call(offset, "!_", [accumulator])
        step = ast.Call(offset, "_&&_" if kind == "all" else "_||_", [other, args[-1]])
        condition = ast.Call(offset, "@not_strictly_false", [guard])
        return _fold(target, names, ast.Literal(offset, kind == "all"), step, condition=condition)

    return expand_quantifier


def _collected(target: ast.Node, args: list[ast.Node], names: list[str], initial: ast.Node, step: ast.Node) -> ast.Node:
    """Return a fold that adds to a list or map, for the elements that meet the condition between names and value."""
    if len(args) > len(names) + 1:
        step = ast.Call(initial.offset, "_?_:_", [args[len(names)], step, ast.Ident(initial.offset, _ACCUMULATOR)])
    return _fold(target, names, initial, step)


def _to_list(variables: int, message: str) -> _Macro:
    def expand_mapping(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:variables], message)
        step = ast.Call(offset, "_+_", [ast.Ident(offset, _ACCUMULATOR), ast.ListLiteral(offset, [args[-1]])])
        return _collected(target, args, names, ast.ListLiteral(offset, []), step)

    return expand_mapping


def _to_map(*, entries: bool) -> _Macro:
    def expand_transform(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        names = _variables(args[:2], _SIMPLE_NAME)
        inserted = [args[-1]] if entries else [ast.Ident(offset, names[0]), args[-1]]
        step = ast.Call(offset, "cel.@mapInsert", [ast.Ident(offset, _ACCUMULATOR), *inserted])
        return _collected(target, args, names, ast.MapLiteral(offset, []), step)

    return expand_transform


_map = _to_list(1, _IDENTIFIER)


def _filter(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node | None:
    return _map(offset, target, [*args, args[0]])


def _binding(offset: int, name: str, value: ast.Node, result: ast.Node) -> ast.Comprehension:
    return ast.Comprehension(
        offset=offset,
        iter_range=ast.ListLiteral(offset, []),
        iter_var="#unused",
        accumulator=name,
        initial=value,
        condition=ast.Literal(offset, value=False),
        step=ast.Ident(offset, name),
        result=result,
    )


def _bind(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node | None:
    if type(target) is not ast.Ident or target.name != "cel":
        return None
    name = _variable(args[0], "cel.bind() variable names must be simple identifiers")
    return _binding(offset, name, args[1], args[2])


def _optional_map(function: str) -> _Macro:
    def expand_optional(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
        name = _variable(args[0], f"{function}() variable name must be a simple identifier")
        result: ast.Node = _binding(offset, name, ast.Call(offset, "value", [], target), args[1])
        if function == "optMap":
            result = ast.Call(offset, "optional.of", [result])
        present = ast.Call(offset, "hasValue", [], target)
        return ast.Call(offset, "_?_:_", [present, result, ast.Call(offset, "optional.none", [])])

    return expand_optional


def _sort_by(offset: int, target: ast.Node, args: list[ast.Node]) -> ast.Node:
    if type(target) not in (ast.Ident, ast.Select, ast.ListLiteral, ast.Comprehension, ast.Call):
        raise MacroError(
            target.offset, "sortBy can only be applied to a list, identifier, comprehension, call or select expression"
        )
    _variable(args[0], _SIMPLE_NAME)
    keys = _map(offset, ast.Ident(offset, _SORT_INPUT), args)
    assert keys is not None
    call = ast.Call(offset, "@sortByAssociatedKeys", [keys], ast.Ident(offset, _SORT_INPUT))
    return _binding(offset, _SORT_INPUT, target, call)


# By name: the expansion of a call with a target, and the numbers of arguments with which the call is a macro.
_MACROS: dict[str, tuple[_Macro | None, tuple[int, ...]]] = {
    "all": (_quantifier("all"), (2, 3)),
    "bind": (_bind, (3,)),
    "exists": (_quantifier("exists"), (2, 3)),
    "exists_one": (_quantifier("exists_one"), (2, 3)),
    "existsOne": (_quantifier("exists_one"), (2, 3)),
    "filter": (_filter, (2,)),
    "map": (_map, (2, 3)),
    "optFlatMap": (_optional_map("optFlatMap"), (2,)),
    "optMap": (_optional_map("optMap"), (2,)),
    "sortBy": (_sort_by, (2,)),
    "transformList": (_to_list(2, _SIMPLE_NAME), (3, 4)),
    "transformMap": (_to_map(entries=False), (3, 4)),
    "transformMapEntry": (_to_map(entries=True), (3, 4)),
}

# -- tokens ---------------------------------------------------------------------------------------------------------

_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_STRINGS = (
    r'[rR]"""(?s:.*?)"""',
    r"[rR]'''(?s:.*?)'''",
    r'[rR]"[^"\n\r]*"',
    r"[rR]'[^'\n\r]*'",
    rf'"""(?:{_ESCAPE}|[^\\])*?"""',
    rf"'''(?:{_ESCAPE}|[^\\])*?'''",
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
)
_ANY_STRING = "|".join(_STRINGS)
_TOKEN = re.compile(
    rf"""
    (?P<blank>[\t \r\n\f]+|//[^\n]*)
  | (?P<BYTES>[bB](?:{_ANY_STRING}))
  | (?P<STRING>{_ANY_STRING})
  | (?P<NUM_FLOAT>[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
  | (?P<NUM_UINT>0x[0-9a-fA-F]+[uU]|[0-9]+[uU])
  | (?P<NUM_INT>0x[0-9a-fA-F]+|[0-9]+)
  | (?P<IDENTIFIER>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<ESC_IDENTIFIER>`[A-Za-z0-9_./\x20-]+`)
  | (?P<op>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])
    """,
    re.VERBOSE,
)
# The content of a string that does not end, up to the end of its line or to an invalid escape.
_UNENDED = re.compile(rf"(?:{_ESCAPE}|[^\\\r\n])*")
_KEYWORDS = {"in", "true", "false", "null"}


class _Token(NamedTuple):
    """A token; its kind is the rule's name for literals and identifiers, else the text, ``<EOF>`` at the end."""

    kind: str
    text: str
    offset: int


def _tokenize(problems: Problems) -> list[_Token]:
    text = problems.text
    tokens = []
    offset = 0
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            end = _unrecognized_end(text, offset)
            problems.report(offset, f"Syntax error: token recognition error at: '{_shown(text[offset:end])}'")
            offset = end
            continue
        kind = match.lastgroup or ""
        value = match.group()
        if kind == "op" or (kind == "IDENTIFIER" and value in _KEYWORDS):
            kind = value
        if kind != "blank":
            tokens.append(_Token(kind, value, offset))
        offset = match.end()
    # Twice, so that each token that the parser is at has one behind it.
    return [*tokens, *[_Token("<EOF>", "<EOF>", len(text))] * 2]


def _unrecognized_end(text: str, offset: int) -> int:
    """Return the end of the text that starts like a token and is none."""
    char = text[offset]
    if char in "\"'":
        if text.startswith(char * 3, offset):
            return len(text)
        content = _UNENDED.match(text, offset + 1)
        end = len(text) if content is None else content.end()
        return min(end + (2 if text[end : end + 1] == "\\" else 1), len(text))
    # An operator of two characters that lacks its second one takes the character after it along.
    return min(offset + (2 if char in "=|&" else 1), len(text))


def _shown(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")


# -- literals -------------------------------------------------------------------------------------------------------

_SIMPLE_ESCAPES = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    '"': '"', "'": "'", "\\": "\\", "?": "?", "`": "`",
}  # fmt: skip
_MAX_CODE_POINT = 0x10FFFF
_SURROGATES = range(0xD800, 0xE000)
_ESCAPED = re.compile(r"\\(u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[xX][0-9a-fA-F]{2}|[0-3][0-7][0-7]|.)", re.DOTALL)
_KEYWORD_VALUES = {"true": True, "false": False, "null": None}
_MAX_DIGITS = 100


class _LiteralError(Exception):
    """A literal has no value."""


def _literal_value(kind: str, text: str, sign: str) -> Any:
    """Return the value of a literal after *sign*. Raises _LiteralError: it exceeds its type, or is invalid."""
    if kind in ("NUM_INT", "NUM_UINT"):
        unsigned = kind == "NUM_UINT"
        number = _integer(sign, text.rstrip("uU"))
        if not (0 <= number <= MAX_UINT if unsigned else MIN_INT <= number <= MAX_INT):
            raise _LiteralError(f"invalid {'uint' if unsigned else 'int'} literal")
        return Uint(number) if unsigned else number
    if kind == "NUM_FLOAT":
        real = float(sign + text)
        if real in (float("inf"), float("-inf")):
            raise _LiteralError("invalid double literal")
        return real
    if kind in _KEYWORD_VALUES:
        return _KEYWORD_VALUES[kind]
    return _decoded(text, as_bytes=kind == "BYTES")


def _integer(sign: str, text: str) -> int:
    base = 16 if text.startswith("0x") else 10
    digits = text.removeprefix("0x").lstrip("0") or "0"
    # Longer numbers exceed both types. Python limits the length of text that it converts.
    magnitude = MAX_UINT + 1 if len(digits) > _MAX_DIGITS else int(digits, base)
    return -magnitude if sign else magnitude


def _decoded(text: str, *, as_bytes: bool) -> str | bytes:
    """Return the value of a STRING or BYTES token. Escapes of code points are invalid in bytes."""
    text = text[as_bytes:]
    raw = text[0] in "rR"
    quoted = text[raw:].replace("\r\n", "\n").replace("\r", "\n")
    width = 3 if len(quoted) >= 6 and quoted[:3] in ('"""', "'''") else 1
    body = quoted[width:-width]
    decoded: list[str | bytes] = []
    end = 0
    for match in () if raw else _ESCAPED.finditer(body):
        decoded.append(body[end : match.start()])
        code, end = match[1], match.end()
        point = None if code in _SIMPLE_ESCAPES else int(code, 8) if code[0].isdigit() else int(code[1:], 16)
        if point is None:
            decoded.append(_SIMPLE_ESCAPES[code])
        elif (as_bytes and code[0] in "uU") or point > _MAX_CODE_POINT or point in _SURROGATES:
            raise _LiteralError("unable to unescape string")
        else:
            decoded.append(bytes([point]) if as_bytes else chr(point))
    decoded.append(body[end:])
    if not as_bytes:
        return "".join(map(str, decoded))
    return b"".join([part.encode(errors="surrogatepass") if isinstance(part, str) else part for part in decoded])


# -- grammar --------------------------------------------------------------------------------------------------------

_MAX_DEPTH = 250
_RESERVED = frozenset({
    "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
    "package", "namespace", "null", "return", "true", "var", "void", "while",
})  # fmt: skip
_RELATIONS = {
    "<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in",
}  # fmt: skip
_ADDITIONS = {"+": "_+_", "-": "_-_"}
_MULTIPLICATIONS = {"*": "_*_", "/": "_/_", "%": "_%_"}
_LITERALS = ("NUM_INT", "NUM_UINT", "NUM_FLOAT", "STRING", "BYTES", *_KEYWORD_VALUES)
_NO_STARTS = ("<EOF>", ")", "]", "}", ",", ":", "?", "*", "/", "%", "+", "in")


def _starts(extra: str = "") -> str:
    """Return what an expression starts with, as cel-go's parser lists it."""
    literals = "'true', 'false', 'null', NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES"
    return f"{{'[', '{{', '(', {extra}'.', '-', '!', {literals}, IDENTIFIER}}"


def parse(problems: Problems) -> ast.Node:
    """Parse the expression of *problems*. Raises InvalidExpressionError: it is not CEL, or nested too deeply."""
    tree = _Parser(problems, _tokenize(problems)).parse()
    problems.raise_if_any()
    return tree


class _Parser:
    """Recursive descent over the tokens; the first syntax error ends it."""

    def __init__(self, problems: Problems, tokens: list[_Token]) -> None:
        self._problems = problems
        self._tokens = tokens
        self._index = 0
        self._depths = {"expr": 0, "relation": 0, "calc": 0, "member": 0}

    def parse(self) -> ast.Node:
        tree = self._expr()
        if self._token.kind != "<EOF>":
            adjective = "extraneous" if self._following == "<EOF>" else "mismatched"
            raise self._error(f"{adjective} input '{self._token.text}' expecting <EOF>")
        return tree

    @property
    def _token(self) -> _Token:
        return self._tokens[self._index]

    @property
    def _following(self) -> str:
        return self._tokens[self._index + 1].kind

    def _advance(self) -> _Token:
        self._index += 1
        return self._tokens[self._index - 1]

    def _error(self, message: str) -> InvalidExpressionError:
        self._problems.report(self._token.offset, f"Syntax error: {message}")
        return self._problems.error()

    def _expect(self, kind: str, expecting: str) -> _Token:
        if self._token.kind == kind:
            return self._advance()
        if expecting == f"'{kind}'" != "':'" and self._token.kind == "<EOF>":
            raise self._error(f"missing {expecting} at '<EOF>'")
        adjective = "extraneous" if kind != ":" and f"'{self._following}'" in expecting else "mismatched"
        raise self._error(f"{adjective} input '{self._token.text}' expecting {expecting}")

    def _no_alternative(self, dot: _Token) -> InvalidExpressionError:
        end = self._token.offset + (0 if self._token.kind == "<EOF>" else len(self._token.text))
        return self._error(f"no viable alternative at input '{self._problems.text[dot.offset : end]}'")

    def _enter(self, rule: str) -> None:
        self._depths[rule] += 1
        self._require_depth(self._depths[rule], f"expression recursion limit exceeded: {_MAX_DEPTH}")

    def _require_depth(self, depth: int, message: str) -> None:
        if depth > _MAX_DEPTH:
            self._problems.report(-1, message)
            raise self._problems.error()

    def _expr(self) -> ast.Node:
        self._enter("expr")
        condition = self._or()
        if self._token.kind == "?":
            operator = self._advance()
            if_true = self._or()
            self._expect(":", "':'")
            if_false = self._expr()
            parts = [condition, if_true, if_false]
            condition = self._nested(ast.Call(operator.offset, "_?_:_", parts), *parts)
        self._depths["expr"] -= 1
        return condition

    def _or(self) -> ast.Node:
        return self._logical("||", self._and)

    def _and(self) -> ast.Node:
        return self._logical("&&", self._relation)

    def _logical(self, symbol: str, operand: Callable[[], ast.Node]) -> ast.Node:
        terms, offsets = [operand()], []
        while self._token.kind == symbol:
            offsets.append(self._advance().offset)
            terms.append(operand())
        return _balanced(f"_{symbol}_", terms, offsets, 0, len(offsets) - 1) if offsets else terms[0]

    def _relation(self) -> ast.Node:
        return self._chain(_RELATIONS, "relation", self._calc)

    def _calc(self) -> ast.Node:
        return self._chain(_ADDITIONS, "calc", self._product)

    def _product(self) -> ast.Node:
        return self._chain(_MULTIPLICATIONS, "calc", self._unary, counts=False)

    def _chain(
        self, operators: dict[str, str], rule: str, operand: Callable[[], ast.Node], *, counts: bool = True
    ) -> ast.Node:
        """Parse operands between operators of one precedence; *counts* if the rule itself is a level of nesting."""
        if counts:
            self._enter(rule)
        left = operand()
        while self._token.kind in operators:
            operator = self._advance()
            self._enter(rule)
            right = operand()
            self._depths[rule] -= 1
            left = self._nested(ast.Call(operator.offset, operators[operator.kind], [left, right]), left, right)
        self._depths[rule] -= counts
        return left

    def _nested(self, node: ast.Node, *parts: ast.Node) -> ast.Node:
        """Return *node*, one level above its parts; the reference limits these levels, too."""
        node.depth = 1 + max(part.depth for part in parts)
        self._require_depth(node.depth, "max recursion depth exceeded")
        return node

    def _unary(self) -> ast.Node:
        kind, _, offset = self._token
        if kind not in ("!", "-") or (kind == "-" and self._following in ("NUM_INT", "NUM_FLOAT")):
            return self._member()
        count = 0
        while self._accept(kind):
            count += 1
        operand = self._member()
        return operand if count % 2 == 0 else _above(ast.Call(offset, f"{kind}_", [operand]), [operand])

    def _member(self) -> ast.Node:
        self._enter("member")
        node = self._primary()
        while True:
            kind = self._token.kind
            if kind == ".":
                node = self._selection(node)
            elif kind == "[":
                operator = self._advance()
                function = "_[?_]" if self._accept("?") else "_[_]"
                index = self._expr()
                self._expect("]", "']'")
                node = self._nested(ast.Call(operator.offset, function, [node, index]), node, index)
            else:
                break
        self._depths["member"] -= 1
        return node

    def _accept(self, kind: str) -> bool:
        return self._token.kind == kind and bool(self._advance())

    def _selection(self, operand: ast.Node) -> ast.Node:
        dot = self._advance()
        optional = self._accept("?")
        if self._token.kind == "ESC_IDENTIFIER":
            name_token = self._advance()
            name = name_token.text[1:-1]
        else:
            if self._token.kind != "IDENTIFIER":
                expecting = "{IDENTIFIER, ESC_IDENTIFIER}" if optional else "IDENTIFIER"
                if not optional and self._token.kind not in ("true", "false", "null", "in"):
                    raise self._no_alternative(dot)
                raise self._error(f"mismatched input '{self._token.text}' expecting {expecting}")
            name_token = self._advance()
            name = name_token.text
            if self._token.kind == "(" and not optional:
                opening = self._advance()
                args = self._arguments()
                return self._nested(self._call(opening.offset, name, args, operand), operand, *args)
        if optional:
            return self._nested(ast.Call(dot.offset, "_?._", [operand, ast.Literal(name_token.offset, name)]), operand)
        return self._nested(ast.Select(dot.offset, operand, name), operand)

    def _arguments(self) -> list[ast.Node]:
        if self._accept(")"):
            return []
        if self._token.kind in _NO_STARTS:
            expecting = _starts("')', ")
            raise self._error(f"mismatched input '{self._token.text}' expecting {expecting}")
        args = [self._expr()]
        while self._accept(","):
            args.append(self._expr())
        self._expect(")", "')'")
        return args

    def _call(self, offset: int, function: str, args: list[ast.Node], target: ast.Node | None) -> ast.Node:
        try:
            expanded = expand(offset, function, args, target)
        except MacroError as error:
            self._problems.report(error.offset, str(error))
            return ast.Literal(offset, None)
        return _above(ast.Call(offset, function, args, target) if expanded is None else expanded, args)

    def _primary(self) -> ast.Node:
        token = self._token
        kind = token.kind
        if kind == "(":
            self._advance()
            node = self._expr()
            self._expect(")", "')'")
            return node
        if kind == "[":
            return self._list()
        if kind == "{":
            self._advance()
            entries = self._entries(struct=False)
            return _above(ast.MapLiteral(token.offset, entries), [part for e in entries for part in (e.key, e.value)])
        if kind in (".", "IDENTIFIER"):
            return self._named()
        return self._literal()

    def _list(self) -> ast.Node:
        opening = self._advance()
        elements: list[ast.Node] = []
        optional: set[int] = set()
        for is_optional in self._items("]"):
            if is_optional:
                optional.add(len(elements))
            elements.append(self._expr())
        return _above(ast.ListLiteral(opening.offset, elements, frozenset(optional)), elements)

    def _items(self, closing: str) -> Iterator[bool]:
        """Yield before each item whether it is optional; a comma may follow the last item or stand alone."""
        if self._accept(","):
            self._expect(closing, f"'{closing}'")
            return
        while not self._accept(closing):
            yield self._accept("?")
            if self._accept(closing):
                return
            self._expect(",", f"{{'{closing}', ','}}")

    def _field_name(self) -> ast.Node:
        token = self._token
        if token.kind == "ESC_IDENTIFIER":
            self._advance()
            return ast.Literal(token.offset, token.text[1:-1])
        self._expect("IDENTIFIER", "{'}', ',', IDENTIFIER, ESC_IDENTIFIER}")
        return ast.Literal(token.offset, token.text)

    def _entries(self, *, struct: bool) -> list[ast.Entry]:
        entries: list[ast.Entry] = []
        for optional in self._items("}"):
            key = self._field_name() if struct else self._expr()
            colon = self._expect(":", "':'")
            entries.append(ast.Entry(colon.offset, key, self._expr(), optional=optional))
        return entries

    def _named(self) -> ast.Node:
        dot = "." if self._accept(".") else ""
        if self._token.kind != "IDENTIFIER":
            raise self._no_alternative(self._tokens[self._index - 1])
        token = self._advance()
        struct = self._struct(dot, token)
        if struct is not None:
            return struct
        if token.text in _RESERVED:
            self._problems.report(token.offset - len(dot), f"reserved identifier: {token.text}")
        if self._token.kind == "(":
            opening = self._advance()
            args = self._arguments()
            return self._call(opening.offset, dot + token.text, args, None)
        return ast.Ident(token.offset, dot + token.text)

    def _struct(self, dot: str, first: _Token) -> ast.Node | None:
        """Parse a message if the names that follow end in an opening brace."""
        index = self._index
        names = [first.text]
        while self._tokens[index].kind == "." and self._tokens[index + 1].kind == "IDENTIFIER":
            names.append(self._tokens[index + 1].text)
            index += 2
        if self._tokens[index].kind != "{":
            return None
        self._index = index
        opening = self._advance()
        return ast.StructLiteral(opening.offset, dot + ".".join(names), self._entries(struct=True))

    def _literal(self) -> ast.Node:
        token = self._token
        sign = "-" if self._accept("-") else ""
        kind, text, _ = self._advance()
        if kind in _LITERALS:
            try:
                return ast.Literal(token.offset, _literal_value(kind, text, sign))
            except _LiteralError as error:
                self._problems.report(token.offset, str(error))
                return ast.Literal(token.offset, None)
        self._index -= 1
        if token.kind == "<EOF>":
            extraneous = self._index > 0 and self._tokens[self._index - 1].kind == "!"
        else:
            extraneous = self._following not in (*_NO_STARTS, "&&", "||", "==")
        adjective = "extraneous" if extraneous else "mismatched"
        raise self._error(f"{adjective} input '{token.text}' expecting {_starts()}")


def _balanced(function: str, terms: list[ast.Node], offsets: list[int], low: int, high: int) -> ast.Node:
    """Return a balanced tree of a chain of && or ||, so that its depth grows with the logarithm of its length."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, offsets, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, offsets, middle + 1, high)
    return _above(ast.Call(offsets[middle], function, [left, right]), [left, right])


def _above(node: ast.Node, parts: list[ast.Node]) -> ast.Node:
    node.depth = max([part.depth for part in parts], default=0)
    return node
