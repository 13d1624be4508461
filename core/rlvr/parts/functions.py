"""Parts made of functions, for the simple case: `@rlvr.reward`, `@rlvr.advantage`, `@rlvr.loss`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from rlvr.parts.advantage import Advantage
from rlvr.parts.loss import Loss
from rlvr.parts.needs import Needs
from rlvr.parts.reward import RewardFn

__all__ = ["advantage", "loss", "reward"]


def reward(function: Callable[..., Any]) -> type[RewardFn]:
    """
    Make a reward of a function `(problem, trajectory) -> Outcome`, plain or async.

    What comes back is a class: name it as a spec's `target`, or build it with `name()`. The same
    holds for `advantage` and `loss`.

    Raises:
        TypeError: It is no function, or cannot be called so. A class derives from the part's base.
    """
    made: type[RewardFn] = _part(RewardFn, function, "problem, trajectory", may_wait=True)
    return made


def advantage(function: Callable[..., Any]) -> type[Advantage]:
    """An advantage of a function `(groups) -> rows (P, G)`, see `Advantage.__call__`."""
    made: type[Advantage] = _part(Advantage, function, "groups")
    return made


def loss(
    *, needs: Needs | None = None, importance_weighted: bool, is_policy_gradient: bool = True
) -> Callable[[Callable[..., Any]], type[Loss]]:
    """A loss of a function `(data, logprobs, outputs) -> (loss, metrics)`, see `Loss.__call__`."""
    needs = Needs() if needs is None else needs
    for name, value, kind, expected in (
        ("needs", needs, Needs, 'such as rlvr.Needs(annotations={"reference"})'),
        ("importance_weighted", importance_weighted, bool, "True or False"),
        ("is_policy_gradient", is_policy_gradient, bool, "True or False"),
    ):
        if not isinstance(value, kind):
            raise TypeError(f"{name} of a loss: expected {expected}; found: {value!r}")

    def decorate(function: Callable[..., Any]) -> type[Loss]:
        made: type[Loss] = _part(
            Loss,
            function,
            "data, logprobs, outputs",
            needs=needs,
            importance_weighted=importance_weighted,
            is_policy_gradient=is_policy_gradient,
        )
        return made

    return decorate


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
