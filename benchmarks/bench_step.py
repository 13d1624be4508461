"""
One whole GRPO step, sample to update, beside TRL's GRPOTrainer: same weights, prompts and lengths.

    pip install -r requirements-bench.txt          # in an environment of its own, with rlvr in it
    python benchmarks/bench_step.py --config small
    python benchmarks/bench_step.py --config 124m
    python benchmarks/bench_step.py --memory       # 124m, prompts and completions of 256 tokens
    python benchmarks/bench_step.py --profile ours | trl

A GPT-2 with seeded weights, prompts of 256 tokens, groups of 8 completions of 64 tokens at
temperature 1, a reward that costs nothing, one update, AdamW, no reference, float32. Ours is the
backend `torch` with the core's group sampler, TRL's the trainer with `use_cpu`, no gradient
checkpointing, no logging, no saving. `--net hf` runs ours through transformers' own layers
(`hf:DIR`) in place of our GPT-2 (`gpt2:DIR`).

Both live in this process and take turns: each of TRL's steps is followed by one of ours. Ratios
are of one round, medians over the rounds; the first round is the warm-up. Wall time, and processor
time, which other work on the machine changes less (most honest with `--threads 1`: more threads
spin while they wait for each other). With `--memory` each runs
alone in a fresh process, two steps: the largest resident set above that of the imports.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from rlvr import Message, Problem, SamplingParams, SingleTurn, Task

CONFIGS: dict[str, dict[str, int]] = {
    "small": {"layers": 4, "heads": 4, "width": 256, "vocab": 2048},
    "124m": {"layers": 12, "heads": 12, "width": 768, "vocab": 50257},
}
LR = 1e-6


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--config", choices=CONFIGS, default="small")
    parser.add_argument("--net", choices=("gpt2", "hf"), default="gpt2")
    parser.add_argument("--problems", type=int, help="default: 8 small, 2 at 124m")
    parser.add_argument("--group", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=256, help="tokens")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a completion")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--device", default="cpu", help="cuda: both on the GPU (read wall times)")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--trl-vllm", action="store_true", help="TRL samples by vLLM, colocated")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--profile", choices=("ours", "trl"))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--memory-of", choices=("ours", "trl"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.problems is None:
        args.problems = 8 if args.config == "small" else 2
    if args.memory:
        args.config, args.problems, args.tokens = "124m", 1, 256
    return args


def make_model(args: argparse.Namespace, directory: Path) -> None:
    """Weights that never draw the end of a text, and a tokenizer that takes a byte for a token."""
    shape = CONFIGS[args.config]
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=shape["vocab"],
        n_positions=args.prompt + args.tokens,
        n_embd=shape["width"],
        n_layer=shape["layers"],
        n_head=shape["heads"],
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model = transformers.GPT2LMHeadModel(config)
    with (
        torch.no_grad()
    ):  # feature 0 of the last hidden state is always 1: the logit of id 0 is -99
        model.transformer.ln_f.weight[0], model.transformer.ln_f.bias[0] = 0.0, 1.0
        model.transformer.wte.weight[:, 0] = 0.0
        model.transformer.wte.weight[0] = 0.0
        model.transformer.wte.weight[0, 0] = -99.0
    model.save_pretrained(directory)
    letters = sorted(ByteLevel.alphabet())
    tokens = ["<|endoftext|>", *letters]
    tokens += [f"x{n}" for n in range(shape["vocab"] - len(tokens))]
    raw = tokenizers.Tokenizer(BPE({token: i for i, token in enumerate(tokens)}, []))
    raw.pre_tokenizer = ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    raw.add_special_tokens(["<|endoftext|>"])
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    ).save_pretrained(directory)


def prompts(args: argparse.Namespace) -> list[str]:
    """As many letters as tokens; all different."""
    text = "abcdefghijklmnopqrstuvwxyz" * args.prompt
    return [text[i : i + args.prompt] for i in range(args.problems)]


def reward(text: str) -> float:
    """Costs nothing, and differs within a group."""
    return float(len(text) % 5)


Seconds = tuple[float, float]
"""Of a wall clock, and of the processor over all threads."""


class Clock:
    """Started when made."""

    def __init__(self) -> None:
        self._start = time.perf_counter(), time.process_time()

    def read(self) -> Seconds:
        return time.perf_counter() - self._start[0], time.process_time() - self._start[1]


class Ours:
    """Our step: the backend, the core's sampler, advantage `group`, loss `grpo`."""

    def __init__(self, args: argparse.Namespace, directory: Path) -> None:
        from rlvr import BuildContext
        from rlvr.rollouts.group import GroupSampler
        from rlvr_algos.advantages.group import GroupAdvantage
        from rlvr_algos.losses.grpo import GrpoLoss
        from rlvr_torch.backend import TorchBackend
        from rlvr_torch.config import TorchConfig
        from rlvr_torch.training.optimizer import OptimSettings

        context = BuildContext(
            model=f"{args.net}:{directory}", train=OptimSettings(lr=LR), steps=10**6
        )
        self._backend = TorchBackend(
            TorchConfig(threads=args.threads, device=args.device, dtype=args.dtype), context
        )
        self._sampler = GroupSampler()
        self._advantage, self._loss = GroupAdvantage(None, context), GrpoLoss(None, context)
        self._params = SamplingParams(max_tokens=args.tokens, group_size=args.group)
        self._problems = [
            Problem(id=str(i), prompt=(Message(role="user", content=text),))
            for i, text in enumerate(prompts(args))
        ]
        self._task = _Task()
        self._tokens = args.problems * args.group * args.tokens
        self._turn = 0

    def step(self) -> None:
        asyncio.run(self._step())

    async def _step(self) -> None:
        from attrs import evolve

        from rlvr import Reward, ScoredGroup, sample_groups
        from rlvr.training import minibatches, stages

        self._turn += 1
        policy = await self._backend.policy()
        groups = await sample_groups(
            self._sampler, policy, self._task, self._problems, evolve(self._params, seed=self._turn)
        )
        drawn = sum(int(t.mask.sum()) for group in groups for t in group.trajectories)
        assert drawn == self._tokens, (drawn, self._tokens)
        scored = [
            ScoredGroup(
                problem=group.problem,
                trajectories=group.trajectories,
                outcomes=[
                    Reward(value=reward(t.completion), score01=0) for t in group.trajectories
                ],
            )
            for group in groups
        ]
        data = stages.collate(scored, self._advantage(scored), self._task)
        parts = minibatches.updates(
            data,
            passes=1,
            minibatches=1,
            aggregation="token",
            max_tokens=self._params.max_tokens,
            seed=0,
        )
        await stages.update(self._backend, parts, self._loss)


class _Task(Task):
    """Single turns."""

    def problems(self, split: str) -> list[Problem]:
        return []

    def episode(self, problem: Problem) -> SingleTurn:
        return SingleTurn(problem.prompt)


def run_trl(
    args: argparse.Namespace, directory: Path, steps: int, after_step: Callable[[Seconds], None]
) -> None:
    """Train with TRL; `after_step` hears the seconds of each step."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    class Watch(transformers.TrainerCallback):
        clock = Clock()

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            torch.set_num_threads(args.threads)
            self.clock = Clock()

        def on_step_end(self, *_: Any, **__: Any) -> None:
            after_step(self.clock.read())

    lengths: list[int] = []

    def score(completions: list[str], completion_ids: list[list[int]], **_: Any) -> list[float]:
        lengths.extend(map(len, completion_ids))
        return [reward(text) for text in completions]

    rows = args.problems * args.group
    settings = GRPOConfig(
        output_dir=str(directory / "trl"),
        use_cpu=args.device == "cpu",
        bf16=args.dtype == "bfloat16",
        use_vllm=args.trl_vllm,
        vllm_mode="colocate",
        gradient_checkpointing=False,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=1,
        num_generations=args.group,
        max_completion_length=args.tokens,
        max_steps=steps,
        num_iterations=1,
        beta=0.0,
        temperature=1.0,
        learning_rate=LR,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        dataloader_num_workers=0,
        shuffle_dataset=False,
    )
    trainer = GRPOTrainer(
        model=transformers.AutoModelForCausalLM.from_pretrained(
            directory, dtype=torch.float32, attn_implementation="sdpa"
        ),
        args=settings,
        reward_funcs=score,
        train_dataset=Dataset.from_dict({"prompt": prompts(args) * steps}),
        processing_class=transformers.AutoTokenizer.from_pretrained(directory),
        callbacks=[Watch()],
    )
    trainer.remove_callback(transformers.PrinterCallback)
    trainer.train()
    assert lengths == [args.tokens] * (rows * steps), (min(lengths), len(lengths))


def compare(args: argparse.Namespace, directory: Path) -> dict[str, Any]:
    ours = Ours(args, directory)
    rounds: list[tuple[Seconds, Seconds]] = []  # TRL's, ours

    def after_step(theirs: Seconds) -> None:
        clock = Clock()
        ours.step()
        rounds.append((theirs, clock.read()))

    run_trl(args, directory, args.rounds + 1, after_step)
    result: dict[str, Any] = {}
    for unit, name in enumerate(("wall", "cpu")):
        ratios = [theirs[unit] / mine[unit] for theirs, mine in rounds[1:]]
        result |= {
            f"ours_{name}_s": statistics.median(mine[unit] for _, mine in rounds[1:]),
            f"trl_{name}_s": statistics.median(theirs[unit] for theirs, _ in rounds[1:]),
            f"{name}_ratio": statistics.median(ratios),
            f"{name}_ratio_min": min(ratios),
            f"{name}_ratio_max": max(ratios),
        }
    return result


def peak_mb(args: argparse.Namespace, name: str) -> float:
    """Memory of two steps above the imports, MB, in a fresh process."""
    own = [sys.executable, __file__, "--memory-of", name]
    for key in ("config", "net", "problems", "group", "prompt", "tokens", "threads"):
        own += [f"--{key}", str(getattr(args, key))]
    found = subprocess.run(own, check=True, stdout=subprocess.PIPE, text=True).stdout
    return float(found.splitlines()[-1])


def measure_memory(args: argparse.Namespace, directory: Path) -> None:
    import rlvr_torch.backend  # noqa: F401 - both sides import both

    try:
        import trl.trainer.grpo_trainer  # noqa: F401
    except ImportError as error:
        print(f"TRL is not counted in the imports: {error}", file=sys.stderr)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of making the model
    before = status_mb("VmRSS")
    if args.memory_of == "ours":
        ours = Ours(args, directory)
        for _ in range(2):
            ours.step()
    else:
        run_trl(args, directory, 2, lambda _: None)
    print(status_mb("VmHWM") - before)


def status_mb(key: str) -> float:
    """A line of /proc/self/status, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def profile(args: argparse.Namespace, directory: Path) -> None:
    """The costliest operators of one step after a warm-up, by time of their own."""
    from torch._C._profiler import _ExperimentalConfig
    from torch.profiler import ProfilerActivity
    from torch.profiler import profile as profiler

    def begin() -> Any:
        return profiler(
            activities=[ProfilerActivity.CPU],
            experimental_config=_ExperimentalConfig(profile_all_threads=True),
        )

    def show(found: Any) -> None:
        rows = found.key_averages()
        print(rows.table(sort_by="self_cpu_time_total", row_limit=12, max_name_column_width=50))

    if args.profile == "ours":
        ours = Ours(args, directory)
        ours.step()
        with begin() as found:
            ours.step()
        show(found)
        return
    found = begin()
    turns = iter([found.start, found.stop])
    run_trl(args, directory, 2, lambda _: next(turns)())
    show(found)


def main() -> None:
    args = parse()
    if args.profile != "ours" and args.memory_of != "ours" and not find_spec("trl"):
        print("left out: TRL is not installed here (pip install -r requirements-bench.txt)")
        return
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(args.threads)
    with tempfile.TemporaryDirectory() as path:
        directory = Path(path)
        make_model(args, directory)
        if args.memory_of:
            measure_memory(args, directory)
            return
        if args.profile:
            profile(args, directory)
            return
        if args.memory:
            ours, theirs = peak_mb(args, "ours"), peak_mb(args, "trl")
            result: dict[str, Any] = {"ours_mb": ours, "trl_mb": theirs, "ratio": ours / theirs}
        else:
            result = compare(args, directory)
    if args.json:
        print(json.dumps({**result, "settings": vars(args)}))
        return
    for name, value in result.items():
        print(f"{name:16}{value:10.2f}")


if __name__ == "__main__":
    main()
