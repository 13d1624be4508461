"""Generation for every kind of attention: the cache equals a plain pass over the whole sequence."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from rlvr import GenerateRequest, SamplingParams
from rlvr.testing.fakes import CharTokenizer
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.cpu.weights import PackedWeights
from rlvr_torch.generation.decode_batch import DecodeBatch
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.sequence import RunningSequence
from rlvr_torch.hardware.primitives import CUDA
from rlvr_torch.models.attention import attend_over, causal
from rlvr_torch.models.interface import Heads
from rlvr_torch.runtime.batch_threads import BatchThreads

from .conftest import NoEnd

VOCAB, WIDTH = 50, 24


class TinyNet(nn.Module):
    """A `Net` with any heads: embeddings, attention layers with residuals, and an untied head."""

    def __init__(self, heads, has_sinks=False, positions=200):
        super().__init__()
        torch.manual_seed(3)
        self.module, self.heads = self, heads
        self.positions, self.vocab_size = positions, VOCAB
        self.logit_softcap, self.logit_scale = 4.0, 0.7
        self.tokens = nn.Embedding(VOCAB, WIDTH)
        self.places = nn.Embedding(positions, WIDTH)
        self.q = nn.ModuleList(nn.Linear(WIDTH, h.queries * h.width) for h in heads)
        self.k = nn.ModuleList(nn.Linear(WIDTH, h.keys * h.width) for h in heads)
        self.v = nn.ModuleList(nn.Linear(WIDTH, h.keys * h.width) for h in heads)
        self.o = nn.ModuleList(nn.Linear(h.queries * h.width, WIDTH) for h in heads)
        self.sinks = [torch.randn(h.queries) if has_sinks else None for h in heads]
        self.head = nn.Parameter(torch.randn(VOCAB, WIDTH))
        self.head_bias, self.has_states = nn.Parameter(torch.randn(VOCAB)), False
        self.passes = []

    def hidden(self, tokens, positions, attend):
        self.passes.append(tuple(tokens.shape))
        x = self.tokens(tokens) + self.places(positions)
        for layer, heads in enumerate(self.heads):

            def split(values, count, width=heads.width):
                return values.unflatten(2, (count, width)).transpose(1, 2)

            q = split(self.q[layer](x), heads.queries)
            k = split(self.k[layer](x), heads.keys)
            v = split(self.v[layer](x), heads.keys)
            mixed = attend(layer, q, k, v, self.sinks[layer])
            x = x + self.o[layer](mixed.transpose(1, 2).flatten(2))
        return torch.nn.functional.rms_norm(x, (WIDTH,))

    def full_logprobs(self, request, completion):
        """Logprobs of a completion by one pass with whole masks, without any cache."""
        tokens = torch.tensor([*request.prompt.tolist(), *completion.tokens.tolist()])[None]
        count = tokens.shape[1]

        def attend(layer, q, k, v, sinks):
            sees = causal(count, q.device, self.heads[layer].window)
            return attend_over(self.heads[layer], q, k, v, sees, sinks)

        with torch.no_grad():
            hidden = self.hidden(tokens, torch.arange(count)[None], attend)
            logits = (hidden[0] @ self.head.T + self.head_bias) * self.logit_scale
            logits = self.logit_softcap * torch.tanh(logits / self.logit_softcap)
        start = len(request.prompt)
        logprobs = logits[start - 1 : -1].log_softmax(1)
        return logprobs.gather(1, tokens[0, start:, None])[:, 0].numpy()


def heads(queries=4, keys=4, width=6, **changes):
    return Heads(queries=queries, keys=keys, width=width, scale=width**-0.5, **changes)


KINDS = {
    "plain": ([heads(), heads()], False),
    "grouped": ([heads(keys=2), heads(keys=1)], False),
    "unscaled": ([heads(), Heads(queries=2, keys=2, width=8, scale=0.9)], False),
    "window": ([heads(window=5), heads(window=5)], False),
    "window of one": ([heads(window=1), heads()], False),
    "window over the ring": ([heads(window=40), heads()], False),
    "softcap": ([heads(softcap=1.5), heads(softcap=0.5)], False),
    "sinks": ([heads(), heads(keys=2)], True),
    "gemma": ([heads(keys=2, window=7, softcap=2.0), heads(keys=2, width=8, softcap=2.0)], False),
    "gpt-oss": ([heads(keys=2, window=9), heads(keys=2)], True),
}


def requests_of(lengths, prompts=5, seed=0):
    """A request for each number of tokens; prompts of 1 to 40 tokens, several requests each."""
    random = np.random.default_rng(seed)
    texts = [random.integers(0, VOCAB, length) for length in np.linspace(1, 40, prompts, dtype=int)]
    return [
        GenerateRequest(
            prompt=texts[i % prompts], params=SamplingParams(max_tokens=int(length)), seed=i
        )
        for i, length in enumerate(lengths)
    ]


def check(net, requests, completions, tolerance=1e-5):
    for request, completion in zip(requests, completions, strict=True):
        assert len(completion.tokens) == request.params.max_tokens
        error = np.abs(completion.logprobs - net.full_logprobs(request, completion)).max()
        assert error < tolerance, (len(request.prompt), len(completion.tokens), error)


@pytest.mark.one_of(20, "3-gpt-oss", "100-gemma", "100-unscaled")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [3, 100])
def test_logprobs_are_those_of_a_full_pass(kind, rows):
    """Grouped heads, windows, soft caps, sinks: within 1e-5, rows freed and taken all the time."""
    net = TinyNet(*KINDS[kind])
    requests = requests_of([1, 70, 3, 40, 12, 5, 66, 2, 20])
    check(net, requests, Engine(net, NoEnd(), rows=rows).generate(requests))


def decode(batch, passes=None):
    """So many tokens in each row, or all there are."""
    with batch.at_work():
        while not batch.is_done and passes != 0:
            batch.step()
            passes = None if passes is None else passes - 1


def lane_of(net, requests, **settings):
    """The decode batch that completes the requests, and what it completes."""
    sequences = [
        RunningSequence(request, request.params.max_tokens, NoEnd()) for request in requests
    ]
    given = {"rows": 4, "prefill_tokens": 64, "dtype": torch.float32, **settings}
    batch = DecodeBatch(net, PackedWeights(net, given["dtype"]), **given)
    batch.add(sequences)
    return batch, sequences


@pytest.mark.one_of(20, "3-gpt-oss", "100-gemma", "100-window over the ring")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [3, 100])
def test_rows_that_share_nothing_are_those_of_a_full_pass(kind, rows):
    """Every prompt another, of 1 to 40 tokens: within 1e-5, rows freed and taken all the time."""
    net = TinyNet(*KINDS[kind])
    requests = requests_of([5, 40, 100, 1, 30, 12, 60, 2, 25], prompts=9)
    batch, sequences = lane_of(net, requests, rows=rows)
    decode(batch, 1)
    first = batch._cache._slots
    while not batch.is_done:
        decode(batch, 9)
    assert batch._cache._slots > first  # it had to make room
    check(net, requests, [sequence.completion for sequence in sequences])


def test_what_was_never_written_is_never_read(monkeypatch):
    """New memory may hold anything at first, also what is not a number."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(float("nan")))
    net = TinyNet(*KINDS["plain"])
    requests = requests_of([20, 90, 3, 8, 70, 11], prompts=6)
    check(net, requests, Engine(net, NoEnd()).generate(requests))


@pytest.mark.one_of(10, "window over the ring", "gemma", "gpt-oss")
@pytest.mark.parametrize("kind", KINDS)
def test_shapes_that_stay_give_the_same(kind):
    """The step that a GPU captures (fixed shapes, all of the ring) gives the same, on a CPU."""
    net = TinyNet(*KINDS[kind])
    requests = requests_of([9, 1, 22, 70, 3, 41, 2, 5, 12, 7, 66, 4])
    engine = CapturedEngine(net, NoEnd(), rows=4)
    for _ in range(2):
        check(net, requests, engine.generate(requests))


def test_a_freed_row_is_taken_at_once():
    """Two rows, 6, 2, 3 and 1 tokens: the second row draws 2 + 3 + 1 tokens in the same time."""
    net = TinyNet(*KINDS["plain"])
    requests = requests_of([6, 2, 3, 1], prompts=1)
    check(net, requests, Engine(net, NoEnd(), rows=2).generate(requests))
    # The prompt gives the first tokens of all, so 5, 1, 2 and 0 come of decoding passes. Each
    # prompt token is read once; passes: 2 rows for 3 passes, then the long one beside none.
    net = TinyNet(*KINDS["plain"])
    Engine(net, NoEnd(), rows=2).generate(requests)
    assert net.passes == [(1, 1), *[(2, 1)] * 5]


def test_no_row_idles_while_requests_wait():
    """Forty requests in four rows: as many row-passes as tokens, but for the last rows' end."""
    net = TinyNet(*KINDS["plain"])
    lengths = np.random.default_rng(5).integers(2, 30, 40)
    requests = requests_of(lengths, prompts=6)
    Engine(net, NoEnd(), rows=4).generate(requests)
    decoding = [rows for rows, tokens in net.passes if tokens == 1]
    wanted = int(sum(lengths - 1))  # the first token of each comes from its prompt
    assert sum(decoding) - wanted <= 3 * 30
    assert len(decoding) <= wanted / 4 + 30


def test_a_prompt_is_read_once_however_often_rows_are_freed():
    """A group of 20 in 4 rows: one prefill. Five groups: five prompts read in all."""
    net = TinyNet(*KINDS["plain"])
    random = np.random.default_rng(0)
    requests = [
        GenerateRequest(
            prompt=np.arange(2 + group), params=SamplingParams(max_tokens=size), seed=size
        )
        for group in range(5)
        for size in random.integers(1, 20, 20).tolist()
    ]
    completions = Engine(net, NoEnd(), rows=4).generate(requests)
    prefills = [shape for shape in net.passes if shape[1] > 1]
    check(net, requests, completions)
    assert sorted(prefills) == [(1, 2), (1, 3), (1, 4), (1, 5), (1, 6)]


def test_places_of_stragglers_are_kept():
    """One long completion a prompt, many short ones: its prompt stays while others come and go."""
    net = TinyNet(*KINDS["gpt-oss"])
    lengths = [150 if i % 4 == 0 else 2 for i in range(48)]
    requests = requests_of(lengths, prompts=12)
    check(net, requests, Engine(net, NoEnd(), rows=6, prefill_tokens=50).generate(requests))


def test_a_prompt_longer_than_all_before_finds_room():
    """Prompts wait longest first, but the places of one decode batch grow with what it needs."""
    net = TinyNet(*KINDS["plain"])
    requests = requests_of([5] * 9, prompts=9)
    check(net, requests, Engine(net, NoEnd(), rows=2).generate(requests))


@pytest.mark.parametrize("threads", [1, 2])
def test_equal_calls_give_equal_bits(threads):
    """Tokens and logprobs are the same to the last bit, call after call, with the same threads."""
    net = TinyNet(*KINDS["gemma"])
    requests = requests_of(np.random.default_rng(4).integers(1, 30, 40), prompts=7)
    threads = BatchThreads(threads)
    first, second = (
        Engine(net, NoEnd(), rows=12, threads=threads).generate(requests) for _ in range(2)
    )
    threads.close()
    for one, other in zip(first, second, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()


def begin(engine, requests):
    """A batch that has drawn nothing yet, and the sequences in it."""
    batch, sequences = engine.start(), [engine.sequence(request) for request in requests]
    batch.add(sequences)
    return batch, sequences


def test_a_generation_goes_on_where_it_stopped():
    """In slices of three tokens the same completions come, to the last bit."""
    net = TinyNet(*KINDS["gemma"])
    requests = requests_of(np.random.default_rng(4).integers(1, 50, 20))
    whole = Engine(net, NoEnd(), rows=6).generate(requests)
    batch, sequences = begin(Engine(net, NoEnd(), rows=6), requests)
    slices = 0
    while not batch.is_done:
        decode(batch, 3)
        slices += 1
    assert slices > 10
    for one, other in zip(whole, sequences, strict=True):
        assert one.tokens.tolist() == other.completion.tokens.tolist()
        assert one.logprobs.tobytes() == other.completion.logprobs.tobytes()


def test_new_weights_draw_from_the_next_slice_on():
    """Tokens before a change are the old weights' own; versions say who drew; lengths are kept."""
    net = TinyNet(*KINDS["plain"])
    requests = requests_of([3, 12, 12, 20], prompts=2)
    before = Engine(net, NoEnd()).generate(requests)
    batch, sequences = begin(Engine(net, NoEnd()), requests)
    for version, passes in ((7, 5), (8, 5), (9, 20)):
        with batch.at_work(version):
            for _ in range(passes):
                batch.step(version)
        with torch.no_grad():
            net.head_bias[:] = -1e9
            net.head_bias[11] = 0.0
        net.logit_softcap = 0.0  # else the cap would bound what the bias does
    after = [sequence.completion for sequence in sequences]
    assert [c.versions for c in after] == [(7,), (7, 8, 9), (7, 8, 9), (7, 8, 9)]
    for old, new, request in zip(before, after, requests, strict=True):
        assert len(new.tokens) == request.params.max_tokens
        assert new.tokens[:5].tolist() == old.tokens[:5].tolist()
        assert new.logprobs[:5].tolist() == pytest.approx(old.logprobs[:5].tolist(), abs=1e-5)
        assert set(new.tokens[5:].tolist()) <= {11}
        assert np.abs(new.logprobs[5:]).max(initial=0.0) < 1e-5


class ShardTokenizer(CharTokenizer):
    """A tokenizer without exact bytes: each token is one byte, which may be part of a character."""

    eos_id = 0
    stop_ids = frozenset({0, 1})

    def decode(self, tokens):
        return bytes(0xE0 if t == 20 else 0x80 + t if t > 20 else 97 + t for t in tokens).decode(
            "utf-8", errors="replace"
        )


@pytest.mark.parametrize("stop", [(), ("c",), ("\u0ff0", "bd"), ("g",)])
def test_stops_without_bytes(stop):
    """Stop ids and stop texts end a completion with the token that completes them, none before."""
    net = TinyNet(*KINDS["plain"])
    tokenizer = ShardTokenizer()
    params = SamplingParams(max_tokens=40, stop=stop)
    requests = [GenerateRequest(prompt=[2, 3], params=params, seed=seed) for seed in range(40)]
    completions = Engine(net, tokenizer).generate(requests)
    assert {c.finish for c in completions} >= {"stop"}
    for completion in completions:
        tokens = completion.tokens.tolist()
        ends = [i for i, token in enumerate(tokens) if token in tokenizer.stop_ids]
        assert not ends or ends == [len(tokens) - 1]
        text = tokenizer.decode(tokens[:-1] if ends else tokens)
        found = [text.find(one) for one in stop if one in text]
        assert completion.text == text[: min(found, default=len(text))]
        assert not any(one in tokenizer.decode(tokens[:-1]) for one in stop)
        is_stopped = bool(ends or found)
        assert completion.finish == ("stop" if is_stopped else "length")
        assert is_stopped or len(tokens) == 40


@pytest.mark.gpu
def test_a_gpu_draws_from_the_same_distribution():
    """Captured passes give the logprobs of a full pass on the CPU, for tokens the GPU drew."""
    if not torch.cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    cpu, net = (TinyNet(*KINDS["gpt-oss"]) for _ in range(2))
    net.cuda()
    net.sinks = [sink.cuda() for sink in net.sinks]
    requests = requests_of(np.random.default_rng(2).integers(30, 80, 12))
    engine = CUDA.engine(net, NoEnd(), rows=4)
    for _ in range(2):
        check(cpu, requests, engine.generate(requests), tolerance=1e-3)
    assert engine._memory.graphs.captures


def test_rows_of_their_own_prompts_stay_beside_them(model):
    """When finished rows leave, the others' prompts move as they do: nothing is brought round."""
    requests = [
        GenerateRequest(prompt=np.arange(1, 14 - i), params=SamplingParams(max_tokens=most), seed=i)
        for i, most in enumerate([4, 4, 4, 4, 9, 14, 9, 14, 9, 14, 9])  # 7 of 12 rows stay
    ]
    batch, _ = lane_of(model, requests, rows=16)
    with batch.at_work():
        while not batch.is_done:
            batch.step()
            owner = batch._cache._owner[: batch._cache.rows]
            assert all(place in (None, row) for row, place in enumerate(owner))
