"""Tokens: their boundaries and values, and that odd texts are refused quickly."""

from __future__ import annotations

import time
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.errors import SyntaxFault
from strandline.sql.tokens import HEX, NAME, NUMBER, STRING, Token, quote, tokenize, unquote, value


def texts(text: str) -> list[str]:
    return [token.text for token in tokenize(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT a,b", ["SELECT", "a", ",", "b"]),
        ("a<=>b<=c<>d", ["a", "<=>", "b", "<=", "c", "<>", "d"]),
        ("1 -- c ; '\n2", ["1", "2"]),
        ("1 -- goes on \\\n here\n2", ["1", "2"]),
        ("1 /* a /* nested */ ; */ 2", ["1", "2"]),
        ("t.`a b`.c", ["t", ".", "`a b`", ".", "c"]),
        ("'a;b' ; \"c;d\"", ["'a;b'", ";", '"c;d"']),
        ("1_000 0x10 2a", ["1_000", "0x10", "2a"]),
        ("1.5.a", ["1.5", ".", "a"]),
        ("'a'u 'b'using", ["'a'u", "'b'", "using"]),
        ("größe", ["größe"]),
    ],
)
def test_borders(text: str, expected: list[str]) -> None:
    assert texts(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'a''b'", "a'b"),
        ('"a""b"', 'a"b'),
        (r"'a\'b'", "a'b"),
        (r"'\n\t\r\b\0\Z\\\%\_\q\101\7\u0041\U0001F600\u00'", "\n\t\r\b\0\x1a\\\\%\\_qA7A😀u00"),
        (r"'\u00zz\12\1234\400'", "u00zz12S4400"),
        (r"'\ud83d\ude00'", "😀"),
        (r"r'a\nb'", r"a\nb"),
        ("'a'u", "a"),
        ("'a\0b'", "a\0b"),
        ("''", ""),
        ("X'0aFF'", b"\n\xff"),
        ("x'ABC'", b"\n\xbc"),
        ("X''", b""),
        ("X'zz'", None),
        ("X'a b'", None),
        ("1", 1),
        ("12345678901234567890123", 12345678901234567890123),
        ("1.", Decimal("1")),
        (".5", Decimal("0.5")),
        ("1.50", Decimal("1.50")),
        ("1e3", 1000.0),
        ("1.5e-3", 0.0015),
        ("1e400", None),
        ("1D", 1.0),
        ("0.1F", 0.10000000149011612),
        ("1e39F", None),
        ("1.5BD", Decimal("1.5")),
        ("7L", 7),
        ("7s", 7),
        ("7Y", 7),
        ("7ul", 7),
        ("7U", 7),
        ("255ut", 255),
    ],
)
def test_values(text: str, expected: object) -> None:
    [token] = tokenize(text)
    found = value(token)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    "text", ["256ut", "65536us", "4294967296u", "129t", "1.5L", "18446744073709551616ul"]
)
def test_a_suffix_limits_its_number(text: str) -> None:
    with pytest.raises(SyntaxFault, match=r"line 1, column 3.*suffix"):
        tokenize(f"  {text}")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a 'b", "line 1, column 3"),
        ("a\n  `b", "line 2, column 3"),
        ("a /* /* */", "line 1, column 3"),
        (r"'a\'", "line 1, column 1"),
        ("'a''", "line 1, column 1"),
        ("`a``", "line 1, column 1"),
        ('"', "line 1, column 1"),
    ],
)
def test_what_is_not_closed_is_refused_where_it_starts(text: str, where: str) -> None:
    with pytest.raises(SyntaxFault, match=f"{where}.*not closed"):
        tokenize(text)


@pytest.mark.parametrize("character", ["\0", "\x07", "’", "€", "\ud800"])
def test_a_character_that_starts_nothing_is_refused(character: str) -> None:
    with pytest.raises(SyntaxFault, match="column 8: unexpected character"):
        tokenize(f"SELECT {character}")


@given(st.text(min_size=1))
def test_a_quoted_name_comes_back(name: str) -> None:
    [token] = tokenize(quote(name))
    assert token.kind == NAME
    assert unquote(token.text) == name


def test_a_backtick_in_a_name_may_be_escaped() -> None:
    assert [unquote(text) for text in texts(r"`a\`b` `a``b` `a\b` `a\\`")] == ["a`b", "a`b", r"a\b", "a\\"]


@given(st.text())
def test_tokens_are_pieces_of_the_text_in_order(text: str) -> None:
    try:
        tokens = tokenize(text)
    except SyntaxFault:
        return
    end = 0
    for token in tokens:
        assert text[token.start : token.end] == token.text
        assert token.start >= end
        end = token.end
        if token.kind in (STRING, HEX, NUMBER):
            value(token)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "9" * 10**6 + "x",
        "'" + "a" * 10**7 + "'",
        "'" + r"\n" * 10**6 + "'",
        "'" * (10**6 + 1),
        "/*" * 10**6,
        "--" + "\\" * 10**6,
        "1e" + "9" * 10**6 + "x",
        "1." + "9" * 10**6 + "x",
    ],
    ids=lambda text: str(text)[:8],
)
def test_the_time_is_linear(text: str) -> None:
    start = time.process_time()
    try:
        for token in tokenize(text):
            if token.kind == STRING:
                value(token)
    except SyntaxFault:
        pass
    assert time.process_time() - start < 10


def test_a_number_of_a_million_digits_is_refused() -> None:
    with pytest.raises(SyntaxFault, match="1000000 characters"):
        tokenize("1" * 10**6)


def test_a_token_knows_its_end() -> None:
    assert Token(NUMBER, "12", 3).end == 5
