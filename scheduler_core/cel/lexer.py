"""Split a CEL expression into tokens.

Follows the lexer rules of cel-go's grammar. Offsets count code points.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from scheduler_core.cel.problems import Problems

_STRING_BODIES = (
    r'[rR]"""(?s:.*?)"""',
    r"[rR]'''(?s:.*?)'''",
    r'[rR]"[^"\n\r]*"',
    r"[rR]'[^'\n\r]*'",
)
_ESCAPE = r"""\\(?:[abfnrtv"'\\?`]|[0-3][0-7][0-7]|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"""
_QUOTED = (
    rf'"""(?:{_ESCAPE}|[^\\])*?"""',
    rf"'''(?:{_ESCAPE}|[^\\])*?'''",
    rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
    rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
)
_ANY_STRING = "|".join((*_STRING_BODIES, *_QUOTED))
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
_KEYWORDS = {"in", "true", "false", "null"}


class Token(NamedTuple):
    """A token.

    Attributes:
        kind: The rule's name for literals and identifiers, else the text itself; ``<EOF>`` at the end.
        text: The text.
        offset: Code point offset.
    """

    kind: str
    text: str
    offset: int


def tokenize(problems: Problems) -> list[Token]:
    """Return the tokens of the expression, the last one ``<EOF>``; record text that is no token."""
    text = problems.source.text
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
            tokens.append(Token(kind, value, offset))
        offset = match.end()
    tokens.append(Token("<EOF>", "<EOF>", len(text)))
    return tokens


def _unrecognized_end(text: str, offset: int) -> int:
    """Return the end of the text that starts like a token and is none."""
    char = text[offset]
    if char in "\"'":
        if text.startswith(char * 3, offset):
            return len(text)
        index = offset + 1
        while index < len(text) and text[index] not in "\r\n":
            if text[index] == "\\" and not re.compile(_ESCAPE).match(text, index):
                return min(index + 2, len(text))
            index += 2 if text[index] == "\\" else 1
        return min(index + 1, len(text)) if index < len(text) else len(text)
    # An operator of two characters that lacks its second one takes the character after it along.
    return min(offset + (2 if char in "=|&" else 1), len(text))


def _shown(text: str) -> str:
    return text.replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
