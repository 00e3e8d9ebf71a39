"""Parse a CEL expression into a syntax tree, with macros expanded.

Follows cel-go's grammar and positions. Nesting is limited per grammar rule as in cel-go, which makes deep nesting an
error.
"""

from __future__ import annotations

from typing import NoReturn

from scheduler_core.cel.lexer import Token, tokenize
from scheduler_core.cel.literals import LiteralError, literal_value
from scheduler_core.cel.macros import MacroError, expand
from scheduler_core.cel.problems import Problems
from scheduler_core.cel.syntax_tree import (
    Call,
    Entry,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
)

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
_STARTS = (
    "'[', '{{', '(', {extra}'.', '-', '!', 'true', 'false', 'null', "
    "NUM_FLOAT, NUM_INT, NUM_UINT, STRING, BYTES, IDENTIFIER"
)
_PRIMARY = "{" + _STARTS.format(extra="") + "}"


class _SyntaxError(Exception):
    pass


def parse(problems: Problems) -> Node:
    """Parse the expression of *problems*.

    Raises:
        InvalidExpressionError: The expression is not CEL, or is nested too deeply.
    """
    parser = _Parser(problems, tokenize(problems))
    try:
        tree = parser.parse()
    except _SyntaxError:
        problems.raise_if_any()
        raise
    problems.raise_if_any()
    return tree


class _Parser:
    """Recursive descent over the tokens; the first syntax error ends it."""

    def __init__(self, problems: Problems, tokens: list[Token]) -> None:
        self._problems = problems
        self._tokens = tokens
        self._index = 0
        self._token = tokens[0]
        self._depths = {"expr": 0, "relation": 0, "calc": 0, "member": 0}

    def parse(self) -> Node:
        tree = self._expr()
        if self._token.kind != "<EOF>":
            adjective = "extraneous" if self._follows_alone() else "mismatched"
            raise self._error(f"{adjective} input '{self._token.text}' expecting <EOF>")
        return tree

    def _follows_alone(self) -> bool:
        return self._tokens[self._index + 1].kind == "<EOF>"

    def _advance(self) -> Token:
        token = self._token
        self._index += 1
        self._token = self._tokens[self._index] if self._index < len(self._tokens) else token
        return token

    def _error(self, message: str) -> _SyntaxError:
        self._problems.report(self._token.offset, f"Syntax error: {message}")
        return _SyntaxError(message)

    def _expect(self, kind: str, expecting: str) -> Token:
        if self._token.kind == kind:
            return self._advance()
        if expecting == f"'{kind}'" != "':'" and self._token.kind == "<EOF>":
            raise self._error(f"missing {expecting} at '<EOF>'")
        following = self._tokens[min(self._index + 1, len(self._tokens) - 1)].kind
        adjective = "extraneous" if kind != ":" and f"'{following}'" in expecting else "mismatched"
        raise self._error(f"{adjective} input '{self._token.text}' expecting {expecting}")

    def _no_alternative(self, dot: Token) -> _SyntaxError:
        end = self._token.offset + (0 if self._token.kind == "<EOF>" else len(self._token.text))
        return self._error(f"no viable alternative at input '{self._problems.source.text[dot.offset : end]}'")

    def _enter(self, rule: str) -> None:
        self._depths[rule] += 1
        if self._depths[rule] > _MAX_DEPTH:
            self._too_deep(f"expression recursion limit exceeded: {_MAX_DEPTH}")

    def _too_deep(self, message: str) -> NoReturn:
        self._problems.report(-1, message)
        raise _SyntaxError("too deep")

    def _expr(self) -> Node:
        self._enter("expr")
        condition = self._logical("||", "_||_")
        if self._token.kind == "?":
            operator = self._advance()
            if_true = self._logical("||", "_||_")
            self._expect(":", "':'")
            if_false = self._expr()
            parts = [condition, if_true, if_false]
            condition = self._nested(Call(operator.offset, "_?_:_", parts), *parts)
        self._depths["expr"] -= 1
        return condition

    def _logical(self, symbol: str, function: str) -> Node:
        term = self._logical("&&", "_&&_") if symbol == "||" else self._relation()
        if self._token.kind != symbol:
            return term
        terms, offsets = [term], []
        while self._token.kind == symbol:
            offsets.append(self._advance().offset)
            terms.append(self._logical("&&", "_&&_") if symbol == "||" else self._relation())
        return _balanced(function, terms, offsets, 0, len(offsets) - 1)

    def _relation(self) -> Node:
        self._enter("relation")
        left = self._calc()
        while self._token.kind in _RELATIONS:
            operator = self._advance()
            self._enter("relation")
            right = self._calc()
            self._depths["relation"] -= 1
            left = self._nested(Call(operator.offset, _RELATIONS[operator.kind], [left, right]), left, right)
        self._depths["relation"] -= 1
        return left

    def _calc(self) -> Node:
        self._enter("calc")
        left = self._product()
        while self._token.kind in _ADDITIONS:
            operator = self._advance()
            self._enter("calc")
            right = self._product()
            self._depths["calc"] -= 1
            left = self._nested(Call(operator.offset, _ADDITIONS[operator.kind], [left, right]), left, right)
        self._depths["calc"] -= 1
        return left

    def _product(self) -> Node:
        left = self._unary()
        while self._token.kind in _MULTIPLICATIONS:
            operator = self._advance()
            self._enter("calc")
            right = self._unary()
            self._depths["calc"] -= 1
            left = self._nested(Call(operator.offset, _MULTIPLICATIONS[operator.kind], [left, right]), left, right)
        return left

    def _nested(self, node: Node, *parts: Node) -> Node:
        """Return *node*, one level above its parts; the reference limits these levels, too."""
        node.depth = 1 + max(part.depth for part in parts)
        if node.depth > _MAX_DEPTH:
            self._too_deep("max recursion depth exceeded")
        return node

    def _unary(self) -> Node:
        first = self._token
        if first.kind == "!":
            count = self._repeated("!")
            operand = self._member()
            return operand if count % 2 == 0 else _above(Call(first.offset, "!_", [operand]), [operand])
        if first.kind == "-":
            following = self._tokens[self._index + 1].kind
            if following in ("NUM_INT", "NUM_FLOAT"):
                return self._member()
            count = self._repeated("-")
            operand = self._member()
            return operand if count % 2 == 0 else _above(Call(first.offset, "-_", [operand]), [operand])
        return self._member()

    def _repeated(self, kind: str) -> int:
        count = 0
        while self._accept(kind):
            count += 1
        return count

    def _member(self) -> Node:
        self._enter("member")
        node = self._primary()
        while True:
            kind = self._token.kind
            if kind == ".":
                node = self._selection(node)
            elif kind == "[":
                operator = self._advance()
                optional = self._accept("?")
                index = self._expr()
                self._expect("]", "']'")
                node = self._nested(Call(operator.offset, "_[?_]" if optional else "_[_]", [node, index]), node, index)
            else:
                break
        self._depths["member"] -= 1
        return node

    def _accept(self, kind: str) -> bool:
        if self._token.kind != kind:
            return False
        self._advance()
        return True

    def _selection(self, operand: Node) -> Node:
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
            return self._nested(Call(dot.offset, "_?._", [operand, Literal(name_token.offset, name)]), operand)
        return self._nested(Select(dot.offset, operand, name), operand)

    def _arguments(self) -> list[Node]:
        args: list[Node] = []
        if self._accept(")"):
            return args
        if not self._starts_expression():
            expecting = "{" + _STARTS.format(extra="')', ").replace("{{", "{") + "}"
            raise self._error(f"mismatched input '{self._token.text}' expecting {expecting}")
        while True:
            args.append(self._expr())
            if self._accept(")"):
                return args
            if not self._accept(","):
                self._expect(")", "')'")

    def _starts_expression(self) -> bool:
        return self._token.kind not in ("<EOF>", ")", "]", "}", ",", ":", "?", "*", "/", "%", "+", "in")

    def _call(self, offset: int, function: str, args: list[Node], target: Node | None) -> Node:
        try:
            expanded = expand(offset, function, args, target)
        except MacroError as error:
            self._problems.report(error.offset, str(error))
            return Literal(offset, None)
        return _above(Call(offset, function, args, target) if expanded is None else expanded, args)

    def _primary(self) -> Node:
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
            return _above(MapLiteral(token.offset, entries), [part for e in entries for part in (e.key, e.value)])
        if kind in (".", "IDENTIFIER"):
            return self._named()
        return self._literal()

    def _list(self) -> Node:
        opening = self._advance()
        elements: list[Node] = []
        optional: set[int] = set()
        while not self._accept("]"):
            if self._token.kind == "," and not elements:
                self._advance()
                self._expect("]", "']'")
                break
            if self._accept("?"):
                optional.add(len(elements))
            elements.append(self._expr())
            if self._accept("]"):
                break
            self._expect(",", "{']', ','}")
        return _above(ListLiteral(opening.offset, elements, frozenset(optional)), elements)

    def _field_name(self) -> Node:
        token = self._token
        if token.kind == "ESC_IDENTIFIER":
            self._advance()
            return Literal(token.offset, token.text[1:-1])
        self._expect("IDENTIFIER", "{'}', ',', IDENTIFIER, ESC_IDENTIFIER}")
        return Literal(token.offset, token.text)

    def _entries(self, *, struct: bool) -> list[Entry]:
        entries: list[Entry] = []
        while not self._accept("}"):
            if self._token.kind == "," and not entries:
                self._advance()
                self._expect("}", "'}'")
                break
            optional = self._accept("?")
            key = self._field_name() if struct else self._expr()
            colon = self._expect(":", "':'")
            entries.append(Entry(colon.offset, key, self._expr(), optional=optional))
            if self._accept("}"):
                break
            self._expect(",", "{'}', ','}")
        return entries

    def _named(self) -> Node:
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
        return Ident(token.offset, dot + token.text)

    def _struct(self, dot: str, first: Token) -> Node | None:
        """Parse a message if the names that follow end in an opening brace."""
        index = self._index
        names = [first.text]
        while self._tokens[index].kind == "." and self._tokens[index + 1].kind == "IDENTIFIER":
            names.append(self._tokens[index + 1].text)
            index += 2
        if self._tokens[index].kind != "{":
            return None
        while self._index < index:
            self._advance()
        opening = self._advance()
        return StructLiteral(opening.offset, dot + ".".join(names), self._entries(struct=True))

    def _literal(self) -> Node:
        token = self._advance()
        kind, text, offset = token
        sign = ""
        if kind == "-":
            sign = "-"
            kind, text, _ = self._advance()
        if kind in ("NUM_INT", "NUM_UINT", "NUM_FLOAT", "STRING", "BYTES", "true", "false", "null"):
            try:
                return Literal(offset, literal_value(kind, text, sign))
            except LiteralError as error:
                self._problems.report(offset, str(error))
                return Literal(offset, None)
        self._index -= 1
        self._token = token
        adjective = "extraneous" if self._after_unary() and token.kind == "<EOF>" else "mismatched"
        if token.kind != "<EOF>" and self._would_start_after():
            adjective = "extraneous"
        raise self._error(f"{adjective} input '{token.text}' expecting {_PRIMARY.replace('{{', '{')}")

    def _after_unary(self) -> bool:
        return self._index > 0 and self._tokens[self._index - 1].kind == "!"

    def _would_start_after(self) -> bool:
        following = self._tokens[min(self._index + 1, len(self._tokens) - 1)].kind
        return following not in ("<EOF>", ")", "]", "}", ",", ":", "?", "*", "/", "%", "+", "in", "&&", "||", "==")


def _balanced(function: str, terms: list[Node], offsets: list[int], low: int, high: int) -> Node:
    """Return a balanced tree of a chain of && or ||, so that its depth grows with the logarithm of its length."""
    middle = (low + high + 1) // 2
    left = terms[middle] if middle == low else _balanced(function, terms, offsets, low, middle - 1)
    right = terms[middle + 1] if middle == high else _balanced(function, terms, offsets, middle + 1, high)
    return _above(Call(offsets[middle], function, [left, right]), [left, right])


def _above(node: Node, parts: list[Node]) -> Node:
    """Return *node* at the level of its deepest part."""
    node.depth = max([part.depth for part in parts], default=0)
    return node
