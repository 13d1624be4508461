"""The local teacher: what it says is what its model says, and it is only read."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from rlvr import (
    BackendError,
    BuildContext,
    ConfigError,
    Datum,
    FloatArray,
    Teacher,
    TeacherRequest,
    TopK,
)
from rlvr.testing import TeacherContract, opened
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.models.bpe import BytePairTokenizer
from rlvr_torch.models.gpt2 import GPT2
from rlvr_torch.models.save import save_net
from rlvr_torch.teacher import TorchTeacher
from rlvr_torch.training.logprobs import trunk
from rlvr_torch.training.output_head import Head
from rlvr_torch.training.packing.prefix_packing import BlockAttention
from rlvr_torch.training.top_k import as_datum, top_k

SMALL = "gpt2:new?layers=2&heads=2&width=16&positions=48&seed=3"


def teacher_of(model: str, **options: object) -> TorchTeacher:
    config = TorchConfig(device="cpu", threads=1, **options)  # type: ignore[arg-type]
    return TorchTeacher(config, BuildContext(model=model))


def score(teacher: TorchTeacher, data: Sequence[Datum]) -> list[FloatArray]:
    async def run() -> list[FloatArray]:
        async with opened(teacher) as part:
            return await part.logprobs(data)

    return asyncio.run(run())


class TestNew(TeacherContract):
    def make_teacher(self) -> Teacher:
        return teacher_of(SMALL)


class TestSeveralThreads(TeacherContract):
    """Micro-batches of a token's size, shared by two threads."""

    def make_teacher(self) -> Teacher:
        config = TorchConfig(device="cpu", threads=2, microbatch_tokens=1, logprob_chunk=1)
        return TorchTeacher(config, BuildContext(model=SMALL))


class TestHF(TeacherContract):
    """A model of transformers, and its tokenizer, which has fewer ids than the model rows."""

    is_padded = True

    @pytest.fixture(autouse=True)
    def _model(self, make_hf: Callable[[str], Path]) -> None:
        self.path = make_hf("llama")

    def make_teacher(self) -> Teacher:
        return teacher_of(f"hf:{self.path}")


def test_says_what_its_model_says(
    tmp_path: Path, model: GPT2, tokenizer: BytePairTokenizer, make_datum: Callable[..., Datum]
) -> None:
    """Against a plain forward pass over the whole sequence, at temperature 0.7."""
    save_net(model, tokenizer, tmp_path)
    datum = make_datum(3, 11, temperature=0.7)

    (found,) = score(teacher_of(f"gpt2:{tmp_path}"), [datum])

    with torch.no_grad():
        logits = model(torch.tensor(datum.tokens).long()[None])[0] / 0.7
    for t in range(3, 11):
        row = logits[t - 1].double()
        wanted = row[int(datum.tokens[t])] - math.log(row.exp().sum())
        assert found[t] == pytest.approx(wanted.item(), abs=1e-5)


def answers(teacher: TorchTeacher, questions: Sequence[TeacherRequest]) -> list[TopK]:
    async def run() -> list[TopK]:
        async with opened(teacher) as part:
            return await part.score(questions)

    return asyncio.run(run())


@pytest.mark.parametrize("chunk", [1, 7, 1024])
def test_likeliest_tokens_are_those_of_the_logits(
    tmp_path: Path,
    model: GPT2,
    tokenizer: BytePairTokenizer,
    make_datum: Callable[..., Datum],
    chunk: int,
) -> None:
    """Against a plain forward pass: ids, logprobs in descending order, the token that stands there.

    Whatever k, temperature and start each question has, and however many positions are done at a
    time.
    """
    save_net(model, tokenizer, tmp_path)
    asked = [
        TeacherRequest(
            ids=make_datum(1, length, seed=length).tokens, start=start, k=k, temperature=heat
        )
        for length, start, k, heat in [(11, 3, 5, 0.7), (5, 4, 1, 1.0), (30, 1, 9, 2.0)]
    ]

    found = answers(teacher_of(f"gpt2:{tmp_path}", logprob_chunk=chunk), asked)

    for question, answer in zip(asked, found, strict=True):
        with torch.no_grad():
            logits = model(torch.tensor(question.ids).long()[None])[0].double()
        rows = (logits / question.temperature).log_softmax(1).numpy()[question.start - 1 : -1]
        best = np.argsort(-rows, axis=1)[:, : question.k]
        assert answer.ids.tolist() == best.tolist()
        assert answer.logprobs == pytest.approx(np.take_along_axis(rows, best, 1), abs=1e-5)
        own = rows[np.arange(len(rows)), question.ids[question.start :]]
        assert answer.actual == pytest.approx(own, abs=1e-5)
        assert not answer.is_whole


def test_rows_that_pad_a_vocabulary_are_nobodys(make_hf: Callable[[str], Path]) -> None:
    """They take their part of the probability, and are never among the likeliest."""
    teacher = teacher_of(f"hf:{make_hf('llama')}")
    size, rows = teacher.tokenizer.vocab_size, teacher._net.vocab_size
    assert size < rows

    (answer,) = answers(teacher, [TeacherRequest(ids=[1, 2, 3], start=1, k=10 * rows)])

    assert answer.ids.shape == (2, size)
    assert answer.ids.max() < size
    assert not answer.is_whole
    assert (np.exp(answer.logprobs).sum(1) < 0.9999).all()


def test_a_token_that_cannot_come_is_left_out() -> None:
    """A logit of minus infinity is no likely token: its place says that nothing is there."""
    head = Head(weights=torch.zeros(4, 2), bias=torch.tensor([0.0, 1.0, -torch.inf, 2.0]))
    question = TeacherRequest(ids=[0, 3], start=1, k=4)

    (answer,) = top_k(head, torch.ones(1, 2), [question], vocab_size=4, chunk=8)

    assert answer.ids.tolist() == [[3, 1, 0, -1]]
    assert answer.logprobs[0, 3] == -np.inf
    assert np.exp(answer.logprobs).sum() == pytest.approx(1.0)


def test_thousands_of_positions_make_no_logits_of_all(
    tmp_path: Path, model: GPT2, tokenizer: BytePairTokenizer
) -> None:
    """Scoring holds the logits of a chunk; states and head hold none at all."""
    largest = {"score": 0, "states": 0}
    save_net(model, tokenizer, tmp_path)
    teacher = teacher_of(f"gpt2:{tmp_path}", logprob_chunk=16)
    ids = np.arange(96) % 90
    questions = [TeacherRequest(ids=ids + i, start=1, k=2) for i in range(8)]
    whole = 8 * 95 * teacher._net.vocab_size

    def watched(name: str) -> TorchDispatchMode:
        class Watch(TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
                result = func(*args, **(kwargs or {}))
                for value in result if isinstance(result, tuple | list) else [result]:
                    if isinstance(value, torch.Tensor):
                        largest[name] = max(largest[name], value.numel())
                return result

        return Watch()

    data = [as_datum(question) for question in questions]
    with watched("states"), torch.no_grad():
        hidden = trunk(teacher._net, data, torch.float32)
    with watched("score"):
        top_k(Head.of(teacher._net), hidden, questions, vocab_size=289, chunk=16)
    assert max(largest.values()) < whole / 2


def test_bad_questions_are_refused(make_datum: Callable[..., Datum]) -> None:
    """Nothing before the first position, nothing after the last, nobody likely."""
    for start, k in ((0, 3), (5, 3), (2, 0)):
        with pytest.raises(BackendError, match="nothing is asked for"):
            answers(teacher_of(SMALL), [TeacherRequest(ids=[1, 2, 3, 4, 5], start=start, k=k)])


def test_the_head_is_the_models_own(make_hf: Callable[[str], Path]) -> None:
    """No copy and no gradient; in bfloat16 it stays so, and states come as float32."""
    teacher = teacher_of(f"hf:{make_hf('llama')}", dtype="bfloat16")
    assert teacher.head.weights.data_ptr() == teacher._net.head.data_ptr()
    assert teacher.head.weights.dtype == torch.bfloat16
    assert not teacher.head.weights.requires_grad
    assert teacher.capabilities.has_states
    assert len(teacher.capabilities.tokenizer) == 64


def test_agrees_with_a_backend_of_the_same_model(make_datum: Callable[..., Datum]) -> None:
    """A student that starts from its teacher is told exactly its own logprobs."""
    data = [make_datum(2, 7, seed, tokens=np.arange(7) + seed) for seed in (1, 2)]
    backend = TorchBackend(TorchConfig(device="cpu", threads=1), BuildContext(model=SMALL))

    async def policy() -> list[FloatArray]:
        async with opened(backend) as part:
            return await part.logprobs(data, "policy")

    for mine, theirs in zip(asyncio.run(policy()), score(teacher_of(SMALL), data), strict=True):
        assert mine.tolist() == theirs.tolist()


def test_has_one_copy_that_nothing_trains() -> None:
    """No gradient is kept for any weight, and no optimiser stands beside them."""
    teacher = teacher_of(SMALL)
    parameters = list(teacher._net.module.parameters())

    assert parameters
    assert not any(value.requires_grad for value in parameters)
    assert not any(isinstance(v, torch.optim.Optimizer) for v in vars(teacher).values())


def test_a_frozen_model_takes_half_the_bytes_in_bfloat16(
    make_hf: Callable[[str], Path], make_datum: Callable[..., Datum]
) -> None:
    """Stored as it computes; what it says stays near."""
    data = [make_datum(3, 20, seed) for seed in (1, 2)]
    model = f"hf:{make_hf('llama')}"
    small = teacher_of(model, dtype="bfloat16")

    assert {value.dtype for value in small._net.module.parameters()} == {torch.bfloat16}
    for mine, wanted in zip(score(small, data), score(teacher_of(model), data), strict=True):
        assert mine.dtype == np.float32
        assert mine == pytest.approx(wanted, abs=0.1)


def test_an_adapter_is_a_teacher_with_its_base(
    make_hf: Callable[[str], Path], make_datum: Callable[..., Datum], tmp_path: Path
) -> None:
    """`hf:DIR` of a LoRA checkpoint: what the student of another run has become."""
    base, data = f"hf:{make_hf('llama')}", [make_datum(3, 20)]
    config = TorchConfig(device="cpu", threads=1, lora_rank=2)
    backend = TorchBackend(config, BuildContext(model=base))

    async def trained() -> list[FloatArray]:
        async with opened(backend) as part:
            with torch.no_grad():
                for value in part.net.module.parameters():
                    if value.requires_grad:
                        value += 0.3
            await part.save(tmp_path)
            return await part.logprobs(data, "policy")

    (wanted,) = asyncio.run(trained())
    adapter = next(tmp_path.rglob("adapter_config.json")).parent
    (found,) = score(teacher_of(f"hf:{adapter}"), data)
    (before,) = score(teacher_of(base), data)

    assert found == pytest.approx(wanted, abs=1e-5)
    assert np.abs(before - wanted).max() > 0.01


def test_the_students_adapters_are_not_the_teachers() -> None:
    """What trains a student through an adapter says nothing about a `gpt2:` teacher."""
    teacher = teacher_of(SMALL, lora_rank=4, adapter="nowhere", reference="adapter-off")

    assert teacher.context_length == 48


def test_data_that_it_cannot_read_name_it(make_datum: Callable[..., Datum]) -> None:
    """Too long, and ids of a larger vocabulary: the teacher is named, not the student."""
    for datum, said in (
        (make_datum(2, 60, tokens=np.ones(60)), "60 tokens"),
        (make_datum(2, 5, tokens=np.full(5, 290)), "leave the vocabulary"),
    ):
        with pytest.raises(BackendError, match=f"teacher gpt2:new(.|\n)*{said}"):
            score(teacher_of(SMALL), [datum])


def test_a_model_that_is_not_there_is_refused() -> None:
    """As for a student."""
    with pytest.raises(ConfigError, match="no such folder"):
        teacher_of("gpt2:/nowhere/at/all")


def test_what_did_not_fit_is_not_tried_again(make_datum: Callable[..., Datum]) -> None:
    """Micro-batches are halved where the memory ends, and later calls begin with small ones."""
    data = [make_datum(3, 20, i, tokens=[*range(i, i + 20)]) for i in range(8)]
    wanted = score(teacher_of(SMALL), data)
    teacher, refused = teacher_of(SMALL), []
    plain = BlockAttention

    def small(net: Any, row: Any, device: Any) -> Any:
        if len(row.tokens) > 60:
            refused.append(len(row.tokens))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return plain(net, row, device)

    teacher._attention = small

    async def run() -> list[FloatArray]:
        async with opened(teacher) as part:
            found = await part.logprobs(data)
            assert refused
            refused.clear()
            await part.logprobs(data)
            return found

    found = asyncio.run(run())
    assert refused == []
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
