"""The running batch: rows that are decoded together, and requests that wait for a row.

Sequences are added at any time. A free row is taken by the next that waits (long prompts first,
equal ones beside each other): its prompt is read unless another row reads it already, and its first
token comes from there. When nothing waits, finished rows leave the batch. Who sits where follows
from the requests and their tokens only, and on a CPU no row's numbers depend on the others.

Shapes: R rows, P prompts, S prompt tokens, C width, V vocabulary.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice

import numpy as np
import torch
from torch import Tensor

from rlvr import Datum, FloatArray
from rlvr_torch.generation.cache.kv_cache import KVCache
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.interface import RunningBatch
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.generation.token_sampling import TokenSampler
from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.interface import Carrying, Net
from rlvr_torch.runtime.batch_threads import BatchThreads

_LOGITS = 1 << 24  # numbers that exist at one time when given tokens are scored
_DROP_SHARE = 0.125  # finished rows leave when they are this share of the batch


class DecodeBatch(RunningBatch):
    """Decodes sequences. `step` may be called again and again, from any thread, one at a time."""

    def __init__(
        self,
        net: Net,  # the model
        weights: DecodeWeights,  # its weights as decoding reads them
        *,
        rows: int,  # most of them decoded at the same time
        prefill_tokens: int,  # most padded prompt tokens read at the same time, or one prompt
        dtype: torch.dtype,  # what matrix products are computed in
        keeps_casts: bool = True,  # a weight that autocast converts is converted once a slice
        threads: BatchThreads | None = None,  # cores that each operation is spread over
        # Told how many rows are decoded from now on, where more did not fit into the memory.
        shrink: Callable[[int], None] = lambda rows: None,
    ) -> None:
        self._net, self._weights, self._dtype = net, weights, dtype
        self._threads = threads or BatchThreads()
        self._waiting: deque[RunningSequence] = deque()
        self._ended: list[RunningSequence] = []
        self._most, self._shrink = rows, shrink
        self._device = net.head.device
        self._prefill_tokens = prefill_tokens
        self._keeps_casts = keeps_casts
        self._clear()

    def _clear(self) -> None:
        """A batch without rows, and without memory for any."""
        self._rows: list[RunningSequence | None] = []
        self._cache = KVCache(
            self._net.heads, dtype=kept_dtype(self._net, self._dtype), device=self._device
        )
        self._draws = TokenSampler(self._device)
        self._drawn = torch.zeros(0, 1, dtype=torch.int64, device=self._device)  # (R, 1)

    def add(self, sequences: Sequence[RunningSequence]) -> None:
        if sequences:
            self._waiting = deque(sorted([*self._waiting, *sequences], key=_place))

    @property
    def is_done(self) -> bool:
        return not self._waiting and all(sequence is None for sequence in self._rows)

    @contextmanager
    def at_work(self, version: int | None = None) -> Iterator[None]:
        self._threads.prepare()
        autocast = torch.autocast(
            self._device.type,
            self._dtype,
            enabled=self._dtype != torch.float32,
            cache_enabled=self._keeps_casts,
        )
        with torch.inference_mode(), autocast, self._weights.packed(version):
            yield

    def step(self, version: int | None = None) -> list[RunningSequence]:
        """
        As `RunningBatch.step`.

        Where the device's memory does not hold all rows, half of them are decoded from now on:
        those that run are drawn again from their beginnings, by the same random numbers.

        Raises:
            BackendError: Logits are not finite.
            torch.OutOfMemoryError: A single row does not fit.
        """
        try:
            self._draw_all(version)
        except torch.OutOfMemoryError:
            rows = min(self._most, len(self._rows))
            if rows <= 1:
                raise
        else:
            ended, self._ended = self._ended, []
            return ended
        # Outside the handler: the error holds what the failed pass had made.
        running = [sequence for sequence in self._rows if sequence is not None]
        self._most = rows // 2
        self._clear()
        for sequence in running:
            sequence.restart()
        self.add(running)
        self._shrink(self._most)
        return self.step(version)

    def _draw_all(self, version: int | None) -> None:
        """A token in each row, and the first of those that wait for one."""
        if any(sequence is not None for sequence in self._rows):
            self._pass(version)
        while self._waiting and (free := self._free()):
            self._fill(free, version)
        if not self._waiting:
            self._drop()

    def score(self, data: Sequence[Datum]) -> list[FloatArray]:
        """
        Logprobs (T,), nats, of each datum's supervised tokens at its temperature; 0 elsewhere.

        The data are read in one padded pass.
        """
        net, longest = self._net, max(len(datum.tokens) for datum in data) - 1
        tokens = _stacked([datum.tokens for datum in data], longest + 1)[:, :-1].astype(np.int64)

        def attend(
            layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
        ) -> Tensor:
            heads = net.heads[layer]
            is_cut = heads.window is not None and heads.window < longest
            sees = causal(longest, q.device, heads.window) if is_cut else None
            return attend_over(heads, q, k, v, sees, sinks)

        positions = torch.arange(longest, device=self._device).expand(len(data), -1)
        states = net.hidden(torch.from_numpy(tokens).to(self._device), positions, attend)
        rows, places = np.nonzero(_stacked([datum.mask for datum in data], longest + 1))
        targets = _stacked([datum.tokens for datum in data], longest + 1)[rows, places]
        heat = np.array([datum.temperature for datum in data], np.float32)[rows]
        told = self._told(states[rows, places - 1], targets.astype(np.int64), heat)
        numbers = np.zeros((len(data), longest + 1), np.float32)
        numbers[rows, places] = told
        return [row[: len(datum.tokens)] for row, datum in zip(numbers, data, strict=True)]

    def _told(self, states: Tensor, targets: np.ndarray, heat: np.ndarray) -> np.ndarray:
        """Logprobs (N,) of tokens (N,) after states (N, C) at temperatures (N,), some at a time."""
        count, found = max(1, _LOGITS // self._net.vocab_size), []
        for part in (slice(at, at + count) for at in range(0, len(states), count)):
            scale = torch.from_numpy(heat[part, None]).to(self._device)
            logits = self._weights.float_logits(states[part]) / scale
            told = torch.log_softmax(logits, dim=-1).cpu().numpy()
            found.append(np.take_along_axis(told, targets[part, None], 1)[:, 0])
        return np.concatenate(found)

    def drop(self, sequence: RunningSequence) -> None:
        if sequence in self._waiting:
            self._waiting.remove(sequence)
        elif sequence in self._rows:
            self._leave(self._rows.index(sequence))

    def _leave(self, row: int) -> None:
        self._rows[row] = None
        self._cache.end(row)

    def _pass(self, version: int | None) -> None:
        count = self._cache.rows
        positions = self._cache.advance().clamp(max=self._net.positions - 1)
        attend = Carrying(self._cache.attend, self._cache.states.decode)
        hidden = self._net.hidden(self._drawn[:count], positions, attend)
        self._draw(self._weights.float_logits(hidden[:, 0]), range(count), version)

    def _free(self) -> list[int]:
        """Free rows for the waiting sequences, as many as the limit allows."""
        taken = sum(sequence is not None for sequence in self._rows)
        wanted = min(self._most, taken + len(self._waiting)) - taken
        lacking = taken + wanted - len(self._rows)
        if lacking > 0:
            spare = min(len(self._rows) // 2, self._most - len(self._rows))
            self._reserve(self._whole(len(self._rows) + max(lacking, spare)))
        free = [row for row, sequence in enumerate(self._rows) if sequence is None]
        return free[:wanted]

    def _reserve(self, rows: int) -> None:
        more = rows - len(self._rows)
        self._rows += [None] * more
        self._cache.reserve(rows)
        self._draws.reserve(rows)
        self._drawn = torch.cat([self._drawn, self._drawn.new_zeros(more, 1)])

    def _whole(self, rows: int) -> int:
        """`rows` or a few more: a product of one row, or half a vector, rounds differently."""
        return max(2, rows + rows % 2)

    def _draw(self, logits: Tensor, rows: Sequence[int], version: int | None) -> None:
        drawn, logprobs = self._draws.draw(logits, rows)
        at = slice(0, len(rows)) if isinstance(rows, range) else list(rows)
        self._drawn[at, 0] = drawn
        for row, token, logprob in zip(rows, drawn.tolist(), logprobs.tolist(), strict=True):
            sequence = self._rows[row]
            if sequence is not None and sequence.take(token, logprob, version):
                self._leave(row)
                self._ended.append(sequence)

    def _fill(self, rows: Sequence[int], version: int | None) -> None:
        """Give free rows to the next waiting sequences and draw their first tokens."""
        sequences = list(islice(self._waiting, len(rows)))
        names = [_name(sequence, version) for sequence in sequences]
        following = islice(self._waiting, len(rows), len(rows) + 1)
        self._cache.close_unused({*names, *(_name(sequence, version) for sequence in following)})
        lengths = {name: len(s.request.prompt) for name, s in zip(names, sequences, strict=True)}
        self._cache.prompts.make_room(lengths)
        places, unread = [], {}
        for name, sequence in zip(names, sequences, strict=True):
            prompt = sequence.request.prompt
            place, is_unread = self._cache.prompts.open(name, len(prompt))
            if is_unread:
                unread[place] = prompt
            places.append(place)
        self._read(unread)
        for row, sequence, place in zip(rows, sequences, places, strict=True):
            self._waiting.popleft()  # until here: reading may fail
            self._rows[row] = sequence
            self._cache.begin(row, place)
        last = max(row for row, sequence in enumerate(self._rows) if sequence is not None)
        self._cache.resize(max(self._cache.rows, self._whole(last + 1)))
        self._draws.seat(rows, [d.request for d in sequences], [d.room for d in sequences])
        distinct = sorted(set(places))
        ends = torch.stack([self._cache.prompts.ends[place] for place in distinct])  # (P, C)
        if len(ends) == 1:
            ends = ends.expand(2, -1)
        index = torch.tensor([distinct.index(p) for p in places], device=self._device)
        self._draw(self._weights.float_logits(ends)[index], rows, version)

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
                Carrying(self._cache.attend_prompts, self._cache.states.read),
                torch.tensor([len(prompts[place]) - 1 for place in some], device=self._device),
            )  # (P, C)
            for end, place in zip(ends, some, strict=True):
                self._cache.prompts.ends[place] = end

    def _drop(self) -> None:
        """Remove finished rows when they are many: the last rows move to their places."""
        count = self._cache.rows
        living = [row for row in range(count) if self._rows[row] is not None]
        left = self._whole(len(living))
        if living and left <= count * (1 - _DROP_SHARE):
            self._close_gaps(left)

    def _close_gaps(self, left: int) -> None:
        """Move the living rows to the first `left`, and go on with those."""
        living = [row for row, sequence in enumerate(self._rows) if sequence is not None]
        holes = [row for row in range(left) if self._rows[row] is None]
        far = [row for row in living if row >= left]
        for source, target in zip(far, holes, strict=False):
            self._rows[target], self._rows[source] = self._rows[source], None
            self._drawn[target] = self._drawn[source]
            self._cache.move(source, target)
            self._draws.move(source, target)
        self._cache.close_unused(set())
        self._cache.tidy(left)
        self._cache.resize(left)


def kept_dtype(net: Net, dtype: torch.dtype) -> torch.dtype:
    """The type of keys and values where products are computed in `dtype`."""
    return dtype if dtype != torch.float32 else net.head.dtype


def _stacked(rows: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Rows of any lengths as one array (B, width), zeros behind them."""
    stacked = np.zeros((len(rows), width), rows[0].dtype)
    for whole, row in zip(stacked, rows, strict=True):
        whole[: len(row)] = row
    return stacked


def _name(sequence: RunningSequence, version: int | None) -> Hashable:
    """The name of its prompt and the version: older weights compute other keys."""
    return version, sequence.request.prompt.tobytes()


def _place(sequence: RunningSequence) -> tuple[int, bytes]:
    """The order of waiting sequences: long prompts first."""
    prompt = sequence.request.prompt
    return -len(prompt), prompt.tobytes()
