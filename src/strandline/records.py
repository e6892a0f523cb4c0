"""Records: what the catalog keeps as text, with types.

A record is a frozen dataclass. Its text is a JSON object with the names and values of its fields and the
number of its format, by which a later version can tell how it was written; a text without one is of the first
format. What is read must be exactly that: a field too many or too few, or a value of another type, is refused
and never guessed at, for the text decides what is done to tables and files.

This is the one place that turns records into text and back. cattrs does the work, and is loaded only when
there is work: whoever lists names needs none of it.
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
"""The name under which a text has the number of its format. ``format`` is what a stream calls something
else."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """What stands for itself in the catalog. ``FORMAT`` grows when the text of a kind of record changes so
    that an older version could not read it."""

    FORMAT: ClassVar[int] = 1


@dataclass(frozen=True, kw_only=True)
class Nothing(Record):
    """There is nothing to keep."""


class Newer(PreconditionFailed):
    """A record of a format that only a later version knows."""


class _Misfit(ValueError):
    """A value that is not what the record has in its place."""


R = TypeVar("R", bound=Record)
RecordType: TypeAlias = type[R]
"""For where ``type`` is the name of something else."""


@dataclass(frozen=True)
class _Options:
    """What is special about a field."""

    name: str | None = None
    write: Callable[[Any], Any] | None = None
    read: Callable[[Any], Any] | None = None
    later: bool = False


_KEY, _PLAIN = "kept", _Options()
_FORMS: dict[type, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {}


def kept(
    *,
    default: Any = MISSING,
    name: str | None = None,
    write: Callable[[Any], Any] | None = None,
    read: Callable[[Any], Any] | None = None,
    later: bool = False,
) -> Any:
    """Return a field whose text has another ``name``, or whose value has a form of its own there. ``later``:
    it is not there for as long as it has its default."""
    return field(default=default, metadata={_KEY: _Options(name, write, read, later)})


def later(default: Any = None) -> Any:
    """Return a field that is not in the text for as long as it has its ``default``; every other one must be
    there."""
    return field(default=default, metadata={_KEY: _Options(later=True)})


def keep(kind: type, *, write: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
    """Values of a class have this form wherever a record holds one."""
    _FORMS[kind] = (write, read)
    _converter.cache_clear()


def to_text(record: Record) -> str:
    return json.dumps({NUMBER: record.FORMAT, **_converter().unstructure(record)})


def from_text(kind: type[R], text: str, what: str) -> R:
    """Return the record that a text holds. ``what`` names it in the error if it is refused."""
    value = _parsed(text, what)
    number = value.pop(NUMBER, 1)
    if type(number) is not int or number < 1:
        raise _unreadable(what, f"{number!r} is no number of a format")
    if number > kind.FORMAT:
        raise Newer(
            f"{what} was written by a newer version: it has format {number}, and this version knows formats "
            f"up to {kind.FORMAT}",
            "Use the version that wrote it, or a later one.",
        )
    try:
        return _converter(exact=False).structure(value, kind)
    except Exception:
        pass  # Again, to say where: to know the place all the time takes longer than to read.
    from cattrs import BaseValidationError, transform_error

    try:
        return _converter().structure(value, kind)
    except (BaseValidationError, _Misfit) as error:
        reasons = transform_error(error, "$", _reason)
        raise _unreadable(what, "; ".join(reasons)) from error


def shown(text: str, what: str) -> dict[str, Any]:
    """Return what a record holds, as plain values for people and programs to look at; nothing may depend on
    it."""
    value = _parsed(text, what)
    value.pop(NUMBER, None)
    return value


def plain(value: Any) -> Any:
    """Return a record, or a value that one may hold, as plain values."""
    return _converter().unstructure(value)


def _parsed(text: str, what: str) -> dict[str, Any]:
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
        "Something else has changed the catalog, or a later version wrote it. Use that version, or bring "
        "back the catalog as it was.",
    )


def _reason(error: BaseException, _: type | None) -> str:
    if isinstance(error, StrandlineError):
        return error.message
    return "an object was expected" if isinstance(error, AttributeError) else str(error)


@cache
def _converter(*, exact: bool = True) -> Converter:
    """``exact``: an error says where in a record it is."""
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
    """Return a value for a message, of which it may be only a small part."""
    text = repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."


def _exactly(*kinds: type) -> Callable[[Any, Any], Any]:
    """Return a value of the type itself: cattrs would turn the text '1' into a number, and anything into a
    text."""

    def read(value: Any, _: Any) -> Any:
        if type(value) not in kinds:
            raise _Misfit(f"{_short(value)} is not of type {kinds[0].__name__}")
        if kinds[0] is float and not isfinite(value):
            raise _Misfit(f"{_short(value)} is no finite number")
        if kinds[0] is str and not value.isascii() and any("\ud800" <= c <= "\udfff" for c in value):
            raise _Misfit("a text has half of a character in it")
        return value

    return read


def _hook(read: Callable[[Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda value, _: read(value)


def _reader(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Read a dataclass. cattrs passes over what it does not know, and lets a default stand for what is
    missing."""
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
        if (*value,) not in shapes:  # As it is written, they are in order.
            _refuse(sorted(needed - value.keys()), "the field {} is missing")
            _refuse(sorted(value.keys() - names.keys()), "the field {} is not known")
        return structure(value, kind)

    return read


_MOST_LATER = 6
"""With more fields than these that may be missing there are too many ways to miss some."""


def _shapes(names: Mapping[str, _Options]) -> set[tuple[str, ...]]:
    """Return the fields that a text has, in their order: all of them, or some of those missing that may
    be."""
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
        # cattrs puts what may be left out at the end, but who reads only the beginning relies on the order.
        made = write(value)
        return {name: made[name] for name in order if name in made}

    return in_order


def _options(kind: Any) -> dict[str, _Options]:
    return {f.name: f.metadata.get(_KEY, _PLAIN) for f in fields(kind)}


def _is_listed(kind: Any) -> bool:
    return get_origin(kind) in (tuple, frozenset)


def _items(kind: Any, converter: Converter) -> Callable[[Any, Any], Any]:
    """Read a list. cattrs would also take a text for one, letter by letter."""
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
