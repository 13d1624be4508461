"""Sampling handles of weights in this process: of one version of them, or of the newest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from rlvr import (
    BackendError,
    Completion,
    Datum,
    FloatArray,
    GenerateRequest,
    ImageProcessor,
    Policy,
)
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.runtime.executor import Executor


class TorchPolicy(Policy):
    """
    Samples from the weights of one version; refuses once training has changed them.

    It holds no copy: after the next step it refuses (`BackendError`), so that tokens are never
    attributed to weights that did not draw them. Ask the backend for a new one after each step.
    """

    can_export = is_strict = True

    def __init__(
        self,
        version: int,  # optimiser updates these weights have seen
        digest: str,  # digest of the weights
        inbox: Inbox,  # samples; has the tokenizer and the context length (tokens) of the model
        worker: Executor,  # the thread that writes weights
        newest: Callable[[], int],  # gives the version of the live weights
        save: Callable[[Path], None],  # writes the live weights into a folder
        # How the model takes pictures; None: it reads text alone.
        image_processor: ImageProcessor | None = None,
    ) -> None:
        self.version, self.digest, self.image_processor = version, digest, image_processor
        self.tokenizer, self.context_length = inbox.tokenizer, inbox.context_length
        self._inbox, self._worker, self._newest, self._save = inbox, worker, newest, save

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

    async def generate(self, request: GenerateRequest) -> Completion:
        """
        One completion; the event loop is free meanwhile.

        Raises:
            BackendError: The weights have changed before its end; or see `Inbox.generate`.
        """
        return await self._inbox.generate(request, self._refuse_stale)

    async def score(self, data: Sequence[Datum]) -> list[FloatArray]:
        """Logprobs (T,) by the weights that the engine holds, which should be those of now."""
        return await self._inbox.score(data)

    def _refuse_stale(self) -> None:
        if self._newest() != self.version:
            raise BackendError(
                f"policy version {self.version} is stale: the weights are at version "
                f"{self._newest()}\n  ask the backend for policy() after each step"
            )


class LiveTorchPolicy(Policy):
    """
    Samples with the newest weights: completions continue while training changes them.

    A training step runs between two slices of tokens (`Inbox`), and the next slice draws with its
    result. Keys that older weights computed are kept. A token's logprob is that of the
    distribution it was drawn from, and `Completion.versions` names all versions that drew it.
    """

    def __init__(
        self,
        inbox: Inbox,  # as of `TorchPolicy`
        read_version: Callable[[], int],  # version of the live weights; called in any thread
        read_digest: Callable[[], str],  # their digest, of the same version; called likewise
        image_processor: ImageProcessor | None = None,  # as of `TorchPolicy`
    ) -> None:
        self.image_processor = image_processor
        self.tokenizer, self.context_length = inbox.tokenizer, inbox.context_length
        self._inbox, self._read_version, self._read_digest = inbox, read_version, read_digest

    @property
    def version(self) -> int:  # type: ignore[override] # of now
        """Optimiser updates that the weights have seen by now."""
        return self._read_version()

    @property
    def digest(self) -> str:  # type: ignore[override] # of now
        """The digest of the weights as they are now."""
        return self._read_digest()

    async def generate(self, request: GenerateRequest) -> Completion:
        """One completion; the event loop is free meanwhile. Raises as `Inbox.generate`."""
        return await self._inbox.generate(request)
