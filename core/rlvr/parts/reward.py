"""A reward: judges one trajectory."""

from __future__ import annotations

import abc
import copy
import inspect
from collections.abc import Mapping
from types import TracebackType
from typing import Any, ClassVar, Self

from rlvr.parts.base import Part
from rlvr.types import PassRate, Problem, Reward, Trajectory


class RewardFn(Part):
    """
    Judges one trajectory (`rlvr.types.Reward` is the verdict it gives).

    `__call__` may be a plain function or a coroutine. A plain one runs in a thread, several at a
    time; a coroutine that holds the event loop is named. What is raised besides `VerifierError`,
    and what is no outcome or lies outside of the spec's bounds, is a failure to run that names the
    plugin.

    Attributes:
        has_second_opinion: It has a slower, stricter judge of the same answers
            (docs/second-opinion.md).
    """

    kind: ClassVar[str] = "reward"

    has_second_opinion: bool = False

    @abc.abstractmethod
    def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        """
        An `Outcome`, or a coroutine that gives one.

        That is a `Reward`, or `Unscorable(reason)` where no verdict exists. Raises `VerifierError`
        when it could not run. Neither of the latter is ever reward 0.
        """

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """
        Equal keys mean equal verdicts, which may then be kept; None: this verdict is never kept.

        A sha256 over tool versions, problem, normalised answer, limits. The core adds the reward's
        source, its distribution's version and its resolved options.
        """
        return None

    def with_seed(self, seed: int) -> RewardFn | None:
        """
        The same judge with tests drawn from another seed; it shares what this one has opened.

        None: nothing is drawn at random.
        """
        return None

    def at_step(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        """
        The reward of a step (0-based): a cheap proxy first, for instance.

        A pure function of the arguments. A proxy's verdicts say `is_proxy`, its keys differ.
        Evaluations use the full reward.
        """
        return self

    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
        """Estimated seconds of a verification (long ones begin first); 0 if unknown."""
        return 0.0

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Reward | None:
        """
        The stricter verdict: `score01` is 1 where the answer is right; None: no opinion on it.

        A run asks the reward itself, never what `at_step` gave. Raises `VerifierError` where it
        could not run: counted apart, not as a rejection.
        """
        return None


class RewardWrapper(RewardFn):
    """A reward around another one: every method forwards to the inner reward unless overridden."""

    def __init__(self, inner: RewardFn) -> None:
        self.inner = inner
        self.has_second_opinion = inner.has_second_opinion

    def __call__(self, problem: Problem, trajectory: Trajectory) -> Any:
        """As the inner reward."""
        return self.inner(problem, trajectory)

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """As the inner reward: override it where the wrapper changes verdicts."""
        return self.inner.verdict_key(problem, trajectory)

    def with_seed(self, seed: int) -> RewardFn | None:
        """The wrapper around the inner reward with that seed."""
        inner = self.inner.with_seed(seed)
        return None if inner is None else self.around(inner)

    def at_step(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        """The wrapper around the inner reward of that step."""
        inner = self.inner.at_step(step, history)
        return self if inner is self.inner else self.around(inner)

    def around(self, inner: RewardFn) -> RewardFn:
        """The same wrapper, options and all, around another reward."""
        wrapper = copy.copy(self)
        wrapper.inner, wrapper.has_second_opinion = inner, inner.has_second_opinion
        return wrapper

    def expected_seconds(self, problem: Problem, trajectory: Trajectory) -> float:
        """As the inner reward."""
        return self.inner.expected_seconds(problem, trajectory)

    async def second_opinion(self, problem: Problem, trajectory: Trajectory) -> Reward | None:
        """As the inner reward."""
        found: Any = self.inner.second_opinion(problem, trajectory)
        opinion: Reward | None = await found if inspect.isawaitable(found) else found
        return opinion

    async def __aenter__(self) -> Self:
        """Open the inner reward."""
        self.inner = await self.inner.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool | None:
        """Close the inner reward."""
        return await self.inner.__aexit__(kind, error, trace)
