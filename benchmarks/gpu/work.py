"""What is measured of ours: an update, decoding, a whole GRPO step, each through the backend."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
import torch
import transformers
from attrs import frozen
from figures import Work

from rlvr import (
    BuildContext,
    Datum,
    GenerateRequest,
    Message,
    Problem,
    Reward,
    SamplingParams,
    ScoredGroup,
    SingleTurn,
    Task,
    sample_groups,
)
from rlvr.rollouts.group import GroupSampler
from rlvr.training import minibatches, stages
from rlvr_algos.advantages.group import GroupAdvantage
from rlvr_algos.losses.grpo import GrpoLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.gpt2_files import save_gpt2
from rlvr_torch.models.shape import Shape
from rlvr_torch.training.optimizer import OptimSettings


def write_model(shape: Shape, folder: Path, device: torch.device) -> str:
    """A model of that shape with random weights; gives its spec. Nothing is downloaded."""
    place = folder / shape.name.replace(" ", "-")
    scheme = "hf" if shape.is_gated else "gpt2"
    if place.is_dir():
        return f"{scheme}:{place}"
    place.mkdir(parents=True)
    if not shape.is_gated:
        config = GPT2Config(
            vocab_size=shape.vocabulary,
            n_positions=shape.positions,
            n_embd=shape.width,
            n_layer=shape.layers,
            n_head=shape.heads,
        )
        tokenizer = BytePairTokenizer.bytes_only()
        save_gpt2(GPT2.new(config), place, eos_id=tokenizer.eos_id)
        tokenizer.save(place)
        return f"gpt2:{place}"
    qwen = transformers.Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.width,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_heads,
        head_dim=shape.head_width,
        tie_word_embeddings=shape.is_tied,
        eos_token_id=0,
    )
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(qwen, dtype=torch.bfloat16)
    model.save_pretrained(place)
    letters = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    names = {token: i for i, token in enumerate(["<|endoftext|>", *letters])}
    raw = tokenizers.Tokenizer(tokenizers.models.BPE(names, []))
    raw.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    raw.decoder = tokenizers.decoders.ByteLevel()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|endoftext|>", pad_token="<|endoftext|>"
    ).save_pretrained(place)
    return f"hf:{place}"


@frozen(kw_only=True)
class Timed:
    """Seconds of one repetition, and the most memory that tensors took (0: not known)."""

    seconds: float
    peak: int = 0


def timed(work: Callable[[], object], repeats: int) -> Timed:
    """The median of some repetitions, after one that does not count."""
    work()
    is_gpu = torch.cuda.is_available()
    if is_gpu:
        torch.cuda.reset_peak_memory_stats()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        if is_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() if is_gpu else 0
    return Timed(seconds=float(np.median(times)), peak=peak)


class Ours:
    """The backend with given options, and the work on it."""

    def __init__(
        self, spec: str, options: Mapping[str, Any], work: Work, device: torch.device
    ) -> None:
        config = TorchConfig(device=device.type, **options)
        self._context = BuildContext(model=spec, train=OptimSettings(lr=1e-6), steps=10**6)
        self._device, self._work = device, work
        self.backend = TorchBackend(config, self._context)
        self._turn = 0

    def close(self) -> None:
        """Let the memory go."""
        asyncio.run(self.backend.__aexit__())
        del self.backend
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def update(self) -> None:
        """One update on random tokens."""
        work, random = self._work, np.random.default_rng(0)
        data = []
        for _ in range(work.groups):
            prompt = random.integers(1, 250, work.prompt)
            for _ in range(work.group):
                own = random.integers(1, 250, work.completion)
                tokens = np.concatenate([prompt, own])
                mask = np.arange(len(tokens)) >= work.prompt
                data.append(
                    Datum(
                        tokens=tokens,
                        mask=mask,
                        logprobs=np.where(mask, -5.5, 0),
                        advantages=np.where(mask, random.normal(), 0),
                        weights=np.where(mask, 1 / work.drawn, 0),
                    )
                )
        asyncio.run(self.backend.update(data, GrpoLoss(None, self._context)))

    def decode(self) -> int:
        """Draw the completions; gives how many tokens they have."""
        work, random = self._work, np.random.default_rng(1)
        params = SamplingParams(max_tokens=work.completion)
        prompts = [random.integers(1, 250, work.prompt) for _ in range(work.groups)]
        requests = [
            GenerateRequest(prompt=prompt, params=params, seed=seed)
            for prompt in prompts
            for seed in range(work.group)
        ]

        async def draw() -> int:
            policy = await self.backend.policy()
            return sum(len(c.tokens) for c in await policy.generate_many(requests))

        return asyncio.run(draw())

    def step(self) -> None:
        """One GRPO step: sample, a reward that costs nothing, advantages, one update."""
        self._turn += 1
        asyncio.run(self._step())

    async def _step(self) -> None:
        work, task = self._work, _Task()
        params = SamplingParams(max_tokens=work.completion, group_size=work.group, seed=self._turn)
        letters = "abcdefghijklmnopqrstuvwxyz" * work.prompt
        problems = [
            Problem(
                id=str(i),
                prompt=(Message(role="user", content=letters[i : i + work.prompt]),),
            )
            for i in range(work.groups)
        ]
        policy = await self.backend.policy()
        groups = await sample_groups(GroupSampler(), policy, task, problems, params)
        scored = [
            ScoredGroup(
                problem=group.problem,
                trajectories=group.trajectories,
                outcomes=[
                    Reward(value=float(len(t.completion) % 5), score01=0)
                    for t in group.trajectories
                ],
            )
            for group in groups
        ]
        advantage = GroupAdvantage(None, self._context)
        data = stages.collate(scored, advantage(scored), task)
        parts = minibatches.updates(
            data, passes=1, minibatches=1, aggregation="token", max_tokens=work.completion, seed=0
        )
        await stages.update(self.backend, parts, GrpoLoss(None, self._context))


class _Task(Task):
    """Single turns."""

    def problems(self, split: str) -> list[Problem]:
        return []

    def episode(self, problem: Problem) -> SingleTurn:
        return SingleTurn(problem.prompt)


def transformers_decode(spec: str, work: Work) -> Callable[[], int]:
    """The same prompts and lengths through `generate` of transformers, in bfloat16 on a GPU."""
    place = spec.partition(":")[2]
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    model = transformers.AutoModelForCausalLM.from_pretrained(place, dtype=dtype).to(device)
    model.generation_config.eos_token_id = None
    random = np.random.default_rng(1)
    prompts = np.stack([random.integers(1, 250, work.prompt) for _ in range(work.groups)])
    tokens = torch.from_numpy(np.repeat(prompts, work.group, axis=0)).to(device)

    def draw() -> int:
        drawn = model.generate(
            tokens,
            attention_mask=torch.ones_like(tokens),
            do_sample=True,
            top_k=0,
            temperature=1.0,
            max_new_tokens=work.completion,
            pad_token_id=0,
            return_dict_in_generate=True,
            output_logits=True,
        )
        return (drawn.sequences.shape[1] - work.prompt) * len(tokens)

    return draw
