"""Expressions, and the interface to sqlglot, which parses queries and expressions with its Spark grammar.

sqlglot is imported on first use: its import is slow, and writes of plain literals never need it. The text for
sqlglot is built from the tokens of ``tokens.py``, with each literal replaced by the index of its token. So no
literal is too long for sqlglot, and Strandline reads each literal exactly as Spark does.
"""

from __future__ import annotations

import logging
import re
from bisect import bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from strandline.errors import SyntaxFault
from strandline.names import quote_spark
from strandline.sql.binding import Params, bind, name_markers, values_of
from strandline.sql.spark import UINT64, rewrites
from strandline.sql.tokens import (
    BOUND,
    HEX,
    NAME,
    NUMBER,
    PUNCT,
    STRING,
    WORD,
    Token,
    fault,
    tokenize,
    unquote,
)

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = [
    "Expression",
    "Parsed",
    "display_token",
    "names_in",
    "note_source",
    "parse_expression",
    "parse_spark",
    "parse_tree",
    "token_of",
]

MAX_DEPTH = 150
"""Maximum nesting of parentheses; more could exhaust the stack."""


@dataclass(frozen=True, eq=False, repr=False)
class Expression:
    """A Spark SQL expression, as tokens of a text.

    Expressions with the same text and bound values are equal. ``ast`` is sqlglot's tree of the expression.
    The readers of statements call ``check``, so that syntax errors are found at once. A single literal has no
    syntax errors, so it is parsed only when ``ast`` is used.
    """

    source: str
    tokens: Sequence[Token]

    def check(self) -> Expression:
        """Return the expression; raise SyntaxFault if it is not well formed."""
        if not _is_plain(self.tokens):
            self.ast  # noqa: B018
        return self

    @property
    def text(self) -> str:
        return self.source[self.tokens[0].start : self.tokens[-1].end]

    @cached_property
    def ast(self) -> exp.Expr:
        return parse_tree(self.source, self.tokens).tree

    @property
    def named(self) -> str:
        """The text with a named marker for each bound value. It can be inserted into another text.

        ``params`` has the values by the names of the markers.
        """
        return name_markers(self.source, self.tokens)

    @property
    def params(self) -> dict[str, Any]:
        return values_of(self.tokens)

    @property
    def names(self) -> frozenset[str]:
        """All names in the text, in lower case, whether they are columns or not."""
        return names_in(self.tokens)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expression) and (self.text, self.params) == (other.text, other.params)

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Expression({self.text[:80]!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return parse_expression, (self.named, self.params)


def parse_expression(text: str, params: Params = None) -> Expression:
    """Parse an expression, with ``params`` bound to its markers; raise SyntaxFault for other text."""
    tokens = bind(text, tokenize(text), params)
    if not tokens:
        raise fault(
            text, 0, "expected an expression", "Write a value, a column or a condition, for example n + 1."
        )
    return Expression(text, tokens).check()


def names_in(tokens: Sequence[Token]) -> frozenset[str]:
    return frozenset(
        (unquote(token.text) if token.kind == NAME else token.text).lower()
        for token in tokens
        if token.kind in (NAME, WORD)
    )


def _is_plain(tokens: Sequence[Token]) -> bool:
    if len(tokens) == 1:
        return tokens[0].kind in (NUMBER, STRING, HEX, BOUND) or tokens[0].key in ("NULL", "TRUE", "FALSE")
    return len(tokens) == 2 and tokens[0].key in ("-", "+") and tokens[1].kind == NUMBER


def parse_tree(source: str, tokens: Sequence[Token]) -> Parsed:
    """Parse a single expression. ``token_of`` returns the source tokens of its literals."""
    from sqlglot import exp

    hint = "Write one expression of Spark SQL."
    if tokens[0].key in ("SELECT", "DISTINCT", "ALL", "FROM"):
        raise fault(source, tokens[0].start, f"expected an expression, found {tokens[0].text}", hint)
    parsed = parse_spark(source, tokens, prefix="SELECT ", hint=hint)
    tree = parsed.tree
    found = tree.args.get("expressions") or []
    others = [name for name, arg in tree.args.items() if name != "expressions" and arg]
    if (
        not isinstance(tree, exp.Select)
        or len(found) != 1
        or others
        or isinstance(found[0], (exp.Alias, exp.Aliases, exp.Star))
    ):
        raise fault(source, tokens[0].start, "expected a single expression here", hint)
    root: exp.Expr = found[0].pop()
    _note_tokens(root, tokens)
    return parsed.with_tree(root)


def _note_tokens(root: exp.Expr, tokens: Sequence[Token]) -> None:
    """Store the source token of each literal of a tree in the literal's node."""
    from sqlglot import exp

    for node in root.find_all(exp.Literal):
        number = re.fullmatch(r"s?([0-9]+)", str(node.this))
        place = int(number[1]) if number else len(tokens)
        # sqlglot adds literals of its own for some functions; their digits may be the index of any token.
        if place < len(tokens) and tokens[place].kind in (NUMBER, STRING, HEX, BOUND):
            node.meta["token"] = tokens[place]


def token_of(node: exp.Expr) -> Token | None:
    """Return the source token of a literal in a tree; None if the literal has none."""
    token: Token | None = node.meta.get("token")
    return token


def note_source(parsed: Parsed, tokens: Sequence[Token]) -> exp.Expr:
    """Store in the nodes of a tree where they come from; return the tree.

    The ``meta`` dictionaries of the nodes get these entries:

    - ``token`` of a literal: its source token
    - ``written`` of a function: its name as written
    - ``at`` of a table: the offset of its name from the start of the first token
    """
    from sqlglot import exp

    _note_tokens(parsed.tree, tokens)
    for node in parsed.tree.find_all(exp.Func, exp.Table):
        named = node.this.find(exp.Identifier) if isinstance(node, exp.Table) and node.this else node
        if named is None or "start" not in named.meta:
            continue
        token = tokens[parsed.token_at(named.meta["start"])]
        if isinstance(node, exp.Table):
            node.meta["at"] = token.start - tokens[0].start
        else:
            node.meta["written"] = unquote(token.text) if token.kind == NAME else token.text
    return parsed.tree


class Parsed:
    """A sqlglot tree, with a map from offsets in sqlglot's text to the source tokens."""

    def __init__(self, tree: exp.Expr, starts: list[int], places: list[int]) -> None:
        self.tree = tree
        self._starts = starts
        self._places = places

    def with_tree(self, tree: exp.Expr) -> Parsed:
        """Return a Parsed of a part of the tree, with the same map from offsets to source tokens."""
        return Parsed(tree, self._starts, self._places)

    def token_at(self, offset: int) -> int:
        """Return the index of the source token that sqlglot read at ``offset``."""
        return self._places[max(bisect_right(self._starts, offset) - 1, 0)]


def parse_spark(
    source: str, tokens: Sequence[Token], prefix: str = "", hint: str = "", skip: Collection[int] = ()
) -> Parsed:
    """Parse ``tokens`` as Spark SQL; raise SyntaxFault if that fails.

    Args:
        prefix: text to insert before the tokens.
        hint: the hint of an error.
        skip: the indexes of tokens to leave out.
    """
    import sqlglot
    from sqlglot.errors import SqlglotError

    _check_depth(source, tokens)
    logging.getLogger("sqlglot").setLevel(logging.ERROR)  # Its warnings become errors below.
    text, starts, places = _mask_literals(tokens, rewrites(tokens), prefix, skip)
    try:
        trees = sqlglot.parse(text, dialect="spark")
        tree = trees[0] if len(trees) == 1 else None
    except SqlglotError as error:
        raise _translate_error(
            error, source, tokens, Parsed(sqlglot.exp.Null(), starts, places), text=text, hint=hint
        ) from None
    except RecursionError:
        raise fault(
            source, tokens[0].start, "the expression is nested too deeply", "Split it into smaller parts."
        ) from None
    except Exception as error:
        # sqlglot may raise any error for some texts; callers only expect SyntaxFault.
        raise fault(source, tokens[0].start, "this cannot be read as Spark SQL", hint) from error
    if (
        tree is None or tree.find(sqlglot.exp.Command) is not None
    ):  # For unknown statements sqlglot returns a Command.
        raise fault(source, tokens[0].start, "this cannot be read as Spark SQL", hint)
    return Parsed(tree, starts, places)


def _check_depth(source: str, tokens: Sequence[Token]) -> None:
    depth = 0
    for token in tokens:
        if token.kind == PUNCT:
            if token.key in "([{":
                depth += 1
                if depth > MAX_DEPTH:
                    raise fault(
                        source,
                        token.start,
                        "parentheses are nested too deeply",
                        f"Keep to {MAX_DEPTH} levels.",
                    )
            elif token.key in ")]}":
                depth -= 1


def _mask_literals(
    tokens: Sequence[Token], changed: Mapping[int, str], prefix: str, skip: Collection[int]
) -> tuple[str, list[int], list[int]]:
    """Return the text for sqlglot, the offsets of its tokens, and the index of the source token of each.

    A literal is replaced by its index: ``5`` for a number, ``'s5'`` for a string.
    """
    parts = [prefix]
    starts: list[int] = []
    places: list[int] = []
    size = len(prefix)
    before: Token | None = None
    for place, token in enumerate(tokens):
        if place in skip:
            continue
        if token.kind == NUMBER:
            piece = str(place)
        elif token.kind in (STRING, HEX, BOUND):
            piece = f"'s{place}'"
        elif token.kind == NAME:
            piece = quote_spark(unquote(token.text))
        elif token.kind == PUNCT:
            piece = token.text
        else:
            piece = changed.get(place, token.text)
            if piece == UINT64:
                piece = "DECIMAL"  # Without sizes: their digits would be read as the index of a token.
        glued = before is not None and before.kind == token.kind == PUNCT and before.end == token.start
        if not glued:
            parts.append(" ")
            size += 1
        starts.append(size)
        places.append(place)
        parts.append(piece)
        size += len(piece)
        before = token
    return "".join(parts), starts, places


def _translate_error(
    error: Exception, source: str, tokens: Sequence[Token], way: Parsed, *, text: str, hint: str
) -> SyntaxFault:
    """Convert an error of sqlglot to a SyntaxFault at its position in the source."""
    details = (getattr(error, "errors", None) or [{}])[0]
    before = details.get("start_context")
    highlight = details.get("highlight") or ""
    place = len(tokens) - 1
    if before is not None and highlight:
        column = details.get("col") or 0
        lines = text.split("\n")
        line = (details.get("line") or 1) - 1
        place = way.token_at(sum(len(part) + 1 for part in lines[:line]) + max(column - len(highlight), 0))
    description = str(details.get("description") or "this cannot be read as Spark SQL")
    if "Required keyword" in description or "Invalid expression" in description:
        description = f"unexpected {display_token(tokens[place])}"
    description = re.sub(r"\s+", " ", description).partition(" but got <")[0].strip().rstrip(".")
    return fault(source, tokens[place].start, description[:1].lower() + description[1:], hint)


def display_token(token: Token) -> str:
    """Return a token for a message: on one line, and shortened if long."""
    text = " ".join(token.text[:80].split())
    return text if len(text) <= 40 else f"{text[:40]}..."
