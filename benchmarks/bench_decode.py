"""
Decode speed of rlvr_torch's engine beside transformers' `generate`, same weights, same prompts.

    python benchmarks/bench_decode.py [--json] [--layers 4 --width 256 ...]

Both sample a batch of groups (8 problems, 8 completions each, ragged prompts) at temperature 1
with a fixed number of new tokens, in this process, on the CPU, with the same number of threads.
They take turns; each repetition gives each side a go, and medians are compared. Prints tokens per
CPU-second (process time, so other load on the machine counts little), per wall second, and ratios.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
import transformers

from rlvr.types import GenerateRequest, SamplingParams
from rlvr_torch.crew import Crew
from rlvr_torch.engine import Engine
from rlvr_torch.gpt2 import GPT2, GPT2Config
from rlvr_torch.tokenizer import BytePairTokenizer


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--width", type=int, default=256)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--problems", type=int, default=8)
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=192, help="longest prompt, tokens")
    parser.add_argument("--tokens", type=int, default=128, help="new tokens a completion")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


def hugging_face(model: GPT2) -> transformers.GPT2LMHeadModel:
    """The same weights in transformers' GPT-2."""
    config = transformers.GPT2Config(
        vocab_size=model.config.vocab_size,
        n_positions=model.config.n_positions,
        n_embd=model.config.n_embd,
        n_layer=model.config.n_layer,
        n_head=model.config.n_head,
        attn_implementation="sdpa",
    )
    peer = transformers.GPT2LMHeadModel(config).eval()
    conv1d = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    state = {
        name: value.t() if name.endswith(conv1d) else value
        for name, value in model.state_dict().items()
    }
    peer.transformer.load_state_dict(state)
    return peer


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Tokens per CPU-second and per wall second of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = work()
    return tokens / (time.process_time() - cpu), tokens / (time.perf_counter() - wall)


def main() -> None:
    args = parse()
    transformers.logging.set_verbosity_error()
    config = GPT2Config(
        vocab_size=args.vocab,
        n_positions=args.prompt + args.tokens,
        n_embd=args.width,
        n_layer=args.layers,
        n_head=args.heads,
    )
    model = GPT2.new(config, seed=0)
    peer = hugging_face(model)
    tokenizer = BytePairTokenizer.bytes_only()
    tokenizer.eos_id = -1  # no completion ends early: both draw the same number of tokens
    peer.generation_config.eos_token_id = None
    engine = Engine(model, tokenizer, crew=Crew(args.threads))
    random = np.random.default_rng(0)
    lengths = np.linspace(args.prompt / 2, args.prompt, args.problems).astype(int)
    prompts = [random.integers(1, args.vocab, length) for length in lengths]
    params = SamplingParams(max_tokens=args.tokens)
    requests = [
        GenerateRequest(prompt=prompt, params=params, seed=seed)
        for prompt in prompts
        for seed in range(args.group)
    ]
    padded = torch.zeros(len(requests), args.prompt, dtype=torch.int64)
    mask = torch.zeros_like(padded)
    for row, request in enumerate(requests):
        padded[row, -len(request.prompt) :] = torch.from_numpy(request.prompt.astype(np.int64))
        mask[row, -len(request.prompt) :] = 1

    def ours() -> int:
        torch.set_num_threads(1)  # the crew's threads have one each
        return sum(len(c.tokens) for c in engine.generate(requests))

    def theirs() -> int:
        torch.set_num_threads(args.threads)
        # Scores are asked for because reinforcement learning needs the logprobs of its samples.
        drawn = peer.generate(
            padded,
            attention_mask=mask,
            do_sample=True,
            top_k=0,
            temperature=1.0,
            max_new_tokens=args.tokens,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        return (drawn.sequences.shape[1] - args.prompt) * len(requests)

    wanted = args.tokens * len(requests)
    assert ours() == theirs() == wanted  # also the warm-up
    runs = [(timed(ours), timed(theirs)) for _ in range(args.repeats)]
    mine, other = (
        [statistics.median(r[side][unit] for r in runs) for unit in (0, 1)] for side in (0, 1)
    )
    ratios = [run[0][0] / run[1][0] for run in runs]
    result = {
        "rlvr_torch_tokens_per_cpu_s": mine[0],
        "transformers_tokens_per_cpu_s": other[0],
        "ratio": mine[0] / other[0],
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "rlvr_torch_tokens_per_s": mine[1],
        "transformers_tokens_per_s": other[1],
        "settings": vars(args),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    if args.json:
        print(json.dumps(result))
        return
    print(f"rlvr_torch    {mine[0]:9.0f} tokens/CPU-s  {mine[1]:9.0f} tokens/s")
    print(f"transformers  {other[0]:9.0f} tokens/CPU-s  {other[1]:9.0f} tokens/s")
    print(f"ratio         {mine[0] / other[0]:9.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")


if __name__ == "__main__":
    main()
