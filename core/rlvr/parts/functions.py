"""Parts made of functions, for the simple case: `@rlvr.reward`, `@rlvr.advantage`, `@rlvr.loss`."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias, overload

from numpy.typing import NDArray

from rlvr.parts.advantage import Advantage
from rlvr.parts.loss import Loss
from rlvr.parts.needs import Needs
from rlvr.parts.reward import RewardFn
from rlvr.types import Datum, Outcome, Problem, ScoredGroup, Trajectory

__all__ = ["advantage", "loss", "reward"]

_Judge: TypeAlias = Callable[[Problem, Trajectory], Outcome | Awaitable[Outcome]]
_Credit: TypeAlias = Callable[
    [Sequence[ScoredGroup]],
    Sequence[Sequence[float | None]] | Sequence[NDArray[Any]] | NDArray[Any],
]
_Objective: TypeAlias = Callable[
    [Sequence[Datum], Sequence[Any], Mapping[str, Sequence[Any]]], tuple[Any, Mapping[str, float]]
]

_TRUTH = "True or False"


def reward(function: _Judge) -> type[RewardFn]:
    """
    Make a reward of a function `(problem, trajectory) -> Outcome`, plain or async.

    What comes back is a class: name it as a spec's `target`, or build it with `name()`. The same
    holds for `advantage` and `loss`.

    Raises:
        TypeError: It is no function, or cannot be called so. A class derives from the part's base.
    """
    made: type[RewardFn] = _part(RewardFn, function, "problem, trajectory", may_wait=True)
    return made


@overload
def advantage(function: _Credit) -> type[Advantage]: ...


@overload
def advantage(
    *, is_group_relative: bool = True, is_per_group: bool = True, breaks_ties: bool = False
) -> Callable[[_Credit], type[Advantage]]: ...


def advantage(
    function: _Credit | None = None,
    *,
    is_group_relative: bool = True,
    is_per_group: bool = True,
    breaks_ties: bool = False,
) -> type[Advantage] | Callable[[_Credit], type[Advantage]]:
    """
    An advantage of a function `(groups) -> rows (P, G)`, see `Advantage.__call__`.

    `@advantage` alone, or with what it declares (see `Advantage`): `@advantage(breaks_ties=True)`.
    """
    declared = _checked(
        "an advantage",
        bool,
        _TRUTH,
        is_group_relative=is_group_relative,
        is_per_group=is_per_group,
        breaks_ties=breaks_ties,
    )

    def decorate(function: _Credit) -> type[Advantage]:
        made: type[Advantage] = _part(Advantage, function, "groups", **declared)
        return made

    return decorate if function is None else decorate(function)


def loss(
    *, needs: Needs | None = None, importance_weighted: bool, is_policy_gradient: bool = True
) -> Callable[[_Objective], type[Loss]]:
    """A loss of a function `(data, logprobs, outputs) -> (loss, metrics)`, see `Loss.__call__`."""
    such = 'such as rlvr.Needs(annotations={"reference"})'
    declared = _checked("a loss", Needs, such, needs=Needs() if needs is None else needs)
    declared |= _checked(
        "a loss",
        bool,
        _TRUTH,
        importance_weighted=importance_weighted,
        is_policy_gradient=is_policy_gradient,
    )

    def decorate(function: _Objective) -> type[Loss]:
        made: type[Loss] = _part(Loss, function, "data, logprobs, outputs", **declared)
        return made

    return decorate


def _checked(part: str, kind: type, expected: str, **declared: Any) -> dict[str, Any]:
    for name, value in declared.items():
        if not isinstance(value, kind):
            raise TypeError(f"{name} of {part}: expected {expected}; found: {value!r}")
    return declared


def _part(
    base: type, function: Callable[..., Any], given: str, *, may_wait: bool = False, **of: Any
) -> Any:
    named = getattr(function, "func", function)  # of a partial
    name = getattr(named, "__name__", type(named).__name__)
    kind: str = base.kind  # type: ignore[attr-defined]
    asked = f"{'an' if kind[0] in 'aeiou' else 'a'} {kind} is made of a function ({given})"
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"{asked}; found: {function!r}. A class derives from rlvr.{base.__name__}")
    found = name
    try:
        found += str(signature := inspect.signature(function))
        signature.bind(*given.split(", "))
    except (TypeError, ValueError) as error:  # ValueError: some functions in C have no signature
        raise TypeError(f"{asked}; found: {found}: {error}") from None
    is_async = inspect.iscoroutinefunction(function)
    if is_async and not may_wait:
        raise TypeError(f"{asked}; found: async def {name}, which nobody awaits")

    call = (_awaited if is_async else _called)(function)
    names = {"__call__": call, "__doc__": named.__doc__, **of}
    names["__module__"] = getattr(named, "__module__", None) or __name__  # C, or exec: None
    names["__qualname__"] = getattr(named, "__qualname__", name)
    return type(base)(name, (base,), names)


def _called(function: Callable[..., Any]) -> Any:
    def __call__(self: Any, *given: Any) -> Any:  # its name stands in messages
        return function(*given)

    return __call__


def _awaited(function: Callable[..., Any]) -> Any:
    async def __call__(self: Any, *given: Any) -> Any:
        return await function(*given)

    return __call__
