"""The local teacher: what it says is what its model says, and it is only read."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from rlvr.errors import BackendError, ConfigError
from rlvr.parts import BuildContext, Teacher
from rlvr.testing import TeacherContract, opened
from rlvr.types import Datum, FloatArray
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig
from rlvr_torch.gpt2 import GPT2
from rlvr_torch.net_files import save_net
from rlvr_torch.teacher import TorchTeacher
from rlvr_torch.tokenizer import BytePairTokenizer

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
        (make_datum(2, 5, tokens=np.full(5, 290)), "leave the model's vocabulary"),
    ):
        with pytest.raises(BackendError, match=f"teacher gpt2:new(.|\n)*{said}"):
            score(teacher_of(SMALL), [datum])


def test_a_model_that_is_not_there_is_refused() -> None:
    """As for a student."""
    with pytest.raises(ConfigError, match="no such folder"):
        teacher_of("gpt2:/nowhere/at/all")
