"""Layers that keep a state beside keys: packed, decoded and recomputed as transformers does it."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from structlog.testing import capture_logs

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.hf import states
from rlvr_torch.models.hf.supported import build_net
from rlvr_torch.training.activation_checkpointing import checkpoint_layers
from rlvr_torch.training.packing.packed_attention import PackedAttention
from rlvr_torch.training.packing.packed_states import PackedStates
from rlvr_torch.training.packing.prefix_packing import supervised_hidden

from .conftest import TINY, NoEnd

transformers = pytest.importorskip("transformers")

LINEAR, FULL = "linear_attention", "full_attention"
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24}
CASES = {
    "mixed": ("qwen3_5_text", {}),
    "all linear": ("qwen3_5_text", {"layer_types": [LINEAR] * 3}),
    "all full": ("qwen3_5_text", {"layer_types": [FULL] * 3}),
    "as many key heads": ("qwen3_5_text", {"linear_num_key_heads": 4}),
    "one key head": ("qwen3_next", {"linear_num_key_heads": 1, **EXPERTS}),
    "kernel of 1": ("qwen3_5_text", {"linear_conv_kernel_dim": 1}),
    "kernel of 7": ("qwen3_5_text", {"linear_conv_kernel_dim": 7, "tie_word_embeddings": True}),
    "decay by channel": (
        "kimi_linear",
        {
            "layer_types": [LINEAR, FULL, LINEAR],
            "num_key_value_heads": 4,
            "kv_lora_rank": 8,
            "q_lora_rank": None,
            "qk_nope_head_dim": 8,
            "qk_rope_head_dim": 8,
            "v_head_dim": 16,
            "linear_num_heads": 2,
            "linear_head_dim": 8,
            "num_shared_experts": 1,
            **EXPERTS,
        },
    ),
    "convolution alone": ("lfm2", {"layer_types": ["conv", FULL, "conv"]}),
}


def made(case):
    """A net, and a copy of its model from before it was one."""
    kind, changes = CASES[case]
    shape = {
        **TINY,
        "max_position_embeddings": 256,
        "layer_types": [LINEAR, LINEAR, FULL],
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 12,
    }
    config = transformers.AutoConfig.for_model(kind, **{**shape, **changes})
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for value in model.parameters():
            value += 0.1 * torch.randn_like(value)
    model.set_attn_implementation("eager")
    theirs = copy.deepcopy(model)
    return build_net(model, case), theirs


@pytest.fixture(params=CASES)
def pair(request):
    return made(request.param)


@pytest.fixture
def mixture(make_datum, make_group):
    """
    Groups with prompts of 1, 2, 20 and 70 tokens, and sequences alone.

    70 is past a chunk of the delta rule, 1 and 2 are shorter than kernels; completions of one token
    (nothing of them is read), two, and more than a chunk.
    """
    return [
        *make_group(20, [33, 21, 22, 40], 1),
        make_datum(15, 30, 7),
        *make_group(2, [4, 90, 3], 2),
        make_datum(1, 2, 8),
        *make_group(1, [2, 9], 3),
        *make_group(70, [71, 72, 140], 4),
        *make_group(20, [24, 25], 5),
    ]


def alone(theirs, data):
    """Their hidden states of supervised tokens, each datum by itself."""
    found = []
    for datum in data:
        tokens = torch.from_numpy(datum.tokens.astype(np.int64))[None]
        hidden = theirs.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        found.append(hidden[0, np.flatnonzero(datum.mask) - 1])
    return torch.cat(found)


def gradients(model, hidden):
    random = torch.Generator().manual_seed(5)
    value = (hidden * torch.randn(hidden.shape, generator=random)).sum()
    return torch.autograd.grad(value, list(model.parameters()), allow_unused=True)


def assert_close(mine, theirs):
    """
    Gradients within 1e-3 of the largest number of each.

    That of a decay is the sum over all tokens of what the rule computes in float32 only.
    """
    for one, other in zip(mine, theirs, strict=True):
        assert (one is None) == (other is None)
        if one is not None:
            assert (one - other).abs().max() <= 1e-3 * max(1.0, float(other.abs().max()))


@pytest.mark.one_of(9, "kernel of 7")
def test_packed_is_each_sequence_alone(pair, mixture):
    """States and gradients are those of transformers; with checkpointed layers the same bits."""
    (net, theirs), data = pair, mixture
    packed, apart = supervised_hidden(net, data), alone(theirs, data)
    assert (packed - apart).abs().max() < 1e-4
    mine = gradients(net.model, packed)
    assert_close(mine, gradients(theirs, apart))
    checkpoint_layers(net)
    again = gradients(net.model, supervised_hidden(net, data))
    for one, other in zip(mine, again, strict=True):
        assert one is None or torch.equal(one, other)


def test_the_attention_of_a_card_carries_states_too(mixture):
    """`PackedAttention` gives what blocks give."""
    net, _ = made("mixed")
    data = mixture
    found, wanted = supervised_hidden(net, data, PackedAttention), supervised_hidden(net, data)
    assert (found - wanted).abs().max() < 3e-5


def test_no_sequence_sees_another(make_datum, make_group):
    """Another completion, and another sequence in front, change no other datum's states."""
    net, _ = made("all linear")
    data = [*make_group(20, [33, 30], 1), make_datum(12, 25, 2)]
    tokens = data[1].tokens.copy()
    tokens[20:] = (tokens[20:] + 1) % 100
    changed = [data[0], make_datum(20, 30, 1, tokens=tokens), data[2]]
    before, after = supervised_hidden(net, data), supervised_hidden(net, changed)
    mine = [*range(13), *range(23, 36)]
    assert torch.allclose(before[mine], after[mine], atol=1e-6)
    assert not torch.allclose(before[14:23], after[14:23], atol=1e-3)


def test_a_shared_prompt_is_read_once(make_group):
    """A layer reads S tokens of a prompt, and the completions without it."""
    net, _ = made("all linear")
    read = []
    layer = net.model.model.layers[0].linear_attn
    forward = layer.in_proj_qkv.forward

    def counted(inputs):
        read.append(tuple(inputs.shape[:2]))
        return forward(inputs)

    layer.in_proj_qkv.forward = counted
    supervised_hidden(net, make_group(20, [33, 30, 21], 1))
    assert read == [(1, 20), (2, 12)]  # of one token nothing is read


def test_no_layer_reads_much_padding_or_one_token_after_a_state():
    """Kernels of decoding, which one token after a state asks for, have no backward pass."""
    leads, rests = np.array([200, 1, 7, 4000, 0, 3]), np.array([4000, *[99] * 40, 1, 1, 0, 130])
    owners = np.array([0] * 42 + [1, 1, 2])
    tokens, seen = int(leads.sum() + rests.sum()), []

    def step(inputs, state):
        seen.append((inputs.shape[:2], bool(state)))
        return inputs, {"of": inputs[:, :1, 0]}

    carry = PackedStates(leads, rests, owners, torch.device("cpu"))
    inputs = torch.arange(tokens).float()[None, :, None]
    assert torch.equal(carry(0, inputs, step), inputs)
    assert sum(rows * length for (rows, length), _ in seen) < 1.3 * tokens
    assert min(length for (_, length), is_going_on in seen if is_going_on) == 2


def requests_of(lengths, seed=0):
    """Prompts of 1, 2, 7, 33 and 70 tokens, each asked several times."""
    random = np.random.default_rng(seed)
    prompts = [random.integers(4, 300, length) for length in (1, 2, 7, 33, 70)]
    return [
        GenerateRequest(prompt=prompts[i % 5], params=SamplingParams(max_tokens=length), seed=i)
        for i, length in enumerate(lengths)
    ]


def assert_theirs(theirs, request, completion):
    """Each token's logprob is that of transformers' forward over the whole text, to 1e-4."""
    tokens = torch.tensor([*request.prompt.tolist(), *completion.tokens.tolist()])[None]
    with torch.no_grad():
        logits = theirs(tokens, use_cache=False).logits[0, len(request.prompt) - 1 : -1]
    wanted = logits.log_softmax(1).gather(1, tokens[0, len(request.prompt) :, None])[:, 0]
    assert np.abs(completion.logprobs - wanted.numpy()).max() < 1e-4


LENGTHS = [1, 50, 3, 40, 12, 5, 70, 2, 20, 9, 30, 4]
SHORTER = [1, 30, 3, 20, 12, 5, 34, 2, 9, 4]


@pytest.mark.one_of(9, "kernel of 7")
def test_decoded_is_read(pair):
    """Rows that end and are taken by others, whose prompts are a group's or their own."""
    net, theirs = pair
    requests = requests_of(SHORTER)
    for rows in (3, 256):
        completions = Engine(net, NoEnd(), rows=rows).generate(requests)
        for request, completion in zip(requests, completions, strict=True):
            assert len(completion.tokens) == request.params.max_tokens
            assert_theirs(theirs, request, completion)


def test_prompts_read_together():
    """As on other devices than a CPU: padded beside longer ones, equal lengths at once."""
    net, theirs = made("mixed")
    requests = [*requests_of(LENGTHS), *requests_of(LENGTHS[:5], 1)]
    engine = Engine(net, NoEnd(), reads_alone=False, weights_of=DecodeWeights)
    for request, completion in zip(requests, engine.generate(requests), strict=True):
        assert_theirs(theirs, request, completion)


def test_rows_join_are_cancelled_and_move():
    """Requests that come late and go early; gaps are closed, and states go with their rows."""
    net, theirs = made("mixed")
    requests = requests_of([30] * 20)
    random = np.random.default_rng(0)
    engine = Engine(net, NoEnd(), rows=12)
    batch, sequences = engine.start(), [engine.sequence(request) for request in requests]
    late, living = list(sequences), []
    with batch.at_work():
        while late or not batch.is_done:
            living += (some := [late.pop() for _ in range(min(len(late), 4))])
            batch.add(some)
            for _ in range(3):
                for one in batch.step() if not batch.is_done else ():
                    living.remove(one)
            if living and random.random() < 0.6:
                batch.drop(living.pop(int(random.integers(len(living)))))
    lengths = [len(sequence.completion.tokens) for sequence in sequences]
    assert 0 < sum(length < 30 for length in lengths) < 15
    assert len(set(lengths)) > 3
    for request, sequence in zip(requests, sequences, strict=True):
        if len(sequence.completion.tokens):
            assert_theirs(theirs, request, sequence.completion)


def test_states_go_with_their_prompts():
    """Of each layer one state a living prompt, and as many rows as are decoded."""
    net, _ = made("mixed")
    engine = Engine(net, NoEnd(), rows=4)
    batch = engine.start()
    batch.add([engine.sequence(request) for request in requests_of(LENGTHS)])
    with batch.at_work():
        while not batch.is_done:
            batch.step()
            held = batch._cache.states
            assert set(held._prompts) <= batch._cache.prompts.used
            for state in (state for prompt in held._prompts.values() for state in prompt.values()):
                for value in state.values():  # nothing of other prompts is kept with it
                    assert value.untyped_storage().nbytes() == value.nbytes
            for state in held._rows.values():
                assert {len(value) for value in state.values()} <= {2, 4}
    assert len(held._prompts) <= 5


def test_a_prompt_that_moved_is_still_the_same():
    """Prompts move when others go; who asks for one later begins with its state."""
    net, theirs = made("mixed")
    engine = Engine(net, NoEnd())
    random = np.random.default_rng(3)
    prompts = [random.integers(4, 300, 30 - i) for i in range(8)]
    asked = [
        GenerateRequest(prompt=prompt, params=SamplingParams(max_tokens=length), seed=i)
        for i, (prompt, length) in enumerate(zip(prompts, [3, 3, 3, 3, 3, 3, 40, 40], strict=True))
    ]
    asked += [
        GenerateRequest(prompt=prompts[6], params=asked[6].params, seed=20 + i) for i in (0, 1)
    ]
    batch, sequences = engine.start(), [engine.sequence(request) for request in asked]
    with batch.at_work():
        batch.add(sequences[:-1])
        before = None
        for _ in range(8):
            batch.step()
            before = before or set(batch._cache.prompts.used)
        assert max(before) > max(batch._cache.prompts.used)
        batch.add(sequences[-1:])
        while not batch.is_done:
            batch.step()
    for request, sequence in zip(asked, sequences, strict=True):
        assert_theirs(theirs, request, sequence.completion)


def test_turns():
    """A conversation that goes on: the next prompt begins with the last prompt and its answer."""
    net, theirs = made("mixed")
    engine, prompt = Engine(net, NoEnd()), np.arange(5, 9)
    for turn in range(3):
        request = GenerateRequest(prompt=prompt, params=SamplingParams(max_tokens=6), seed=turn)
        (done,) = engine.generate([request])
        assert_theirs(theirs, request, done)
        prompt = np.concatenate([prompt, done.tokens, [7]])


def test_the_captured_engine_leaves_it_to_the_plain_one():
    """In words, and with the same results."""
    net, theirs = made("mixed")
    request = requests_of([20])[0]
    with capture_logs() as events:
        engine = CapturedEngine(net, NoEnd())
    assert [event["event"] for event in events] == ["not_captured"]
    assert_theirs(theirs, request, engine.generate([request])[0])


def test_a_layer_that_is_not_told_its_state_is_found_when_loading(monkeypatch):
    """It would read a packed row as one sequence, and the whole text as it should."""
    carried = states._carried

    def untold(layer, forward, first, *args, **kwargs):
        if layer == 1:
            kwargs.pop("rlvr_attend", None)
        return carried(layer, forward, first, *args, **kwargs)

    monkeypatch.setattr(states, "_uncompiled", lambda: untold)
    with pytest.raises(BackendError, match=r"layers \[1\] are not told"):
        made("all linear")


@pytest.mark.parametrize("lost", ["update_conv_state", "update_recurrent_state"])
def test_a_state_that_is_not_whole_is_found_when_loading(lost, monkeypatch):
    """The check cuts its text as training and sampling do."""
    update = getattr(states._StateCache, lost)

    def forgetful(self, values, layer_idx, **kwargs):
        found = update(self, values, layer_idx, **kwargs)
        for name in [name for name in self.state if name[0] in lost]:
            self.state[name] = torch.zeros_like(self.state[name])
        return found

    monkeypatch.setattr(states._StateCache, lost, forgetful)
    with pytest.raises(BackendError, match="its logits differ by"):
        made("mixed")
