"""Translates tokens that Spark does not know or reads differently: YQL's words, and some numbers.

Everything else in a query or an expression is already Spark SQL, and is passed to Spark as it was written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from decimal import Decimal

from strandline.names import quote_spark
from strandline.sql.binding import marker_of
from strandline.sql.tokens import NAME, NUMBER, STRING, WORD, Token, unquote, value

__all__ = ["UINT64", "edits_of", "rewrites", "splice"]

UINT64 = "DECIMAL(20,0)"
_TYPES = {
    "BOOL": "BOOLEAN",
    "INT8": "TINYINT",
    "INT16": "SMALLINT",
    "INT32": "INT",
    "INT64": "BIGINT",
    "UINT8": "SMALLINT",
    "UINT16": "INT",
    "UINT32": "BIGINT",
    "UINT64": UINT64,
    "UTF8": "STRING",
    "TEXT": "STRING",
    "BYTES": "BINARY",
    "JSON": "STRING",
    "DATETIME": "TIMESTAMP",
}
"""Types that Spark does not know by these names.

``String`` is not included: inside an expression it is Spark's type, a text.
"""

_CHARACTER = re.compile("\\\\.|[\U00010000-\U0010ffff]", re.DOTALL)
"""A character of more than 16 bits, or one with a backslash before it."""
_SUFFIXES = {"UL": "", "US": "", "UT": "", "U": "", "T": "Y"}


def _narrow(found: re.Match[str]) -> str:
    character = found[0][-1]
    return f"\\U{ord(character):08x}" if ord(character) > 0xFFFF else found[0]


def rewrites(tokens: Sequence[Token]) -> dict[int, str]:
    """Return the new texts of the tokens to replace for Spark, by the index of the token."""
    found: dict[int, str] = {}
    casts: list[bool] = []  # For each open parenthesis: whether it belongs to a cast.
    before = ""
    for place, token in enumerate(tokens):
        if token.is_bound:
            found[place] = marker_of(token)
        elif token.kind == NUMBER:
            digits = token.text.rstrip("uUlLsStT")
            suffix = token.text[len(digits) :].upper()
            if suffix in _SUFFIXES:
                found[place] = digits + _SUFFIXES[suffix]
            if _is_beyond_bigint(token, before):
                if before == "-":
                    found[place - 1] = "+-"  # Not ``-+``: to negate a decimal, Spark rounds it to 34 digits.
                else:
                    found[place] = "+" + found.get(place, token.text)
        elif token.kind == STRING:
            text = token.text[:-1] if token.text[-1] in "uU" else token.text
            if text[:1] in "'\"":
                # Spark 4.1 puts bound values at a wrong place after a character of more than 16 bits.
                text = _CHARACTER.sub(_narrow, text)
            if text != token.text:
                found[place] = text
        elif token.kind == NAME:
            if "\\" in token.text:
                found[place] = quote_spark(unquote(token.text))
        elif token.key == "(":
            casts.append(before in ("CAST", "TRY_CAST"))
        elif token.key == ")":
            if casts:
                casts.pop()
        elif token.kind == WORD and token.key in _TYPES:
            if before == "::" or (before == "AS" and casts and casts[-1]):
                found[place] = _TYPES[token.key]
            elif token.key == "DATETIME" and before != "." and _is_call_with_string(tokens, place):
                found[place] = "TIMESTAMP"
        before = token.key
    return found


def _is_beyond_bigint(token: Token, before: str) -> bool:
    """Return whether a number is exact and beyond the range of a bigint, so that it needs a plus sign.

    Spark evaluates ``a < 9223372036854775808`` to true without reading ``a``, even if ``a`` is NULL. It does
    this only if the number is a plain literal. A plus sign before the number prevents it.
    """
    found = value(token)
    return isinstance(found, int | Decimal) and found > 2**63 - (before != "-")


def _is_call_with_string(tokens: Sequence[Token], place: int) -> bool:
    after = tokens[place + 1 : place + 4]
    return len(after) == 3 and after[0].key == "(" and after[1].kind == STRING and after[2].key == ")"


def edits_of(tokens: Sequence[Token]) -> tuple[tuple[int, int, str], ...]:
    """Return the replacements of ``rewrites`` as pieces for ``splice``.

    The offsets of the pieces count from the start of the first token.
    """
    base = tokens[0].start
    return tuple(
        (tokens[i].start - base, tokens[i].end - base, piece) for i, piece in sorted(rewrites(tokens).items())
    )


def splice(text: str, pieces: Iterable[tuple[int, int, str]]) -> str:
    """Return ``text`` with some parts replaced.

    Args:
        pieces: start, end and new text of each replaced part. They are in order and do not overlap.
    """
    parts: list[str] = []
    at = 0
    for start, end, piece in pieces:
        parts += (text[at:start], piece)
        at = end
    return "".join([*parts, text[at:]])
