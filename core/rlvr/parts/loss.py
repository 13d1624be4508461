"""A loss: what an update minimises."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ClassVar, TypeVar, cast

from attrs import field, frozen

from rlvr.parts.needs import LearningPart
from rlvr.types import Datum

Function = TypeVar("Function", bound=Callable[..., Any])
_Compiler = Callable[[Callable[..., Any]], Callable[..., Any]]

_compiler: ContextVar[_Compiler | None] = ContextVar("compiler", default=None)


def compilable(function: Function) -> Function:
    """
    Mark a function that computes with tensors alone, so that a backend may compile it.

    A decorator, for a part of a loss: what the loss computes once its data are tensors. Compiled or
    not, the results are equal but for rounding. So the function reads nothing that changes but its
    arguments (a number that changes from step to step comes as a tensor), converts no tensor to a
    Python number, and changes nothing. The lengths of its tensors may differ from call to call.
    Metrics that it returns are detached. A function that cannot be compiled runs as it is.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        compiler = _compiler.get()
        return (function if compiler is None else compiler(function))(*args, **kwargs)

    return cast("Function", call)


@contextmanager
def compiling(compiler: _Compiler | None) -> Iterator[None]:
    """For backends: functions that are `compilable` run as `compiler(function)` inside."""
    token = _compiler.set(compiler)
    try:
        yield
    finally:
        _compiler.reset(token)


@frozen(kw_only=True)
class NamedForm:
    """
    A service's built-in loss, by its name there, that is the same formula as a loss of ours.

    The service's sum over tokens equals the loss, and so does its gradient, where the advantages
    (for `cross_entropy` its weights) that are sent are `datum.advantages * datum.weights`.

    Attributes:
        name: As Tinker calls it: cross_entropy, importance_sampling, ppo, cispo, gspo.
        config: Settings by the service's names, such as "clip_low_threshold".
        masks: Further inputs of each datum that are its `mask` as 0 and 1.
    """

    name: str
    config: Mapping[str, float] = field(factory=dict)
    masks: tuple[str, ...] = ()


class Loss(LearningPart):
    """
    The objective that an update minimises.

    Attributes:
        importance_weighted: Whether it weighs tokens by the ratio of the policy to what sampled
            them. It then refuses samples that were not drawn from the policy. Set it to False if
            it does not.
        is_policy_gradient: Set it to False for a loss that ignores advantages (pure distillation):
            two promises of `rlvr.testing.LossContract` do not apply then.
    """

    kind: ClassVar[str] = "loss"

    importance_weighted: bool = True
    is_policy_gradient: bool = True

    @abc.abstractmethod
    def __call__(
        self,
        data: Sequence[Datum],
        logprobs: Sequence[Any],
        outputs: Mapping[str, Sequence[Any]],
    ) -> tuple[Any, dict[str, float]]:
        """
        The loss, and its metrics.

        `logprobs` is a list of tensors, one a datum, shape (T,), aligned with `datum.tokens`
        (entries outside `datum.mask` are to be ignored); `outputs[name]` is a list like it, with
        gradients, for each of `needs.outputs`. A backend that cannot give an output refuses the
        loss. The loss must be *additive*: a sum over tokens weighted by `datum.weights`, so that
        micro-batches add up exactly. Metrics are sums weighted the same way, logged as means; a
        key ending in `/max` is combined by maximum.

        "hidden": the states before the output head at each datum's n supervised tokens, (n, C).
        "head": a list of one object with `weights` (V, C), `bias` (V,) or None, `scale` and
        `softcap` (0: none); logits are `cap(scale * (W h + b))`, weights and bias are leaves that
        need a gradient unless frozen.
        """

    def token_weights(self, data: Sequence[Datum]) -> list[Datum]:
        """
        The data of one update with the weight of each token; order and number are kept.

        The weights come with the sum 1 (`train.aggregation=fixed`: at most 1); further annotations
        may be added. Called before the update is split over micro-batches, which then add up
        exactly.
        """
        return list(data)

    def builtin_form(self) -> NamedForm | None:
        """The service's loss equal to this one with its present settings; None: there is none."""
        return None
