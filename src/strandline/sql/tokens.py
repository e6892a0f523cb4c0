"""The tokenizer: Spark SQL's lexical rules, and YQL's suffixes of literals.

Comments and whitespace are dropped. A token keeps its exact source text, so that text which Strandline does
not interpret reaches Spark unchanged. Scanning takes linear time for any text.
"""

from __future__ import annotations

import math
import re
import struct
from decimal import Decimal
from typing import Any, NamedTuple

from strandline.errors import InvalidArgument, SyntaxFault
from strandline.names import quote_spark

__all__ = [
    "BOUND",
    "END",
    "HEX",
    "NAME",
    "NUMBER",
    "PUNCT",
    "START",
    "STRING",
    "WORD",
    "Position",
    "Token",
    "fault",
    "place",
    "quote",
    "tokenize",
    "unquote",
    "value",
    "word",
]

WORD, NAME, STRING, HEX, NUMBER, PUNCT, END = "word", "name", "string", "hex", "number", "punct", "end"
BOUND = "bound"
"""The kind of a token with a bound NULL, boolean, date or time.

No token of the kind STRING, HEX or NUMBER can express these values.
"""

MAX_DIGITS = 1000
"""Maximum length of a number in characters.

No type needs numbers of this length. Converting much longer ones to integers takes quadratic time.
"""


class Position(NamedTuple):
    """A position in a text: line and column count from 1, ``offset`` from 0."""

    line: int
    column: int
    offset: int


START = Position(1, 1, 0)


class Token(NamedTuple):
    """A token.

    Attributes:
        key: for words and punctuation, the text in upper case, for comparisons. Empty for names, strings and
            numbers.
        bound: the value of a bound token, whose ``text`` is the marker.
    """

    kind: str
    text: str
    start: int
    key: str = ""
    bound: Any = None

    @property
    def is_bound(self) -> bool:
        return self.bound is not None or self.kind == BOUND

    @property
    def end(self) -> int:
        return self.start + len(self.text)


def place(text: str, offset: int) -> Position:
    return Position(text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset), offset)


def fault(text: str, offset: int, message: str, hint: str | None = None) -> SyntaxFault:
    where = place(text, offset)
    return SyntaxFault(f"line {where.line}, column {where.column}: {message}", hint)


_LARGEST = {  # The largest integer with each suffix, without its sign: first Spark's suffixes, then YQL's.
    "L": 2**63,
    "S": 2**15,
    "Y": 2**7,
    "T": 2**7,
    "U": 2**32 - 1,
    "UL": 2**64 - 1,
    "US": 2**16 - 1,
    "UT": 2**8 - 1,
}

_TOKEN = re.compile(
    r"""
      (?P<blank>[\s\ufeff]+)
    | (?P<line>--[^\r\n]*)
    | (?P<block>/\*)
    | (?P<quote>[rRxX]?['"])
    | (?P<name>`)
    | (?P<number>(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?
                 (?:[bB][dD]|[uU]?[lLsStT]|[uUyYdDfF])?(?!\w))
    | (?P<word>\w+)
    | (?P<punct><=>|->>|\|\||\|>|->|=>|::|<>|!=|<=|>=|==|<<|.)
    """,
    re.VERBOSE | re.DOTALL,
)
_PUNCTUATION = frozenset("!#$%&()*+,-./:;<=>?@[\\]^{|}~") | {
    "<=>",
    "->>",
    "||",
    "|>",
    "->",
    "=>",
    "::",
    "<>",
    "!=",
    "<=",
    ">=",
    "==",
    "<<",
}
_LINE = re.compile(r"[^\r\n]*")
_COMMENT_EDGE = re.compile(r"/\*|\*/")
_EDGES = {"'": re.compile(r"['\\]"), '"': re.compile(r'["\\]'), "`": re.compile(r"[`\\]")}


def tokenize(text: str) -> list[Token]:
    """Return all tokens of a text; raise SyntaxFault for an unclosed string, name or comment."""
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL is text, not {type(text).__name__}", "Pass it as a string.")
    tokens: list[Token] = []
    at, size = 0, len(text)
    match_at = _TOKEN.match
    while at < size:
        match = match_at(text, at)
        assert match is not None  # The last alternative matches any character.
        kind, end = match.lastgroup, match.end()
        if kind == "word":
            tokens.append(Token(WORD, match[0], at, match[0].upper()))
        elif kind == "punct":
            if match[0] not in _PUNCTUATION:
                raise fault(
                    text,
                    at,
                    f"unexpected character {match[0]!r}",
                    "Quotes are ' \" and `; put other characters inside them.",
                )
            tokens.append(Token(PUNCT, match[0], at, match[0]))
        elif kind == "number":
            _check_number(text, at, match[0])
            tokens.append(Token(NUMBER, match[0], at))
        elif kind == "quote":
            end = _find_closing(text, at, end, text[end - 1], raw=end - at > 1)
            if text[at] in "xX":
                tokens.append(Token(HEX, text[at:end], at))
            else:
                if text[end : end + 1] in ("u", "U") and not re.match(r"\w", text[end + 1 : end + 2]):
                    end += 1
                tokens.append(Token(STRING, text[at:end], at))
        elif kind == "name":
            end = _find_closing(text, at, end, "`", raw=False)
            tokens.append(Token(NAME, text[at:end], at))
        elif kind == "block":
            end = _comment_end(text, at)
        elif kind == "line":
            while (
                text[end - 1] == "\\" and text[end : end + 1] == "\n"
            ):  # As in Spark, a backslash continues a comment on the next line.
                end = _LINE.match(text, end + 1).end()  # type: ignore[union-attr]
        at = end
    return tokens


def _find_closing(text: str, start: int, at: int, quote_: str, raw: bool) -> int:
    """Return the offset after the closing quote of the token at ``start``.

    ``at`` is the offset after the opening quote.
    """
    edge = _EDGES[quote_]
    while True:
        if raw:
            found = text.find(quote_, at)
        else:
            match = edge.search(text, at)
            found = match.start() if match else -1
        if found < 0:
            what = "name in backticks" if quote_ == "`" else "string"
            raise fault(text, start, f"the {what} that starts here is not closed", f"Close it with {quote_}.")
        if text[found] == "\\":
            # In a name, as in Spark, a backslash only escapes a backslash or a backtick; otherwise it is
            # literal.
            at = found + 2 if quote_ != "`" or text[found + 1 : found + 2] in ("\\", "`") else found + 1
        elif not raw and text[found + 1 : found + 2] == quote_:
            at = found + 2
        else:
            return found + 1


def _comment_end(text: str, start: int) -> int:
    depth = 0
    for edge in _COMMENT_EDGE.finditer(text, start):
        depth += 1 if edge[0] == "/*" else -1
        if depth == 0:
            return edge.end()
    raise fault(text, start, "the comment that starts here is not closed", "Close it with */; comments nest.")


def _check_number(text: str, at: int, number: str) -> None:
    if len(number) > MAX_DIGITS:
        raise fault(
            text,
            at,
            f"a number of {len(number)} characters is too long",
            "The widest type, Decimal(38,s), holds 38 digits.",
        )
    if number[-1].isdigit():
        return
    digits, suffix = _split_number(number)
    largest = _LARGEST.get(suffix)
    if largest is not None and not (digits.isdigit() and int(digits) <= largest):
        raise fault(
            text,
            at,
            f"{number} is not a number that its suffix allows",
            f"It allows integers up to {largest}.",
        )


def _split_number(number: str) -> tuple[str, str]:
    digits = number.rstrip("bBdDuUlLsStTyYfF")
    return digits, number[len(digits) :].upper()


# --- the values of tokens ---------------------------------------------------------------------------------


def value(token: Token) -> str | bytes | int | float | Decimal | None:
    """Return the value of a STRING, HEX or NUMBER token; None if Spark refuses the value."""
    if token.bound is not None:
        return token.bound  # type: ignore[no-any-return]
    if token.kind == STRING:
        return _string(token.text)
    if token.kind == HEX:
        digits = token.text[2:-1]
        try:
            return (
                bytes.fromhex(digits if len(digits) % 2 == 0 else f"0{digits}")
                if digits.isalnum() or not digits
                else None
            )
        except ValueError:
            return None
    digits, suffix = _split_number(token.text)
    if suffix in _LARGEST or (not suffix and digits.isdigit()):
        return int(digits)
    if suffix in ("D", "F") or (not suffix and ("e" in digits or "E" in digits)):
        try:
            number: float = (
                struct.unpack("<f", struct.pack("<f", float(digits)))[0] if suffix == "F" else float(digits)
            )
        except OverflowError:
            return None
        return number if math.isfinite(number) else None
    return Decimal(digits)


_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([01][0-7][0-7])|(.))", re.DOTALL)
_ESCAPED = {"0": "\0", "b": "\b", "n": "\n", "r": "\r", "t": "\t", "Z": "\x1a", "%": "\\%", "_": "\\_"}


def _unescape(match: re.Match[str]) -> str:
    code, wide, octal, other = match.groups()
    if other is not None:
        return _ESCAPED.get(other, other)
    point = int(octal, 8) if octal else int(code or wide, 16)
    return chr(point) if point <= 0x10FFFF else "\ufffd"


def _string(text: str) -> str:
    """Return the value of a string literal, as Spark reads it by default.

    Backslash escapes are replaced, and a doubled quote means one quote.
    """
    if text[-1] in "uU":
        text = text[:-1]
    if text[0] in "rR":
        return text[2:-1]
    body, quote_ = text[1:-1], text[0]
    if "\\" not in body:
        return body.replace(quote_ * 2, quote_)
    parts = re.split(r"(\\(?:u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[01][0-7][0-7]|.))", body, flags=re.DOTALL)
    # Escapes are at odd positions; doubled quotes can only be between them.
    parts[::2] = [part.replace(quote_ * 2, quote_) for part in parts[::2]]
    parts[1::2] = [_ESCAPE.sub(_unescape, part) for part in parts[1::2]]
    joined = "".join(parts)
    # Two escapes may form one character, as \ud83d\ude00 does in Java.
    return (
        joined.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if re.search("[\ud800-\udfff]", joined)
        else joined
    )


def unquote(name: str) -> str:
    """Return the name that a text in backticks stands for, without its escapes."""
    return re.sub(r"\\([\\`])|``", lambda match: match[1] or "`", name[1:-1])


def word(name: str) -> str:
    """Return a name for use in a statement, in backticks only if it needs them.

    Backticks are avoided because a shell would execute the text inside them.
    """
    return name if re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", name) else quote(name)


def quote(name: str) -> str:
    """Return a name in backticks. ``unquote`` reverses it."""
    return quote_spark(name.replace("\\", "\\\\"))
