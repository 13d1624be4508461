"""One row without padding computes what each sequence alone computes, for every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.models.hf.net import HFNet
from rlvr_torch.models.hf.supported import FAMILIES
from rlvr_torch.training.packing.prefix_packing import SupervisedSpan, supervised_hidden


def net_of(family, make_hf, model):
    """The tiny net of a family; "own" is our GPT-2."""
    return model if family == "own" else load_net(str(make_hf(family)))


@pytest.fixture
def mixture(make_datum, make_group):
    """Shared prompts of two lengths, past all windows; one alone; single tokens; gaps."""
    holes = np.zeros(34, bool)
    holes[[20, 21, 22, 27, 28, 33]] = True
    return [
        *make_group(20, [33, 21, 27, 40], 1),
        make_datum(15, 30, 7),
        *make_group(5, [6, 19], 2),
        make_datum(1, 2, 8),
        *make_group(20, [34, 34], 3, mask=holes),
    ]


def alone(net, data):
    """Hidden states of supervised tokens, each datum by itself through the model's own forward."""
    states = []
    for datum in data:
        tokens = torch.from_numpy(datum.tokens.astype(np.int64))[None]
        if isinstance(net, GPT2):
            hidden = net.hidden(tokens)
        else:
            net.model.set_attn_implementation("eager")
            hidden = net.model.base_model(input_ids=tokens, use_cache=False).last_hidden_state
            net.model.set_attn_implementation("rlvr")
        states.append(hidden[0, np.flatnonzero(datum.mask) - 1])
    return torch.cat(states)


def gradients(net, hidden):
    """Of a fixed random combination of the hidden states, by all weights that take part."""
    random = torch.Generator().manual_seed(5)
    weights = [p for p in net.module.parameters() if p.requires_grad]
    value = (hidden * torch.randn(hidden.shape, generator=random)).sum()
    return torch.autograd.grad(value, weights, allow_unused=True)


@pytest.mark.one_of(3)
@pytest.mark.parametrize("family", ["own", *FAMILIES])
def test_packed_equals_unpacked(family, make_hf, model, mixture):
    """States within 1e-5 of each datum alone, gradients within 1e-4 of the largest one."""
    net = net_of(family, make_hf, model)
    data = mixture
    packed, apart = supervised_hidden(net, data), alone(net, data)
    assert packed.shape == (sum(int(d.mask.sum()) for d in data), net.head.shape[1])
    assert (packed - apart).abs().max() < 1e-5
    pairs = list(zip(gradients(net, packed), gradients(net, apart), strict=True))
    assert any(theirs is not None and theirs.abs().max() > 1e-3 for _, theirs in pairs)
    for mine, theirs in pairs:
        if theirs is None:
            assert mine is None
        else:
            assert (mine - theirs).abs().max() <= 1e-4 * max(1.0, float(theirs.abs().max()))


@pytest.mark.parametrize("lengths", [[30, 30, 30], [30, 24, 21]])
def test_gradients_flow_into_a_shared_prompt(model, make_group, lengths):
    """An embedding that occurs in the prompt only gets the gradient of all completions."""
    data = make_group(20, lengths, 4)
    only = next(t for t in data[0].tokens[:20] if all(t not in d.tokens[20:] for d in data))
    row = list(dict(model.named_parameters())).index("wte.weight")
    apart = gradients(model, alone(model, data))[row][only]
    assert apart.abs().max() > 1e-3
    assert torch.allclose(
        gradients(model, supervised_hidden(model, data))[row][only], apart, atol=1e-4
    )


def test_the_row_holds_each_prompt_once_and_no_padding(model, make_datum, make_group):
    """S + sum of (T - 1) tokens go through the model: the last token is predicted, not read."""
    data = [*make_group(20, [33, 21, 27], 1), make_datum(9, 14, 2)]
    seen = []
    hidden = model.hidden

    def spy(tokens, positions, attend):
        seen.append((tokens, positions))
        return hidden(tokens, positions, attend)

    model.hidden = spy
    supervised_hidden(model, data)
    ((tokens, positions),) = seen
    assert tokens.shape == (1, 20 + 13 + 12 + 0 + 6)
    assert positions[0].tolist() == [*range(20), *range(13), *range(20, 32), *range(20, 26)]


def test_sequences_do_not_see_each_other(model, make_datum, make_group):
    """Changing one datum's completion changes no other datum's states."""
    data = [*make_group(20, [33, 30], 1), make_datum(12, 25, 2)]
    other = data[1].tokens.copy()
    other[20:] = (other[20:] + 1) % 100
    changed = [data[0], make_datum(20, 30, 1, tokens=other), data[2]]
    before, after = supervised_hidden(model, data), supervised_hidden(model, changed)
    mine = [*range(13), *range(23, 36)]
    assert torch.allclose(before[mine], after[mine], atol=1e-6)
    assert not torch.allclose(before[14:23], after[14:23], atol=1e-3)


def test_a_window_counts_the_token_itself(make_hf, make_datum):
    """Through layers of windows of 8 only, what is 3 * 7 tokens back matters, one more does not."""
    net = load_net(str(make_hf("mistral")))
    assert isinstance(net, HFNet)
    assert [heads.window for heads in net.heads] == [8, 8, 8]
    first = make_datum(39, 40, 1)
    (want,) = supervised_hidden(net, [first])
    for back, matters in ((21, True), (22, False)):
        tokens = first.tokens.copy()
        tokens[38 - back] = (tokens[38 - back] + 1) % 100
        (found,) = supervised_hidden(net, [make_datum(39, 40, 1, tokens=tokens)])
        assert bool((found != want).any()) == matters


def test_extent_of_a_datum(make_datum):
    """From the first supervised token to the last; empty where there is none."""
    mask = np.array([0, 1, 0, 1, 0, 0], bool)
    assert SupervisedSpan.of(make_datum(1, 6, mask=mask)) == SupervisedSpan(prompt=1, end=4)
    assert SupervisedSpan.of(make_datum(1, 6, mask=np.zeros(6, bool))) == SupervisedSpan(
        prompt=0, end=0
    )
