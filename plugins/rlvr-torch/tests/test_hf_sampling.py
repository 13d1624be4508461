"""The engine draws from the distribution that the trainer sees, for every family."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from rlvr import BuildContext, Datum, GenerateRequest, Message, SamplingParams
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.supported import FAMILIES
from rlvr_torch.training.optimizer import OptimSettings


@pytest.mark.one_of(3)
@pytest.mark.parametrize("family", FAMILIES)
def test_sampler_and_trainer_agree(family, make_hf):
    """Logprobs of drawn tokens within 1e-4 nats: groups, prompts of three lengths, past windows."""

    async def sample() -> tuple[list[Datum], list[np.ndarray]]:
        context = BuildContext(model=f"hf:{make_hf(family)}", train=OptimSettings(), seed=3)
        async with TorchBackend(TorchConfig(device="cpu"), context) as backend:
            policy = await backend.policy()
            prompts = [
                policy.tokenizer.render([Message(role="user", content="assign y = a" * n)])
                for n in (1, 2, 3)
            ]
            requests = [
                GenerateRequest(prompt=prompt, params=SamplingParams(max_tokens=20), seed=seed)
                for prompt in prompts
                for seed in range(4)
            ]
            data = []
            for request, drawn in zip(requests, await policy.generate_many(requests), strict=True):
                mask = np.arange(len(request.prompt) + len(drawn.tokens)) >= len(request.prompt)
                logprobs = np.zeros(len(mask))
                logprobs[mask] = drawn.logprobs
                data.append(
                    Datum(
                        tokens=[*request.prompt, *drawn.tokens],
                        mask=mask,
                        logprobs=logprobs,
                        advantages=mask * 1.0,
                        weights=mask * 1.0,
                    )
                )
            return data, await backend.logprobs(data, "policy")

    data, found = asyncio.run(sample())
    assert len({len(datum.tokens) for datum in data}) > 2
    for datum, logprobs in zip(data, found, strict=True):
        assert np.abs(logprobs - datum.logprobs).max() < 1e-4
        assert (datum.logprobs[datum.mask] < 0).all()
