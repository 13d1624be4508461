"""Does what a row computes depend on its batch, and what does joining a batch cost?

Four tables, for a model on the CPU (docs/rollouts.md says what follows from them):

1. products: bit-variants of one row's product among batches of 1 to 128 rows, as `nn.Linear` makes
   it and as decoding does;
2. attention: the same of softmax and of the two products of attention, by width, group and batch;
3. engine: completions decoded alone, beside others and joined in the middle: how many are equal to
   the bit;
4. cost: CPU seconds of the engine for some loads (to compare two checkouts), and of requests that
   join a running batch, a few every few passes, against all at once.

    python benchmarks/bench_batch_invariance.py [--model gpt2:PATH] [--rounds 5] [--threads 1]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F

from rlvr import Completion, GenerateRequest, SamplingParams
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.cpu.matmul import Matmul
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.source import ModelSource

STARTER = "gpt2:rlvr-chess/rlvr_chess/starter/model"
WIDE = "gpt2:new?layers=4&heads=12&width=768&positions=256"


def requests_of(vocab: int, prompts: int, group: int, tokens: int) -> list[GenerateRequest]:
    """Prompts of 10 to 60 tokens, a group of each; completions of half to all of `tokens`."""
    rng = np.random.default_rng(prompts)
    texts = [rng.integers(5, vocab, int(rng.integers(10, 60))) for _ in range(prompts)]
    return [
        GenerateRequest(
            prompt=texts[i // group],
            params=SamplingParams(max_tokens=int(rng.integers(tokens // 2, tokens + 1))),
            seed=i,
        )
        for i in range(prompts * group)
    ]


def is_equal(a: Completion, b: Completion) -> bool:
    """Tokens, and logprobs to the bit."""
    return np.array_equal(a.tokens, b.tokens) and np.array_equal(a.logprobs, b.logprobs)


def products() -> None:
    """Table 1."""
    generator = torch.Generator().manual_seed(0)
    print("products: bit-variants of one row, and the rows of each (3 places in each batch)")
    for inputs, outputs in [(192, 576), (768, 192), (768, 3072), (3072, 768)]:
        weight = torch.randn(outputs, inputs, generator=generator) / inputs**0.5
        bias = torch.randn(outputs, generator=generator)
        made = Matmul(weight, bias)
        ways: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
            "nn.Linear": partial(F.linear, weight=weight, bias=bias),
            "decoding": made,
        }
        others, mine = torch.randn(128, inputs), torch.randn(inputs, generator=generator)
        for name, product in ways.items():
            found: dict[bytes, list[int]] = defaultdict(list)
            for rows in range(1, 129):
                for place in {0, rows // 2, rows - 1}:
                    x = others[:rows].clone()
                    x[place] = mine
                    found[product(x)[place].numpy().tobytes()].append(rows)
            spans = [f"{min(rows)} to {max(rows)}" for rows in found.values()]
            print(f"  {inputs} x {outputs}, {name}: {len(found)} ({', '.join(spans)})")


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
    for least in (1, 2, 4):
        by_group = set()
        for group in range(least, 65):
            queries = torch.randn(1, group, 32)
            queries[0, -1] = q[0]
            by_group.add(torch.bmm(queries, k.t()[None])[0, -1].numpy().tobytes())
        print(f"  scores of a shared prompt: {len(by_group)} among groups of {least}..64")


def joined(one: Engine, requests: Sequence[GenerateRequest]) -> list[Completion]:
    """Their completions: 4 requests at first and 4 more every 4 passes."""
    batch, sequences = one.start(), [one.sequence(request) for request in requests]
    late = sequences[::-1]
    with batch.at_work():
        while late or not batch.is_done:
            batch.add([late.pop() for _ in range(min(4, len(late)))])
            for _ in range(4):
                if not batch.is_done:
                    batch.step()
    return [sequence.completion for sequence in sequences]


def engine(one: Engine) -> None:
    """Table 3."""
    probes = requests_of(one.net.vocab_size, 8, 1, 48)
    alone = [one.generate([request])[0] for request in probes]
    for beside in (1, 7, 63):
        others = requests_of(one.net.vocab_size, beside, 1, 64)
        met = [one.generate([request, *others])[0] for request in probes]
        print(f"  beside {beside}: {sum(map(is_equal, met, alone))} of 8 equal to the bit")
    print(f"  joined late: {sum(map(is_equal, joined(one, probes), alone))} of 8 equal to the bit")


def cost(one: Engine, rounds: int) -> None:
    """Table 4."""
    for prompts, group in [(1, 1), (8, 1), (32, 1), (128, 1), (4, 8), (1, 32)]:
        wanted = requests_of(one.net.vocab_size, prompts, group, 64)
        spent = statistics.median(_seconds(partial(one.generate, wanted)) for _ in range(rounds))
        print(f"  {prompts} prompts x {group}: {spent:.3f} CPU seconds, median of {rounds}")
    wanted, ratios = requests_of(one.net.vocab_size, 64, 1, 64), []
    for _ in range(rounds):
        together = _seconds(lambda: one.generate(wanted))
        ratios.append(_seconds(lambda: joined(one, wanted)) / together)
    print(f"  64 requests, 4 more every 4 passes: {statistics.median(ratios):.2f} of all at once")


def _seconds(work: Callable[[], object]) -> float:
    begun = time.process_time()
    work()
    return time.process_time() - begun


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", nargs="*", default=[STARTER, WIDE])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    with torch.inference_mode():
        products()
        attention()
    for spec in options.model:
        source = ModelSource.parse(spec, 0, TorchConfig())
        tokenizer = source.tokenizer()
        one = Engine(source.net(tokenizer.vocab_size), tokenizer)
        print(f"engine, {spec}")
        engine(one)
        cost(one, options.rounds)


if __name__ == "__main__":
    main()
