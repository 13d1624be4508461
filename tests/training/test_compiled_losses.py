"""The backend `torch` compiles head and loss of every algorithm once, whatever its batches are."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rlvr import BuildContext, Datum, TopK
from rlvr_algos.config import CispoConfig, GrpoConfig, GspoConfig, PpoConfig
from rlvr_algos.losses.grpo import CispoLoss, GrpoLoss, GspoLoss, ReinforceLoss
from rlvr_algos.losses.ppo import PpoLoss
from rlvr_algos.losses.sft import SftLoss
from rlvr_distill.config import DistillConfig
from rlvr_distill.loss import DistillLoss
from rlvr_torch.training.fused_loss import head_pass
from rlvr_torch.training.output_head import Critic

WIDTH, VOCABULARY = 16, 40
BATCHES = [(9, 12), (20,), (5, 6, 7, 9), (4,), (30, 5, 8), (33, 31), (19,)]
"""Tokens of the data of each micro-batch; 4 is a single supervised token, 19 a whole chunk."""

# What a run has at update i: settings that follow the training change with it.
LOSSES = {
    "grpo": lambda i, c: GrpoLoss(GrpoConfig(kl_coef=0.1 * (i + 1), kl_target=0.1), c),
    "grpo, corrected": lambda i, c: GrpoLoss(
        GrpoConfig(entropy_coef=0.1, correction="tis-token"), c
    ),
    "gspo": lambda i, c: GspoLoss(GspoConfig(kl_coef=0.1, kl_bias_correction=True), c),
    "cispo": lambda i, c: CispoLoss(CispoConfig(correction="mis-sequence"), c),
    "rloo": lambda i, c: ReinforceLoss(None, c),
    "ppo": lambda i, c: PpoLoss(PpoConfig(), c),
    "sft": lambda i, c: SftLoss(None, c),
    "distill": lambda i, c: DistillLoss(DistillConfig(teacher="t"), c),
}
COMPILED = {"sft": 2, "distill": 0}  # head alone; neither logprobs nor a function that is marked


def datum(seed: int, length: int) -> Datum:
    """Numbers of every kind that a loss may ask for."""
    random = np.random.default_rng(seed)
    mask = np.arange(length) >= 3
    count = int(mask.sum())

    def column(scale: float, middle: float) -> np.ndarray:
        return np.where(mask, middle + scale * random.normal(size=length), 0).astype(np.float32)

    logits = random.normal(size=(count, VOCABULARY))
    rows = logits - np.logaddexp.reduce(logits, axis=1)[:, None]
    ids = np.tile(np.arange(VOCABULARY), (count, 1))
    names = ("reference", "policy", "value", "return")
    return Datum(
        tokens=random.integers(0, VOCABULARY, length),
        mask=mask,
        logprobs=column(0.1, -4.0),
        advantages=column(1.0, 0.0),
        weights=np.where(mask, 0.1, 0.0),
        temperature=1.0 + 0.1 * (seed % 3),
        annotations={name: column(0.1, -4.0) for name in names},
        distributions={"teacher": TopK(ids=ids, logprobs=rows, actual=rows[:, 0], is_whole=True)},
    )


@pytest.mark.one_of(4, "gspo", "ppo", "distill")
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.filterwarnings("ignore::UserWarning:torch.*")
@pytest.mark.parametrize("name", LOSSES)
def test_a_run_compiles_head_and_loss_in_its_first_update(name: str) -> None:
    """Seven micro-batches of other sizes: the first one compiles; results are the plain ones."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    weights, bias = torch.randn(VOCABULARY, WIDTH), torch.randn(VOCABULARY)
    head = {"head": weights.requires_grad_(), "head_bias": bias.requires_grad_()}
    net = SimpleNamespace(**head, logit_scale=1.3, logit_softcap=2.0)
    critic = Critic(WIDTH, torch.device("cpu"))
    # PyTorch's compiler takes seconds to import: not for a worker that only collects this test
    from torch._dynamo.testing import CompileCounterWithBackend

    from rlvr_torch.training.compiled import FunctionCompiler

    counter = CompileCounterWithBackend("eager")
    compiler, counts = FunctionCompiler(counter), []
    for number, lengths in enumerate(BATCHES):
        data = [datum(10 * number + i, length) for i, length in enumerate(lengths)]
        hidden = torch.randn(sum(int(d.mask.sum()) for d in data), WIDTH).requires_grad_()
        loss = LOSSES[name](number, BuildContext())
        fast, plain = (
            head_pass(hidden, data, loss, net, critic=critic, chunk=16, compiler=one)
            for one in (compiler, None)
        )
        assert fast.loss == pytest.approx(plain.loss, rel=1e-4)
        assert fast.metrics == pytest.approx(plain.metrics, rel=1e-4, abs=1e-6)
        for (_, one), (_, other) in zip(fast.pulls, plain.pulls, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
        counts.append(counter.frame_count)
    assert counts == [COMPILED.get(name, 3)] * len(BATCHES)
