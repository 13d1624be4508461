"""
Our GPT-2 beside transformers' GPT2LMHeadModel: 32 completions, prompt 64, 64 new tokens.

    python benchmarks/bench_gpt2.py --config tiny|124m [--rounds 5] [--seed 0]
    python benchmarks/bench_gpt2.py --config 124m --only greedy --groups 1 --profile
    python benchmarks/bench_gpt2.py --config tiny --prompt 448 --groups 8 32

Same weights, same prompts, same settings, one thread, float32, in this process. The contests:
greedy and sampled (temperature 0.8, top-k 50, top-p 0.95), each with 32 different prompts (group
1), and with four prompts of eight completions each (group 8), as reinforcement learning has them.
`--prompt` and `--groups` give other shapes; group 32 is one prompt. Transformers gets equal prompts
as equal rows of one batch, which is what its `num_return_sequences` makes of them too (and refuses
where nothing is sampled). Both sides give tokens; ours gives their logprobs too. They take turns
(ABAB), and each round gives a ratio of tokens per CPU-second (process time, so other load on the
machine counts little). Greedy tokens must be those of transformers: the command fails where one
differs.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers
from bench_decode import gpt2, profile, timed

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.runtime.batch_threads import BatchThreads

CONFIGS = {
    "tiny": {"layers": 4, "heads": 4, "width": 128, "vocab": 512},
    "124m": {"layers": 12, "heads": 12, "width": 768, "vocab": 50257},
}
ROWS, TOKENS = 32, 64
SAMPLED = {"temperature": 0.8, "top_k": 50, "top_p": 0.95}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--config", choices=CONFIGS, default="tiny")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=["greedy", "sampled"], help="one of the two")
    parser.add_argument("--prompt", type=int, default=64, help="tokens of a prompt")
    parser.add_argument(
        "--groups",
        type=int,
        nargs="+",
        default=[1, 8],
        choices=[1, 2, 4, 8, 16, 32],
        help="completions of a prompt",
    )
    parser.add_argument("--seed", type=int, default=0, help="of the prompts")
    parser.add_argument("--profile", action="store_true", help="where our time goes, by operator")
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


class Contest:
    """Both sides on the same 32 prompts, of which `group` at a time are equal."""

    def __init__(
        self, engine: Engine, peer: Any, length: int, group: int, sampled: bool, seed: int
    ) -> None:
        self.engine, self.peer, self.sampled = engine, peer, sampled
        random = np.random.default_rng(seed)
        distinct = random.integers(1, engine.net.vocab_size, (ROWS // group, length))
        prompts = distinct.repeat(group, axis=0)
        settings: dict[str, Any] = SAMPLED if sampled else {"temperature": 0.0}
        params = SamplingParams(max_tokens=TOKENS, **settings)
        self.requests = [
            GenerateRequest(prompt=prompt, params=params, seed=row)
            for row, prompt in enumerate(prompts)
        ]
        self.input = torch.from_numpy(prompts)
        self.settings: dict[str, Any] = {"do_sample": sampled, **(SAMPLED if sampled else {})}

    def ours(self) -> np.ndarray:
        """Our completions, (32, 64)."""
        return np.stack([c.tokens for c in self.engine.generate(self.requests)])

    def theirs(self) -> np.ndarray:
        """Transformers' completions, (32, 64)."""
        found = self.peer.generate(
            self.input,
            attention_mask=torch.ones_like(self.input),
            max_new_tokens=TOKENS,
            pad_token_id=0,
            **self.settings,
        )
        return found[:, self.input.shape[1] :].numpy()

    def check(self) -> None:
        """A go of each, to warm up; greedy tokens have to be equal."""
        ours, theirs = self.ours(), self.theirs()
        assert ours.shape == theirs.shape == (ROWS, TOKENS)
        if not self.sampled and (ours != theirs).any():
            raise SystemExit(f"{(ours != theirs).any(axis=1).sum()} of {ROWS} greedy rows differ")

    def compete(self, rounds: int) -> dict[str, Any]:
        """Medians of tokens per CPU-second, and the ratio of each round."""
        runs = [(timed(count(self.ours)), timed(count(self.theirs))) for _ in range(rounds)]
        ratios = [ours[0] / theirs[0] for ours, theirs in runs]
        return {
            "rlvr": statistics.median(ours[0] for ours, _ in runs),
            "transformers": statistics.median(theirs[0] for _, theirs in runs),
            "ratio": statistics.median(ratios),
            "ratio_min": min(ratios),
            "ratio_max": max(ratios),
            "wall_ratio": statistics.median(ours[1] / theirs[1] for ours, theirs in runs),
        }


def count(generate: Callable[[], np.ndarray]) -> Callable[[], int]:
    """The same, giving the number of its tokens."""
    return lambda: generate().size


def main() -> None:
    args = parse()
    transformers.logging.set_verbosity_error()
    torch.set_num_threads(1)
    shape = argparse.Namespace(prompt=args.prompt, tokens=TOKENS, **CONFIGS[args.config])
    net, peer = gpt2(shape)
    tokenizer = BytePairTokenizer.bytes_only()
    tokenizer.eos_id = -1  # no completion ends early: both draw the same number of tokens
    peer.generation_config.eos_token_id = None
    engine = Engine(net, tokenizer, threads=BatchThreads.decoding(1))
    rows = []
    for sampled in (False, True):
        how = "sampled" if sampled else "greedy"
        for group in args.groups:
            if args.only not in (None, how):
                continue
            contest = Contest(engine, peer, args.prompt, group, sampled, args.seed)
            if args.profile:
                print(how, "group", group)
                contest.ours()
                profile(count(contest.ours))
                continue
            contest.check()
            rows.append({"how": how, "group": group, **contest.compete(args.rounds)})
            if not args.json:
                show(rows[-1])
    if args.json:
        print(json.dumps({**vars(args), "contests": rows}))


def show(row: dict[str, Any]) -> None:
    print(
        f"{row['how']:8} group {row['group']:2}  rlvr {row['rlvr']:7.0f}  "
        f"transformers {row['transformers']:7.0f} tokens/CPU-s   ratio {row['ratio']:.2f} "
        f"({row['ratio_min']:.2f} to {row['ratio_max']:.2f})  wall ratio {row['wall_ratio']:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()
