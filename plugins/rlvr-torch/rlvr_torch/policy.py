"""Sampling handles of weights in this process: of one version of them, or of the newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from rlvr import BackendError, Completion, GenerateRequest, ImageProcessor, Policy, Tokenizer
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.resumable import Generation
from rlvr_torch.runtime.executor import Executor


class Generates(Protocol):
    """What a strict handle asks of an engine: ours or vLLM's."""

    tokenizer: Tokenizer

    @property
    def context_length(self) -> int:
        """Positions of the model: prompt and completion together."""

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        is_cancelled: Callable[[], bool] = ...,
    ) -> list[Completion]:
        """One completion a request, in order."""


class TorchPolicy(Policy):
    """
    Samples from the live weights, for as long as they are the ones it stands for.

    It holds no copy: after the next step it refuses (`BackendError`), so that tokens are never
    attributed to weights that did not draw them. Ask the backend for a new one after each step.

    Attributes:
        version: Optimiser updates these weights have seen.
        digest: sha256 of the weights.
        tokenizer: The model's tokenizer.
        context_length: Positions of the model: prompt and completion together.
        image_processor: How the model takes pictures; None: it reads text alone.
    """

    can_export = True

    def __init__(
        self,
        version: int,
        digest: str,
        engine: Generates,
        worker: Executor,
        newest: Callable[[], int],
        save: Callable[[Path], None],
        image_processor: ImageProcessor | None = None,
    ) -> None:
        """`newest` gives the version of the live weights, `save` writes them into a folder."""
        self.image_processor = image_processor
        self.version = version
        self.digest = digest
        self.tokenizer = engine.tokenizer
        self.context_length = engine.context_length
        self._engine = engine
        self._worker = worker
        self._newest = newest
        self._save = save

    async def export_weights(self, directory: Path) -> None:
        """
        Write weights and tokenizer as a model's folder, or an adapter's.

        Raises:
            BackendError: The weights have changed since.
            OSError: A file cannot be written.
        """

        def work(_: Callable[[], bool]) -> None:
            self._refuse_stale()
            self._save(directory)

        await self._worker.run(work)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """
        One completion a request, in order; the event loop is free meanwhile.

        Raises:
            BackendError: The weights have changed since; or see `Engine.generate`.
        """

        def work(is_cancelled: Callable[[], bool]) -> list[Completion]:
            self._refuse_stale()
            return self._engine.generate(requests, is_cancelled)

        return await self._worker.run(work)

    def _refuse_stale(self) -> None:
        if self._newest() != self.version:
            raise BackendError(
                f"policy version {self.version} is stale: the weights are at version "
                f"{self._newest()}\n  ask the backend for policy() after each step"
            )


class LiveTorchPolicy(Policy):
    """
    Samples with whatever the weights are: completions go on while training changes them.

    The worker is asked for a slice of tokens at a time, so a training step that waits in the same
    worker runs between two slices, and the next slice draws with its result. Keys that older
    weights computed are kept. A token's logprob is that of the distribution it was drawn from, and
    `Completion.versions` names all versions that drew it.

    Attributes:
        tokenizer: The model's tokenizer.
        context_length: Positions of the model: prompt and completion together.
        image_processor: How the model takes pictures; None: it reads text alone.
    """

    def __init__(
        self,
        engine: Engine,
        worker: Executor,
        read_version: Callable[[], int],
        read_digest: Callable[[], str],
        slice_tokens: int,
        image_processor: ImageProcessor | None = None,
    ) -> None:
        """
        For `Backend.live_policy`.

        Args:
            engine: Samples from the live weights.
            worker: The one that trains too.
            read_version: Version of the live weights; called in the worker and outside of it.
            read_digest: sha256 of them, of the same version; called likewise.
            slice_tokens: Tokens each row draws before other work of the worker has its turn.
            image_processor: Of the model.
        """
        self.image_processor = image_processor
        self.tokenizer = engine.tokenizer
        self.context_length = engine.context_length
        self._engine = engine
        self._worker = worker
        self._read_version = read_version
        self._read_digest = read_digest
        self._slice_tokens = slice_tokens

    @property
    def version(self) -> int:  # type: ignore[override] # of now
        """Optimiser updates that the weights have seen by now."""
        return self._read_version()

    @property
    def digest(self) -> str:  # type: ignore[override] # of now
        """sha256 of the weights as they are now."""
        return self._read_digest()

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """
        One completion a request, in order; the event loop is free meanwhile.

        Raises:
            BackendError: See `Engine.generate`.
        """

        def begin(_: Callable[[], bool]) -> Generation:
            self._read_digest()  # here, where no update is under way
            return self._engine.begin(requests)

        generation = await self._worker.run(begin)

        def go_on(is_cancelled: Callable[[], bool]) -> bool:
            return generation.advance(self._slice_tokens, is_cancelled, self._read_version())

        while not await self._worker.run(go_on):
            pass
        return generation.completions()
