"""The sampling handle of the weights as they were when it was given out."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rlvr.errors import BackendError
from rlvr.types import Completion, GenerateRequest
from rlvr_torch.engine import Engine
from rlvr_torch.tokenizer import BytePairTokenizer
from rlvr_torch.worker import Worker


class TorchPolicy:
    """
    Samples from the live weights, for as long as they are the ones it stands for.

    It holds no copy: after the next step it refuses (`BackendError`), so that tokens are never
    attributed to weights that did not draw them. Ask the backend for a new one after each step.

    Attributes:
        version: Optimiser updates these weights have seen.
        digest: sha256 of the weights.
        tokenizer: The model's tokenizer.
        context_length: Positions of the model: prompt and completion together.
    """

    def __init__(
        self, version: int, digest: str, engine: Engine, worker: Worker, newest: Callable[[], int]
    ) -> None:
        """`newest` gives the version of the live weights."""
        self.version = version
        self.digest = digest
        self.tokenizer: BytePairTokenizer = engine.tokenizer
        self.context_length: int = engine.model.config.n_positions
        self._engine = engine
        self._worker = worker
        self._newest = newest

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[Completion]:
        """
        One completion a request, in order; the event loop is free meanwhile.

        Raises:
            BackendError: The weights have changed since; or see `Engine.generate`.
        """

        def work(is_cancelled: Callable[[], bool]) -> list[Completion]:
            if self._newest() != self.version:
                raise BackendError(
                    f"policy version {self.version} is stale: the weights are at version "
                    f"{self._newest()}\n  ask the backend for policy() after each step"
                )
            return self._engine.generate(requests, is_cancelled)

        return await self._worker.run(work)
