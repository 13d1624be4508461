"""Convert a given value to the type that its option declares.

cattrs would not shorten this: its structuring accepts what options must refuse (`bool("false")` is
True, 1.7 as int is 1, nan is a float), so each type below would need a hook of the same length, and
its import would take 18 ms of the 0.3 s of `rlvr --help`.
"""

from __future__ import annotations

import json
import math
import types
import typing
from collections.abc import Callable, Container
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, Union

from rlvr.errors import text_of

_TRUE, _FALSE, _NONE = {"true", "yes", "on", "1"}, {"false", "no", "off", "0"}, {"", "none", "null"}


class RangeError(ValueError):
    """A number is too large for its type, or not finite."""


def coerce(value: Any, wanted: Any, *, is_typed: bool = False) -> Any:
    """
    `value` as `wanted` (int, float, bool, str, Path, `tuple[X, ...]`, `X | None`).

    Args:
        value: A text from a command line or the environment, or a value from TOML or YAML.
        wanted: The option's annotation, resolved.
        is_typed: Where the source knows types; a text is then not read as a number.

    Raises:
        ValueError: It cannot be that type.
        TypeError: The annotation is none that options may have.
    """
    value = unwrapped(value)
    if is_optional(wanted):
        if value is None or (isinstance(value, str) and value.lower() in _NONE):
            return None
        return coerce(value, _inner(wanted), is_typed=is_typed)
    if typing.get_origin(wanted) is tuple:
        return _tuple(value, typing.get_args(wanted)[0], is_typed)
    if wanted not in _SCALARS:
        raise TypeError(f"an option cannot have the type {type_name(wanted)}")
    if isinstance(value, str) and not is_typed:
        return _PARSERS[wanted](value)
    return _checked(value, wanted)


def unwrapped(value: Any) -> Any:
    """The plain value of a scalar of NumPy or torch, or of a member of an enumeration."""
    if isinstance(value, Enum):
        value = value.value
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def fault_of_text(text: str) -> str:
    """Why a text can name no file and be no one's option; "" if it can."""
    try:
        return "a NUL character in it" * (b"\0" in text.encode(errors="surrogateescape"))
    except UnicodeEncodeError:
        return "half a character (a lone surrogate) in it"


def names_in(text: str, known: Container[str] = ()) -> list[str]:
    """
    The names that a flag gives: `a,b`, or a JSON list where a name has a comma: `["a,b", "c"]`.

    A text that is one of the `known` names is that name alone.
    """
    if text in known:
        return [text]
    if text.lstrip().startswith("["):
        with suppress(ValueError, RecursionError):
            names = json.loads(text)
            if all(isinstance(name, str | int) for name in names):
                return list(map(str, names))
    return [name for part in text.split(",") if (name := part.strip())]


def type_name(wanted: Any) -> str:
    """The type in a person's words."""
    if is_optional(wanted):
        return f"{type_name(_inner(wanted))} or none"
    if typing.get_origin(wanted) is tuple:
        return f"list of {type_name(typing.get_args(wanted)[0])}"
    return _SCALARS.get(wanted, getattr(wanted, "__name__", str(wanted)))


def is_optional(wanted: Any) -> bool:
    """True for `X | None`."""
    is_union = typing.get_origin(wanted) in (Union, types.UnionType)
    return is_union and type(None) in typing.get_args(wanted)


def _inner(wanted: Any) -> Any:
    inner = [arg for arg in typing.get_args(wanted) if arg is not type(None)]
    if len(inner) != 1:
        raise TypeError(f"an option cannot have the type {wanted}")
    return inner[0]


def _tuple(value: Any, wanted: Any, is_typed: bool) -> tuple[Any, ...]:
    if isinstance(value, str):
        if is_typed:
            raise ValueError("a text, not a list")
        if value.lstrip().startswith("["):
            value = json.loads(value)
        else:
            value = [part.strip() for part in value.split(",")] if value else []
    if not isinstance(value, list | tuple):
        raise ValueError("not a list")
    return tuple(coerce(item, wanted, is_typed=is_typed) for item in value)


def _checked(value: Any, wanted: Any) -> Any:
    if wanted is Path and isinstance(value, str | Path):
        return Path(value)
    if wanted is float and isinstance(value, int | float) and not isinstance(value, bool):
        return _number(value)
    if isinstance(value, bool) and wanted is not bool:
        raise ValueError(f"{str(value).lower()} is no {_SCALARS[wanted]}")
    if not isinstance(value, wanted):
        raise ValueError(f"{text_of(value, repr)} is no {_SCALARS[wanted]}")
    if wanted is int:
        _whole(value)
    return value


def _number(value: float | str) -> float:
    try:
        number = float(value)
    except OverflowError as error:  # of a whole number
        raise RangeError("it is too large") from error
    if not math.isfinite(number):
        raise RangeError(f"{number} is not a finite number")
    return number


def _whole(value: int | str) -> int:
    if not -(2**63) <= (number := int(value)) < 2**64:
        raise RangeError("it has more than 64 bits")
    return number


def _boolean(text: str) -> bool:
    if text.lower() in _TRUE | _FALSE:
        return text.lower() in _TRUE
    raise ValueError(f"{text!r} is neither true nor false")


_SCALARS: dict[Any, str] = {
    int: "whole number",
    float: "number",
    bool: "true or false",
    str: "text",
    Path: "path",
}

_PARSERS: dict[Any, Callable[[str], Any]] = {
    int: _whole,
    float: _number,
    bool: _boolean,
    str: str,
    Path: Path,
}
