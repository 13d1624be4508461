"""How far vLLM in this process is from the trainer, before and after updates (`test_vllm_real.py`).

Arguments: a model's directory; the modules that get adapters, with commas, or ""; a
module of vLLM's that it makes no layer for adapters of, or "". The last line is JSON:
`context`, tokens;
`gaps`, nats, before and after each of three updates; `moved`, nats, by the last one; `is_native`;
`is_cpu`; `repeats`, whether equal seeds drew equal tokens, and others other ones.
"""

from __future__ import annotations

import functools
import json
import os
import sys
from collections.abc import Callable

os.environ |= {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}

import numpy as np
import torch
import vllm
from vllm.lora.model_manager import LoRAModelManager

from rlvr import Datum, FloatArray, GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.vllm import VLLMEngine
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.lora.adapters import attach
from rlvr_torch.runtime.device import vllm_is_for_cpu
from rlvr_torch.training.logprobs import sequence_logprobs


def main(directory: str, targets: str, left_out: str) -> None:
    vllm.LLM = functools.partial(vllm.LLM, enforce_eager=True, max_num_batched_tokens=512)
    register = LoRAModelManager.register_module
    LoRAModelManager.register_module = lambda self, name, layer: (
        None if name == left_out else register(self, name, layer)
    )
    net, version, random = load_net(directory), [0], np.random.default_rng(0)
    if targets:
        attach(net, TorchConfig(lora_rank=4, lora_targets=targets))
    engine = VLLMEngine(
        net,
        CharTokenizer(),
        model=directory,
        read_version=lambda: version[0],
        dtype=torch.float32 if vllm_is_for_cpu() else torch.bfloat16,
        rows=4,
        memory=0.1,
    )
    data = []
    for length in (12, 33):
        none = np.zeros(length)
        tokens, mask = random.integers(1, 300, length), np.arange(length) > 0
        data.append(Datum(tokens=tokens, mask=mask, logprobs=none, advantages=none, weights=none))
    gaps, before = [], [np.zeros(len(datum.tokens)) for datum in data]
    for _ in range(4):
        with torch.no_grad():
            wanted = [value.numpy() for value in sequence_logprobs(net, data)]
            gaps.append(apart(max, engine.score(data, version[0]), wanted))
            moved = apart(min, wanted, before)
            for value in net.module.parameters():
                if value.requires_grad:
                    value += 0.1 * torch.randn_like(value)
        before = wanted
        engine.sleep()
        version[0] += 1
    drawn = [
        [one.tokens.tolist() for one in engine.generate([request(seed + n) for n in range(3)])]
        for seed in (1, 1, 9)
    ]
    told = {
        "context": engine.context_length,
        "gaps": gaps,
        "moved": moved,
        "is_native": engine._handover.sleep_level == 1,
        "is_cpu": vllm_is_for_cpu(),
        "repeats": drawn[0] == drawn[1] != drawn[2],
    }
    print("\n" + json.dumps(told))


def apart(which: Callable[..., float], some: list[FloatArray], others: list[FloatArray]) -> float:
    """Of the data's largest distances the largest, or the smallest."""
    return float(which(abs(x - y).max() for x, y in zip(some, others, strict=True)))


def request(seed: int) -> GenerateRequest:
    params = SamplingParams(max_tokens=12)
    return GenerateRequest(prompt=range(2, 9), params=params, seed=seed)


main(*sys.argv[1:])
