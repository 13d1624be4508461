"""The base of all parts: what a part may be asked stands in one class a kind.

Essential methods are abstract. Everything else that a part may do is a method or an attribute with
a default that does nothing, so the line calls it and never asks whether it is there. A misspelt
name would switch an ability off in silence: it is refused when the class is made.
"""

from __future__ import annotations

import abc
import difflib
import inspect
import warnings
from collections.abc import Collection
from types import TracebackType
from typing import Any, ClassVar, Self

LIKE = 0.8
"""Share of equal letters (`difflib` ratio) from which a name is warned of."""


class NearMissWarning(UserWarning):
    """A name of a part's own looks like one that the part may define."""


class Part(abc.ABC):  # noqa: B024 - each kind has abstract methods of its own
    """
    Base of every kind of part; use `rlvr.parts.Task`, `RewardFn`, ... instead.

    Attributes:
        kind: What the part is, such as "task".
        not_a_part_method: Names of a class's own that look like one of the kind's and are meant.

    Raises:
        TypeError: When a class is made: a public name of it is one letter away from a name that
            its kind knows, or has the same letters.
    """

    kind: ClassVar[str] = "part"
    not_a_part_method: ClassVar[Collection[str]] = frozenset()

    async def __aenter__(self) -> Self:
        """Open what the part owns: containers, engines, servers. Parts are opened in order."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close it; in reverse order, also after an error and on Ctrl-C."""
        return None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        check_names(cls)


def _is_kind(cls: type) -> bool:
    """Whether a class defines a kind of part, whose names are what a part may be asked."""
    return cls.__module__.startswith("rlvr.parts.") and issubclass(cls, Part)


def _public(cls: type) -> set[str]:
    names = {*vars(cls), *inspect.get_annotations(cls)}
    return {name for name in names if not name.startswith("_")}


def check_names(cls: type[Part], names: Collection[str] | None = None) -> None:
    """
    Refuse names of a class that are a slip of one that its kind knows; warn of likenesses.

    Args:
        cls: The part's class.
        names: Those to look at; None: the class's own.
    """
    if not _is_kind(cls):
        known = {name for base in _kinds(cls) for name in _public(base)}
        _check(cls, _public(cls) if names is None else names, known)


def _kinds(cls: type[Part]) -> list[type]:
    return [base for base in cls.__mro__ if _is_kind(base)]


def _check(cls: type[Part], names: Collection[str], known: set[str]) -> None:
    known = known - {"kind", "not_a_part_method"}
    for name in sorted(set(names) - known - set(cls.not_a_part_method) - _public(Part)):
        if meant := next((k for k in sorted(known) if is_slip(name, k)), None):
            raise TypeError(
                f"{cls.__qualname__}.{name}: did you mean {meant}? Rename it; if the name is "
                f"meant, say so in the class: not_a_part_method = {{{name!r}}}"
            )
        if likely := difflib.get_close_matches(_letters(name), map(_letters, known), 1, LIKE):
            meant = next(k for k in sorted(known) if _letters(k) == likely[0])
            warnings.warn(
                f"{cls.__qualname__}.{name} is no name of the kind {cls.kind}: did you mean "
                f"{meant}? If it is meant, say so in the class: not_a_part_method = {{{name!r}}}",
                NearMissWarning,
                stacklevel=4,
            )


def _letters(name: str) -> str:
    return name.replace("_", "").lower()


def is_slip(name: str, known: str) -> bool:
    """Whether two names differ by one letter at most, or by the order of their letters alone."""
    one, other = sorted((_letters(name), _letters(known)), key=len)
    if len(other) - len(one) > 1 or len(other) < 3:
        return False
    if sorted(one) == sorted(other):
        return True
    at = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    return one[at:] == other[at + 1 :] or one[at + 1 :] == other[at + 1 :]
