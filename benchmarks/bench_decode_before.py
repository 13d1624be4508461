"""
Processor time of decoding by this checkout's engine over that of another checkout's.

    OMP_NUM_THREADS=1 python benchmarks/bench_decode_before.py --before PYTHON [--turns 3]

Both decode the same requests in fresh processes that take turns, with one thread: 64 new tokens at
most, lengths drawn, for the chess starter model and a random net of width 768. Prints the ratio of
the medians of all calls for each load: so many prompts, so many rows of each.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.batch_threads import BatchThreads

STARTER = Path(__file__).parents[1] / "rlvr-chess" / "rlvr_chess" / "starter" / "model"
MODELS = {
    "starter": f"gpt2:{STARTER}",
    "width 768": "gpt2:new?layers=4&heads=12&width=768&positions=256",
}
LOADS = {"starter": ((4, 8), (1, 1), (8, 1), (32, 1), (128, 1)), "width 768": ((4, 8), (32, 1))}
CALLS = 3


def requests_of(vocab: int, prompts: int, rows: int) -> list[GenerateRequest]:
    """Prompts of 10 to 60 tokens, each for so many rows."""
    rng = np.random.default_rng(100 * prompts + rows)
    texts = [rng.integers(5, vocab, int(rng.integers(10, 61))) for _ in range(prompts)]
    return [
        GenerateRequest(
            prompt=text, params=SamplingParams(max_tokens=int(rng.integers(32, 65))), seed=seed
        )
        for seed, text in enumerate(text for text in texts for _ in range(rows))
    ]


def timed() -> dict[str, list[float]]:
    """Seconds of each call of each load, after one that warms up."""
    found: dict[str, list[float]] = {}
    for name, spec in MODELS.items():
        source = ModelSource.parse(spec, 0, TorchConfig())
        tokenizer = source.tokenizer()
        net = source.net(tokenizer.vocab_size)
        for prompts, rows in LOADS[name]:
            engine = Engine(net, tokenizer, threads=BatchThreads.decoding(1))
            requests, seconds = requests_of(tokenizer.vocab_size, prompts, rows), []
            for _ in range(CALLS + 1):
                begun = time.process_time()
                engine.generate(requests)
                seconds.append(time.process_time() - begun)
            found[f"{name}, {prompts} prompts x {rows}"] = seconds[1:]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--before", help="Python of the other checkout")
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--times", action="store_true", help="print seconds of this one as JSON")
    args = parser.parse_args()
    if args.times or not args.before:
        print(json.dumps(timed()))
        return
    found: dict[str, dict[str, list[float]]] = {sys.executable: {}, args.before: {}}
    for turn in range(args.turns):
        for python in sorted(found, reverse=bool(turn % 2)):
            command = [python, __file__, "--times"]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            for load, seconds in json.loads(done.stdout.splitlines()[-1]).items():
                found[python].setdefault(load, []).extend(seconds)
    for load, seconds in found[sys.executable].items():
        ratio = statistics.median(seconds) / statistics.median(found[args.before][load])
        print(f"{load}: {ratio:.2f}")


if __name__ == "__main__":
    main()
