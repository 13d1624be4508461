"""One thread's share of a generation: rows that are decoded together, and requests that wait.

When a row's completion has ended the next waiting request takes the row at once. Its prompt is
read unless another row reads it already, and the first token comes from there. When nothing
waits, finished rows leave the batch. Who sits where
follows from the requests and their tokens only.

Shapes: R rows, P prompts, S prompt tokens, C width, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from rlvr_torch.generation.cache.per_row import RowCache
from rlvr_torch.generation.cache.shared_prompt import KVCache
from rlvr_torch.generation.cpu.weights import DecodeWeights
from rlvr_torch.generation.cuda_graph import StepGraphs
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.generation.token_sampling import TokenSampler
from rlvr_torch.models.interface import Net

_DROP_SHARE = 0.125  # finished rows leave when they are this share of the batch


class DecodeBatch:
    """
    Decodes sequences. `step` may be called again and again, from any thread, one at a time.

    Args:
        net: The model.
        sequences: What is to be completed, in this order; those of equal prompts beside each other.
        rows: Most of them decoded at the same time.
        prefill_tokens: Most padded prompt tokens read at the same time.
        dtype: What matrix products are computed in.
        is_static: Decode in shapes that seldom change (`KVCache`); by default on a GPU, where
            they are captured.
        weights: Makes the products with the head.
    """

    def __init__(
        self,
        net: Net,
        sequences: Sequence[RunningSequence],
        *,
        rows: int,
        prefill_tokens: int,
        dtype: torch.dtype,
        is_static: bool | None = None,
        weights: DecodeWeights | None = None,
    ) -> None:
        self._net = net
        self._weights = weights or DecodeWeights(net, dtype)
        self._dtype = dtype
        self._prefill_tokens = prefill_tokens
        self._waiting = deque(sequences)
        self._ended: list[RunningSequence] = []
        rows = min(rows, len(sequences))
        self._rows: list[RunningSequence | None] = [None] * rows
        self._device = net.head.device
        is_gpu = self._device.type == "cuda"
        self._is_static = is_gpu if is_static is None else is_static
        self._graphs = StepGraphs(is_gpu and self._is_static)
        self._cache = self._new_cache(
            sequences, dtype if dtype != torch.float32 else net.head.dtype
        )
        self._draws = TokenSampler(rows, self._device)
        self._drawn = torch.zeros(rows, 1, dtype=torch.int64, device=self._device)  # (R, 1)

    def _new_cache(
        self, sequences: Sequence[RunningSequence], dtype: torch.dtype
    ) -> KVCache | RowCache:
        """One that shares prompts, unless there is nothing to share."""
        rows, prompts = len(self._rows), [sequence.request.prompt for sequence in sequences]
        longest, tokens = max(map(len, prompts)), max(sequence.room for sequence in sequences)
        names = [prompt.tobytes() for prompt in prompts]
        if len(set(names)) == len(names) and not self._is_static:
            return RowCache(
                self._net.heads,
                rows=rows,
                longest=longest,
                tokens=tokens,
                dtype=dtype,
                device=self._device,
            )
        return KVCache(
            self._net.heads,
            rows=rows,
            places=len(set(names[:rows])),
            longest=longest,
            tokens=tokens,
            dtype=dtype,
            device=self._device,
            is_static=self._is_static,
        )

    @property
    def is_done(self) -> bool:
        """Whether all sequences have ended."""
        return not self._waiting and all(sequence is None for sequence in self._rows)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """The settings of torch in which `step` is called."""
        autocast = torch.autocast(
            self._device.type,
            self._dtype,
            enabled=self._dtype != torch.float32,
            cache_enabled=not self._is_static,  # a graph must not keep a cast of old weights
        )
        with torch.inference_mode(), autocast:
            yield

    def step(self, version: int | None = None) -> list[RunningSequence]:
        """
        Draw one token in each row, at the version of the weights; gives what has ended now.

        Raises:
            BackendError: Logits are not finite.
        """
        self._pass(version)
        ended, self._ended = self._ended, []
        return ended

    def drop(self, sequence: RunningSequence) -> None:
        """Forget a sequence: nobody wants its completion any more."""
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        elif sequence in self._rows:
            self._leave(self._rows.index(sequence))

    def _leave(self, row: int) -> None:
        self._rows[row] = None
        self._cache.end(row)

    def _pass(self, version: int | None) -> None:
        """One more token for every row, first ones for the rows that became free."""
        living = [row for row, sequence in enumerate(self._rows) if sequence is not None]
        if living:
            count = self._cache.rows
            positions = self._cache.advance().clamp(max=self._net.positions - 1)
            positions = self._cache.hold("clamped", positions)

            def step() -> Tensor:
                hidden = self._net.hidden(self._drawn[:count], positions, self._cache.attend)
                return self._logits(hidden[:, 0])

            self._draw(self._graphs.run(self._cache.shape, step), range(count), version)
        while self._waiting and (free := self._free()):
            self._fill(free, version)
        if not self._waiting:
            self._drop()

    def _free(self) -> list[int]:
        return [row for row, sequence in enumerate(self._rows) if sequence is None]

    def _draw(self, logits: Tensor, rows: Sequence[int], version: int | None) -> None:
        drawn, logprobs = self._draws.draw(logits, rows)
        at = slice(0, len(rows)) if isinstance(rows, range) else list(rows)
        self._drawn[at, 0] = drawn
        for row, token, logprob in zip(rows, drawn.tolist(), logprobs.tolist(), strict=True):
            sequence = self._rows[row]
            if sequence is not None and sequence.take(token, logprob, version):
                self._leave(row)
                self._ended.append(sequence)

    def _fill(self, free: Sequence[int], version: int | None) -> None:
        """The next waiting sequences take free rows, and draw their first tokens."""
        rows = free[: len(self._waiting)]
        sequences = [self._waiting.popleft() for _ in rows]
        places, unread = [], {}
        for row, sequence in zip(rows, sequences, strict=True):
            prompt = sequence.request.prompt
            place, is_unread = self._cache.open(row, prompt.tobytes(), len(prompt))
            if is_unread:
                unread[place] = prompt
            places.append(place)
        self._read(unread)
        for row, sequence, place in zip(rows, sequences, places, strict=True):
            self._rows[row] = sequence
            self._cache.begin(row, place)
        self._draws.seat(rows, [d.request for d in sequences], [d.room for d in sequences])
        distinct = sorted(set(places))
        ends = torch.stack([self._end(place) for place in distinct])  # (P, C)
        index = torch.tensor([distinct.index(p) for p in places], device=self._device)
        self._draw(self._logits(ends)[index], rows, version)
        self._close_prompts()

    def _close_prompts(self) -> None:
        """Free the places of prompts that no row reads and the next sequence does not need."""
        wanted = self._waiting[0].request.prompt.tobytes() if self._waiting else b""
        self._cache.close_unused(wanted)

    def _end(self, place: int) -> Tensor:
        end = self._cache.ends[place]
        assert end is not None, "the prompt was opened and not read"
        return end

    def _read(self, prompts: dict[int, np.ndarray]) -> None:
        """Prefill prompts at their places, several at a time."""
        left = sorted(prompts, key=lambda place: (-len(prompts[place]), place))
        while left:
            longest = len(prompts[left[0]])
            count = max(1, self._prefill_tokens // longest)
            some, left = sorted(left[:count]), left[count:]
            tokens = np.zeros((len(some), longest), dtype=np.int64)
            for row, place in zip(tokens, some, strict=True):
                row[: len(prompts[place])] = prompts[place]
            self._cache.read_prompts(some, longest)
            positions = torch.arange(longest, device=self._device).expand(len(some), -1)
            ends = self._weights.ends(
                torch.from_numpy(tokens).to(self._device),
                positions,
                self._cache.attend_prompts,
                torch.tensor([len(prompts[place]) - 1 for place in some], device=self._device),
            )  # (P, C)
            for end, place in zip(ends, some, strict=True):
                self._cache.ends[place] = end

    def _drop(self) -> None:
        """Let finished rows go when they are many: the last ones move to their places."""
        count = self._cache.rows
        living = [row for row in range(count) if self._rows[row] is not None]
        left = 1 << (len(living) - 1).bit_length() if self._is_static else len(living)
        if not living or left > count * (1 - _DROP_SHARE):
            return
        holes = [row for row in range(left) if self._rows[row] is None]
        far = [row for row in living if row >= left]
        for source, target in zip(far, holes, strict=False):
            self._rows[target], self._rows[source] = self._rows[source], None
            self._drawn[target] = self._drawn[source]
            self._cache.move(source, target)
            self._draws.move(source, target)
        self._close_prompts()
        self._cache.resize(left)

    def _logits(self, hidden: Tensor) -> Tensor:
        """(R, C) to float32 logits (R, V), whatever the rest is computed in."""
        if self._dtype == torch.float32:  # nothing to switch off
            return self._scaled(self._weights.logits(hidden.float()))
        with torch.autocast(self._device.type, enabled=False):
            return self._scaled(self._weights.logits(hidden.float()))

    def _scaled(self, logits: Tensor) -> Tensor:
        net = self._net
        if net.logit_scale != 1.0:
            logits = logits * net.logit_scale
        if net.logit_softcap:
            logits = net.logit_softcap * torch.tanh(logits / net.logit_softcap)
        return logits
