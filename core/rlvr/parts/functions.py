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
    """
    made: type[RewardFn] = _part(RewardFn, function)
    return made


def advantage(function: Callable[..., Any]) -> type[Advantage]:
    """An advantage of a function `(groups) -> rows (P, G)`, see `Advantage.__call__`."""
    made: type[Advantage] = _part(Advantage, function)
    return made


def loss(
    *, needs: Needs | None = None, importance_weighted: bool, is_policy_gradient: bool = True
) -> Callable[[Callable[..., Any]], type[Loss]]:
    """A loss of a function `(data, logprobs, outputs) -> (loss, metrics)`, see `Loss.__call__`."""

    def decorate(function: Callable[..., Any]) -> type[Loss]:
        made: type[Loss] = _part(
            Loss,
            function,
            needs=needs or Needs(),
            importance_weighted=importance_weighted,
            is_policy_gradient=is_policy_gradient,
        )
        return made

    return decorate


def _part(base: type, function: Callable[..., Any], **attributes: Any) -> Any:
    def called(self: Any, *given: Any) -> Any:
        return function(*given)

    async def waited(self: Any, *given: Any) -> Any:
        return await function(*given)

    call = waited if inspect.iscoroutinefunction(function) else called
    names = {"__call__": call, "__doc__": function.__doc__, **attributes}
    names |= {"__module__": function.__module__, "__qualname__": function.__qualname__}
    return type(base)(function.__name__, (base,), names)
