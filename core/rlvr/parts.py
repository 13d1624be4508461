"""The Protocols of the parts that do the work. A part needs no base class: the shape is enough.

A part is built by calling the `target` of its spec with `(config, context)`: `config` is an
instance of the spec's own attrs class (or None), `context` a `BuildContext`. Parts that own
resources are also async context managers; the recipe opens them in order and closes them in
reverse, on Ctrl-C too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from rlvr.build_context import BuildContext as BuildContext
from rlvr.types import (
    Checkpoint,
    Completion,
    Datum,
    FloatArray,
    GenerateRequest,
    Group,
    Message,
    Outcome,
    PassRate,
    Problem,
    SamplingParams,
    ScoredGroup,
    Trajectory,
)


@runtime_checkable
class Episode(Protocol):
    """
    One problem being attempted. Gives the next prompt and takes the completion until it ends.

    The first `prompt()` is the whole prompt; later ones are only what the environment adds.
    `rlvr.episode` names what it may have besides.
    """

    def prompt(self) -> Sequence[Message] | None:
        """Messages to put before the policy next; None when the episode has ended."""

    async def take(self, completion: str) -> None:
        """Accept the policy's text for the prompt that was given last."""


@runtime_checkable
class Task(Protocol):
    """Where problems come from."""

    def problems(self, split: str) -> Iterable[Problem]:
        """Problems of one split ("train", "test", "all"), in a fixed order, ids unique."""

    def episode(self, problem: Problem) -> Episode:
        """A fresh episode of the problem."""

    def reference(self, problem: Problem) -> Trajectory | None:
        """The ground-truth answer as a trajectory, None where the data set holds none."""

    def unsupported(self) -> Mapping[str, str]:
        """Rows of the data set that yield no problem: id (or `line N`) to the reason."""


@runtime_checkable
class Chooser(Protocol):
    """A curriculum, or a task that is one itself: says which problems a step takes."""

    def choose(
        self,
        problems: Sequence[Problem],
        count: int,
        *,
        seed: int,
        step: int,
        history: Mapping[str, PassRate],
    ) -> Sequence[Problem]:
        """
        `count` of the problems for a step (0-based): a pure function of the arguments.

        `history` holds the pass rates of all finished steps by problem id, without problems never
        met. `rlvr.curriculum` has ready choices. Raises `ConfigError` where its options do not
        fit the problems: a run asks once before anything is sampled.
        """


Curriculum = Chooser
"""The part behind `--curriculum NAME`."""


@runtime_checkable
class Tokenizer(Protocol):
    """Text to token ids and back."""

    eos_id: int
    vocab_size: int

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...

    def render(self, messages: Sequence[Message], *, first: bool = True) -> list[int]:
        """Token ids of a prompt ready for the policy's turn; `first` is False for later turns."""


@runtime_checkable
class Policy(Protocol):
    """A sampling handle of the weights as they were when `Backend.policy()` was called."""

    version: int
    digest: str
    tokenizer: Tokenizer
    context_length: int

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion a request, in order. Equal prompts share their prefill."""


@runtime_checkable
class Sampler(Protocol):
    """
    Turns problems into groups of trajectories.

    `draws_from_policy` is False where trajectories come from elsewhere (references): their
    logprobs are then zeros, and importance-weighted losses refuse them.
    """

    draws_from_policy: bool

    async def sample(
        self, policy: Policy, task: Task, problems: Sequence[Problem], params: SamplingParams
    ) -> list[Group]:
        """G trajectories a problem, order kept; one failing rollout does not sink its group."""


@runtime_checkable
class RewardFn(Protocol):
    """
    Judges one trajectory.

    Returns a `Reward`, or `Unscorable(reason)` where no verdict exists, or raises `VerifierError`
    when it could not run. Neither of the latter is ever reward 0.

    A plain `def __call__` is a reward too: it runs in a thread, several at a time. A coroutine
    that holds the event loop is named. What is raised besides, and what is no outcome or lies
    outside of the spec's bounds, is a failure to run that names the plugin.
    """

    async def __call__(self, problem: Problem, trajectory: Trajectory) -> Outcome: ...


@runtime_checkable
class Cacheable(Protocol):
    """A reward whose verdicts may be kept: equal keys must mean equal verdicts."""

    def verdict_key(self, problem: Problem, trajectory: Trajectory) -> str | None:
        """
        sha256 over tool versions, problem, normalised answer, limits; None: never kept.

        The core adds the reward's source, its distribution's version and its resolved options.
        """


@runtime_checkable
class Reseedable(Protocol):
    """A reward whose tests draw at random from a seed (optional)."""

    def reseeded(self, seed: int) -> RewardFn:
        """The same judge with another seed; shares what this one has opened."""


@runtime_checkable
class Scheduled(Protocol):
    """A reward that trains with another one at some steps: a cheap proxy first, for instance."""

    def scheduled(self, step: int, history: Mapping[str, PassRate]) -> RewardFn:
        """
        The reward of a step (0-based): a pure function of the arguments; may be `self`.

        A proxy's verdicts say `is_proxy`, its keys differ. Evaluations use the full reward.
        """


class Advantage(Protocol):
    """Credit of each trajectory."""

    def __call__(self, groups: Sequence[ScoredGroup]) -> Sequence[Sequence[float | None]]:
        """
        Shape (P, G), ragged, aligned with the groups' trajectories (all of them scored).

        None leaves a trajectory out of the training data; 0 trains on it without a direction.
        `rlvr.abilities` names what an advantage may be able to do besides.
        """


class Loss(Protocol):
    """
    `(data, logprobs) -> (loss, metrics)`: the shape of the Tinker SDK's custom loss.

    `logprobs` is a list of tensors, one a datum, shape (T,), aligned with `datum.tokens`
    (entries outside `datum.mask` are to be ignored). The loss must be *additive*: a sum over
    tokens weighted by `datum.weights`, so that micro-batches add up exactly. Metrics are sums
    weighted the same way, logged as means; a key ending in `/max` is combined by maximum.
    """

    needs: frozenset[str]
    importance_weighted: bool

    def __call__(
        self, data: Sequence[Datum], logprobs: Sequence[Any]
    ) -> tuple[Any, dict[str, float]]: ...


@runtime_checkable
class Backend(Protocol):
    """Trains one policy. The four primitives of a remote trainer."""

    async def policy(self) -> Policy:
        """A sampling handle of the current weights (a weight sync where they live elsewhere)."""

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """Numbers (T,) of each datum's tokens by `which`: "policy", "reference", "value", ..."""

    async def step(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """One optimiser update on the data; returns metrics (`loss`, `grad/norm`, `lr`, ...)."""

    async def save(self, directory: Path) -> None:
        """Write weights, optimiser and schedule into an existing empty directory."""

    async def load(self, directory: Path) -> None:
        """Restore exactly what `save` wrote."""


@runtime_checkable
class Teacher(Protocol):
    """
    A frozen model that says how likely it finds what the policy wrote.

    Built with `context.model` = its own model spec. Data come in the ids of its own tokenizer: a
    run compares that with the policy's by content, and aligns the two by bytes where they differ.
    """

    name: str
    tokenizer: Tokenizer
    context_length: int

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Natural logs (T,) of the policy's tokens (`mask`) at the datum's temperature; 0 elsewhere.

        Order kept; all of a datum's tokens, the prompt's too, are what a token is conditioned on.
        Raises `BackendError` for data that it cannot score.
        """


@runtime_checkable
class Checkpointer(Protocol):
    """Keeps states of a run."""

    async def save(self, step: int, state: Mapping[str, Any], backend: Backend) -> Checkpoint:
        """Write atomically; the previous checkpoint survives any failure."""

    async def load(self, which: Checkpoint, backend: Backend) -> dict[str, Any]:
        """Restore the backend and give back the state that was saved with it."""

    def list(self) -> Sequence[Checkpoint]:
        """Complete checkpoints, oldest first."""

    def verify(self, checkpoint: Checkpoint) -> None:
        """Raise `CheckpointError` when a file is missing or differs from the manifest."""
