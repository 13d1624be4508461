"""Same model, same data: the service finds what the local backend finds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")

from rlvr import BuildContext, Datum, Loss
from rlvr.testing import opened
from rlvr_algos.config import CispoConfig, GrpoConfig, GspoConfig
from rlvr_algos.losses.grpo import CispoLoss, GrpoLoss, GspoLoss, ReinforceLoss
from rlvr_algos.losses.sft import SftLoss
from rlvr_tinker.backend import TinkerBackend
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig

pytestmark = pytest.mark.timeout(600)

CONTEXT = BuildContext()
LOSSES: dict[str, tuple[Callable[[], Loss], str | None]] = {
    "grpo": (lambda: GrpoLoss(None, CONTEXT), "ppo"),
    "grpo, other bounds": (
        lambda: GrpoLoss(GrpoConfig(clip_low=0.1, clip_high=0.3), CONTEXT),
        "ppo",
    ),
    "reinforce": (lambda: ReinforceLoss(None, CONTEXT), "importance_sampling"),
    "cispo": (lambda: CispoLoss(CispoConfig(), CONTEXT), "cispo"),
    "gspo": (lambda: GspoLoss(GspoConfig(), CONTEXT), "gspo"),
    "sft": (lambda: SftLoss(None, CONTEXT), "cross_entropy"),
    "grpo with a KL": (lambda: GrpoLoss(GrpoConfig(kl_coef=0.1), CONTEXT), None),
}
"""Our losses, and the service's name for them; None: it has none."""


def local(model: Path) -> TorchBackend:
    return TorchBackend(TorchConfig(threads=1, device="cpu"), BuildContext(model=f"gpt2:{model}"))


async def first_step(backend: Any, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
    """The metrics of one update, with the annotations that the loss needs."""
    from attrs import evolve

    for name in loss.needs.annotations:
        by_other = await backend.logprobs(data, name)
        data = [
            evolve(d, annotations={**d.annotations, name: lp})
            for d, lp in zip(data, by_other, strict=True)
        ]
    found: dict[str, float] = await backend.update(data, loss)
    return found


@pytest.mark.one_of(3)
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("custom", [False, True], ids=["named", "computed here"])
def test_a_step_finds_the_same_loss(
    make_backend: Callable[..., TinkerBackend],
    model_dir: Path,
    data: Sequence[Datum],
    name: str,
    custom: bool,
) -> None:
    """Loss and metrics of the first update, by the service's formula and by ours."""
    make, form = LOSSES[name]
    loss = make()
    if form is not None:
        named = loss.builtin_form()
        assert named is not None
        assert named.name == form

    async def run(backend: Any) -> dict[str, float]:
        async with opened(backend) as open_backend:
            return await first_step(open_backend, data, loss)

    theirs = asyncio.run(run(make_backend(custom_loss=custom)))
    ours = asyncio.run(run(local(model_dir)))

    shared = {key for key in ours if key not in ("grad/norm", "lr", "update/skipped")}
    assert shared <= set(theirs)
    for key in shared:
        assert theirs[key] == pytest.approx(ours[key], abs=2e-5, rel=1e-4), key


def test_the_service_agrees_with_our_sum(
    make_backend: Callable[..., TinkerBackend],
    data: Sequence[Datum],
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it calls `loss:sum` is our loss: no warning of another formula, for any named loss."""

    async def run() -> None:
        async with opened(make_backend()) as backend:
            for make, form in LOSSES.values():
                if form is not None:
                    await backend.update(data, make())

    asyncio.run(run())

    assert "loss_differs" not in capsys.readouterr().err


def test_logprobs_are_those_of_the_local_backend(
    make_backend: Callable[..., TinkerBackend], model_dir: Path, data: Sequence[Datum]
) -> None:
    """Of policy and reference, before any update: both are the base model."""

    async def run(backend: Any, which: str) -> list[np.ndarray]:
        async with opened(backend) as open_backend:
            found: list[np.ndarray] = await open_backend.logprobs(data, which)
            return found

    ours = asyncio.run(run(local(model_dir), "policy"))
    for which in ("policy", "reference"):
        theirs = asyncio.run(run(make_backend(), which))
        for a, b in zip(ours, theirs, strict=True):
            assert np.abs(a - b).max() < 1e-5
            assert a.shape == b.shape


def test_named_and_computed_here_train_alike(
    make_backend: Callable[..., TinkerBackend], data: Sequence[Datum]
) -> None:
    """The gradient too: three updates either way leave the same model."""

    async def run(custom: bool) -> list[np.ndarray]:
        async with opened(make_backend(custom_loss=custom, seed=11)) as backend:
            for _ in range(3):
                await backend.update(data, GrpoLoss(None, CONTEXT))
            return list(await backend.logprobs(data, "policy"))

    for a, b in zip(asyncio.run(run(False)), asyncio.run(run(True)), strict=True):
        assert np.abs(a - b).max() < 1e-4


def test_choices_are_scored_alike(make_backend: Callable[..., TinkerBackend]) -> None:
    """Single tokens at once, or as continuations of one token more: the same probabilities."""

    async def run() -> tuple[np.ndarray, np.ndarray]:
        async with opened(make_backend()) as backend:
            policy = await backend.policy()
            prompt, tokens = [5, 6, 7], [9, 200, 31]
            single = await policy.choices(prompt, [[t] for t in tokens])
            pairs = await policy.choices(prompt, [[t] for t in tokens] + [[9, 9]])
            return single, pairs

    single, pairs = asyncio.run(run())

    assert np.abs(single - pairs[:3]).max() < 1e-5
    assert pairs[3] < pairs[0]


def test_a_teacher_gives_the_base_models_logprobs(
    make_backend: Callable[..., TinkerBackend], data: Sequence[Datum]
) -> None:
    """Through a sampling client; its tokenizer is the student's."""
    from rlvr_tinker.config import TinkerConfig
    from rlvr_tinker.teacher import TinkerTeacher

    async def run() -> None:
        async with opened(make_backend()) as backend:
            wanted = await backend.logprobs(data, "reference")
            teacher = TinkerTeacher(TinkerConfig(), BuildContext(model="tinker:tiny"))
            async with teacher:
                found = await teacher.logprobs(data)
                assert teacher.tokenizer.vocab_size == 257
        for a, b in zip(wanted, found, strict=True):
            assert np.array_equal(a, b)

    asyncio.run(run())
