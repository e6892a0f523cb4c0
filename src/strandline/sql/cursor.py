"""A cursor over the tokens of one statement; its errors name the position and the expected token."""

from __future__ import annotations

from collections.abc import Sequence

from strandline import names
from strandline.errors import InvalidArgument, SyntaxFault, Unsupported
from strandline.sql.syntax import Expression, display_token
from strandline.sql.tokens import BOUND, END, NAME, NUMBER, STRING, WORD, Token, fault, place, unquote, value

__all__ = ["TokenCursor"]


class TokenCursor:
    """A cursor over tokens.

    Attributes:
        source: the text that the tokens come from.
        tokens: the tokens of one statement.
        form: the syntax of the statement. It is the default hint of every error.
        at: the index of the next token.
    """

    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self.source = source
        self.tokens = tokens
        self.form = ""
        self.at = 0
        self._end = Token(END, "", tokens[-1].end if tokens else len(source))

    def peek(self, ahead: int = 0) -> Token:
        place_ = self.at + ahead
        return self.tokens[place_] if place_ < len(self.tokens) else self._end

    def take(self) -> Token:
        token = self.peek()
        self.at += 1
        return token

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def rest(self) -> Sequence[Token]:
        """Consume and return the tokens from here to the end."""
        taken = self.tokens[self.at :]
        self.at = len(self.tokens)
        return taken

    def sees(self, *keys: str) -> bool:
        if len(keys) == 1:
            return self.peek().key == keys[0]
        return all(self.peek(ahead).key == key for ahead, key in enumerate(keys))

    def accept(self, *keys: str) -> bool:
        if not self.sees(*keys):
            return False
        self.at += len(keys)
        return True

    def expect(self, *keys: str) -> None:
        for key in keys:
            if not self.accept(key):
                raise self.fault(f"expected {key}")

    def expect_end(self) -> None:
        if not self.done:
            raise self.fault("expected the end of the statement")

    # --- errors --------------------------------------------------------------------------------------------

    def describe_next(self) -> str:
        token = self.peek()
        if token.kind == END:
            return "the end of the statement"
        return display_token(token)

    def fault(self, message: str, hint: str | None = None, token: Token | None = None) -> SyntaxFault:
        """Return a syntax error.

        Args:
            message: what is wrong.
            hint: the hint of the error. None: it shows the form of the statement.
            token: the token with the error. None: it is the next token, and the message also names it.
        """
        if token is None:
            return fault(
                self.source, self.peek().start, f"{message}, found {self.describe_next()}", hint or self.hint
            )
        return fault(self.source, token.start, message, hint or self.hint)

    def unsupported(self, what: str, hint: str | None = None) -> Unsupported:
        where = place(self.source, self.peek().start)
        return Unsupported(
            f"line {where.line}, column {where.column}: {what} is not supported", hint or self.hint
        )

    def invalid(self, error: InvalidArgument, token: Token) -> InvalidArgument:
        where = place(self.source, token.start)
        return InvalidArgument(f"line {where.line}, column {where.column}: {error.message}", error.hint)

    @property
    def hint(self) -> str | None:
        return f"The form is: {self.form}" if self.form else None

    # --- names ---------------------------------------------------------------------------------------------

    def sees_name(self, ahead: int = 0) -> bool:
        return self.peek(ahead).kind in (WORD, NAME)

    def name(self, what: str) -> str:
        """Read a name: a bare word, or text in backticks."""
        token = self.peek()
        if token.kind == STRING and not token.is_bound:
            raise self.fault(f"expected {what}", "Quotes make a string; put a name in `backticks`.")
        if not self.sees_name():
            hint = "A bound value can only replace a value, not a name." if token.is_bound else None
            raise self.fault(f"expected {what}", hint)
        self.at += 1
        found = unquote(token.text) if token.kind == NAME else token.text
        if not found:
            raise self.fault(f"{what} is empty", token=token)
        return found

    def name_and_path(self, what: str) -> tuple[str, str]:
        """Read a path of at least one component; return it as written, and in its absolute form."""
        token = self.peek()
        written = self.name(what)
        self.refuse_continuation(token)
        try:
            path = names.normalize(written)
            if path == "/":
                raise InvalidArgument(
                    "the root / cannot be named here", "Name a path below it, such as /orders."
                )
        except InvalidArgument as error:
            raise self.invalid(error, token) from None
        return written, path

    def refuse_continuation(self, token: Token) -> None:
        """Refuse ``dir.t`` and ``dir/t`` outside of backticks; ``token`` is the first part.

        Without this check, a later error would have a less helpful hint.
        """
        following = self.peek()
        if following.key in (".", "/") and following.start == token.end:
            sign = "dot" if following.key == "." else "slash"
            raise self.fault(
                f"a name outside backticks has no {sign}",
                "Put a path in backticks, with slashes: `dir/table`.",
                following,
            )

    def collection(self) -> str:
        """Read the name of a backup collection. It may be written as an absolute path."""
        token = self.peek()
        written = self.name("the name of a backup collection")
        self.refuse_continuation(token)
        try:
            return names.collection_name(written)
        except InvalidArgument as error:
            raise self.invalid(error, token) from None

    def path(self, what: str = "a table name") -> str:
        return self.name_and_path(what)[1]

    def path_in_quotes(self, what: str) -> str:
        """Read a path, written as a string or as a name."""
        token = self.peek()
        if token.kind != STRING:
            return self.path(what)
        try:
            return names.normalize(self.string(what))
        except InvalidArgument as error:
            raise self.invalid(error, token) from None

    def name_list(self, what: str) -> tuple[str, ...]:
        """Read a list of at least one name in parentheses: ``(a, b, ...)``."""
        self.expect("(")
        found = [self.name(what)]
        while self.accept(","):
            found.append(self.name(what))
        if not self.accept(")"):
            raise self.fault("expected , or )")
        return tuple(found)

    def string(self, what: str) -> str:
        token = self.peek()
        if token.kind != STRING:
            raise self.fault(f"expected {what}")
        self.at += 1
        return str(value(token))

    def string_or_name(self, what: str) -> str:
        return self.string(what) if self.peek().kind == STRING else self.name(what)

    # --- expressions ---------------------------------------------------------------------------------------

    def expression(self, *stops: str) -> Expression:
        """Read an expression.

        It ends before one of ``stops`` outside of parentheses, before a closing parenthesis that it has not
        opened, or at the end of the statement.
        """
        start, depth = self.at, 0
        if self.peek().kind in (NUMBER, STRING, BOUND) and self.peek(1).key in (*stops, ")"):
            # A single literal: the most frequent case in long lists of values.
            self.at += 1
            return Expression(self.source, (self.tokens[start],))
        while not self.done:
            key = self.peek().key
            if depth == 0 and (key in stops or key in (")", "]")):
                break
            if key in ("(", "["):
                depth += 1
            elif key in (")", "]"):
                depth -= 1
            self.at += 1
        if self.at == start:
            raise self.fault("expected an expression")
        return Expression(self.source, self.tokens[start : self.at]).check()
