"""The generation engine: many completions at once, each prompt read once.

Requests with equal prompts share one prefill and its keys, and a row whose completion has ended is
taken by the next request. All settings are a request's own. On a CPU, in float32, a completion
depends on its request and the weights alone, to the bit (docs/rollouts.md).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import structlog
import torch
from attrs import define, field

from rlvr import BackendError, Datum, FloatArray, GenerateRequest, Tokenizer
from rlvr_torch.generation.cpu.weights import PackedWeights
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.interface import InferenceEngine
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.batch_threads import BatchThreads

log = structlog.get_logger(__name__)

_PASS_TOKENS = 4096
"""Padded tokens that `Engine.score` reads at the same time."""


@define(eq=False, slots=False)
class Engine(InferenceEngine):
    """Samples from any `Net`; by default in the ways of a CPU (others: `hardware_of`)."""

    net: Net  # the weights; read at each call, never changed
    tokenizer: Tokenizer
    # Positions of the model: prompt and completion together.
    context_length: int = field(init=False)
    # Most completions decoded at the same time.
    _rows: int = field(default=256, kw_only=True)
    # Most padded prompt tokens read at the same time, unless each prompt is read alone.
    _prefill_tokens: int = field(default=8192, kw_only=True)
    # Beside others a prompt does not give the same bits.
    _reads_alone: bool = field(default=True, kw_only=True)
    # How decoding reads the weights.
    _weights_of: Callable[[Net, torch.dtype], DecodeWeights] = field(
        default=PackedWeights, kw_only=True
    )
    # Of matrix products; logprobs are float32 always.
    _dtype: torch.dtype = field(default=torch.float32, kw_only=True)
    # Cores of each operation; by default as torch is set.
    _threads: BatchThreads | None = field(default=None, kw_only=True)
    # End a completion; None: tokens that end the policy's turn.
    _ends: frozenset[int] | None = field(default=None, kw_only=True)
    _weights: DecodeWeights | None = field(default=None, init=False)  # for the next batch

    @context_length.default
    def _positions(self) -> int:
        return self.net.positions

    def sequence(self, request: GenerateRequest) -> RunningSequence:
        """
        A completion without tokens.

        `BackendError` where the prompt is empty or has unknown ids.
        """
        prompt, vocab = request.prompt, self.net.vocab_size
        if not len(prompt):
            raise BackendError("cannot generate from an empty prompt: it needs at least one token")
        if prompt.min() < 0 or prompt.max() >= vocab:
            raise BackendError(
                f"a prompt holds token ids {prompt.min()}..{prompt.max()}, "
                f"the model knows 0..{vocab - 1}: was it made by another tokenizer?"
            )
        room = min(request.params.max_tokens, self.net.positions - len(prompt))
        ends = self.tokenizer.ends if self._ends is None else self._ends
        return RunningSequence(request, room, self.tokenizer, ends)

    def score(self, data: Sequence[Datum], version: int) -> list[FloatArray]:
        """
        Logprobs (T,), nats, of the supervised tokens, by the weights that decoding uses.

        They say whether those are the weights that are trained (`rlvr.Policy.score`).
        """
        batch = self.start()
        longest = max(len(datum.tokens) for datum in data)
        count = max(1, _PASS_TOKENS // longest)
        with batch.at_work(version):
            parts = [batch.score(data[i : i + count]) for i in range(0, len(data), count)]
        return [numbers for part in parts for numbers in part]

    def sleep(self) -> None:
        """Does nothing: it decodes with the training weights and has no memory of its own."""

    def start(self) -> DecodeBatch:
        """An empty batch, to which sequences are added at any time."""
        weights = self._weights or self._weights_of(self.net, self._dtype)
        self._weights = weights if weights.is_small else None
        return DecodeBatch(self.net, weights, **self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        """The settings of its batches."""
        return {
            "rows": self._rows,
            "prefill_tokens": 1 if self._reads_alone else self._prefill_tokens,
            "dtype": self._dtype,
            "threads": self._threads,
            "shrink": self._shrink,
        }

    def _shrink(self, rows: int) -> None:
        self._rows = rows
        log.warning("out_of_memory", decode_rows=rows, found="completions did not fit; begun again")
