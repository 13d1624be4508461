"""The teacher of this machine: a frozen model that scores what the policy wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs
import numpy as np
import torch

from rlvr.errors import BackendError
from rlvr.parts import BuildContext
from rlvr.types import Datum, FloatArray
from rlvr_torch.config import TorchConfig
from rlvr_torch.crew import LARGE, Crew
from rlvr_torch.data import check_data, microbatches
from rlvr_torch.device import choose_device
from rlvr_torch.logprobs import sequence_logprobs
from rlvr_torch.model_source import ModelSource
from rlvr_torch.reference import on_device
from rlvr_torch.worker import Worker

_PIECE_TOKENS = 1024
"""Most tokens of a micro-batch of a small model on a CPU: pieces for a crew to share."""


class TorchTeacher:
    """
    The `rlvr.parts.Teacher` of `gpt2:` and `hf:` models: one copy of the weights, no optimiser.

    Computes in a thread of its own, so the event loop is free meanwhile. Device, precision and
    micro-batches are those of the `torch.*` options, and weights of `hf:` models are stored in
    `torch.dtype`; what the options say about training (adapters, 4 bits) is the student's alone.

    Attributes:
        name: The model spec.
        tokenizer: The model's.
        context_length: Positions of the model: prompt and answer together.
    """

    def __init__(self, config: TorchConfig | None, context: BuildContext) -> None:
        config = attrs.evolve(
            config or TorchConfig(),
            lora_rank=0,
            lora_alpha=0.0,
            dora=False,
            adapter="",
            quantize="none",
            reference="auto",
        )
        self.name = context.model
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self._chunk = config.logprob_chunk
        device = choose_device(config.device)
        source = ModelSource.parse(context.model, context.seed, config)
        self.tokenizer = source.tokenizer()
        net = source.net(self.tokenizer.vocab_size)
        net.module.requires_grad_(False)
        if source.hf is not None:  # nothing is ever added to them, so half the bytes are enough
            net.module.to(self._dtype)
        self._net = on_device(net, device)
        self.context_length: int = self._net.positions
        count = sum(value.numel() for value in self._net.module.parameters())
        self._crew = Crew.suited(device, count, config.threads)
        is_small = device.type == "cpu" and count < LARGE
        self._budget = min(config.microbatch_tokens, _PIECE_TOKENS if is_small else 1 << 62)
        self._worker = Worker()

    async def __aenter__(self) -> TorchTeacher:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.close()
        self._crew.close()

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Logprobs (T,) of the policy's tokens at the datum's temperature, 0 elsewhere.

        Raises:
            BackendError: The data cannot be used: a datum is longer than the model reads, say.
        """
        return await self._worker.run(lambda is_cancelled: self._score(data, is_cancelled))

    def _score(self, data: Sequence[Datum], is_cancelled: Callable[[], bool]) -> list[FloatArray]:
        try:
            check_data(data, self._net.vocab_size, self.context_length)
        except BackendError as error:
            raise BackendError(f"teacher {self.name}: {error}") from error
        scores: list[FloatArray] = [np.zeros(len(datum.tokens), np.float32) for datum in data]

        def work(batch: list[int]) -> None:
            if is_cancelled():
                raise BackendError("scoring by the teacher was cancelled")
            with torch.no_grad():
                found = sequence_logprobs(
                    self._net, [data[i] for i in batch], self._chunk, self._dtype
                )
            for i, values in zip(batch, found, strict=True):
                scores[i] = values.cpu().numpy()

        self._crew.map(work, microbatches(data, self._budget))
        return scores
