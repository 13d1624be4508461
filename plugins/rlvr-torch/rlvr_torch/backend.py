"""The backend `torch`: trains and samples one GPT-2 on this machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch

from rlvr.errors import BackendError
from rlvr.parts import BuildContext, Loss
from rlvr.types import Datum, FloatArray
from rlvr_torch.config import TorchConfig
from rlvr_torch.crew import LARGE, Crew
from rlvr_torch.data import check_data, microbatches
from rlvr_torch.device import choose_device
from rlvr_torch.engine import Engine
from rlvr_torch.gpt2 import GPT2
from rlvr_torch.logprobs import sequence_logprobs
from rlvr_torch.model_source import ModelSource
from rlvr_torch.optim import OptimSettings, build_adamw, clip_gradients, learning_rate
from rlvr_torch.policy import TorchPolicy
from rlvr_torch.state import TrainingState, read_state, write_state
from rlvr_torch.update import accumulate, explain_gradient
from rlvr_torch.worker import Worker

_PIECE_TOKENS = 2048
"""Most padded tokens of a micro-batch of a small model on a CPU: pieces for a crew to share."""


class TorchBackend:
    """
    The `rlvr.parts.Backend` of this machine.

    All work runs in one thread, in the order it was asked for. A step either happens whole or
    leaves weights, optimiser and version as they were.

    Args:
        config: The `torch.*` options; None for the defaults.
        context: `model` is a spec of `ModelSource`; `train` and `steps` set the optimiser.
    """

    def __init__(self, config: TorchConfig | None, context: BuildContext) -> None:
        config = config or TorchConfig()
        self.device = choose_device(config.device)
        self.dtype: torch.dtype = getattr(torch, config.dtype)
        self._chunk = config.logprob_chunk
        self._settings = OptimSettings.of(context.train)
        self._updates_in_run = context.steps * self._settings.passes * self._settings.minibatches
        self._source = ModelSource.parse(context.model, context.seed)
        self.tokenizer = self._source.tokenizer()
        self.model = self._source.model(self.tokenizer.vocab_size).to(self.device)
        self._optimizer = build_adamw(self.model, self._settings, (config.beta1, config.beta2))
        count = sum(value.numel() for value in self.model.parameters())
        self._crew = Crew.suited(self.device, count, config.threads)
        self._budget = self._settings.microbatch_tokens
        if self.device.type == "cpu" and count < LARGE:  # whatever the number of cores
            self._budget = min(self._budget, _PIECE_TOKENS)
        self._engine = Engine(
            self.model,
            self.tokenizer,
            rows=config.decode_rows,
            prefill_tokens=self._settings.microbatch_tokens,
            dtype=self.dtype,
            crew=self._crew,
        )
        self._worker = Worker()
        self.version = 0
        self._digests = {0: weights_digest(self.model)}
        self._start_digest = self._digests[0]
        self._reference: GPT2 | None = None

    async def __aenter__(self) -> TorchBackend:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.close()
        self._crew.close()

    async def policy(self) -> TorchPolicy:
        """A handle of the current weights; it refuses to sample once they have changed."""

        def work(_: Callable[[], bool]) -> TorchPolicy:
            if self.version not in self._digests:
                self._digests = {self.version: weights_digest(self.model)}
            digest = self._digests[self.version]
            return TorchPolicy(
                self.version, digest, self._engine, self._worker, lambda: self.version
            )

        return await self._worker.run(work)

    async def logprobs(self, data: Sequence[Datum], which: str) -> list[FloatArray]:
        """
        Logprobs (T,) of each datum's supervised tokens at its temperature; 0 elsewhere.

        Args:
            data: Any mixture of lengths.
            which: "policy", or "reference": the weights the run started from, read again from
                where they came when first asked for.

        Raises:
            BackendError: The data cannot be used, or the start weights are not what they were.
        """
        if which not in ("policy", "reference"):
            raise BackendError(f"backend 'torch' has no {which!r} logprobs: policy or reference")
        return await self._worker.run(lambda is_cancelled: self._score(data, which, is_cancelled))

    def _score(
        self, data: Sequence[Datum], which: str, is_cancelled: Callable[[], bool]
    ) -> list[FloatArray]:
        model = self.model if which == "policy" else self._reference_model()
        check_data(data, model.config.vocab_size, model.config.n_positions)
        scores: list[FloatArray] = [np.zeros(len(datum.tokens), np.float32) for datum in data]

        def work(batch: list[int]) -> None:
            if is_cancelled():
                raise BackendError("computing logprobs was cancelled")
            with torch.no_grad():
                found = self._logprobs(model, [data[i] for i in batch])
            for i, values in zip(batch, found, strict=True):
                scores[i] = values.cpu().numpy()

        self._crew.map(work, microbatches(data, self._budget))
        return scores

    def _logprobs(self, model: GPT2, data: Sequence[Datum]) -> list[torch.Tensor]:
        return sequence_logprobs(model, data, chunk=self._chunk, dtype=self.dtype)

    def _reference_model(self) -> GPT2:
        if self._reference is None:
            model = self._source.model(self.tokenizer.vocab_size)
            if weights_digest(model) != self._start_digest:
                raise BackendError(
                    "the reference cannot be had: the model's files changed since the run started"
                    f"\n  {self._source.directory} must hold the weights of the start"
                )
            self._reference = model.to(self.device).requires_grad_(False)
        return self._reference

    async def step(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """
        One optimiser update.

        Returns:
            `loss`, `grad/norm` (before clipping), `lr`, and the loss's own metrics.

        Raises:
            BackendError: The data cannot be used, or the loss or its gradient is not finite (the
                problems are named). Nothing has changed then.
        """
        return await self._worker.run(lambda is_cancelled: self._step(data, loss, is_cancelled))

    def _step(
        self, data: Sequence[Datum], loss: Loss, is_cancelled: Callable[[], bool]
    ) -> dict[str, float]:
        config = self.model.config
        check_data(data, config.vocab_size, config.n_positions, loss.needs)

        def score(part: Sequence[Datum]) -> list[torch.Tensor]:
            return self._logprobs(self.model, part)

        self.model.zero_grad(set_to_none=True)
        try:
            metrics = accumulate(
                data,
                loss,
                score,
                list(self.model.parameters()),
                budget=self._budget,
                crew=self._crew,
                is_cancelled=is_cancelled,
            )
            norm = clip_gradients(self.model, self._settings.grad_clip)
            if not np.isfinite(norm):
                culprits = explain_gradient(self.model, data, loss, score)
                raise BackendError(
                    f"the gradient is not finite (norm {norm}): {culprits}; "
                    "the weights are as before"
                )
            rate = learning_rate(self.version, self._updates_in_run, self._settings)
            for group in self._optimizer.param_groups:
                group["lr"] = rate
            if is_cancelled():
                raise BackendError("the step was cancelled; the weights are as before")
            self._optimizer.step()
            self.version += 1
        finally:
            self.model.zero_grad(set_to_none=True)
        return {**metrics, "grad/norm": norm, "lr": rate}

    async def save(self, directory: Path) -> None:
        """
        Write weights, tokenizer, optimiser and schedule; the directory is also a model `gpt2:DIR`.

        Raises:
            CheckpointError: A file cannot be written.
        """
        state = TrainingState(
            version=self.version,
            start_digest=self._start_digest,
            optimizer=self._optimizer.state_dict(),
        )
        await self._worker.run(lambda _: write_state(directory, self.model, self.tokenizer, state))

    async def load(self, directory: Path) -> None:
        """
        Restore exactly what `save` wrote.

        Raises:
            CheckpointError: A file cannot be read, or belongs to another model.
            BackendError: The run started from other weights than this backend did.
        """
        await self._worker.run(lambda _: self._load(directory))

    def _load(self, directory: Path) -> None:
        weights, state = read_state(directory, self.model.config)
        if state.start_digest != self._start_digest:
            raise BackendError(
                f"{directory} was trained from other start weights than this run's model\n"
                f"  give the model the run started with (found now: {self._source})"
            )
        with torch.no_grad():
            for mine, saved in zip(self.model.parameters(), weights.parameters(), strict=True):
                mine.copy_(saved)
        self._optimizer.load_state_dict(state.optimizer)
        self.version = state.version
        self._digests = {}


def weights_digest(model: torch.nn.Module) -> str:
    """sha256 over names, shapes and bytes of all weights, in order."""
    digest = hashlib.sha256()
    for name, value in model.named_parameters():
        digest.update(f"{name}{tuple(value.shape)}".encode())
        digest.update(value.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()
