"""A micro-batch that does not fit is cut in two; no gradient is lost or counted twice."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any
from weakref import ref

import numpy as np
import pytest
import torch

from rlvr import Completion, Datum, GenerateRequest, SamplingParams
from rlvr.testing.fakes import ReinforceLoss
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.cache.kv_cache import KVCache
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.gpt2 import GPT2, GPT2Config
from rlvr_torch.runtime.batch_threads import BatchThreads
from rlvr_torch.runtime.device import settled
from rlvr_torch.training.accumulate import Learner, accumulate, eval_loss, explain_gradient
from rlvr_torch.training.logprobs import sequence_logprobs
from rlvr_torch.training.microbatches import MicroBatches, microbatches, row_tokens
from rlvr_torch.training.packing.prefix_packing import BlockAttention

COUNT, LENGTH = 12, 10


class SmallDevice:
    """Attention on a device that holds at most so many tokens; it may fail in the backward pass."""

    def __init__(self, most: int, *, backward: bool = False) -> None:
        self.most, self.backward, self.refused = most, backward, 0

    def __call__(self, net: Any, row: Any, device: Any) -> Any:
        attend = BlockAttention(net, row, device)
        if len(row.tokens) <= self.most:
            return attend
        self.refused += 1
        if not self.backward:
            raise torch.OutOfMemoryError("CUDA out of memory")

        def fails_later(*given: Any) -> Any:
            mixed = attend(*given)
            mixed.register_hook(self._refuse)
            return mixed

        return fails_later

    def _refuse(self, grad: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")


@pytest.fixture
def net() -> GPT2:
    torch.manual_seed(0)
    shape = {"vocab_size": 40, "n_positions": 32, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2(GPT2Config(**shape))


@pytest.fixture
def data() -> list[Datum]:
    generator = np.random.default_rng(0)
    mask = np.arange(LENGTH) >= 3
    return [
        Datum(
            tokens=generator.integers(0, 40, LENGTH),
            mask=mask,
            logprobs=np.where(mask, -1.0, 0.0),
            advantages=np.where(mask, generator.normal(), 0.0),
            weights=mask / (COUNT * mask.sum()),
            problem_id=f"p{i}",
        )
        for i in range(COUNT)
    ]


def group_of(count: int, *, prompt: int, completion: int) -> list[Datum]:
    """Completions of one prompt."""
    generator = np.random.default_rng(1)
    asked = generator.integers(0, 40, prompt)
    mask = np.arange(prompt + completion) >= prompt
    return [
        Datum(
            tokens=np.concatenate([asked, generator.integers(0, 40, completion)]),
            mask=mask,
            logprobs=np.where(mask, -1.0, 0.0),
            advantages=np.where(mask, generator.normal(), 0.0),
            weights=mask / (count * completion),
            problem_id="group",
        )
        for _ in range(count)
    ]


def gradient(net: GPT2, data: list[Datum], budget: int, attention: Any = None) -> Any:
    """All gradients as one vector, the metrics, and the budgets that were learnt."""
    learnt: list[int] = []
    net.zero_grad(set_to_none=True)
    pieces = MicroBatches(budget=budget, threads=BatchThreads(), shrink=learnt.append)
    metrics = accumulate(data, ReinforceLoss(), Learner(net=net, attention=attention), pieces)
    grads = [v.grad.flatten() for v in net.parameters() if v.grad is not None]
    return torch.cat(grads), metrics, learnt


@pytest.mark.parametrize("is_backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("most", [9, 20, 50])
def test_a_batch_that_does_not_fit_is_halved(
    net: GPT2, data: list[Datum], most: int, is_backward: bool
) -> None:
    """Loss, metrics and gradient are those of a device with room, wherever the memory ended."""
    device = SmallDevice(most, backward=is_backward)
    whole, metrics, _ = gradient(net, data, 10_000)
    parts, same, learnt = gradient(net, data, 10_000, device)

    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-7)
    assert same == pytest.approx(metrics, rel=1e-5)
    assert device.refused == len(learnt) > 0
    assert max(learnt) < COUNT * LENGTH


def test_the_bits_are_those_of_the_smaller_micro_batches(net: GPT2, data: list[Datum]) -> None:
    """Halving 12 into 6 and 6 computes what a budget for 6 computes."""
    (small, _, none), (halved, _, _) = (
        gradient(net, data, LENGTH * 6),
        gradient(net, data, 10_000, SmallDevice((LENGTH - 1) * 6)),
    )

    assert none == []
    assert torch.equal(small, halved)


@pytest.mark.parametrize("most", [27, 32, 40])
def test_the_budget_that_was_learnt_fits_the_next_step(net: GPT2, most: int) -> None:
    """Of a group with one prompt too: its tokens are counted as they are packed, prompt once."""
    data = group_of(8, prompt=20, completion=4)
    budget = row_tokens(data)
    device = SmallDevice(most)
    whole, _, _ = gradient(net, data, budget)
    parts, _, learnt = gradient(net, data, budget, device)
    assert budget == 20 + 8 * 4  # by hand
    assert device.refused
    assert max(learnt) < budget

    device.refused = 0
    again, _, _ = gradient(net, data, min(learnt), device)
    assert device.refused == 0
    torch.testing.assert_close(parts, whole, rtol=1e-5, atol=1e-7)
    torch.testing.assert_close(again, whole, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("budget", [30, 52, 60, 10_000])
def test_tokens_of_a_micro_batch_are_counted_as_it_was_cut(data: list[Datum], budget: int) -> None:
    """No micro-batch of several data is above the budget, and none could take the next datum."""
    mixed = [*data, *group_of(8, prompt=20, completion=4)]
    batches = [[mixed[i] for i in batch] for batch in microbatches(mixed, budget)]
    assert all(row_tokens(batch) <= budget for batch in batches if len(batch) > 1)
    assert all(row_tokens([*batch, after[0]]) > budget for batch, after in pairwise(batches))


def test_gradients_are_added_up_in_place(net: GPT2, data: list[Datum]) -> None:
    """With one thread a few weights' gradients exist beside the sums, never a whole set."""
    incoming: list[Any] = []
    beside: list[int] = []

    def count(_: Any) -> None:
        sums = {id(weight.grad) for weight in net.parameters()}
        alive = [grad for one in incoming if (grad := one()) is not None]
        beside.append(sum(id(grad) not in sums for grad in alive))

    for weight in net.parameters():
        weight.register_hook(lambda grad: incoming.append(ref(grad)))
        weight.register_post_accumulate_grad_hook(count)
    accumulate(
        data, ReinforceLoss(), Learner(net=net), MicroBatches(budget=30, threads=BatchThreads())
    )

    assert len(beside) > 2 * len(list(net.parameters()))
    assert max(beside) <= 4


def test_naming_the_problems_needs_no_second_set_of_gradients(net: GPT2, data: list[Datum]) -> None:
    """Of an update whose gradient is not finite: each datum's is computed when no other is held."""
    held: list[bool] = []

    def attention(net: Any, row: Any, device: Any) -> Any:
        held.append(any(weight.grad is not None for weight in net.parameters()))
        return BlockAttention(net, row, device)

    pieces = MicroBatches(budget=30, threads=BatchThreads())
    accumulate(data, ReinforceLoss(), Learner(net=net), pieces)
    assert explain_gradient(data, ReinforceLoss(), Learner(net=net, attention=attention))
    assert held == [False] * len(data)


class EndsLate(SmallDevice):
    """Its memory ends in the backward pass of one micro-batch, after others were added."""

    def __init__(self, number: int) -> None:
        super().__init__(10_000)
        self.number, self.rows = number, 0

    def __call__(self, net: Any, row: Any, device: Any) -> Any:
        self.rows += 1
        self.most, self.backward = (0, True) if self.rows == self.number else (10_000, False)
        return super().__call__(net, row, device)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_what_was_added_before_the_memory_ended_counts_once(
    net: GPT2, data: list[Datum], number: int
) -> None:
    """In any micro-batch, half of whose gradients are added by then: bits, loss and metrics."""
    budget, device = LENGTH * 4, EndsLate(number)
    found, metrics, learnt = gradient(net, data, budget, device)
    wanted, same, _ = gradient(net, data, learnt[0])

    assert device.refused == len(learnt) == 1
    assert learnt[0] < budget
    assert torch.equal(found, wanted)
    assert metrics == same


def test_gradients_of_an_earlier_failure_are_not_added(net: GPT2, data: list[Datum]) -> None:
    """A step that a single datum ended, half way through its backward pass, leaves nothing."""
    wanted, _, _ = gradient(net, data, LENGTH)
    device = EndsLate(5)
    pieces = MicroBatches(budget=LENGTH, threads=BatchThreads())
    with pytest.raises(torch.OutOfMemoryError):
        accumulate(data, ReinforceLoss(), Learner(net=net, attention=device), pieces)
    accumulate(data, ReinforceLoss(), Learner(net=net), pieces)

    assert torch.equal(torch.cat([value.grad.flatten() for value in net.parameters()]), wanted)


def test_one_datum_that_does_not_fit_ends_the_step(net: GPT2, data: list[Datum]) -> None:
    """There is nothing left to halve: the device's own error, which `rlvr` explains."""
    with pytest.raises(torch.OutOfMemoryError):
        gradient(net, data, 10_000, SmallDevice(LENGTH - 2))


def test_logprobs_and_evaluations_are_halved_too(net: GPT2, data: list[Datum]) -> None:
    """Every datum's numbers come out in order."""
    pieces = MicroBatches(budget=10_000, threads=BatchThreads())
    whole = pieces.numbers(data, lambda some: sequence_logprobs(net, some))
    small = SmallDevice(30)
    parts = pieces.numbers(data, lambda some: sequence_logprobs(net, some, attention=small))
    loss = eval_loss(data, ReinforceLoss(), Learner(net=net), pieces)
    again = eval_loss(data, ReinforceLoss(), Learner(net=net, attention=small), pieces)

    assert small.refused
    for one, other in zip(whole, parts, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert again == pytest.approx(loss, rel=1e-5)


@pytest.mark.parametrize("has_bfloat16", [True, False])
@pytest.mark.parametrize("device", ["cpu", "mps", "cuda"])
def test_products_are_in_bfloat16_where_a_card_has_it(
    monkeypatch: pytest.MonkeyPatch, device: str, has_bfloat16: bool
) -> None:
    """`torch.dtype=auto`; what a person asks for stays."""
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bfloat16)
    wanted = "bfloat16" if device == "cuda" and has_bfloat16 else "float32"

    assert settled(TorchConfig(), torch.device(device)).dtype == wanted
    for name in ("float32", "bfloat16"):
        assert settled(TorchConfig(dtype=name), torch.device(device)).dtype == name


class Letters:
    """A tokenizer whose tokens are single letters; none ends a completion."""

    has_bytes, ends = False, frozenset()

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(chr(97 + token) for token in tokens)


def asked(count: int) -> list[GenerateRequest]:
    """Completions of three prompts; a few end at a letter."""
    return [
        GenerateRequest(
            prompt=np.arange(1, 3 + 2 * (i % 3)),
            params=SamplingParams(max_tokens=4 + i, stop=("b",) if i % 4 == 0 else ()),
            seed=i,
        )
        for i in range(count)
    ]


def bits(completion: Completion) -> tuple[Any, ...]:
    return completion.tokens.tolist(), completion.logprobs.tobytes(), completion.text


PLACES = {
    "a pass": (GPT2, "hidden", lambda net, tokens, *_: len(tokens) if tokens.shape[1] == 1 else 0),
    "the cache": (KVCache, "_grow", lambda cache, *_: len(cache._owner)),
    "the logits": (DecodeWeights, "float_logits", lambda weights, states: len(states)),
}


@pytest.mark.parametrize(
    ("place", "passes"),
    [("a pass", 0), ("a pass", 3), ("the cache", 0), ("the logits", 0), ("the logits", 3)],
)
def test_rows_that_do_not_fit_are_drawn_again_to_the_bit(
    net: GPT2, monkeypatch: pytest.MonkeyPatch, place: str, passes: int
) -> None:
    """Each completion once and as it would have been; later batches have fewer rows at once."""
    wanted = [bits(one) for one in Engine(net, Letters(), rows=12).generate(asked(12))]
    kind, name, rows_of = PLACES[place]
    plain, refused, calls = getattr(kind, name), [], []

    def small(*given: Any, **named: Any) -> Any:
        calls.append(1)
        if len(calls) > passes and rows_of(*given) > 4:
            refused.append(rows_of(*given))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(*given, **named)

    monkeypatch.setattr(kind, name, small)
    engine = Engine(net, Letters(), rows=12)
    assert [bits(one) for one in engine.generate(asked(12))] == wanted
    assert refused
    refused.clear()
    assert [bits(one) for one in engine.generate(asked(12))] == wanted
    assert not refused


def test_a_row_that_never_fits_ends_the_generation(
    net: GPT2, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's own error, once one row was tried."""

    def refuse(*given: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    engine = Engine(net, Letters(), rows=12)
    monkeypatch.setattr(GPT2, "hidden", refuse)
    with pytest.raises(torch.OutOfMemoryError):
        engine.generate(asked(12))
    assert engine._rows == 1
