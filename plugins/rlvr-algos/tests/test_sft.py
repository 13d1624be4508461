"""The loss `sft` against cross-entropy."""

from __future__ import annotations

import math

import attrs
import numpy as np
import pytest
import torch

from rlvr import BuildContext
from rlvr.testing import random_data
from rlvr.training.minibatches import weigh
from rlvr_algos.losses.sft import SftLoss

LOSS = SftLoss(None, BuildContext())


def test_is_cross_entropy_where_advantages_are_one() -> None:
    """With token weights it equals torch's cross-entropy over the policy's tokens, float64."""
    data = weigh(random_data(seed=2, count=5), "token", max_tokens=9)
    data = [attrs.evolve(d, advantages=d.mask.astype(float)) for d in data]
    generator = torch.Generator().manual_seed(0)
    logits = [torch.randn(len(d.tokens), 7, generator=generator, dtype=torch.float64) for d in data]
    targets = [torch.tensor(d.tokens.tolist()) for d in data]
    logprobs = [
        x.log_softmax(-1).gather(-1, y[:, None])[:, 0] for x, y in zip(logits, targets, strict=True)
    ]

    loss, metrics = LOSS(data, logprobs, {})

    mask = torch.tensor(np.concatenate([d.mask for d in data]))
    wanted = torch.nn.functional.cross_entropy(torch.cat(logits)[mask], torch.cat(targets)[mask])
    assert loss.item() == pytest.approx(wanted.item(), rel=1e-6)
    assert metrics == {
        "loss/policy": pytest.approx(wanted.item(), rel=1e-6),
        "logprob/mean": pytest.approx(-wanted.item(), rel=1e-6),
    }


def test_worked_by_hand() -> None:
    """Two tokens of probability 1/2 and 1/8, weight 1/2 each: (ln 2 + ln 8) / 2 = ln 4."""
    (datum,) = random_data(count=1, max_length=3)
    datum = attrs.evolve(
        datum,
        mask=[False, True, True],
        weights=[0, 0.5, 0.5],
        advantages=[0, 1, 1],
        logprobs=[0, 0, 0],
    )

    loss, _ = LOSS([datum], [torch.tensor([-9.0, math.log(0.5), math.log(0.125)])], {})

    assert loss.item() == pytest.approx(math.log(4))


def test_advantages_scale_what_is_imitated() -> None:
    """A trajectory of advantage 0 is not imitated, one of 2 twice as much."""
    data = random_data(seed=3, count=2)
    data = [
        attrs.evolve(d, advantages=a * d.mask.astype(float))
        for d, a in zip(data, (0.0, 2.0), strict=True)
    ]
    logprobs = [torch.full((len(d.tokens),), -1.0, requires_grad=True) for d in data]

    LOSS(data, logprobs, {})[0].backward()

    assert logprobs[0].grad is not None
    assert logprobs[1].grad is not None
    assert (logprobs[0].grad == 0).all()
    assert np.allclose(logprobs[1].grad, -2 * data[1].weights)


def test_does_not_ask_who_sampled() -> None:
    """Logprobs of the sampler, zeros for references, do not enter."""
    data = random_data(seed=4)
    logprobs = [torch.full((len(d.tokens),), -1.0) for d in data]

    silent = [attrs.evolve(d, logprobs=np.zeros(len(d.tokens))) for d in data]

    assert LOSS(data, logprobs, {})[0] == LOSS(silent, logprobs, {})[0]
    assert not LOSS.importance_weighted
    assert LOSS.needs.annotations == frozenset()
