"""
Tokens/s of vLLM on given work, the last line of the output; run.py calls it.

python benchmarks/gpu/vllm_decode.py MODEL GROUPS GROUP PROMPT COMPLETION
"""

from __future__ import annotations

import sys
import time

import numpy as np


def main() -> None:
    from vllm import LLM, SamplingParams

    where, *sizes = sys.argv[1:]
    groups, group, prompt, completion = map(int, sizes)
    engine = LLM(where, dtype="bfloat16", max_model_len=prompt + completion)
    random = np.random.default_rng(1)
    prompts = [
        {"prompt_token_ids": random.integers(1, 250, prompt).tolist()} for _ in range(groups)
    ]
    params = SamplingParams(
        n=group, temperature=1.0, max_tokens=completion, ignore_eos=True, logprobs=0
    )
    engine.generate(prompts, params)
    started = time.perf_counter()
    found = engine.generate(prompts, params)
    seconds = time.perf_counter() - started
    drawn = sum(len(one.token_ids) for request in found for one in request.outputs)
    print(drawn / seconds)


if __name__ == "__main__":
    main()
