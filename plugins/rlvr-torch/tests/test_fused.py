"""Head and loss in one pass give the gradients of plain autograd through full logits."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr import BackendError, Loss, Needs, PartError
from rlvr.testing.backend_losses import PullLoss
from rlvr_torch.models.gpt2 import attend_causal
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.runtime.batch_threads import BatchThreads
from rlvr_torch.training.accumulate import Learner, accumulate, eval_loss
from rlvr_torch.training.loss_inputs import outputs_of
from rlvr_torch.training.microbatches import MicroBatches
from rlvr_torch.training.output_head import Critic, Head


class ToyNet(nn.Module):
    """A `Net` without layers that attend: what its head does is what is tested."""

    positions, vocab_size, heads = 96, 300, ()

    def __init__(self, *, bias=False, scale=1.0, softcap=0.0, tied=False):
        super().__init__()
        torch.manual_seed(5)
        self.logit_scale, self.logit_softcap = scale, softcap
        self.embedding = nn.Embedding(300, 24)
        self.inner = nn.Linear(24, 24)
        self.out = nn.Linear(24, 300, bias=bias)
        if tied:
            self.out.weight = self.embedding.weight

    @property
    def module(self):
        return self

    @property
    def head(self):
        return self.out.weight

    @property
    def head_bias(self):
        return self.out.bias

    def hidden(self, tokens, positions, attend):
        return torch.tanh(self.inner(self.embedding(tokens))) + positions[..., None] / 96


NETS = {
    "gpt2": None,
    "untied": {},
    "tied": {"tied": True},
    "bias": {"bias": True},
    "scale": {"scale": 0.3},
    "softcap": {"softcap": 2.0},
    "all": {"bias": True, "scale": 1.7, "softcap": 3.0, "tied": True},
}


class TokenLoss(Loss):
    """Weighted, curved in the logprobs: its gradient depends on them."""

    def __call__(self, data, logprobs, outputs):
        loss = sum(
            (own(d.weights * d.advantages, lp) * (lp + 0.1 * lp**2)).sum()
            for d, lp in zip(data, logprobs, strict=True)
        )
        return loss, {"n": float(len(data)), "n/max": float(len(data))}


class SequenceLoss(TokenLoss):
    """The ratio of whole sequences (as GSPO's): every token's gradient depends on all others."""

    def __call__(self, data, logprobs, outputs):
        loss = 0.0
        for d, lp in zip(data, logprobs, strict=True):
            mean = (lp - 5.7 * own(d.logprobs, lp)).sum() / int(d.mask.sum())
            loss = loss - (own(d.weights * d.advantages, lp) * mean.exp()).sum()
        return loss, {}


class EntropyLoss(TokenLoss):
    """Logprobs and entropies together."""

    needs = Needs(outputs={"entropy"})

    def __call__(self, data, logprobs, outputs):
        loss, metrics = super().__call__(data, logprobs, outputs)
        for d, lp, h in zip(data, logprobs, outputs["entropy"], strict=True):
            loss = loss + (own(d.weights, lp) * h.square()).sum()
        return loss, metrics


class ValueLoss(TokenLoss):
    """Logprobs and a critic's squared error."""

    needs = Needs(outputs={"value", "entropy"})

    def __call__(self, data, logprobs, outputs):
        loss, metrics = super().__call__(data, logprobs, outputs)
        for d, lp, v in zip(data, logprobs, outputs["value"], strict=True):
            loss = loss + (own(d.weights, lp) * (v - own(d.advantages, lp)).square()).sum()
        return loss, metrics


class StatesLoss(PullLoss):
    """Over whole distributions, from states and head; no logprobs."""


class BothLoss(PullLoss):
    """States, head and logprobs together."""

    def __init__(self):
        super().__init__(with_logprobs=True)


def own(values, like):
    """A record's array as a tensor like another."""
    return torch.tensor(np.array(values)).to(like)


@pytest.fixture
def data(make_datum):
    """Groups, mixed lengths and temperatures, holes in masks, a datum longer than most chunks."""
    gap = np.array([0, 0, 1, 1, 0, 0, 1, 0], dtype=bool)
    prompt = np.arange(9)
    group = [
        make_datum(9, 12 + 2 * i, i, tokens=[*prompt, *range(20, 23 + 2 * i)]) for i in range(4)
    ]
    return [
        *group,
        make_datum(1, 9, seed=7, temperature=0.7),
        make_datum(20, 71, seed=8, temperature=1.5),
        make_datum(2, 8, seed=9, mask=gap),
    ]


@pytest.fixture(params=NETS)
def net(request, model):
    """Every kind of head."""
    options = NETS[request.param]
    return model if options is None else ToyNet(**options)


def plain(net, data, loss, critic=None):
    """Loss and gradients in float64, each datum alone, through full logits."""
    net.double()
    logprobs, entropy, value, states = [], [], [], []
    for d in data:
        tokens = torch.from_numpy(d.tokens.astype(np.int64))[None, :-1]
        hidden = net.hidden(tokens, torch.arange(tokens.shape[1])[None], attend_causal)[0]
        logits = net.logit_scale * F.linear(hidden, net.head, net.head_bias)
        if net.logit_softcap:
            logits = net.logit_softcap * torch.tanh(logits / net.logit_softcap)
        all_of = (logits / d.temperature).log_softmax(1)
        chosen = all_of.gather(1, torch.from_numpy(d.tokens[1:].astype(np.int64))[:, None])[:, 0]
        columns = [chosen, -(all_of.exp() * all_of).sum(1)]
        if critic is not None:
            columns.append(hidden @ critic.weight.double() + critic.bias.double())
        states.append(hidden[torch.from_numpy(d.mask[1:].copy())])
        mask = own(d.mask, chosen)
        columns = [torch.cat([c.new_zeros(1), c]) * mask for c in columns]
        for into, column in zip((logprobs, entropy, value), columns, strict=False):
            into.append(column)
    weights = [*net.parameters(), *([] if critic is None else critic.parameters())]
    head = Head(
        weights=net.head, bias=net.head_bias, scale=net.logit_scale, softcap=net.logit_softcap
    )
    if not loss.needs.logprobs:
        logprobs = [torch.zeros(len(d.tokens)) for d in data]
    outputs = {"entropy": entropy, "value": value, "hidden": states, "head": [head]}
    amount, _ = loss(data, logprobs, outputs)
    grads = torch.autograd.grad(amount, weights)
    net.float()
    return amount.item(), [grad.float() for grad in grads]


def found(net, data, loss, chunk, critic=None, budget=10_000):
    """Loss and gradients of one accumulation."""
    learner = Learner(net=net, critic=critic, chunk=chunk)
    for value in learner.weights:
        value.grad = None
    metrics = accumulate(data, loss, learner, MicroBatches(budget=budget, threads=BatchThreads()))
    return metrics, [value.grad for value in learner.weights]


def gap(found, wanted):
    """Largest difference, as a share of the largest gradient."""
    size = max(float(value.abs().max()) for value in wanted)
    return max(float((a - b).abs().max()) for a, b in zip(found, wanted, strict=True)) / size


@pytest.mark.one_of(3)
@pytest.mark.parametrize("chunk", [1, 7, 16, 1000])
@pytest.mark.parametrize(
    "loss",
    [TokenLoss, SequenceLoss, EntropyLoss, StatesLoss, BothLoss],
    ids=lambda c: c.__name__,
)
def test_gradients_are_those_of_full_logits(net, data, loss, chunk):
    """Bias, scale, soft cap, tied or not, temperature: within 2e-6 of float64 autograd."""
    wanted, grads = plain(net, data, loss())
    metrics, mine = found(net, data, loss(), chunk)
    assert metrics["loss"] == pytest.approx(wanted, abs=1e-5, rel=1e-5)
    assert max(float(grad.abs().max()) for grad in grads) > 1e-3
    assert gap(mine, grads) < 2e-6


@pytest.mark.parametrize("chunk", [7, 1000])
def test_a_critic_learns_through_the_trunk(net, data, chunk):
    """Values, entropies and logprobs in one loss: critic and trunk get autograd's gradients."""
    critic = Critic(net.head.shape[1], torch.device("cpu"))
    with torch.no_grad():
        critic.weight.normal_(generator=torch.Generator().manual_seed(3))
        critic.bias.fill_(0.3)
    wanted, grads = plain(net, data, ValueLoss(), critic)
    metrics, mine = found(net, data, ValueLoss(), chunk, critic)
    assert metrics["loss"] == pytest.approx(wanted, rel=1e-5)
    assert float(grads[-1]) != 0
    assert gap(mine, grads) < 2e-6


@pytest.mark.parametrize("family", ["llama", "gemma2"])
@pytest.mark.parametrize("chunk", [7, 1000])
def test_models_of_transformers_get_autograds_gradients(make_hf, data, family, chunk):
    """Each datum alone through full logits, in float32: within 2e-5 of the largest gradient."""
    net = load_net(str(make_hf(family)))
    logprobs = []
    for d in data:
        tokens = torch.from_numpy(d.tokens.astype(np.int64))[None]
        hidden = net.hidden(tokens, torch.arange(tokens.shape[1])[None], net.attend_causal)
        all_of = (net.logits(hidden[0, :-1]) / d.temperature).log_softmax(1)
        chosen = all_of.gather(1, tokens[0, 1:, None])[:, 0]
        logprobs.append(torch.cat([torch.zeros(1), chosen]) * own(d.mask, chosen))
    weights = list(net.module.parameters())
    amount, _ = TokenLoss()(data, logprobs, {})
    wanted = torch.autograd.grad(amount, weights)
    metrics, mine = found(net, data, TokenLoss(), chunk)
    assert metrics["loss"] == pytest.approx(amount.item(), rel=1e-5)
    assert gap(mine, wanted) < 2e-5


def test_micro_batches_and_metrics_add_up(model, data):
    """Cut in any way, gradients and sums are the same; `/max` keeps the largest of the calls."""
    whole, wanted = found(model, data, TokenLoss(), 1000)
    parts, grads = found(model, data, TokenLoss(), 20, budget=30)
    assert gap(grads, wanted) < 2e-6
    assert whole["n"] == parts["n"] == len(data)
    assert whole["n/max"] == len(data)
    assert parts["n/max"] < len(data)


def test_a_frozen_head_gets_no_gradient(data):
    """Adapters train, the head does not: nothing of its size is made for it."""
    net = ToyNet(bias=True)
    net.out.requires_grad_(False)
    learner = Learner(net=net)
    assert len(learner.weights) == 3
    accumulate(data, TokenLoss(), learner, MicroBatches(budget=1000, threads=BatchThreads()))
    assert net.out.weight.grad is None
    assert net.inner.weight.grad.abs().max() > 0


@pytest.mark.parametrize("loss", [StatesLoss, BothLoss])
def test_a_frozen_head_is_no_leaf_of_a_loss_over_states(data, loss):
    """The loss sees that it needs no gradient; the trunk gets the same one as else."""
    seen = []

    class Look(loss):
        def __call__(self, data, logprobs, outputs):
            seen.append(outputs["head"][0].weights.requires_grad)
            return super().__call__(data, logprobs, outputs)

    grads = []
    for is_trained in (True, False):
        net = ToyNet(bias=True)
        net.out.requires_grad_(is_trained)
        found(net, data, Look(), 16)
        grads.append(net.inner.weight.grad)
        assert set(seen) == {is_trained}
        assert (net.out.weight.grad is not None) == is_trained
        seen.clear()
    assert torch.equal(*grads)


@pytest.mark.parametrize("loss", [StatesLoss, BothLoss])
def test_bfloat16_states_give_nearly_the_same_gradient(make_hf, data, loss):
    """The trunk in bfloat16, the loss in float32: values within 1 %, gradients point one way."""
    net = load_net(str(make_hf("llama")))
    wanted, grads = found(net, data, loss(), 64)
    learner = Learner(net=net, dtype=torch.bfloat16, chunk=64)
    for value in learner.weights:
        value.grad = None
    told = accumulate(data, loss(), learner, MicroBatches(budget=10_000, threads=BatchThreads()))
    mine = torch.cat([value.grad.flatten() for value in learner.weights])
    whole = torch.cat([grad.flatten() for grad in grads])
    assert told["loss"] == pytest.approx(wanted["loss"], rel=1e-2)
    assert F.cosine_similarity(mine, whole, dim=0) > 0.99


def test_a_loss_over_states_is_called_once_a_micro_batch(model, data):
    """Its own chunks are larger than ours; with logprobs it is called as often as they need."""
    for loss, calls in ((StatesLoss(), 1), (BothLoss(), 6)):
        found(model, data, loss, 8)
        assert loss.calls == calls


@pytest.mark.parametrize("loss", [TokenLoss, EntropyLoss, StatesLoss, BothLoss])
def test_appraising_gives_the_same_numbers_and_no_gradient(model, data, loss):
    """In micro-batches; leaves need no gradient then, so that a loss can do without its own."""
    wanted, _ = found(model, data, loss(), 16, budget=30)
    seen = []

    class Look(loss):
        def __call__(self, data, logprobs, outputs):
            given = [*logprobs, *outputs.get("hidden", ())]
            seen.extend(tensor.requires_grad for tensor in given)
            return super().__call__(data, logprobs, outputs)

    told = eval_loss(
        data, Look(), Learner(net=model, chunk=16), MicroBatches(budget=30, threads=BatchThreads())
    )
    assert told == pytest.approx(wanted, rel=1e-6)
    assert seen
    assert not any(seen)


def test_a_loss_over_states_makes_no_logits_of_ours(model, make_datum, largest):
    """With thousands of supervised tokens nothing as wide as the vocabulary is made here."""

    class Small(PullLoss):
        def __call__(self, data, logprobs, outputs):
            (head,) = outputs["head"]
            loss = sum((h.mean() * 3) ** 2 for h in outputs["hidden"]) + head.weights[0].sum()
            return loss, {}

    data = [make_datum(1, 96, seed=i) for i in range(32)]
    assert 0 < largest(found, model, data, Small(), 1024) < 32 * 95 * model.vocab_size / 2


def test_problems_of_a_loss_over_states_are_named(model, data):
    """Each datum is tried alone where the whole is not finite."""

    class Bad(PullLoss):
        def __call__(self, data, logprobs, outputs):
            loss, metrics = super().__call__(data, logprobs, outputs)
            is_bad = any(d.problem_id == "problem-8" for d in data)
            return loss * (float("nan") if is_bad else 1.0), metrics

    with pytest.raises(BackendError, match=r"nan: problems 'problem-8';"):
        found(model, data, Bad(), 1000)


@pytest.mark.parametrize(("loss", "buffers"), [(TokenLoss, 1), (EntropyLoss, 2)])
def test_logits_exist_once(model, make_datum, loss, buffers):
    """One matrix product makes each logit; no float tensor is as large as all of them."""
    data = [make_datum(2, 18, seed=i) for i in range(40)]
    vocab = model.vocab_size
    supervised, chunk = 40 * 16, 32

    class Watch(TorchDispatchMode):
        largest, products, storages = 0, 0, None

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            for value in result if isinstance(result, (tuple, list)) else [result]:
                is_tensor = isinstance(value, torch.Tensor)
                if is_tensor and value.shape[-1:] == (vocab,) and value.ndim == 2:
                    self.largest = max(self.largest, value.numel())
                    self.products += func is torch.ops.aten.mm.out and len(value)
            return result

    with Watch() as watch:
        found(model, data, loss(), chunk)
    assert watch.products == supervised  # each logit was computed once
    assert chunk * vocab <= watch.largest <= chunk * vocab < supervised * vocab / 8


def test_a_loss_without_gradient_is_refused(model, data):
    """A loss that depends on no logprob would train nothing, in silence."""

    class Constant(TokenLoss):
        def __call__(self, data, logprobs, outputs):
            return torch.tensor(2.0), {}

    with pytest.raises(PartError, match="without a gradient"):
        found(model, data, Constant(), 1000)


def test_a_metric_may_have_a_gradient(model, data):
    """`logprobs[0].mean()` is a number: PyTorch's warning of it was an error under `-W error`."""

    class Telling(TokenLoss):
        def __call__(self, data, logprobs, outputs):
            value, _ = super().__call__(data, logprobs, outputs)
            return value, {"value": value}

    metrics, _ = found(model, data, Telling(), 1000)
    assert metrics["value"] == metrics["loss"]


def test_unknown_outputs_are_refused():
    """What is supported is named."""

    class Curious(TokenLoss):
        needs = Needs(outputs={"entropy", "weather"})

    with pytest.raises(BackendError, match=r"'weather'\n.*entropy, head, hidden, value"):
        outputs_of(Curious())
    assert outputs_of(EntropyLoss()) == {"entropy"}
    assert outputs_of(TokenLoss()) == frozenset()
