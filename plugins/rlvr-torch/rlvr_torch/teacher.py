"""The teacher of this machine: a frozen model that scores what the policy wrote."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeVar

import attrs
import numpy as np
import torch
from torch import Tensor

from rlvr import (
    BackendError,
    BuildContext,
    Datum,
    FloatArray,
    HiddenStates,
    Teacher,
    TeacherCapabilities,
    TeacherRequest,
    TopK,
    fingerprint,
)
from rlvr_torch.config import TorchConfig
from rlvr_torch.hardware.primitives import hardware_of
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.batch_threads import BatchThreads, suited_budget
from rlvr_torch.runtime.device import allow_tf32, choose_device, own_modes, settled
from rlvr_torch.runtime.executor import Executor
from rlvr_torch.training.logprobs import sequence_logprobs, trunk
from rlvr_torch.training.microbatches import MicroBatchBudget, MicroBatches, check_data
from rlvr_torch.training.output_head import Head
from rlvr_torch.training.reference import on_device
from rlvr_torch.training.top_k import as_datum, top_k

Found = TypeVar("Found")
_USED = ("device", "dtype", "tf32", "attention", "threads", "microbatch_tokens", "logprob_chunk")
"""Options that mean a teacher too; the others are the student's alone."""


class TorchTeacher(Teacher):
    """
    The teacher of `gpt2:` and `hf:` models: one copy of the weights, no optimiser.

    Computes in a thread of its own, so the event loop is free meanwhile. Device, precision and
    micro-batches are those of the `torch.*` options, and weights of `hf:` models are stored in
    `torch.dtype`; what the options say about training (adapters, 4 bits) is the student's alone.

    Attributes:
        name: The model spec.
        capabilities: Any k, any temperature, and states.
        context_length: Positions of the model: prompt and answer together.
        image_processor: How the model takes pictures; None: it reads text alone.
    """

    @own_modes()
    def __init__(self, config: TorchConfig | None, context: BuildContext) -> None:
        config = config or TorchConfig()
        config = TorchConfig(**{name: getattr(config, name) for name in _USED})
        self.name = context.model
        device = choose_device(config.device)
        config = settled(config, device)
        allow_tf32(device, config.tf32)
        self._dtype: torch.dtype = getattr(torch, config.dtype)
        self._chunk = config.logprob_chunk
        source = ModelSource.parse(context.model, context.seed, config)
        self.tokenizer = source.tokenizer()
        self.capabilities = TeacherCapabilities(
            has_scores=True, has_states=True, tokenizer=fingerprint(self.tokenizer)
        )
        net = source.net(self.tokenizer.vocab_size)
        net.module.requires_grad_(False)
        if source.hf is not None:  # nothing is ever added to them, so half the bytes are enough
            net.module.to(self._dtype)
        self._net = on_device(net, device)
        hardware = hardware_of(device).chosen_by(config)
        self._attention = hardware.packed_attention(self._dtype)
        self._product = hardware.head_product(self._dtype)
        self.context_length: int = self._net.positions
        self.image_processor = getattr(self._net, "image_processor", None)
        count = sum(value.numel() for value in self._net.module.parameters())
        self._threads = BatchThreads.suited(device, count, config.threads)
        tokens = suited_budget(device, count, config.microbatch_tokens)
        self._budget = MicroBatchBudget(tokens, self._threads, self.name)
        self._worker = Executor()

    async def __aenter__(self) -> TorchTeacher:
        return self

    async def __aexit__(self, *_: object) -> None:
        self._worker.close()
        self._threads.close()

    @cached_property
    def head(self) -> Head:
        """The output head, which makes logits of `states`; on the model's device, in its type."""
        return Head.leaf(self._net, with_grad=False)

    async def logprobs(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Logprobs (T,) of the policy's tokens at the datum's temperature, 0 elsewhere.

        Raises:
            BackendError: The data cannot be used: a datum is longer than the model reads, say.
        """

        def score(part: Sequence[Datum]) -> list[Tensor]:
            how = self._chunk, self._dtype, self._attention, self._product
            return sequence_logprobs(self._net, part, *how)

        return await self._run(data, lambda pieces: pieces.numbers(data, score))

    async def states(self, data: Sequence[Datum]) -> list[HiddenStates]:
        """
        The states (n, C) before the output head, float32, at the n supervised tokens.

        As `logprobs`.
        """

        def work(batch: list[int]) -> list[HiddenStates]:
            part = [data[i] for i in batch]
            hidden = trunk(self._net, part, self._dtype, self._attention).float().cpu()
            counts = [int(datum.mask.sum()) for datum in part]
            return [HiddenStates(states=rows.numpy()) for rows in hidden.split(counts)]  # (n, C)

        found = await self._run(data, lambda pieces: pieces.map(data, work))
        nothing = HiddenStates(states=np.zeros((0, self._net.head.shape[1]), np.float32))
        return [found.get(i, nothing) for i in range(len(data))]

    async def score(self, questions: Sequence[TeacherRequest]) -> list[TopK]:
        """
        The likeliest tokens, in descending order; k beyond the vocabulary is the vocabulary.

        Raises:
            BackendError: A question cannot be answered: it is longer than the model reads, say.
        """
        size = min(self.tokenizer.vocab_size, self._net.vocab_size)
        for question in questions:
            if not (0 < question.start < len(question.ids) and question.k > 0):
                raise BackendError(
                    f"teacher {self.name}: a question of {len(question.ids)} tokens from position "
                    f"{question.start} on with k={question.k}: nothing is asked for"
                )
        asked = [attrs.evolve(q, k=min(q.k, size)) for q in questions]
        data = [as_datum(question) for question in asked]
        head = Head.of(self._net, self._product)

        def work(batch: list[int]) -> list[TopK]:
            hidden = trunk(self._net, [data[i] for i in batch], self._dtype, self._attention)
            own = [asked[i] for i in batch]
            return top_k(head, hidden, own, vocab_size=size, chunk=self._chunk)

        found = await self._run(data, lambda pieces: pieces.map(data, work))
        return [found[i] for i in range(len(data))]

    async def _run(self, data: Sequence[Datum], work: Callable[[MicroBatches], Found]) -> Found:
        try:
            check_data(data, self._net.vocab_size, self.context_length)
        except BackendError as error:
            raise BackendError(f"teacher {self.name}: {error}") from error
        return await self._worker.run(lambda is_cancelled: work(self._budget.pieces(is_cancelled)))
