"""
Decode speed of rlvr_torch's engine beside transformers' `generate`, same weights, same prompts.

    python benchmarks/bench_decode.py --config small|124m [--model gpt2|llama] [--threads 2]
    python benchmarks/bench_decode.py --config small --profile

Both sample groups of completions (8 a prompt) at temperature 1 with a fixed number of new tokens,
in this process, on the CPU, with the same number of threads. They take turns; each repetition gives
each side a go, and medians are compared. Prints tokens per CPU-second (process time, so other load
on the machine counts little), per wall second, and ratios of CPU-seconds.

`llama` is a transformers model (grouped heads, rotary positions) that our engine runs through
`HFNet`; `gpt2` is our own against transformers' GPT-2. `--profile` prints what the time of one call
of ours goes into, by operator.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import transformers

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.batch_threads import BatchThreads

CONFIGS = {
    "small": {"layers": 4, "heads": 4, "width": 256, "vocab": 2048, "problems": 8, "repeats": 5},
    "124m": {"layers": 12, "heads": 12, "width": 768, "vocab": 50257, "problems": 2, "repeats": 2},
}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--config", choices=CONFIGS, default="small")
    parser.add_argument("--model", choices=["gpt2", "llama"], default="gpt2")
    for name in CONFIGS["small"]:
        parser.add_argument(f"--{name}", type=int, help="instead of the configuration's")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256, help="longest prompt, tokens")
    parser.add_argument("--shortest", type=int, help="shortest prompt; by default all are equal")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a completion")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--device", default="cpu", help="cuda: read the wall ratio")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    for name, value in CONFIGS[args.config].items():
        if getattr(args, name) is None:
            setattr(args, name, value)
    args.shortest = args.shortest or args.prompt
    return args


def gpt2(args: argparse.Namespace) -> tuple[Net, Any]:
    """Our GPT-2, and the same weights in transformers' GPT-2."""
    model = GPT2.new(
        GPT2Config(
            vocab_size=args.vocab,
            n_positions=args.prompt + args.tokens,
            n_embd=args.width,
            n_layer=args.layers,
            n_head=args.heads,
        ),
        seed=0,
    )
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
    return model, peer


def llama(args: argparse.Namespace) -> tuple[Net, Any]:
    """A Llama as a net, and the same weights as transformers runs them."""
    from rlvr_torch.models.hf.net import HFNet

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=args.vocab,
        hidden_size=args.width,
        intermediate_size=4 * args.width,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.heads // 2,
        max_position_embeddings=args.prompt + args.tokens,
        tie_word_embeddings=True,
        attn_implementation="sdpa",
    )
    peer = transformers.LlamaForCausalLM(config).eval()
    return HFNet(copy.deepcopy(peer)), peer


def timed(work: Callable[[], int]) -> tuple[float, float]:
    """Tokens per CPU-second and per wall second of one call."""
    cpu, wall = time.process_time(), time.perf_counter()
    tokens = work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return tokens / (time.process_time() - cpu), tokens / (time.perf_counter() - wall)


def profile(work: Callable[[], int]) -> None:
    """Print the operators that take most of one call's time."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        work()
    events = sorted(profiler.key_averages(), key=lambda e: -e.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    for event in events[:8]:
        share = event.self_cpu_time_total / total
        print(f"{event.key:45} {share:6.1%} {event.self_cpu_time_total / 1e3:10.1f} ms")


def main() -> None:
    args = parse()
    transformers.logging.set_verbosity_error()
    net, peer = {"gpt2": gpt2, "llama": llama}[args.model](args)
    net.module.to(args.device)
    peer.to(args.device)
    tokenizer = BytePairTokenizer.bytes_only()
    tokenizer.eos_id = -1  # no completion ends early: both draw the same number of tokens
    peer.generation_config.eos_token_id = None
    engine = Engine(net, tokenizer, threads=BatchThreads.decoding(args.threads))
    random = np.random.default_rng(0)
    lengths = np.linspace(args.shortest, args.prompt, args.problems).astype(int)
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

    padded, mask = padded.to(args.device), mask.to(args.device)

    def ours() -> int:
        return sum(len(c.tokens) for c in engine.generate(requests))

    def theirs() -> int:
        torch.set_num_threads(args.threads)
        # Logits are asked for because reinforcement learning needs the logprobs of its samples.
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
    assert ours() == wanted  # also the warm-up
    if args.profile:
        return profile(ours)
    assert theirs() == wanted
    runs = [(timed(ours), timed(theirs)) for _ in range(args.repeats)]
    mine, other = (
        [statistics.median(r[side][unit] for r in runs) for unit in (0, 1)] for side in (0, 1)
    )
    ratios = [run[0][0] / run[1][0] for run in runs]
    walls = [run[0][1] / run[1][1] for run in runs]
    result = {
        "rlvr_torch_tokens_per_cpu_s": mine[0],
        "transformers_tokens_per_cpu_s": other[0],
        "ratio": mine[0] / other[0],
        "wall_ratio": statistics.median(walls),
        "ratio_min": min(ratios),
        "ratio_max": max(ratios),
        "rlvr_torch_tokens_per_s": mine[1],
        "transformers_tokens_per_s": other[1],
        "settings": vars(args),
        "versions": {"torch": torch.__version__, "transformers": transformers.__version__},
    }
    if args.json:
        print(json.dumps(result))
        return None
    print(f"rlvr_torch    {mine[0]:9.0f} tokens/CPU-s  {mine[1]:9.0f} tokens/s")
    print(f"transformers  {other[0]:9.0f} tokens/CPU-s  {other[1]:9.0f} tokens/s")
    print(f"ratio         {mine[0] / other[0]:9.2f}  ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"wall ratio    {statistics.median(walls):9.2f}  ({min(walls):.2f} to {max(walls):.2f})")
    return None


if __name__ == "__main__":
    main()
