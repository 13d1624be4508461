"""Does what a row computes depend on its batch, and what does it cost that it does not?

Four tables, for a model on the CPU with one thread (docs/rollouts.md says what follows from them):

1. products: bit-variants of one row's product among batches of 1 to 128 rows, for each way in which
   decoding multiplies;
2. attention: the same of softmax and of the two products of attention, by width, group and batch;
3. engine: completions decoded alone and beside others, with today's caches and with rows that begin
   at their first slot (`LeftAligned`): how many are equal to the bit;
4. cost: CPU seconds of both for the same requests, in turns, median of the ratios; and of requests
   that join a running batch, a few every few passes, against all at once.

    python benchmarks/bench_batch_invariance.py [--model gpt2:PATH] [--rounds 5]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from itertools import combinations
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor

from rlvr import Completion, GenerateRequest, SamplingParams
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.cpu.matmul import Matmul
from rlvr_torch.generation.cpu.weights import DecodeWeights
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.models.attention import attend_over
from rlvr_torch.models.interface import Heads
from rlvr_torch.models.source import ModelSource

STARTER = "gpt2:rlvr-chess/rlvr_chess/starter/model"
WIDE = "gpt2:new?layers=4&heads=12&width=768&positions=256"
_SLOTS = 64  # the cache grows by so many


class LeftAligned:
    """
    A cache whose rows begin at their first slot, prompt first: a prototype, used like `RowCache`.

    What lies behind a row's last token is masked; that adds zeros behind its sums and changes none.
    """

    def __init__(self, heads: Sequence[Heads], rows: int, dtype: torch.dtype) -> None:
        self._heads, self.rows = heads, max(2, rows)
        self.ends: list[Tensor | None] = [None] * self.rows
        self._lengths = torch.zeros(self.rows, dtype=torch.int64)  # tokens that lie there
        self._slots = _SLOTS
        shapes = [(self.rows, h.keys, self._slots, h.width) for h in heads]
        self._keys = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        self._values = [torch.zeros(shape, dtype=dtype) for shape in shapes]
        self._reading: list[int] = []

    shape: tuple[int, ...] = ()

    def hold(self, name: str, value: Tensor) -> Tensor:
        """The value."""
        return value

    def open(self, row: int, tokens: bytes, length: int) -> tuple[int, bool]:
        """The row itself; its prompt is to be read."""
        self._grow(length)
        self._lengths[row] = length
        return row, True

    def _grow(self, needed: int) -> None:
        if needed <= self._slots:
            return
        more = -(-needed // _SLOTS) * _SLOTS - self._slots
        for store in (self._keys, self._values):
            for i, old in enumerate(store):
                store[i] = torch.cat([old, old.new_zeros(*old.shape[:2], more, old.shape[3])], 2)
        self._slots += more

    def read_prompts(self, places: Sequence[int], tokens: int) -> None:
        """These prompts come next."""
        self._reading = list(places)

    def attend_prompts(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Of one prompt, for each is read alone."""
        for row, key, value in zip(self._reading, k, v, strict=True):
            self._keys[layer][row, :, : key.shape[1]] = key
            self._values[layer][row, :, : key.shape[1]] = value
        return attend_over(self._heads[layer], q, k, v, None, sinks)

    def close_unused(self, wanted: bytes) -> None:
        """Nothing."""

    def begin(self, row: int, place: int) -> None:
        """The row holds its prompt."""

    def end(self, row: int) -> None:
        """The row goes on idly."""
        self._lengths[row] = 0

    def move(self, source: int, target: int) -> None:
        """A row goes to a free one's place."""
        self._lengths[target] = self._lengths[source]
        for store in (self._keys, self._values):
            for layer in store:
                layer[target] = layer[source]

    def resize(self, rows: int) -> None:
        """Never one row alone: that would be another kernel."""
        self.rows = max(2, rows)

    def advance(self) -> Tensor:
        """Positions (R, 1) of the next tokens."""
        at = self._lengths[: self.rows].clone()
        self._lengths[: self.rows] += 1
        self._width = -(-int(at.max() + 1) // 16) * 16
        self._grow(self._width)
        self._at = at[:, None, None, None]
        hidden = torch.arange(self._width) > at[:, None]
        self._bias = torch.zeros(hidden.shape).masked_fill_(hidden, float("-inf"))[:, None, None]
        return at[:, None]

    def attend(
        self, layer: int, q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None = None
    ) -> Tensor:
        """Of one new token a row."""
        heads, rows, width = self._heads[layer], self.rows, self._width
        keys, values = self._keys[layer][:rows], self._values[layer][:rows]
        index = self._at.expand(-1, heads.keys, 1, heads.width)
        keys.scatter_(2, index, k)
        values.scatter_(2, index, v)
        past_k = keys.view(-1, self._slots, heads.width)[:, :width]
        past_v = values.view(-1, self._slots, heads.width)[:, :width]
        q = q.reshape(-1, heads.queries // heads.keys, heads.width)
        scores = q.new_empty(q.shape[0], q.shape[1], width)
        scores.baddbmm_(q, past_k.transpose(1, 2), beta=0, alpha=heads.scale)
        scores.unflatten(0, (rows, -1)).add_(self._bias)
        return torch.bmm(scores.softmax(2), past_v).view(rows, heads.queries, 1, heads.width)


@contextmanager
def invariant() -> Iterator[None]:
    """Rows from their first slot, two rows at least, prompts read alone, one way to multiply."""
    begin = DecodeBatch.__init__

    def init(self: DecodeBatch, net, sequences, **given) -> None:
        begin(self, net, sequences, **{**given, "prefill_tokens": 1})
        while len(self._rows) < 2:
            self._rows.append(None)
            self._drawn = torch.zeros(2, 1, dtype=torch.int64)
            self._draws = type(self._draws)(2, self._device)

    def cache(self: DecodeBatch, sequences, dtype):
        return LeftAligned(self._net.heads, len(self._rows), dtype)

    logits, way = DecodeBatch._logits, Matmul._way

    def two_at_least(self: DecodeBatch, hidden: Tensor) -> Tensor:
        return logits(self, hidden.expand(max(2, len(hidden)), -1))[: len(hidden)]

    with (
        patch.object(DecodeBatch, "__init__", init),
        patch.object(DecodeBatch, "_new_cache", cache),
        patch.object(DecodeBatch, "_logits", two_at_least),
        patch.object(Matmul, "_way", lambda s, n: "blocks" if s._is_large else way(s, n)),
    ):
        yield


def requests_of(vocab: int, count: int, tokens: int, *, share: bool) -> list[GenerateRequest]:
    """Prompts of 10 to 60 tokens, or one for all; completions of half to all of `tokens`."""
    rng = np.random.default_rng(count)
    one = rng.integers(5, vocab, 40)
    return [
        GenerateRequest(
            prompt=one if share else rng.integers(5, vocab, int(rng.integers(10, 60))),
            params=SamplingParams(max_tokens=int(rng.integers(tokens // 2, tokens + 1))),
            seed=i,
        )
        for i in range(count)
    ]


def is_equal(a: Completion, b: Completion) -> bool:
    """Tokens, and logprobs to the bit."""
    return np.array_equal(a.tokens, b.tokens) and np.array_equal(a.logprobs, b.logprobs)


def products() -> None:
    """Table 1."""
    generator = torch.Generator().manual_seed(0)
    print("products: bit-variants of one row among batches of 1..128 rows (3 places in each)")
    for inputs, outputs in [(192, 576), (768, 192), (768, 3072), (3072, 768)]:
        weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        product = Matmul(weight, torch.randn(outputs, generator=generator))
        ways = {"today": None, "blocks": "blocks", "as it lies": "as it lies"}
        for name, way in ways.items():
            if way is not None and not product._is_large:
                continue
            found: dict[bytes, list[int]] = defaultdict(list)
            others, mine = torch.randn(128, inputs), torch.randn(inputs, generator=generator)
            for rows in range(1, 129):
                for place in {0, rows // 2, rows - 1}:
                    x = others[:rows].clone()
                    x[place] = mine
                    with nullcontext() if way is None else patch.object(Matmul, "_way", _as(way)):
                        found[product(x)[place].numpy().tobytes()].append(rows)
            lone = [rows for rows in found.values() if max(rows) == 1]
            note = ", one of them of 1 row alone" if lone and len(found) > 1 else ""
            print(f"  {inputs} x {outputs}, {name}: {len(found)}{note}")


def _as(way: str) -> Callable[[Matmul, int], str]:
    return lambda product, rows: way


def attention() -> None:
    """Table 2."""
    generator = torch.Generator().manual_seed(0)
    print("attention: bit-variants of a row of 40 keys, width 32")
    q, k = torch.randn(1, 32, generator=generator), torch.randn(40, 32, generator=generator)
    shares, v = torch.rand(1, 40, generator=generator), torch.randn(40, 32, generator=generator)
    by_width: dict[str, set[bytes]] = defaultdict(set)
    for rows in (1, 2, 5, 16):
        for width in range(40, 200):
            keys, values = torch.randn(rows, width, 32), torch.randn(rows, width, 32)
            queries, weights = torch.randn(rows, 1, 32), torch.rand(rows, 1, width)
            keys[-1, :40], values[-1, :40], queries[-1], weights[-1] = k, v, q, 0
            weights[-1, :, :40] = shares
            scores = torch.bmm(queries, keys.transpose(1, 2))[-1, :, :40]
            by_width["scores"].add(scores.contiguous().numpy().tobytes())
            padded = torch.full((rows, width), float("-inf"))
            padded[:, :40] = shares
            by_width["softmax"].add(padded.softmax(1)[-1, :40].numpy().tobytes())
            by_width["values"].add(torch.bmm(weights, values)[-1].numpy().tobytes())
            moved = torch.full((rows, width), float("-inf"))
            moved[:, -40:] = shares
            by_width["softmax, keys at the end"].add(moved.softmax(1)[-1, -40:].numpy().tobytes())
    for name, found in by_width.items():
        print(f"  {name}: {len(found)} among widths 40..199 and batches of 1, 2, 5, 16")
    by_group = set()
    for group in range(1, 65):
        queries = torch.randn(1, group, 32)
        queries[0, -1] = q[0]
        by_group.add(torch.bmm(queries, k.t()[None])[0, -1].numpy().tobytes())
    print(f"  scores of a shared prompt: {len(by_group)} among groups of 1..64")


def engine(label: str, build: Callable[[], Engine]) -> None:
    """Table 3."""
    print(f"engine, {label}: completions equal to the bit, of 8")
    for name, mode in (("today", nullcontext), ("rows from their first slot", invariant)):
        with mode():
            one = build()
            probes = requests_of(one.net.vocab_size, 8, 48, share=False)
            alone = [one.generate([request])[0] for request in probes]
            seen = []
            for beside in (1, 7, 63):
                others = requests_of(one.net.vocab_size, beside, 64, share=False)
                met = [one.generate([request, *others])[0] for request in probes]
                equal = sum(map(is_equal, met, alone))
                same = [
                    (a, b)
                    for a, b in zip(met, alone, strict=True)
                    if len(a.tokens) == len(b.tokens)
                ]
                worst = max((np.abs(a.logprobs - b.logprobs).max() for a, b in same), default=0.0)
                print(f"  {name}, beside {beside}: {equal}, logprobs differ by up to {worst:.1e}")
                seen.append(met)
            pairs = [sum(map(is_equal, a, b)) for a, b in combinations(seen, 2)]
            print(f"  {name}, between batches of 2, 8 and 64: {pairs}")


def cost(label: str, build: Callable[[], Engine], rounds: int) -> None:
    """Table 4."""
    print(f"cost, {label}: CPU seconds over those of today, median of {rounds} turns")
    for count in (1, 8, 32, 128):
        for share in (False, True):
            one = build()
            wanted = requests_of(one.net.vocab_size, count, 64, share=share)
            ratios = []
            for _ in range(rounds):
                today = _seconds(lambda one=one, wanted=wanted: one.generate(wanted))
                with invariant():
                    ratios.append(
                        _seconds(lambda one=one, wanted=wanted: one.generate(wanted)) / today
                    )
            kind = "one prompt" if share else "own prompts"
            print(f"  {count} rows, {kind}: {statistics.median(ratios):.2f}")
    one = build()
    wanted = requests_of(one.net.vocab_size, 64, 64, share=False)
    joined, equal = [], 0
    for _ in range(rounds):
        with invariant():
            begun = time.process_time()
            together = one.generate(wanted)
            between = time.process_time()
            apart = _joining(one, wanted)
            joined.append((time.process_time() - between) / (between - begun))
            equal = sum(map(is_equal, together, apart))
    print(f"  64 requests, 4 more every 4 passes: {statistics.median(joined):.2f} of all at once")
    print(f"  of them equal to the bit: {equal}")


def _joining(one: Engine, wanted: Sequence[GenerateRequest]) -> list[Completion]:
    """The same requests, 4 at first and 4 more every 4 passes."""
    sequences = [RunningSequence(r, one._room(r), one.tokenizer) for r in wanted]
    weights = DecodeWeights(one.net, torch.float32, 64)
    batch = DecodeBatch(
        one.net, sequences, rows=64, prefill_tokens=1, dtype=torch.float32, weights=weights
    )
    late = [batch._waiting.pop() for _ in range(len(sequences) - 4)]
    with weights.packed():
        while late or not batch.is_done:
            batch.run(4)
            batch._waiting.extend(late.pop() for _ in range(min(4, len(late))))
            if batch._waiting:  # rows that left the batch may be taken again
                batch._cache.resize(len(batch._rows))
    return [sequence.completion for sequence in sequences]


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", nargs="*", default=[STARTER, WIDE])
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with torch.inference_mode():
        products()
        attention()
    for spec in options.model:
        source = ModelSource.parse(spec, 0, TorchConfig())
        tokenizer = source.tokenizer()
        net = source.net(tokenizer.vocab_size)
        engine(spec, lambda net=net, t=tokenizer: Engine(net, t))
        cost(spec, lambda net=net, t=tokenizer: Engine(net, t), options.rounds)


if __name__ == "__main__":
    main()
