"""The generation engine: many completions at once, each prompt read once.

Requests with equal prompts share one prefill and its keys. Rows that finish leave the batch. All
settings are a request's own, and neither its batch nor padding changes what it draws.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from rlvr.errors import BackendError
from rlvr.types import Completion, Finish, GenerateRequest
from rlvr_torch.crew import Crew
from rlvr_torch.draws import Draws
from rlvr_torch.gpt2 import GPT2
from rlvr_torch.kv_cache import KVCache
from rlvr_torch.stop_watch import StopWatch
from rlvr_torch.tokenizer import BytePairTokenizer

_FEWEST_ROWS = 8  # a batch is not split over cores into smaller ones
_DROP_SHARE = 0.125  # finished rows leave when they are this share of the batch


class Engine:
    """
    Samples from a GPT-2.

    Args:
        model: The weights; read at each call, never changed.
        tokenizer: Turns tokens to text and knows where a text ends.
        rows: Most completions decoded at the same time.
        prefill_tokens: Most padded prompt tokens read at the same time.
        dtype: What matrix products are computed in; logprobs are float32 always.
        crew: Threads that decode batches at the same time; by default the caller's own.
    """

    def __init__(
        self,
        model: GPT2,
        tokenizer: BytePairTokenizer,
        *,
        rows: int = 256,
        prefill_tokens: int = 8192,
        dtype: torch.dtype = torch.float32,
        crew: Crew | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self._rows = rows
        self._prefill_tokens = prefill_tokens
        self._dtype = dtype
        self._crew = crew or Crew()

    def generate(
        self,
        requests: Sequence[GenerateRequest],
        is_cancelled: Callable[[], bool] = lambda: False,
    ) -> list[Completion]:
        """
        One completion a request, in order.

        A completion ends with the end-of-text token or a stop text ("stop"), or after
        `max_tokens`, or where the model has no more positions ("length"; a prompt that fills all
        positions gets an empty completion).

        Raises:
            BackendError: A prompt is empty or has ids outside the vocabulary; logits are not
                finite; or `is_cancelled` said so.
        """
        for request in requests:
            self._check(request)
        batches = self._batches(requests)
        done = self._crew.map(
            lambda batch: self._decode([requests[i] for i in batch], is_cancelled), batches
        )
        placed = {
            i: completion
            for batch, completions in zip(batches, done, strict=True)
            for i, completion in zip(batch, completions, strict=True)
        }
        return [placed[i] for i in range(len(requests))]

    def _check(self, request: GenerateRequest) -> None:
        prompt, vocab = request.prompt, self.model.config.vocab_size
        if not len(prompt):
            raise BackendError("cannot generate from an empty prompt: it needs at least one token")
        if prompt.min() < 0 or prompt.max() >= vocab:
            raise BackendError(
                f"a prompt holds token ids {prompt.min()}..{prompt.max()}, "
                f"the model knows 0..{vocab - 1}: was it made by another tokenizer?"
            )

    def _room(self, request: GenerateRequest) -> int:
        """Tokens the request may draw."""
        return min(request.params.max_tokens, self.model.config.n_positions - len(request.prompt))

    def _batches(self, requests: Sequence[GenerateRequest]) -> list[list[int]]:
        """
        Indices of requests decoded together: equal prompts in one batch, like lengths near.

        Each thread of the crew gets its share. Only a group larger than a share is divided (and its
        prompt read once a share).
        """
        share = max(_FEWEST_ROWS, -(-len(requests) // self._crew.size))
        share = min(share, self._rows)
        by_prompt: dict[bytes, list[int]] = {}
        for i, request in enumerate(requests):
            by_prompt.setdefault(request.prompt.tobytes(), []).append(i)
        batches: list[list[int]] = []
        for prompt in sorted(by_prompt, key=lambda prompt: (len(prompt), prompt)):
            group = by_prompt[prompt]
            for part in [group[i : i + share] for i in range(0, len(group), share)]:
                if (
                    not batches
                    or len(batches[-1]) >= share
                    or len(batches[-1]) + len(part) > self._rows
                ):
                    batches.append([])
                batches[-1] += part
        return batches

    @torch.inference_mode()
    def _decode(
        self, requests: Sequence[GenerateRequest], is_cancelled: Callable[[], bool]
    ) -> list[Completion]:
        rows = [_Row(request, self._room(request)) for request in requests]
        alive = [row for row in rows if row.room > 0]
        if alive:
            device = self.model.head.device
            with torch.autocast(device.type, self._dtype, enabled=self._dtype != torch.float32):
                self._run(alive, device, is_cancelled)
        return [row.completion(self.tokenizer) for row in rows]

    def _run(
        self, alive: list[_Row], device: torch.device, is_cancelled: Callable[[], bool]
    ) -> None:
        """Draw tokens until every row has finished. `alive` must be sorted by prompt."""
        prompts, owner = _distinct([row.request.prompt for row in alive])
        owners = torch.tensor(owner, device=device)
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=device)
        cache = KVCache(self.model.config, lengths, owners, self._dtype)
        logits = self._prefill(prompts, cache, device)[owners]  # (R, V)
        positions = lengths[owners]  # (R,)
        draws = Draws([row.request for row in alive], [row.room for row in alive], device)
        current: list[_Row | None] = list(alive)  # rows of the batch; None: finished, not dropped
        table, eos = self.tokenizer.bytes_of, self.tokenizer.eos_id
        for step in range(max(row.room for row in alive)):
            if is_cancelled():
                raise BackendError("generation was cancelled")
            drawn, logprobs = draws.draw(logits, step)
            for i, (token, logprob) in enumerate(
                zip(drawn.tolist(), logprobs.tolist(), strict=True)
            ):
                row = current[i]
                if row is not None and row.take(token, logprob, eos, table):
                    current[i] = None
            left = [i for i, row in enumerate(current) if row is not None]
            if not left:
                return
            if len(left) <= len(current) * (1 - _DROP_SHARE):
                keep = torch.tensor(left, device=device)
                cache.keep(keep)
                draws.keep(keep)
                current = [current[i] for i in left]
                drawn, positions = drawn[keep], positions[keep]
            cache.advance()
            # Finished rows that were not dropped yet stay at a position the model has.
            at = (positions + step).clamp_(max=self.model.config.n_positions - 1)
            hidden = self.model.hidden(drawn[:, None], at[:, None], cache.attend)  # (R, 1, C)
            logits = self._logits(hidden[:, 0])

    def _prefill(
        self, prompts: Sequence[np.ndarray], cache: KVCache, device: torch.device
    ) -> Tensor:
        """Read all prompts; logits (P, V) of what comes after each."""
        parts: list[Tensor] = []
        first = 0
        while first < len(prompts):
            count = 1
            while first + count < len(prompts) and (
                (count + 1) * len(prompts[first + count]) <= self._prefill_tokens
            ):
                count += 1
            some = prompts[first : first + count]
            tokens = np.zeros((count, max(map(len, some))), dtype=np.int64)
            for row, prompt in zip(tokens, some, strict=True):
                row[: len(prompt)] = prompt
            cache.read_prompts(first)
            hidden = self.model.hidden(
                torch.from_numpy(tokens).to(device), attend=cache.attend_prompts
            )
            ends = torch.tensor([len(prompt) - 1 for prompt in some], device=device)
            parts.append(hidden[torch.arange(count, device=device), ends])
            first += count
        return self._logits(torch.cat(parts))

    def _logits(self, hidden: Tensor) -> Tensor:
        """(R, C) to float32 logits (R, V), whatever the rest is computed in."""
        with torch.autocast(hidden.device.type, enabled=False):
            return F.linear(hidden.float(), self.model.head.float())


class _Row:
    """One completion in the making."""

    def __init__(self, request: GenerateRequest, room: int) -> None:
        self.request = request
        self.room = room
        self._tokens: list[int] = []
        self._logprobs: list[float] = []
        self._finish: Finish = "length"
        self._watch = StopWatch(request.params.stop) if request.params.stop else None

    def take(self, token: int, logprob: float, eos: int, bytes_of: Callable[[int], bytes]) -> bool:
        """Add a drawn token; True when the completion has ended."""
        if not math.isfinite(logprob):
            raise BackendError(
                f"the model's logits are not finite (token {len(self._tokens)} of a completion): "
                "the weights are damaged or have diverged"
            )
        self._tokens.append(token)
        self._logprobs.append(logprob)
        if token == eos or (self._watch is not None and self._watch.add(bytes_of(token))):
            self._finish = "stop"
            return True
        return len(self._tokens) >= self.room

    def completion(self, tokenizer: BytePairTokenizer) -> Completion:
        if self._watch is not None:
            text = self._watch.text
        else:
            is_ended = bool(self._tokens) and self._tokens[-1] == tokenizer.eos_id
            text = tokenizer.decode(self._tokens[:-1] if is_ended else self._tokens)
        return Completion(
            tokens=self._tokens, logprobs=self._logprobs, text=text, finish=self._finish
        )


def _distinct(prompts: Sequence[np.ndarray]) -> tuple[list[np.ndarray], list[int]]:
    """Distinct prompts (P) and the index of each row's (R); equal ones must be adjacent."""
    distinct: list[np.ndarray] = []
    owner: list[int] = []
    for prompt in prompts:
        if not distinct or not np.array_equal(distinct[-1], prompt):
            distinct.append(prompt)
        owner.append(len(distinct) - 1)
    return distinct, owner
