"""Queries: the tables that a text reads, and its translation for Spark.

Spark evaluates queries. Strandline only finds the tables in the text, removes its own clauses after them, and
leaves everything else as it was written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from strandline.errors import SyntaxFault
from strandline.names import quote_spark
from strandline.sql.binding import Params, arguments, bind
from strandline.sql.cursor import TokenCursor
from strandline.sql.evaluate.simple_select import SimpleSelect, recognise
from strandline.sql.references import TableRef, has_extras, read_reference
from strandline.sql.spark import edits_of, splice
from strandline.sql.syntax import Parsed, names_in, note_source, parse_spark
from strandline.sql.tokens import Token, fault, tokenize

if TYPE_CHECKING:
    from sqlglot import exp

__all__ = ["Query", "parse_query", "query_of"]

_FORM = (
    "SELECT ... FROM table [VIEW index] [WHERE ...] [GROUP BY ...] [ORDER BY ...] [LIMIT n], as in Spark SQL."
)
_FORMATS = frozenset(
    {"avro", "binaryfile", "csv", "delta", "iceberg", "json", "orc", "parquet", "text", "xml"}
)


@dataclass(frozen=True)
class Query:
    """A query that was parsed.

    Attributes:
        text: the text of the query.
        tables: its tables, in the order of the text. A table that is named twice is included twice. Names of
            common table expressions, table functions and ``files`` are not included.
        files: the sources that Spark reads itself, such as parquet.`/a/b` and tables of Spark's catalogs.
        dotted: the error for the first table of a Spark catalog. It is raised if there is no Spark session:
            only a session can have this catalog. None: the query has no such table.
    """

    text: str
    _: KW_ONLY
    tables: tuple[TableRef, ...] = field(default=(), compare=False)
    files: tuple[str, ...] = field(default=(), compare=False)
    dotted: SyntaxFault | None = field(default=None, compare=False, repr=False)
    simple: SimpleSelect | None = field(default=None, compare=False, repr=False)
    """The query in a form that can be answered without Spark, or None."""
    edits: tuple[tuple[int, int, str], ...] = field(default=(), compare=False, repr=False)
    """Replacements in the text for Spark: the start, the end and the new text of each."""
    names: frozenset[str] = field(default=frozenset(), compare=False, repr=False)
    """All names in the text, in lower case, whether they are columns or not."""
    args: Mapping[str, Any] = field(default_factory=dict)
    """Values bound to names in the text for Spark."""
    tree: Callable[[], exp.Expr] | None = field(default=None, compare=False, repr=False)
    """Function that returns sqlglot's tree of the query.

    ``note_source`` has stored in its nodes where they are in the text.
    """

    def render(self, names: Sequence[str]) -> str:
        """Return the text for ``spark.sql(text, **dataframes)``.

        The text is a format string, so braces of the query itself are doubled. They are not doubled in a
        query without tables, because pyspark formats the text only if there are DataFrames.

        Args:
            names: what replaces the tables in the text, such as ``{t0}``; one for each of ``tables``.
        """
        if len(names) != len(self.tables):
            raise ValueError(f"{len(self.tables)} tables need as many names, not {len(names)}")
        if not self.tables:
            return splice(self.text, self.edits)
        covered = [(table.start, table.end) for table in self.tables]
        pieces = [
            (start, end, _double_quotes(piece))
            for start, end, piece in self.edits
            if not any(low <= start < high for low, high in covered)
        ]
        for table, name in zip(self.tables, names, strict=True):
            pieces.append((table.start, table.end, name))
            if table.alias is None:
                pieces.append(
                    (table.alias_at, table.alias_at, f" AS {_double_quotes(quote_spark(table.name))}")
                )
        parts: list[str] = []
        at = 0
        for start, end, piece in sorted(pieces, key=lambda item: item[:2]):
            parts += (_double_quotes(self.text[at:start]), piece)
            at = end
        return "".join([*parts, _double_quotes(self.text[at:])])


def _double_quotes(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def parse_query(text: str, params: Params = None) -> Query:
    """Parse a query, with ``params`` bound to its markers; raise SyntaxFault for other text."""
    tokens = bind(text, tokenize(text), params)
    while tokens and tokens[-1].key == ";":
        tokens.pop()
    if not tokens:
        raise fault(text, 0, "expected a query", f"The form is: {_FORM}")
    return query_of(text, tokens)


def query_of(source: str, tokens: Sequence[Token]) -> Query:
    """Parse consecutive tokens of ``source`` as a query."""
    for token in tokens:
        if token.key == "@":  # Delta's table@v1 would be taken for a table with an alias.
            hint = "A past state is: table VERSION AS OF step, or table TIMESTAMP AS OF 'time'."
            raise fault(source, token.start, "a name cannot have @", hint)
    base = tokens[0].start
    text = source[base : tokens[-1].end]
    edits = edits_of(tokens)
    simple = recognise(source, tokens)
    if simple is not None:
        table = _move_clause(simple.table, base)
        return Query(
            text,
            tables=(table,),
            simple=replace(simple, table=table),
            edits=edits,
            names=names_in(tokens),
            args=_arguments(tokens, [simple.table]),
            tree=lambda: note_source(_parse(source, tokens)[0], tokens),
        )
    parsed, folded = _parse(source, tokens)
    tables, files, dotted = _tables(source, tokens, parsed, folded)
    return Query(
        text,
        tables=tuple(_move_clause(table, base) for table in tables),
        files=files,
        dotted=dotted,
        edits=edits,
        names=names_in(tokens),
        args=_arguments(tokens, tables),
        tree=lambda: note_source(parsed, tokens),
    )


def _parse(source: str, tokens: Sequence[Token]) -> tuple[Parsed, dict[int, tuple[TableRef, int]]]:
    _check_commas(source, tokens)
    folded = _fold(source, tokens)
    skip = {place for ref_place, (_, end) in folded.items() for place in range(ref_place + 1, end)}
    return parse_spark(source, tokens, hint=f"The form is: {_FORM}", skip=skip), folded


def _check_commas(source: str, tokens: Sequence[Token]) -> None:
    """Refuse a comma with nothing after it: sqlglot would ignore it, but Spark refuses it."""
    for comma, following in zip(tokens, [*tokens[1:], None], strict=True):
        if comma.key == "," and (following is None or following.key in (",", ")", "FROM")):
            raise fault(source, comma.start, "nothing follows this comma", f"The form is: {_FORM}")


def _arguments(tokens: Sequence[Token], tables: Sequence[TableRef]) -> dict[str, Any]:
    """Return the values that are bound outside of table references, as named arguments for Spark.

    Spark's text has no table references, so it has none of their markers.
    """
    if not any(token.is_bound for token in tokens):
        return {}
    return arguments(t for t in tokens if not any(ref.start <= t.start < ref.end for ref in tables))


def _move_clause(ref: TableRef, base: int) -> TableRef:
    return replace(ref, start=ref.start - base, end=ref.end - base, alias_at=ref.alias_at - base)


def _fold(source: str, tokens: Sequence[Token]) -> dict[int, tuple[TableRef, int]]:
    """Return the table references that have clauses which sqlglot does not know.

    The key is the index of the token with the table's name. The value is the reference, and the index of the
    token after it.
    """
    folded: dict[int, tuple[TableRef, int]] = {}
    for place in range(1, len(tokens) - 1):
        if tokens[place - 1].key in ("FROM", "JOIN", ",", "(") and has_extras(tokens, place):
            cursor = TokenCursor(source, tokens)
            cursor.at = place
            folded[place] = (read_reference(cursor), cursor.at)
    return folded


def _tables(
    source: str, tokens: Sequence[Token], parsed: Parsed, folded: dict[int, tuple[TableRef, int]]
) -> tuple[list[TableRef], tuple[str, ...], SyntaxFault | None]:
    from sqlglot import exp

    if not isinstance(parsed.tree, (exp.Query, exp.Values)):
        raise fault(
            source,
            tokens[0].start,
            f"expected a query, found {type(parsed.tree).__name__.upper()}",
            f"The form is: {_FORM}",
        )
    tables: dict[int, TableRef] = {}
    files: list[str] = []
    dotted: list[SyntaxFault] = []
    stack: list[tuple[exp.Expr, frozenset[str]]] = [(parsed.tree, frozenset())]
    while stack:
        node, hidden = stack.pop()
        with_ = node.args.get("with_") or node.args.get("with")
        if with_ is not None:
            hidden = _enter_with(with_, hidden, stack)
        if isinstance(node, exp.Table):
            _add_table(
                node,
                hidden,
                source=source,
                tokens=tokens,
                parsed=parsed,
                folded=folded,
                tables=tables,
                files=files,
                dotted=dotted,
            )
        elif isinstance(node, (exp.Insert, exp.Into)):
            raise fault(
                source,
                tokens[0].start,
                "a query cannot write",
                "Use UPSERT, INSERT or REPLACE INTO table SELECT ...",
            )
        stack += [(child, hidden) for child in node.iter_expressions() if child is not with_]
    for place in folded:
        if place not in tables:
            raise fault(
                source,
                tokens[place + 1].start,
                "this clause does not follow a table",
                f"The form is: {_FORM}",
            )
    return [tables[start] for start in sorted(tables)], tuple(files), dotted[0] if dotted else None


def _enter_with(
    with_: exp.Expr, hidden: frozenset[str], stack: list[tuple[exp.Expr, frozenset[str]]]
) -> frozenset[str]:
    """Add the expressions of a WITH to ``stack``; return the names that hide tables in the query after it.

    Each expression is added with the names that hide tables inside it: those of the expressions before it,
    and its own name if the WITH is recursive.

    Args:
        hidden: the names that hide tables around the WITH.
    """
    for cte in with_.expressions:
        inner = hidden | {cte.alias.lower()}
        stack.append((cte.this, inner if with_.args.get("recursive") else hidden))
        hidden = inner
    return hidden


def _add_table(
    node: exp.Table,
    hidden: frozenset[str],
    *,
    source: str,
    tokens: Sequence[Token],
    parsed: Parsed,
    folded: dict[int, tuple[TableRef, int]],
    tables: dict[int, TableRef],
    files: list[str],
    dotted: list[SyntaxFault],
) -> None:
    from sqlglot import exp

    name = node.this
    if not isinstance(name, (exp.Identifier, exp.Dot)):
        return  # A table function.
    start = name.find(exp.Identifier)
    if start is None or "start" not in start.meta:
        return  # Added by sqlglot; it is not in the text.
    place = parsed.token_at(start.meta["start"])
    if node.args.get("db") or isinstance(name, exp.Dot):
        first = str(node.args["db"].name if node.args.get("db") else name).lower()
        if first not in _FORMATS or node.args.get("catalog") or isinstance(name, exp.Dot):
            message = "a dot does not separate the parts of a path"
            hint = "Put a path in backticks: `dir/table`. Tables of Spark need connect(spark=session)."
            dotted.append(fault(source, tokens[place].start, message, hint))
            files.append(".".join(quote_spark(part.name) for part in node.parts))
            return
        files.append(f"{first}.{quote_spark(name.name)}")
        return
    alias = node.args.get("alias")
    shown = alias.name if alias is not None and alias.name else None
    if place in folded:
        tables[place] = replace(folded[place][0], alias=shown)
    elif name.name.lower() not in hidden:
        cursor = TokenCursor(source, tokens)
        cursor.at = place
        tables[place] = replace(read_reference(cursor), alias=shown)
