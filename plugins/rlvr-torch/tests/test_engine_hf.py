"""The engine's cache is right for transformers' families: their own code is the judge."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlvr import GenerateRequest, SamplingParams
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.hf.supported import FAMILIES

from .conftest import NoEnd

transformers = pytest.importorskip("transformers")


@pytest.mark.one_of(99, "gpt_oss", "olmo_hybrid", "gemma3_text")
@pytest.mark.parametrize("family", FAMILIES)
def test_logprobs_are_those_of_transformers(family, make_hf):
    """Within 1e-4, with rows that are freed and taken, past windows, past the ring's first size."""
    directory = make_hf(family)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager"
    ).eval()
    random = np.random.default_rng(0)
    prompts = [random.integers(4, 300, length) for length in (1, 7, 20, 33)]
    lengths = [1, 50, 3, 40, 12, 5, 60, 2, 20, 9]
    requests = [
        GenerateRequest(prompt=prompts[i % 4], params=SamplingParams(max_tokens=length), seed=i)
        for i, length in enumerate(lengths)
    ]
    completions = Engine(load_net(str(directory)), NoEnd(), rows=3).generate(requests)
    for request, completion in zip(requests, completions, strict=True):
        assert len(completion.tokens) == request.params.max_tokens
        tokens = torch.tensor([*request.prompt.tolist(), *completion.tokens.tolist()])[None]
        with torch.no_grad():
            logits = theirs(tokens).logits[0, len(request.prompt) - 1 : -1]
        wanted = logits.log_softmax(1).gather(1, tokens[0, len(request.prompt) :, None])[:, 0]
        assert np.abs(completion.logprobs - wanted.numpy()).max() < 1e-4
