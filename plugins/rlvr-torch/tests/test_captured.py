"""Captured decoding on a CPU: replays do what the pass does, on memory that stays for the run."""

from __future__ import annotations

import asyncio
import gc
import warnings
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from rlvr import BackendError, GenerateRequest, SamplingParams
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.captured.graphs import Capture, CUDACapture
from rlvr_torch.generation.captured.pages import PAGE, Pages
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.inbox import Inbox
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.models.hf.load import load_net
from rlvr_torch.runtime.executor import Executor

from .conftest import NoEnd, requests_of

HOST = ("_local_scalar_dense", "nonzero", "equal", "masked_select", "bincount")


def tensors(values):
    return [value for value in tree_leaves(values) if isinstance(value, torch.Tensor)]


class Recording(TorchDispatchMode):
    """Operators as a CUDA graph has them: replayed on the tensors of the capture, no Python."""

    def __init__(self):
        super().__init__()
        self.calls = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.overloadpacket.__name__
        is_list = name == "lift_fresh" and args[0].dim()  # a tensor of Python's numbers
        if name in HOST or is_list:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        result = function(*args, **(kwargs or {}))
        self.calls.append((function, args, kwargs or {}, result))
        return result

    def made(self):
        """Tensors in memory that the pass itself allocates."""
        seen = {t.untyped_storage().data_ptr() for t in self.given()}
        made = [t for *_, result in self.calls for t in tensors(result)]
        return [t for t in made if t.untyped_storage().data_ptr() not in seen]

    def given(self):
        """Tensors that were there before the pass."""
        made, given = set(), []
        for _, args, kwargs, result in self.calls:
            given += [t for t in tensors((args, kwargs)) if storage(t) not in made]
            outside = {storage(t) for t in given}
            made |= {storage(t) for t in tensors(result)} - outside
        return given

    def replay(self):
        for function, args, kwargs, result in self.calls:
            for old, new in zip(tensors(result), tensors(function(*args, **kwargs)), strict=True):
                if storage(old) != storage(new):
                    old.copy_(new)


def storage(tensor):
    return tensor.untyped_storage().data_ptr()


class RecordingCapture(Capture):
    """Captures on a CPU; before each replay all that the pass allocates holds nonsense."""

    def __init__(self):
        self.recordings, self.replays, self.pools, self.watch = [], 0, 1, lambda: None

    def record(self, step):
        recording = Recording()
        with recording:
            step()
        self.recordings.append(recording)
        made = [t for t in recording.made() if t.numel()]

        def replay():
            self.replays += 1
            for tensor in made:
                tensor.fill_(float("nan") if tensor.is_floating_point() else 1)
            self.watch()
            recording.replay()

        return replay

    def clear(self):
        self.pools += 1


class Letters:
    """Single letters; "a" ends a completion."""

    has_bytes, ends = False, frozenset({0})

    def decode(self, tokens):
        return "".join(chr(97 + token % 26) for token in tokens)


@pytest.fixture
def net():
    config = GPT2Config(vocab_size=301, n_positions=96, n_embd=32, n_layer=2, n_head=2)
    return GPT2.new(config, seed=1)


def bits(completion):
    return completion.tokens.tolist(), completion.logprobs.tobytes(), completion.text


def captured(net, tokenizer=None, **settings):
    """An engine that captures by recording, and what it records with."""
    capture = RecordingCapture()
    settings = {"rows": 8, "weights_of": DecodeWeights, **settings}
    tokenizer = tokenizer or NoEnd()
    return CapturedEngine(net, tokenizer, capture_of=lambda: capture, **settings), capture


def same(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()
        assert one.text == other.text
        assert one.finish == other.finish
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=2e-5)


@pytest.mark.one_of(4)
@pytest.mark.parametrize("family", ["ours", "gemma2", "gpt_oss", "qwen3"])
def test_replays_draw_what_the_plain_engine_draws(net, make_hf, family):
    """With all settings mixed, rows joining and leaving, other prompts in each generation."""
    made = net if family == "ours" else load_net(str(make_hf(family)))
    engine, capture = captured(made)
    for seed in range(2):
        requests = requests_of(12, seed)
        same(engine.generate(requests), Engine(made, NoEnd()).generate(requests))
    assert capture.replays > 30


@pytest.mark.thorough
def test_captures_and_their_pool_stay_for_the_run(net, monkeypatch):
    """Of five generations with other prompts the last capture nothing; one pool serves all."""
    monkeypatch.setattr("rlvr_torch.generation.captured.graphs._USES", 1)
    engine, capture = captured(net)
    counts, pools = [], []
    for seed in range(5):
        rng = np.random.default_rng(seed)
        requests = [
            GenerateRequest(
                prompt=rng.integers(1, 300, 20 + i % 2),
                params=SamplingParams(max_tokens=5 + 4 * i),
                seed=20 * seed + i,
            )
            for i in range(16)
        ]
        same(engine.generate(requests), Engine(net, NoEnd()).generate(requests))
        counts.append(len(capture.recordings))
        pools.append(capture.pools)
    assert counts[0] > 0
    assert counts[-1] == counts[-2] == counts[-3] == engine._memory.graphs.captures
    assert pools[-1] == pools[0]
    assert counts[-1] <= 12
    assert capture.replays > 200


def test_a_replay_reads_and_writes_memory_that_stays(net):
    """What a captured pass is given are weights and the engine's buffers, nothing of a batch."""
    engine, capture = captured(net)
    engine.generate(requests_of(16, prompts=2))
    memory = engine._memory
    cache = memory.cache
    stores = (cache._keys, cache._values, cache.prompts.keys, cache.prompts.values)
    kept = [t for store in stores for t in store]
    kept += [memory.drawn, memory.found, memory._settings, memory._shares, memory._numbers]
    kept += [
        memory._ends,
        memory._base_at,
        cache.clock_at,
        cache.births,
        cache._starts,
        cache._pages.table,
    ]
    kept += [t for tab in cache._attention._tables.values() for t in (tab.of_row, tab.of_seat)]
    kept += list(net.parameters())
    known = {storage(t) for t in kept if t.numel()}
    assert memory.graphs._replays
    for recording in capture.recordings[-len(memory.graphs._replays) :]:
        strangers = [t for t in recording.given() if t.numel() > 1 and storage(t) not in known]
        assert [tuple(t.shape) for t in strangers] == []


@given(data=st.data())
@settings(max_examples=50)
def test_a_page_is_one_rows(data):
    """Whatever rows grow, move, end and begin anew: no page is lost, and none is two rows'."""
    pages, ages, count = Pages(torch.device("cpu"), Capture().send), {}, 6
    pages.reserve(count, 1)
    for _ in range(data.draw(st.integers(1, 30))):
        row = data.draw(st.integers(0, count - 1))
        other = data.draw(st.integers(0, count - 1))
        if row not in ages:
            ages[row] = 0
        elif data.draw(st.booleans()):
            ages[row] += data.draw(st.sampled_from([1, PAGE - 1, PAGE, 3 * PAGE]))
        elif other not in ages:
            pages.move(row, other)
            ages[other] = ages.pop(row)
        else:
            pages.free(row)
            del ages[row]
        parts = {row: age // PAGE + 1 for row, age in ages.items()}
        pages.reserve(0, max(parts.values(), default=1))
        pages.add(pages.lack(parts))
        assert pages.lack(parts) == 0
        pages.hold(parts)

        table = pages.table.tolist()
        used = [page for row, n in parts.items() for page in table[row][:n]]
        assert sorted([*used, *pages._free, 0, 1]) == list(range(pages.count))
        assert all(table[row][n:] == [0] * (len(table[row]) - n) for row, n in parts.items())
        assert all(set(table[row]) == {1} for row in set(range(count)) - set(ages))


def test_memory_follows_the_tokens_that_there_are():
    """One long row among many short ones costs its own pages; they are used again."""
    net = GPT2(GPT2Config(vocab_size=31, n_positions=256, n_embd=32, n_layer=1, n_head=2))
    engine = CapturedEngine(net, NoEnd())
    requests = [
        GenerateRequest(
            prompt=np.array([1, 2]), params=SamplingParams(max_tokens=4 if i else 240), seed=i
        )
        for i in range(16)
    ]
    same(engine.generate(requests), Engine(net, NoEnd()).generate(requests))
    assert engine._memory.cache._pages.count == 16 + 2  # 16 rows of 240 tokens would be 64
    engine.generate(requests)
    assert engine._memory.cache._pages.count == 16 + 2


def test_the_host_tells_pages_without_waiting(monkeypatch):
    """Or it could not prepare a pass while the one before runs; a card has a copy of its own."""
    told, plain, empty = [], torch.Tensor.copy_, torch.empty
    monkeypatch.setattr(torch, "empty", lambda *shape, pin_memory, **how: empty(*shape, **how))
    pages = Pages(torch.device("cpu"), CUDACapture().send)
    pages.reserve(3, 1)
    pages.add(4)

    def copy(self, source, **how):
        told.append((source, how)) if self is pages.table else None
        return plain(self, source, **how)

    monkeypatch.setattr(torch.Tensor, "copy_", copy)
    pages.hold({0: 1, 2: 2})
    ((sent, how),) = told
    assert how == {"non_blocking": True}
    pages.free(0)
    assert sent.tolist() == pages.table.tolist()  # what is on its way does not change


def test_new_weights_are_seen_by_replays(net):
    """Weights that are changed in place need no new capture; those that lie elsewhere do."""
    engine, capture = captured(net)
    requests = requests_of(6, most=20)
    for _ in range(2):
        engine.generate(requests)
    before, once = engine.generate(requests), len(capture.recordings)
    with torch.no_grad():
        for value in net.parameters():
            value.add_(0.05 * torch.randn(value.shape, generator=torch.Generator().manual_seed(1)))
    wanted = Engine(net, NoEnd()).generate(requests)
    same(engine.generate(requests), wanted)
    assert len(capture.recordings) == once
    assert [c.tokens.tolist() for c in wanted] != [c.tokens.tolist() for c in before]
    with torch.no_grad():
        net.h[0].mlp.c_fc.weight = torch.nn.Parameter(-3 * net.h[0].mlp.c_fc.weight)
    same(engine.generate(requests), Engine(net, NoEnd()).generate(requests))
    assert len(capture.recordings) > once


@pytest.mark.one_of(3)
@pytest.mark.parametrize("more", ["rows", "slots", "prompt"])
def test_growing_captures_once(net, more):
    """More rows, longer completions or a longer prompt than before: captured anew, once."""
    engine, capture = captured(net, rows=16)

    def generation(count, tokens, prompt):
        text = np.arange(1, prompt + 1)
        params = SamplingParams(max_tokens=tokens)
        requests = [GenerateRequest(prompt=text, params=params, seed=i) for i in range(count)]
        load = count, tokens, prompt
        plain[load] = plain.get(load) or Engine(net, NoEnd()).generate(requests)
        same(engine.generate(requests), plain[load])
        return len(capture.recordings)

    plain = {}
    small = [generation(4, 20, 5) for _ in range(2)]
    assert small[0] == small[-1] == 1
    grown = {"rows": (16, 20, 5), "slots": (4, 250, 5), "prompt": (4, 20, 40)}[more]
    generation(*grown), generation(4, 20, 5)  # what was captured before lies elsewhere now
    settled = generation(*grown)
    assert settled <= 4
    assert [generation(*load) for load in ((4, 20, 5), grown)] == [settled] * 2


def joined(engine, requests, rng, dropped=()):
    """Bits of completions; they join at any time, some are dropped; slices end now and then."""
    batch, sequences = engine.start(), [engine.sequence(request) for request in requests]
    late, passes = [sequences[i] for i in rng.permutation(len(sequences))], 0
    ended = []
    while late or not batch.is_done:
        with batch.at_work(1 + passes // 9):
            batch.add([late.pop() for _ in range(min(len(late), int(rng.integers(0, 4))))])
            for _ in range(int(rng.integers(1, 8))):
                passes += 1
                ended += batch.step(1 + passes // 9) if not batch.is_done else []
                for i in dropped:
                    if passes == 5 + i:
                        batch.drop(sequences[i])
            ended += batch.settle()
    told = [sequence for i, sequence in enumerate(sequences) if i not in dropped]
    assert {id(sequence) for sequence in told} <= {id(sequence) for sequence in ended}
    assert len(ended) == len({id(sequence) for sequence in ended})
    return [bits(sequence.completion) for sequence in told]


@pytest.mark.one_of(6, "100-stop0")
@pytest.mark.parametrize("stop", [("c", "fb"), ()])
@pytest.mark.parametrize("rows", [8, 3, 100])
def test_reading_a_pass_late_changes_no_bit(net, stop, rows):
    """Ends, stop texts, lengths, rows that join and are dropped: as if each pass were read."""
    requests = requests_of(14, 3, prompts=4, stop=stop)
    plain = {"rows": rows}
    wanted = [bits(c) for c in Engine(net, Letters(), rows=rows).generate(requests)]
    for is_late in (True, False):
        engine = CapturedEngine(net, Letters(), is_late=is_late, **plain)
        assert [bits(c) for c in engine.generate(requests)] == wanted
        dropped = (1, 6)
        found = joined(engine, requests, np.random.default_rng(rows), dropped)
        assert found == [one for i, one in enumerate(wanted) if i not in dropped]


def test_versions_are_those_that_drew(net):
    """A token that is read after the weights have changed names the weights that drew it."""
    engine = CapturedEngine(net, NoEnd(), rows=4)
    batch = engine.start()
    sequences = [engine.sequence(r) for r in requests_of(3, prompts=1, max_tokens=12)]
    batch.add(sequences)
    for version, passes in ((7, 4), (8, 4), (9, 9)):
        with batch.at_work(version):
            for _ in range(passes):
                batch.step(version)
            batch.settle()
            drawn = [len(sequence.drawn) for sequence in sequences]
            # Each step draws one token, and the first one of a prompt as well.
            assert drawn == [{7: 4, 8: 8, 9: 12}[version]] * 3
    assert [s.completion.versions for s in sequences] == [(7, 8, 9)] * 3


def test_two_batches_at_a_time_keep_apart(net):
    """A batch that begins while another runs has its own memory; the next one shares again."""
    engine = CapturedEngine(net, NoEnd(), rows=4)
    requests = requests_of(8)
    wanted = [bits(c) for c in Engine(net, NoEnd(), rows=4).generate(requests)]
    batches = [(engine.start(), [engine.sequence(r) for r in requests]) for _ in range(2)]
    for batch, sequences in batches:
        batch.add(sequences)
    while not all(batch.is_done for batch, _ in batches):
        for batch, _ in batches:
            with batch.at_work():
                if not batch.is_done:
                    batch.step()
    for _, sequences in batches:
        assert [bits(sequence.completion) for sequence in sequences] == wanted
    memory = engine._memory
    assert [bits(c) for c in engine.generate(requests)] == wanted
    assert engine._memory is memory


def test_a_batch_that_was_given_up_gives_its_memory_back(net):
    """After an error, or a cancelled call, the next batch decodes there."""
    engine = CapturedEngine(net, NoEnd(), rows=4)
    requests = requests_of(8)
    wanted = engine.generate(requests)
    memory, asked = engine._memory, []
    with pytest.raises(BackendError, match="cancelled"):
        engine.generate(requests, lambda: bool(asked.append(1)) or len(asked) > 3)
    gc.collect()
    assert engine.generate(requests) == wanted
    assert engine._memory is memory


def test_damaged_weights_are_noticed(net):
    """A logprob that is not finite ends the generation, a pass late."""
    engine = CapturedEngine(net, NoEnd(), rows=4)
    with torch.no_grad():
        net.ln_f.weight[0] = float("nan")
    with pytest.raises(BackendError, match="not finite"):
        engine.generate(requests_of(8))


def test_what_damaged_weights_wrote_is_gone_with_them(net):
    """Keys that are masked are multiplied by zero: those of the next generation are finite."""
    engine = CapturedEngine(net, NoEnd(), rows=4, weights_of=DecodeWeights)
    requests = requests_of(6, max_tokens=20)
    wanted, batch = engine.generate(requests), engine.start()
    batch.add([engine.sequence(request) for request in requests])
    weight = net.h[0].attn.c_attn.weight.detach()
    kept = weight.clone()
    with batch.at_work():
        for _ in range(5):
            batch.step()
        weight.fill_(float("nan"))
        batch.step()
        with pytest.raises(BackendError, match="not finite"):
            batch.settle()
    del batch
    gc.collect()
    weight.copy_(kept)
    assert engine.generate(requests) == wanted


def test_a_pass_that_asks_for_a_number_runs_without_a_capture(net, monkeypatch):
    """With a warning, once."""
    plain = GPT2.hidden

    def asking(self, tokens, *given):
        assert len(tokens.nonzero()) >= 0
        return plain(self, tokens, *given)

    monkeypatch.setattr(GPT2, "hidden", asking)
    engine, capture = captured(net)
    requests = requests_of(6, max_tokens=20)
    with pytest.warns(RuntimeWarning, match="without CUDA graphs") as told:
        found = engine.generate(requests)
    same(found, Engine(net, NoEnd()).generate(requests))
    assert len(told) == 1
    assert not capture.recordings
    engine._memory = None  # as after training that needs the memory
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # not tried again: what a failed capture took is not freed
        same(engine.generate(requests), found)


class FakeCUDA:
    """The calls of a capture; PyTorch's, where the end of one that failed leaves its stream."""

    def __init__(self, monkeypatch):
        self.streams, self.current, self.used = 0, "plain", []
        self.graph_pool_handle = object
        for name in ("Stream", "stream", "set_stream", "current_stream", "graph_pool_handle"):
            monkeypatch.setattr(torch.cuda, name, getattr(self, name))
        monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
        monkeypatch.setattr(torch.cuda, "graph", self.graph)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)

    def Stream(self):
        self.streams += 1
        return SimpleNamespace(wait_stream=lambda other: None)

    def current_stream(self):
        return SimpleNamespace(wait_stream=lambda other: None, name=self.current)

    def set_stream(self, stream):
        self.current = getattr(stream, "name", stream)

    @contextmanager
    def stream(self, stream):
        before, self.current = self.current, stream
        self.used.append(stream)
        yield
        self.current = before

    @contextmanager
    def graph(self, graph, *, pool, stream=None, capture_error_mode):
        assert pool is not None
        before, self.current = self.current, stream or "PyTorch's"
        self.used.append(self.current)
        yield
        self.current = before


def test_captures_warm_up_and_run_on_one_stream_and_leave_it(monkeypatch):
    """A stream is a workspace of cuBLAS; and work after a failed capture is where it was before."""
    cuda, capture, times = FakeCUDA(monkeypatch), CUDACapture(), []
    for _ in range(3):
        capture.record(lambda: times.append(0))
    assert (cuda.streams, len(set(map(id, cuda.used))), len(times)) == (1, 1, 6)

    def failing():
        times.append(0)
        if len(times) % 2 == 0:
            raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        capture.record(failing)
    assert cuda.current == "plain"


@pytest.mark.parametrize(("free", "is_kept"), [(None, True), (1 << 30, True), (1000, False)])
def test_asleep_it_keeps_what_training_can_spare(net, free, is_kept):
    """Keys that take more than half of the free memory are let go of, but not under a batch."""
    engine = CapturedEngine(net, NoEnd(), rows=4, free_memory=lambda device: free)
    requests = requests_of(8)
    wanted = engine.generate(requests)
    memory = engine._memory
    engine.sleep()
    assert (engine._memory is memory) is is_kept
    assert (engine._weights is not None) is is_kept  # a card's copy of the head goes with it
    assert engine.generate(requests) == wanted
    batch = engine.start()
    batch.add([engine.sequence(r) for r in requests_of(2, max_tokens=9)])
    with batch.at_work():
        batch.step()
    memory = engine._memory
    engine.sleep()
    assert engine._memory is memory


def test_rows_that_do_not_fit_are_drawn_again_to_the_bit(net, monkeypatch):
    """Half as many at a time, in new memory; the old one is gone by then."""
    requests = requests_of(12, prompts=4)
    wanted = [bits(c) for c in Engine(net, NoEnd(), rows=16).generate(requests)]
    engine, plain, passes = CapturedEngine(net, NoEnd(), rows=16), GPT2.hidden, []

    def small(self, tokens, *given):
        passes.append(len(tokens))
        if len(passes) > 20 and len(tokens) > 4:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(self, tokens, *given)

    monkeypatch.setattr(GPT2, "hidden", small)
    assert [bits(c) for c in engine.generate(requests)] == wanted
    assert max(passes) > 4 >= max(passes[-5:])
    assert len(engine._memory.drawn) == engine._rows == 4


def test_where_room_was_lacking_nothing_is_decoded_again(monkeypatch):
    """Memory that grew in part is let go: passes captured before read where it lay."""
    net = GPT2.new(GPT2Config(vocab_size=31, n_positions=128, n_embd=8, n_layer=1, n_head=1), 1)
    engine = CapturedEngine(net, NoEnd(), rows=1)
    short, longer = (
        [GenerateRequest(prompt=[1, 2], params=SamplingParams(max_tokens=most), seed=3)]
        for most in (9, PAGE + 9)
    )
    wanted = engine.generate(short)

    def full(self, pages):
        raise torch.OutOfMemoryError("CUDA out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Pages, "add", full)
        with pytest.raises(torch.OutOfMemoryError):
            engine.generate(longer)
    gc.collect()
    assert engine.generate(short) == wanted
    cache = engine._memory.cache
    assert {len(layer) for layer in (*cache._keys, *cache._values)} == {cache._pages.count}


@pytest.mark.parametrize("passes", [1, 4, 32])
def test_a_completion_is_told_in_the_slice_it_ends_in(net, passes):
    """Though read late: weights that change after the slice do not refuse it."""
    executor, slices = Executor(), []
    inbox = Inbox(CapturedEngine(net, NoEnd(), rows=4), executor, lambda: 0, passes)

    def refuse():
        slices.append(1)
        if len(slices) > -(-9 // passes):
            raise BackendError("the weights have changed")

    async def ask():
        request = GenerateRequest(prompt=[5, 6], params=SamplingParams(max_tokens=9), seed=3)
        return await inbox.generate(request, refuse)

    found = asyncio.run(ask())
    executor.close()
    request = GenerateRequest(prompt=[5, 6], params=SamplingParams(max_tokens=9), seed=3)
    assert bits(found) == bits(Engine(net, NoEnd()).generate([request])[0])
