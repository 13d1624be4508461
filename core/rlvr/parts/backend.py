"""A backend trains one policy; a policy draws completions from its weights."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from attrs import frozen

from rlvr.concurrency import all_of
from rlvr.errors import UnsupportedError
from rlvr.parts.base import Part
from rlvr.types import (
    Completion,
    Datum,
    FloatArray,
    GenerateRequest,
    Problem,
    SamplingParams,
    Trajectory,
)

if TYPE_CHECKING:
    from rlvr.parts.episode import Episode
    from rlvr.parts.loss import Loss
    from rlvr.parts.tokenizer import Tokenizer
    from rlvr.tokenization.image_processor import ImageProcessor


class Policy(Part):
    """
    A sampling handle of the weights as they were when `Backend.policy()` was called.

    Attributes:
        version: Grows with each weight sync.
        digest: Tells weights apart by content.
        tokenizer: Of its model; may be absent where `makes_rollouts`.
        context_length: Most tokens of prompt and completion together; 0 where it gives no tokens.
        can_export: Whether `export_weights` works.
        is_strict: Its requests and its export fail once the weights have changed. Where steps
            overlap (`run.max_staleness`) an update then waits for those under way; else it is a
            snapshot.
        draws_on_server: A server draws by weights that are there, so that no sampler has to hand
            it any.
        makes_rollouts: It gives no tokens: a sampler asks it for whole trajectories (`rollout`).
        image_processor: What makes pixels of pictures; None where the model reads text alone.
    """

    kind: ClassVar[str] = "policy"

    version: int
    digest: str
    tokenizer: Tokenizer
    context_length: int = 0
    can_export: bool = False
    is_strict: bool = False
    draws_on_server: bool = False
    makes_rollouts: bool = False
    image_processor: ImageProcessor | None = None

    @abc.abstractmethod
    async def generate(self, request: GenerateRequest) -> Completion:
        """
        One completion. Many coroutines call it at the same time; a policy batches their requests.

        Cancelling the call ends this request alone. An error that concerns this request alone is a
        completion with finish "error", or raised; one that concerns the weights is raised to all.
        """

    async def generate_many(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """One completion a request, in order; the first error ends the others, and is raised."""
        return await all_of(map(self.generate, requests))

    async def rollout(
        self, problem: Problem, episode: Callable[[], Episode], params: SamplingParams, index: int
    ) -> Trajectory:
        """
        A whole trajectory of texts or files, by a policy without tokens: a chat, an agent.

        `episode` makes a fresh one of the problem; `index` is the place in the problem's group. A
        rollout that fails is a trajectory with finish "error"; an error that concerns all of them
        is raised.
        """
        raise UnsupportedError(f"{type(self).__name__} gives tokens, and no whole rollouts")

    async def score(self, data: Sequence[Datum]) -> list[FloatArray] | None:
        """
        Logprobs (T,), nats, that the sampler itself gives to each datum's supervised tokens.

        At the datum's temperature, by the weights that it holds in truth: a run compares them with
        the trainer's after each weight sync. None: it can only score what it draws.
        """
        return None

    async def export_weights(self, directory: Path) -> None:
        """Write its weights, as a model or an adapter; `BackendError` where they changed since."""
        raise UnsupportedError(f"{type(self).__name__} cannot export weights")


@frozen(kw_only=True)
class Capabilities:
    """
    Abilities of a backend besides its essential methods.

    Attributes:
        eval_loss: It tells a loss and leaves its weights alone (`Backend.eval_loss`).
        partial_rollouts: Sampling goes on while its weights change (`Backend.live_policy`).
        logprob_tolerance: By how many nats its sampler and trainer may round differently; None:
            as a run's own bound says.
        batch_invariant: A completion's tokens and logprobs depend on its request and the weights
            alone, to the bit, whatever is sampled at the same time.
    """

    eval_loss: bool = False
    partial_rollouts: bool = False
    logprob_tolerance: float | None = None
    batch_invariant: bool = False


class Backend(Part):
    """
    Trains one policy. The four primitives of a remote trainer.

    Attributes:
        capabilities: What it can do besides.
    """

    kind: ClassVar[str] = "backend"

    capabilities: Capabilities = Capabilities()

    @abc.abstractmethod
    async def policy(self) -> Policy:
        """A sampling handle of the current weights (a weight sync where they live elsewhere)."""

    @abc.abstractmethod
    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """Numbers (T,) of each datum's tokens by `which`: "policy", "reference", "value", ..."""

    @abc.abstractmethod
    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """One optimiser update on the data; returns metrics (`loss`, `grad/norm`, `lr`, ...)."""

    @abc.abstractmethod
    async def save(self, directory: Path) -> None:
        """
        Write weights, optimiser and schedule into an existing empty directory.

        `SCHEME:DIRECTORY` is then a model spec of the weights, as `--model RUN` needs it.
        """

    @abc.abstractmethod
    async def load(self, directory: Path) -> None:
        """Restore exactly what `save` wrote."""

    async def eval_loss(self, data: Sequence[Datum], loss: Loss) -> Mapping[str, float]:
        """`loss` and the loss's metrics on the data, as `update` would give them."""
        raise UnsupportedError(f"{type(self).__name__} cannot tell a loss without training on it")

    async def live_policy(self) -> Policy:
        """Draws each token with the newest weights; `version` and `digest` are those of now."""
        raise UnsupportedError(f"{type(self).__name__} does not sample while its weights change")


class SampledBackend(Backend):
    """A backend whose model is only sampled, behind a server for instance: it trains nothing."""

    @abc.abstractmethod
    def untrainable(self) -> Exception:
        """The error of every attempt to train the model; it says what to do instead."""

    async def _refuse(self, *_data: Any, **_options: Any) -> Any:
        """Refused: the error is `untrainable`."""
        raise self.untrainable()

    logprobs = update = save = load = _refuse
