"""Models of requests and responses, made from the types of the Python API.

A method's parameters become the model of its request, and its docstring the descriptions. Dataclasses and
named tuples become models of responses; ``json_values.plain`` turns a result into what the model describes.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import inspect
import os
import re
import types
import typing
from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints, create_model

from strandline.api.status import Thresholds
from strandline.api.verbs import Verb, type_hints
from strandline.sql.retention_rules import Keep

Text = Annotated[str, StringConstraints(pattern=r"^[^\x00]*$", max_length=100_000)]
"""A text without NUL, which PostgreSQL cannot store."""
Whole = Annotated[int, Field(ge=-(2**63), le=2**63 - 1, strict=False)]
Number = Annotated[float, Field(ge=-1e12, le=1e12, allow_inf_nan=False)]
_SIMPLE: dict[Any, Any] = {
    str: Text,
    int: Whole,
    float: Number,
    bool: bool,
    datetime: datetime,
    type(None): None,
}
_UNIONS = (Union, types.UnionType)


@cache
def request_model(verb: Verb) -> type[BaseModel] | None:
    """Return the model of the query or body of a verb. None: all of its parameters are in the path."""
    described = describe_parameters(verb.function)
    fields: dict[str, Any] = {}
    in_path = set(re.findall(r"{(\w+)}", verb.path))
    for name, parameter in verb.parameters.items():
        if name in in_path:
            continue
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:  # ``**thresholds``: fields of a dataclass
            fields |= _threshold_fields()
            continue
        required = parameter.default is inspect.Parameter.empty
        default = ... if required else parameter.default
        info = Field(default, description=described.get(name))
        kind = accepted(parameter.annotation)
        if (
            verb.method == "GET"
            and default not in (None, ...)
            and type(None) in get_args(parameter.annotation)
        ):
            # A query has no other way to say None where that is not the default.
            kind = Annotated[kind, BeforeValidator(lambda value: None if value == "null" else value)]
        fields[name] = (kind, info)
    if not fields:
        return None
    title = verb.name.replace(".", " ").replace("_", " ").title().replace(" ", "")
    return create_model(f"{title}Request", __config__=ConfigDict(extra="forbid"), **fields)


def _threshold_fields() -> dict[str, Any]:
    return {
        each.name: (Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)] | None, None)
        for each in dataclasses.fields(Thresholds)
    }


def accepted(kind: Any) -> Any:
    """Return the type that a request accepts for a parameter of this type."""
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    origin, of = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        # JSON has no path objects and no rules: both are texts.
        wanted = [accepted(each) for each in of if not _is_python_only(each)]
        return Union[tuple(wanted)]  # noqa: UP007
    if origin is Literal or kind is Any:
        return kind
    if origin in (collections.abc.Sequence, list, tuple):
        return list[accepted(of[0])]  # type: ignore[misc]
    if origin in (collections.abc.Mapping, dict):
        return dict[accepted(of[0]), accepted(of[1])]  # type: ignore[misc]
    raise TypeError(f"{kind} is not a type of a request")


def _is_python_only(kind: Any) -> bool:
    return kind is Keep or get_origin(kind) is os.PathLike or get_origin(kind) is collections.abc.Callable


@cache
def response_model(kind: Any) -> Any:
    """Return the model of a result of this type."""
    origin, of = get_origin(kind), get_args(kind)
    if origin in _UNIONS:
        return Union[tuple(response_model(each) for each in of)]  # noqa: UP007
    if origin in (list, tuple, collections.abc.Sequence):
        if origin is tuple and not (len(of) == 2 and of[1] is Ellipsis):
            return list[Any]
        return list[response_model(of[0])]  # type: ignore[misc]
    if origin in (dict, collections.abc.Mapping):
        return dict[str, response_model(of[1])]  # type: ignore[misc]
    if isinstance(kind, type) and (dataclasses.is_dataclass(kind) or hasattr(kind, "_fields")):
        described = describe_fields(kind)
        fields: dict[str, Any] = {
            name: (response_model(type_), Field(..., description=described.get(name)))
            for name, type_ in type_hints(kind).items()
            if name in field_names(kind)
        }
        made = create_model(kind.__name__, **fields)
        made.__doc__ = inspect.cleandoc(kind.__doc__ or "").partition("\n")[0]
        return made
    return kind


def field_names(kind: Any) -> Sequence[str]:
    """Return the names of the fields of a dataclass or a named tuple."""
    if dataclasses.is_dataclass(kind):
        return [each.name for each in dataclasses.fields(kind)]
    return typing.cast(Sequence[str], kind._fields)


def describe_parameters(function: Any) -> dict[str, str]:
    """Return the descriptions of parameters from the section ``Args:`` of a docstring."""
    return _section(function.__doc__, "Args:")


def describe_fields(kind: Any) -> dict[str, str]:
    """Return the descriptions of fields from the section ``Attributes:`` of a docstring."""
    return _section(kind.__doc__, "Attributes:")


def _section(text: str | None, title: str) -> dict[str, str]:
    found: dict[str, str] = {}
    _, _, body = inspect.cleandoc(text or "").partition(title)
    for name, words in re.findall(r"^    (\w+): (.+(?:\n {8}.+)*)", body, re.MULTILINE):
        found[name] = " ".join(words.split())
    return found


def summary_of(verb: Verb) -> tuple[str, str]:
    """Return the summary and the description of a verb from the docstring of its method."""
    text = inspect.cleandoc(verb.function.__doc__ or "").partition("Args:")[0].strip()
    summary, _, rest = text.partition("\n\n")
    return " ".join(summary.split()), " ".join(rest.split())
