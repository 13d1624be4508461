"""The generation engine: many completions at once, each prompt read once.

Requests with equal prompts share one prefill and its keys, and a row whose completion has ended is
taken by the next request. All settings are a request's own, and neither its batch nor padding
changes what it draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from rlvr.errors import BackendError
from rlvr.parts import Tokenizer
from rlvr.types import Completion, GenerateRequest
from rlvr_torch.crew import Crew
from rlvr_torch.draft import Draft
from rlvr_torch.generation import Generation
from rlvr_torch.lane import Lane
from rlvr_torch.net import Net
from rlvr_torch.packed_weights import PackedWeights

_FEWEST_ROWS = 8  # a batch is not split over cores into smaller ones


class Engine:
    """
    Samples from any `Net`.

    Args:
        net: The weights; read at each call, never changed.
        tokenizer: Turns tokens to text and knows where a text ends (its `stop_ids`, if it has
            any, else `eos_id`).
        rows: Most completions decoded at the same time.
        prefill_tokens: Most padded prompt tokens read at the same time.
        dtype: What matrix products are computed in; logprobs are float32 always.
        crew: Threads that decode batches at the same time; by default the caller's own.
    """

    def __init__(
        self,
        net: Net,
        tokenizer: Tokenizer,
        *,
        rows: int = 256,
        prefill_tokens: int = 8192,
        dtype: torch.dtype = torch.float32,
        crew: Crew | None = None,
    ) -> None:
        self.net = net
        self.tokenizer = tokenizer
        self._rows = rows
        self._prefill_tokens = prefill_tokens
        self._dtype = dtype
        self._crew = crew or Crew()

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
        drafts = [Draft(request, self._room(request), self.tokenizer) for request in requests]
        shares = self._shares([draft for draft in drafts if draft.room > 0])
        rows = max(1, self._rows // max(1, len(shares)))
        passes = max((draft.room for draft in drafts), default=0)
        weights = PackedWeights(self.net, self._dtype, passes)
        lanes = [
            Lane(
                self.net,
                share,
                rows=rows,
                prefill_tokens=self._prefill_tokens,
                dtype=self._dtype,
                weights=weights,
            )
            for share in shares
        ]
        return Generation(drafts, lanes, self._crew, weights)

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

    def _shares(self, drafts: Sequence[Draft]) -> list[list[Draft]]:
        """
        What each thread of the crew decodes: equal prompts beside each other, long ones first.

        Only a group larger than a share is divided (and its prompt read once a share).
        """
        count = min(self._crew.size, -(-len(drafts) // _FEWEST_ROWS))
        if not count:
            return []
        most = -(-len(drafts) // count)
        by_prompt: dict[bytes, list[Draft]] = {}
        for draft in drafts:
            by_prompt.setdefault(draft.request.prompt.tobytes(), []).append(draft)
        shares: list[list[Draft]] = [[] for _ in range(count)]
        for prompt in sorted(by_prompt, key=lambda prompt: (-len(prompt), prompt)):
            group = by_prompt[prompt]
            for part in [group[i : i + most] for i in range(0, len(group), most)]:
                min(shares, key=len).extend(part)
        return [share for share in shares if share]
