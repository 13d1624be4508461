"""The load-balancing loss of a mixture: transformers' own number, through packing and backward."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
import torch
import transformers

from rlvr import BuildContext, ConfigError, Datum
from rlvr.testing.backend import LikelihoodLoss
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.training.accumulate import Learner
from rlvr_torch.training.router_loss import RouterLoss

MIXTURES = ("gpt_oss", "mixtral", "qwen3_moe")


def data_of(lengths, group, seed=0):
    """`group` completions after each of two prompts, of these lengths and one token more each."""
    random = np.random.default_rng(seed)
    found = []
    for prompt_length, length in lengths:
        prompt = random.integers(0, 300, prompt_length)
        for more in range(group):
            tokens = [*prompt, *random.integers(0, 300, length + more)]
            mask = np.arange(len(tokens)) >= prompt_length
            found.append(
                Datum(
                    tokens=tokens,
                    mask=mask,
                    logprobs=-1.0 * mask,
                    advantages=1.0 * mask,
                    weights=0.01 * mask,
                )
            )
    return found


def theirs(directory, data):
    """What transformers says of the same sequences in a padded batch, and its gradients."""
    model = transformers.AutoModelForCausalLM.from_pretrained(
        directory, attn_implementation="eager"
    ).eval()
    longest = max(len(d.tokens) for d in data) - 1
    tokens, mask = (
        torch.zeros(len(data), longest, dtype=torch.long),
        torch.zeros(len(data), longest, dtype=torch.long),
    )
    for i, datum in enumerate(data):  # the last token is predicted and not read
        tokens[i, : len(datum.tokens) - 1] = torch.tensor(datum.tokens[:-1].astype(np.int64))
        mask[i, : len(datum.tokens) - 1] = 1
    found = model(input_ids=tokens, attention_mask=mask, output_router_logits=True).aux_loss
    found.backward()
    return found.item(), {n: v.grad for n, v in model.named_parameters() if v.grad is not None}


class Nothing(LikelihoodLoss):
    """A loss whose gradient is zero: what is left is the router's."""

    def __call__(self, data, logprobs, outputs):
        return sum(row.sum() for row in logprobs) * 0.0, {}


@pytest.mark.parametrize("family", MIXTURES)
@pytest.mark.parametrize("group", [1, 3])
def test_value_and_gradient_are_those_of_transformers(family, group, make_hf):
    """Shared prompts are read once and count for each completion; nothing is padded."""
    directory, data = make_hf(family), data_of([(9, 12), (5, 17)], group)
    wanted, gradients = theirs(directory, data)
    net = load_net(str(directory))
    learner = Learner(net=net, router=RouterLoss.of(net, data, 0.5))
    found, grads = learner.gradients(data, Nothing())
    assert found.metrics["loss/router"] == pytest.approx(wanted, abs=1e-5)
    assert found.loss == pytest.approx(0.5 * wanted, abs=1e-5)
    names = [name for name, _ in net.module.named_parameters()]
    told = {name: grad for name, grad in zip(names, grads, strict=True) if grad is not None}
    size = max(float(value.abs().max()) for value in gradients.values())
    assert size > 1e-4
    for name, value in gradients.items():
        assert (2 * told[name] - value).abs().max() < 1e-5 + 1e-4 * size, name


def test_micro_batches_share_it_by_their_tokens(make_hf):
    """Two micro-batches: each has its own loss; the update's is their mean over tokens."""
    net = load_net(str(make_hf("mixtral")))
    one, two = data_of([(9, 12)], 2), data_of([(5, 30)], 1, seed=1)
    router = RouterLoss.of(net, [*one, *two], 1.0)
    found = [Learner(net=net, router=router).gradients(part, Nothing())[0] for part in (one, two)]
    alone = [theirs(make_hf("mixtral"), part)[0] for part in (one, two)]
    tokens = [sum(len(d.tokens) - 1 for d in part) for part in (one, two)]
    shares = [f.metrics["loss/router"] for f in found]
    assert shares == pytest.approx(
        [a * t / sum(tokens) for a, t in zip(alone, tokens, strict=True)], abs=1e-5
    )


def test_an_update_adds_it_to_the_loss(make_hf):
    """`torch.router_coef`: in the loss, its own metric, and in what the router learns."""
    data = data_of([(9, 12), (5, 17)], 2)

    def step(**options):
        config = TorchConfig(device="cpu", threads=1, **options)
        backend = TorchBackend(config, BuildContext(model=f"hf:{make_hf('mixtral')}", seed=3))
        return asyncio.run(backend.update(data, LikelihoodLoss()))

    plain, balanced = step(), step(router_coef=0.1)
    assert "loss/router" not in plain
    assert balanced["loss"] - plain["loss"] == pytest.approx(0.1 * balanced["loss/router"])
    assert balanced["grad/norm"] != plain["grad/norm"]


def test_a_model_without_experts_is_refused(make_hf):
    """The option would do nothing: exit 2, with what to set."""
    config = TorchConfig(device="cpu", router_coef=0.1)
    backend = TorchBackend(config, BuildContext(model=f"hf:{make_hf('llama')}", seed=3))
    with pytest.raises(ConfigError, match=r"no router of experts[\s\S]*torch.router_coef=0"):
        asyncio.run(backend.update(data_of([(9, 12)], 1), LikelihoodLoss()))
