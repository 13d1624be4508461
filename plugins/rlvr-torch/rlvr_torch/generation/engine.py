"""The generation engine: many completions at once, each prompt read once.

Requests with equal prompts share one prefill and its keys, and a row whose completion has ended is
taken by the next request. All settings are a request's own, and neither its batch nor padding
changes what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rlvr import BackendError, Completion, GenerateRequest, Tokenizer
from rlvr_torch.generation.cpu.weights import DecodeWeights
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.resumable import Generation
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.batch_threads import BatchThreads

_FEWEST_ROWS = 8  # a batch is not split over cores into smaller ones


class Engine:
    """
    Samples from any `Net`.

    Args:
        net: The weights; read at each call, never changed.
        tokenizer: Turns tokens to text.
        rows: Most completions decoded at the same time.
        prefill_tokens: Most padded prompt tokens read at the same time.
        dtype: What matrix products are computed in; logprobs are float32 always.
        threads: Threads that decode batches at the same time; by default the caller's own.
        ends: Tokens that end a completion; None: those that end the policy's turn.
    """

    def __init__(
        self,
        net: Net,
        tokenizer: Tokenizer,
        *,
        rows: int = 256,
        prefill_tokens: int = 8192,
        dtype: torch.dtype = torch.float32,
        threads: BatchThreads | None = None,
        ends: frozenset[int] | None = None,
    ) -> None:
        self.net = net
        self.tokenizer = tokenizer
        self._ends = ends
        self._rows = rows
        self._prefill_tokens = prefill_tokens
        self._dtype = dtype
        self._threads = threads or BatchThreads()

    @property
    def context_length(self) -> int:
        """Positions of the model: prompt and completion together."""
        return self.net.positions

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Completion]:
        """
        One completion a request, in order.

        A completion ends with a stop token or a stop text ("stop"), or after `max_tokens`, or
        where the model has no more positions ("length"; a prompt that fills all positions gets an
        empty completion).

        Raises:
            BackendError: A prompt is empty or has ids outside the vocabulary; logits are not
                finite; or `is_cancelled` said so.
        """
        generation = self.begin(requests)
        generation.advance(None, is_cancelled)
        return generation.completions()

    def begin(self, requests: Sequence[GenerateRequest]) -> Generation:
        """
        The same in parts: a generation that has drawn nothing yet.

        Raises:
            BackendError: A prompt is empty or has ids outside the vocabulary.
        """
        for request in requests:
            self._check(request)
        sequences = [
            RunningSequence(request, self._room(request), self.tokenizer, self._ends)
            for request in requests
        ]
        shares = self._shares([sequence for sequence in sequences if sequence.room > 0])
        rows = max(1, self._rows // max(1, len(shares)))
        passes = max((sequence.room for sequence in sequences), default=0)
        weights = DecodeWeights(self.net, self._dtype, passes)
        batches = [
            DecodeBatch(
                self.net,
                share,
                rows=rows,
                prefill_tokens=self._prefill_tokens,
                dtype=self._dtype,
                weights=weights,
            )
            for share in shares
        ]
        return Generation(sequences, batches, self._threads, weights)

    def _check(self, request: GenerateRequest) -> None:
        prompt, vocab = request.prompt, self.net.vocab_size
        if not len(prompt):
            raise BackendError("cannot generate from an empty prompt: it needs at least one token")
        if prompt.min() < 0 or prompt.max() >= vocab:
            raise BackendError(
                f"a prompt holds token ids {prompt.min()}..{prompt.max()}, "
                f"the model knows 0..{vocab - 1}: was it made by another tokenizer?"
            )

    def _room(self, request: GenerateRequest) -> int:
        """Tokens the request may draw."""
        return min(request.params.max_tokens, self.net.positions - len(request.prompt))

    def _shares(self, sequences: Sequence[RunningSequence]) -> list[list[RunningSequence]]:
        """
        What each thread decodes: equal prompts beside each other, long ones first.

        Only a group larger than a share is divided (and its prompt read once a share).
        """
        count = min(self._threads.size, -(-len(sequences) // _FEWEST_ROWS))
        if not count:
            return []
        most = -(-len(sequences) // count)
        by_prompt: dict[bytes, list[RunningSequence]] = {}
        for sequence in sequences:
            by_prompt.setdefault(sequence.request.prompt.tobytes(), []).append(sequence)
        shares: list[list[RunningSequence]] = [[] for _ in range(count)]
        for prompt in sorted(by_prompt, key=lambda prompt: (-len(prompt), prompt)):
            group = by_prompt[prompt]
            for part in [group[i : i + most] for i in range(0, len(group), most)]:
                min(shares, key=len).extend(part)
        return [share for share in shares if share]
