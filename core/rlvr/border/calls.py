"""Calls of parts: an exception or a wrong result becomes one error that names the part.

Put `with Border(part, "sampler", "sample", promised="..."):` around a call, then `check` what it
gave.
Errors that rlvr itself defines pass through; so do Ctrl-C and the cancellation of a run.
"""

from __future__ import annotations

import inspect
import math
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, TracebackType
from typing import Any, ParamSpec, TypeVar

import numpy as np
from attrs import field, frozen

from rlvr.errors import PartError, RlvrError
from rlvr.plugins.author_error import passes, said
from rlvr.plugins.resolve import load_object
from rlvr.specs import NamedRecord, PartSpec

P = ParamSpec("P")
T = TypeVar("T")

_BUILT: dict[tuple[str, type], PartSpec] = {}
"""The specs of parts that were built in this process, by kind and class."""
_OWN = "builtin"
"""The provider of the core's own parts."""
_NUMBERS = (int, float, np.number, np.bool_)
_SHOWN = 300
"""Characters of a foreign value that a message shows."""
_TRACE = " (--debug shows the traceback)"


def built(spec: PartSpec, part: object) -> None:
    """Remember of which plugin's spec a part was made, for messages."""
    _BUILT[spec.kind, type(part)] = spec


def spec_of(part: object, kind: str) -> PartSpec | None:
    """The spec that a part was built of, None where it is not known."""
    return _BUILT.get((kind, type(part)))


def kind_of(part: object) -> str:
    """The kind of a part that was built, "part" where it is not known."""
    return next((kind for kind, cls in reversed(_BUILT) if cls is type(part)), "part")


def same_part(part: object, other: object) -> None:
    """Remember that another object, given by a part's `__aenter__`, stands for the part."""
    for (kind, cls), spec in list(_BUILT.items()):
        if cls is type(part):
            _BUILT[kind, type(other)] = spec


def label(part: object, kind: str) -> str:
    """A part in words: its plugin, kind and name where they are known, else its class."""
    spec = part if isinstance(part, NamedRecord) else _BUILT.get((kind, type(part)))
    if spec is None:
        return f"{kind} {type(part).__module__}.{type(part).__qualname__}"
    return f"plugin {spec.provider!r}, {kind} {spec.name!r}"


@frozen
class Border:
    """
    One call of one part.

    Attributes:
        part: Whose method is called.
        kind: What it is, such as "reward".
        method: The method, as its author wrote it.
        promised: What the method gives, in words.
        problem: The problem's id, "" where the call is for none or several.
    """

    part: Any
    kind: str
    method: str
    promised: str = field(kw_only=True)
    problem: str = field(default="", kw_only=True)

    def __enter__(self) -> Border:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if error is None or isinstance(error, RlvrError) or passes(error):
            return
        raise self.broken(f"it raised {said(error)}", error) from error

    def call(self, method: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
        """Call the part's method; `PartError` if it raises."""
        with self:
            return method(*args, **options)

    def check(self, fault: str) -> None:
        """
        Raise the error of `broken` if there is a fault; "" is none.

        Raises:
            PartError: Names plugin, part, method, the promise and the fault.
        """
        if fault:
            raise self.broken(fault)

    def broken(self, came: str, error: BaseException | None = None) -> PartError:
        """The error that says what was promised and what came."""
        who, method = blamed(error, self.part, self.kind, self.method)
        of = f" for problem {self.problem}" if self.problem else ""
        promised = self.promised if method == self.method else "to go on without an error"
        return PartError(
            f"{who} did not keep its promise: {method}{of}.",
            f"promised: {promised}; came: {came}",
            f"correct the plugin{_TRACE if error else ''}, or choose another part",
        )

    def sentence(self, came: str) -> str:
        """The same in one line, for a fault that concerns one answer and ends nothing."""
        who = label(self.part, self.kind)
        return f"{who}: {self.method} promised {self.promised}; came: {came}"


def told_by(record: NamedRecord, target: str, kind: type[T], promised: str, *given: Any) -> T:
    """
    Call the function that a plugin's record names as its `target`, and check the result's class.

    Raises:
        PartError: It cannot be imported, raises, or gives something else; the plugin is named.
    """
    at = Border(record, record.kind, target, promised=promised)
    with at:
        found = load_object(target, record.provider)(*given)
    if inspect.iscoroutine(found):
        found.close()
    if not isinstance(found, kind):
        raise at.broken(shown(found))
    return found


def blamed(error: BaseException | None, part: object, kind: str, method: str) -> tuple[str, str]:
    """
    The part that an error comes from, and its method.

    A part is often called by another one (a loss by a backend): the innermost frame that is a
    method of a part's class says whose it is.
    """
    for found, function in _parts_in(error):
        if found.kind == kind:
            break
        return f"plugin {found.provider!r}, {found.kind} {found.name!r}", function
    return label(part, kind), method


def culprit(error: BaseException) -> str:
    """The part of a plugin in whose method an error arose, "" where it is not a plugin's."""
    for spec, function in _parts_in(error):
        if spec.provider != _OWN:
            return f"plugin {spec.provider!r}, {spec.kind} {spec.name!r} ({function})"
    return ""


def _parts_in(error: BaseException | None) -> Iterator[tuple[PartSpec, str]]:
    """Specs of the parts whose methods stand in a traceback, the innermost first; causes lie in."""
    specs = {cls: spec for (_, cls), spec in _BUILT.items()}
    named = {(cls.__module__, cls.__qualname__): spec for cls, spec in specs.items()}
    frames, chain = list[FrameType](), list[BaseException]()
    while error is not None and not any(error is one for one in chain):  # it may be its own cause
        frames += (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        chain.append(error)
        error = error.__cause__
    for frame in reversed(frames):
        code = frame.f_code
        own = frame.f_locals.get(code.co_varnames[0]) if code.co_argcount else None
        owner = code.co_qualname.partition(".<locals>")[0].rpartition(".")[0]
        spec = specs.get(type(own)) if _is_method(code, type(own)) else None
        if spec := spec or named.get((str(frame.f_globals.get("__name__")), owner)):
            yield spec, code.co_name


def _is_method(code: CodeType, cls: type) -> bool:
    """Whether it is a class's own or inherited, perhaps decorated, or made of a function."""
    owner = code.co_qualname.rpartition(".")[0]
    return any(
        base.__qualname__ == owner
        or any(getattr(value, "__code__", None) is code for value in vars(base).values())
        for base in cls.__mro__
    )


def is_finite(value: object) -> bool:
    """Whether a value is a finite number: an int may be too large for a float."""
    try:
        return isinstance(value, _NUMBERS) and math.isfinite(value)
    except OverflowError:
        return False


def article(noun: str) -> str:
    """The indefinite article of a noun: a or an."""
    return "an" if noun[:1] in "aeiou" else "a"


def shown(value: object) -> str:
    """A value in one short line, with its type; its repr may fail."""
    try:
        text = " ".join(repr(value)[: 4 * _SHOWN].split())
    except BaseException as error:  # the plugin border: its __repr__ is the plugin's
        if passes(error):
            raise
        text = f"(its repr raised {type(error).__name__})"
    short = text if len(text) <= 80 else text[:80] + "..."
    return "None" if value is None else f"{short} ({type(value).__name__})"
