"""Records: typed values that the catalog stores as text.

A record is a frozen dataclass. Its text is a JSON object with the names and values of its fields, and the
number of its format. A later version recognises an old text by this number; a text without one has the first
format. Reading is strict: a missing or unknown field, or a value of another type, is an error. The text
decides what is done to tables and files, so nothing is guessed.

Only this module converts records to text and back. It uses cattrs, which is imported only when a record is
converted, because listing names does not need it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, get_args, get_origin

from strandline.errors import Corrupted, PreconditionFailed, StrandlineError

if TYPE_CHECKING:
    from cattrs import Converter

SHOWN = 200
"""Maximum number of characters of a value in a message."""
NUMBER = "record_format"
"""The name of the format number in a text. (``format`` is the name of a stream's field.)"""


@dataclass(frozen=True, kw_only=True)
class Record:
    """Base class of records.

    ``FORMAT`` grows when the text of a kind of record changes so that older versions cannot read it.
    """

    FORMAT: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Nothing(Record):
    """An empty record."""


class Newer(PreconditionFailed):
    """A record has a format that only a later version can read."""


class _Misfit(ValueError):
    """A value does not match the record's field."""


R = TypeVar("R", bound=Record)
RecordType: TypeAlias = type[R]
"""A record class. Classes with a field named ``type`` use it in place of ``type[R]``."""


@dataclass(frozen=True)
class _Options:
    """How a field is stored in the text of a record.

    Attributes:
        name: The name in the text. None: the name of the field.
        write: Converts the value for the text. None: conversion by type.
        read: Converts the value from the text. None: conversion by type.
        later: The field is left out of the text while it has its default.
    """

    name: str | None = None
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    later: bool = False


_KEY, _PLAIN = "kept", _Options()
_FORMS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def stored_as(
    *,
    default: Any = MISSING,
    name: str | None = None,
    write: Callable[[Any], Any] | None = None,
    read: Callable[[Any], Any] | None = None,
    later: bool = False,
) -> Any:
    """Declare a field with another name in the text, or with its own conversion.

    Args:
        default: the default of the field.
        name: the name in the text. None: the name of the field.
        write: converts the value for the text. None: conversion by type.
        read: converts the value from the text. None: conversion by type.
        later: leave the field out of the text while it has its default.
    """
    return field(default=default, metadata={_KEY: _Options(name, write, read, later)})


def later(default: Any = None) -> Any:
    """Declare a field that is left out of the text while it has its ``default``.

    A text must have all other fields.
    """
    return field(default=default, metadata={_KEY: _Options(later=True)})


def keep(kind: type, *, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Register the conversion for values of a class, in all records."""
    _FORMS[kind] = (write, read)
    _converter.cache_clear()


def to_text(record: Record) -> str:
    return json.dumps({NUMBER: record.FORMAT, **_converter().unstructure(record)})


def from_text(kind: type[R], text: str, what: str) -> R:
    """Parse the text of a record. ``what`` names the record in errors."""
    value = _parse(text, what)
    number = value.pop(NUMBER, 1)
    if type(number) is not int or number < 1:
        raise _unreadable(what, f"{number!r} is not a format number")
    if number > kind.FORMAT:
        raise Newer(
            f"{what} was written by a newer version: it has format {number}, and this version knows formats "
            f"up to {kind.FORMAT}",
            "Use the version that wrote it, or a later one.",
        )
    try:
        return _converter(exact=False).structure(value, kind)
    except Exception:
        pass  # Read again below with the slower converter, which finds the place of the error.
    from cattrs import BaseValidationError, transform_error

    try:
        return _converter().structure(value, kind)
    except (BaseValidationError, _Misfit) as error:
        reasons = transform_error(error, "$", _reason)
        raise _unreadable(what, "; ".join(reasons)) from error


def to_plain(text: str, what: str) -> dict[str, Any]:
    """Return a record's content as plain values. They are for display only, because they are not checked."""
    value = _parse(text, what)
    value.pop(NUMBER, None)
    return value


def plain(value: Any) -> Any:
    """Convert a record, or a value of a field, to plain values."""
    return _converter().unstructure(value)


def _parse(text: str, what: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _unreadable(what, f"it is not JSON ({error})") from error
    if type(value) is not dict:
        raise _unreadable(what, f"{_short(value)} is not an object")
    return value


def _unreadable(what: str, reason: str) -> Corrupted:
    return Corrupted(
        f"{what} cannot be read: {reason}",
        "Another program has changed the catalog, or a later version wrote it. Use that version, or "
        "restore the catalog from a copy.",
    )


def _reason(error: BaseException, _: type | None) -> str:
    if isinstance(error, StrandlineError):
        return error.message
    return "an object was expected" if isinstance(error, AttributeError) else str(error)


@cache
def _converter(*, exact: bool = True) -> Converter:
    """Return the converter. With ``exact``, errors name the place in the record, but reading is slower."""
    from cattrs import Converter

    converter = Converter(
        detailed_validation=exact, unstruct_collection_overrides={tuple: list, frozenset: sorted}
    )
    converter.register_structure_hook_factory(is_dataclass, _reader)
    converter.register_unstructure_hook_factory(is_dataclass, _writer)
    converter.register_structure_hook_factory(_is_listed, _items)
    converter.register_structure_hook(bool, _exactly(bool))
    converter.register_structure_hook(int, _exactly(int))
    converter.register_structure_hook(str, _exactly(str))
    converter.register_structure_hook(float, _exactly(float, int))  # JSON has one kind of number
    for kind, (write, read) in _FORMS.items():
        converter.register_structure_hook(kind, _hook(read))
        converter.register_unstructure_hook(kind, write)
    return converter


def _short(value: Any) -> str:
    """Return a value for a message, shortened if it is long."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    """Build a hook that accepts only values of the exact types.

    cattrs would convert the text '1' to a number, and any value to a text.
    """

    def read(value: Any, _: Any) -> Any:
        if type(value) not in kinds:
            raise _Misfit(f"{_short(value)} is not of type {kinds[0].__name__}")
        if kinds[0] is float and not isfinite(value):
            raise _Misfit(f"{_short(value)} is not a finite number")
        if kinds[0] is str and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise _Misfit("a text contains half of a character")
        return value

    return read


def _hook(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


def _reader(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Build the function that reads a dataclass.

    cattrs would ignore unknown fields, and use defaults for missing ones.
    """
    from cattrs.gen import make_dict_structure_fn, override

    options = _options(kind)
    names = {special.name or name: special for name, special in options.items()}
    needed = {name for name, special in names.items() if not special.later}
    shapes = _shapes(names)
    changed: dict[str, Any] = {
        name: override(rename=special.name, struct_hook=special.read and _hook(special.read))
        for name, special in options.items()
    }
    exact = converter.detailed_validation
    structure = make_dict_structure_fn(kind, converter, _cattrs_detailed_validation=exact, **changed)

    def read(value: Any, _: Any) -> Any:
        if type(value) is not dict:
            raise _Misfit(f"{_short(value)} is not an object")
        if (*value,) not in shapes:  # texts are written with fields in order
            _refuse(sorted(needed - value.keys()), "the field {} is missing")
            _refuse(sorted(value.keys() - names.keys()), "the field {} is not known")
        return structure(value, kind)

    return read


_MOST_LATER = 8
"""Maximum number of optional fields for which all combinations of missing fields are listed."""


def _shapes(names: Mapping[str, _Options]) -> set[tuple[str, ...]]:
    """Return the valid sequences of fields in a text: optional fields may be missing."""
    shapes: set[tuple[str, ...]] = {()}
    is_listed = sum(special.later for special in names.values()) <= _MOST_LATER
    for name, special in names.items():
        without = shapes if special.later and is_listed else set()
        shapes = {(*shape, name) for shape in shapes} | without
    return shapes


def _refuse(found: list[str], words: str) -> None:
    if found:
        raise _Misfit(words.format(repr(found[0])))


def _writer(kind: Any, converter: Converter) -> Callable[[Any], Any]:
    from cattrs.gen import make_dict_unstructure_fn, override

    options = _options(kind)
    changed: dict[str, Any] = {
        name: override(rename=special.name, unstruct_hook=special.write, omit_if_default=special.later)
        for name, special in options.items()
    }
    write = make_dict_unstructure_fn(kind, converter, **changed)
    if not any(special.later for special in options.values()):
        return write
    order = [special.name or name for name, special in options.items()]

    def in_order(value: Any) -> Any:
        # cattrs puts optional fields last. Code that reads only the first fields needs the declared order.
        made = write(value)
        return {name: made[name] for name in order if name in made}

    return in_order


def _options(kind: Any) -> dict[str, _Options]:
    return {f.name: f.metadata.get(_KEY, _PLAIN) for f in fields(kind)}


def _is_listed(kind: Any) -> bool:
    return get_origin(kind) in (tuple, frozenset)


def _items(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Build the function that reads a list. cattrs would also accept a text, letter by letter."""
    make, items = get_origin(kind), get_args(kind)
    alike = make is frozenset or items[-1] is Ellipsis
    hooks = [converter.get_structure_hook(of) for of in items if of is not Ellipsis]

    def read(value: Any, _: Any) -> Any:
        if type(value) is not list:
            raise _Misfit(f"{_short(value)} is not a list")
        if not alike and len(value) != len(items):
            raise _Misfit(f"{_short(value)} does not have {len(items)} items")
        if alike:
            read_one, of = hooks[0], items[0]
            return make([read_one(item, of) for item in value])
        return make(hook(item, of) for item, hook, of in zip(value, hooks, items, strict=True))

    return read
