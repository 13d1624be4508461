"""The base of all parts: one class a kind holds every method that a part may have.

Essential methods are abstract. Everything else that a part may do is a method or an attribute with
a default that does nothing, so the line calls it and never asks whether it is there. A misspelt
name would switch an ability off in silence: it is refused when the class is made.
"""

from __future__ import annotations

import abc
import inspect
import sys
import warnings
from collections.abc import Collection, Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

import attrs

from rlvr.suggest import (
    LONG,
    asks_alike,
    differ_by_a_word,
    is_like,
    is_slip,
    is_sure,
    letters_of,
    share,
)

_OF_NEEDS = dict.fromkeys(
    ("annotations", "distributions", "outputs", "provides", "teachers"), "needs"
)
_LEARNING = {"recalled": "with_memory", "notices": "warnings"}
RETIRED: Mapping[str, Mapping[str, str]] = {
    "task": {
        "choose": "curriculum",
        "chooses_by": "curriculum_option",
        "grow": "discover",
        "grown": "discovered",
        "notices": "warnings",
        "is_recorded": "is_offline",
        "annotations": "annotate",
        "is_equivalent": "prove",
        "unposed": "why_unanswerable",
    },
    "episode": {"count_with": "start", "files": "result", "notes": "result"},
    "reward": {
        "reseeded": "with_seed",
        "scheduled": "at_step",
        "expected_s": "expected_seconds",
    },
    "checkpointer": {"spare": "pin"},
    "advantage": {
        **_LEARNING,
        **_OF_NEEDS,
        "numbers": "metrics",
        "refine": "per_token",
        "keeps": "keep",
        "refills": "refill_limit",
    },
    "loss": {**_LEARNING, **_OF_NEEDS, "weighed": "token_weights", "named": "builtin_form"},
    "backend": {
        "step": "update",
        "appraise": "eval_loss",
        "parity_threshold": "capabilities",
        "partial_rollouts": "capabilities",
        "logprob_tolerance": "capabilities",
    },
    "sampler": {"score": "drawn_by"},
    "policy": {"write": "export_weights", "sight": "image_processor"},
    "teacher": {"sight": "image_processor"},
}
"""By kind: names of earlier versions, and fields of a record that stand beside it, to today's."""


class NearMissWarning(UserWarning):
    """A part has a name of its own that resembles one of its kind."""


class Part(abc.ABC):  # noqa: B024 - each kind has abstract methods of its own
    """
    Base of every kind of part; use `rlvr.parts.Task`, `RewardFn`, ... instead.

    Attributes:
        kind: What the part is, such as "task".
        not_a_part_method: Own names that resemble one of the kind's on purpose.

    Raises:
        TypeError: When a class is made: a public name of it, or of a mixin, is one letter away
            from a name that its kind knows, has the same letters, or is the name of an earlier
            version. The name is accepted if the class also defines the one that it resembles.
    """

    kind: ClassVar[str] = "part"
    not_a_part_method: ClassVar[Collection[str]] = frozenset()

    def __init__(self, config: Any = None, context: Any = None) -> None:  # noqa: B027 - no ability
        """For a part without options: ignores the arguments that `target` is called with."""

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
        check_class(cls)


def _is_kind(cls: type) -> bool:
    """Whether a class defines a kind of part: its names are the methods a part may have."""
    return cls.__module__.startswith("rlvr.parts.") and issubclass(cls, Part)


def _kinds(cls: type) -> list[type[Part]]:
    return [base for base in cls.__mro__ if _is_kind(base)]


def _public(cls: type) -> dict[str, object]:
    """The public names of a class's own with their values; None: an annotation alone."""
    names = {**dict.fromkeys(inspect.get_annotations(cls)), **vars(cls)}
    return {name: value for name, value in names.items() if not name.startswith("_")}


def _is_method(value: object) -> bool:
    return callable(value) or isinstance(value, property | staticmethod | classmethod)


def check_class(cls: type[Part]) -> None:
    """Refuse names of a class, and of its mixins, that are a slip; warn of likenesses."""
    if _is_kind(cls):
        return
    kinds = set(_kinds(cls))
    for base in cls.__mro__:
        is_seen = issubclass(base, Part) and set(_kinds(base)) == kinds
        is_foreign = base.__module__.partition(".")[0] in sys.stdlib_module_names
        if base is cls or not (_is_kind(base) or is_seen or is_foreign):
            _check(cls, _public(base), set(_public(base)), f"{base.__qualname__}.")


def check_object(part: Part) -> None:
    """
    Refuse slips in what `__init__` sets: functions as methods, other values as attributes.

    Short names are no slips here: many objects have a `state` and a `last`. Where the value is a
    record of the kind, such as `Needs`, they are.
    """
    own = {n: v for n, v in getattr(part, "__dict__", {}).items() if not n.startswith("_")}
    known = _known(cls := type(part))
    records = {n: type(value) for n in known if attrs.has(type(value := getattr(cls, n, None)))}
    own = {
        name: value
        for name, value in own.items()
        if any(
            (len(letters_of(k)) >= LONG and is_method == callable(value))
            or type(value) is records.get(k)
            for k, is_method in known.items()
            if is_slip(name, k)
        )
        or RETIRED.get(cls.kind, {}).get(name) in {k for k in known if not known[k]} - {"needs"}
    }
    _check(cls, own, set(own), f"{cls.__qualname__}.")


def _known(cls: type) -> dict[str, bool]:
    """Names that the kinds of a class define, and whether each is a method; not `Part`'s own."""
    known: dict[str, bool] = {}
    for base in reversed(_kinds(cls)):
        known |= {name: _is_method(value) for name, value in _public(base).items()}
    return {name: known[name] for name in sorted(known.keys() - {"kind", "not_a_part_method"})}


def _check(cls: type[Part], own: Mapping[str, object], beside: Collection[str], of: str) -> None:
    known = _known(cls)
    exempt = {n for base in cls.__mro__ for n in vars(base).get("not_a_part_method", ())}
    for name in sorted(own.keys() - known.keys() - exempt - _public(Part).keys()):
        if any(k in beside and is_slip(name, k) for k in known):
            continue  # a helper of the method that is meant
        free = {k: v for k, v in known.items() if k not in beside}
        alike = [k for k, v in free.items() if own[name] is None or v == _is_method(own[name])]
        if (new := _retired(cls, name)) in alike:
            place = "That is its place today."
            raise TypeError(f"{of}{name}: did you mean {new}? {place} {_meant(name)}")
        slips = [k for k in free if is_slip(name, k) and _is_open(cls, k, len(k) >= LONG)]
        for meant in slips:
            if is_sure(name, meant):
                raise TypeError(f"{of}{name}: did you mean {meant}? {_meant(name)}")
        likely = [k for k in alike if is_like(name, k) and _is_open(cls, k, False)]
        likely = [k for k in slips if k in alike] or likely
        near = [k for k in known if not likely and _is_short_for(cls, name, own[name], k)]
        is_beside = any(k in beside or _is_defined(cls, k) for k in near)
        likely = likely or [k for k in near if k in alike and not is_beside]
        if likely:
            meant = max(likely, key=lambda k: share(name, k))
            warnings.warn(
                f"{of}{name} is no name of the kind {cls.kind}: did you mean {meant}? If it is "
                f"meant, say so in the class: not_a_part_method = {{{name!r}}}",
                NearMissWarning,
                stacklevel=4,
            )


def _retired(cls: type[Part], name: str) -> str:
    kinds = {base.kind for base in _kinds(cls)}
    return next((new for k in kinds if (new := RETIRED.get(k, {}).get(name))), "")


def _is_open(cls: type[Part], name: str, also_defined: bool) -> bool:
    """Whether a name may be meant: essential ones seldom, once they are defined."""
    if also_defined or not any(name in base.__abstractmethods__ for base in _kinds(cls)):
        return True
    return not _is_defined(cls, name)  # `SingleTurn` has a `take`, which a subclass may mean


def _is_short_for(cls: type[Part], name: str, own: object, known: str) -> bool:
    """Whether a method's name may be a slip of another's: one word differs, arguments are equal."""
    meant = getattr(cls, known, None)
    return differ_by_a_word(name, known) and asks_alike(own, meant) and _is_open(cls, known, False)


def _is_defined(cls: type[Part], name: str) -> bool:
    return any(name in vars(base) for base in cls.__mro__ if base not in _kinds(cls))


def _meant(name: str) -> str:
    return f"Rename it; if the name is meant, say so in the class: not_a_part_method = {{{name!r}}}"
