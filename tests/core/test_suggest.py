"""What an unknown name is taken for."""

from __future__ import annotations

import pytest

from rlvr.config.core import CORE_OPTIONS
from rlvr.config.schema import options_of
from rlvr.suggest import nearest

KEYS = options_of(CORE_OPTIONS)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("train.learning_rate", "train.lr"),  # which shares more letters with train.minibatches
        ("learning-rate", "train.lr"),
        ("trian.lr", "train.lr"),
        ("sampler.temp", "sampler.temperature"),  # and not run.sampler
        ("sampler.group", "sampler.group_size"),
        ("train.grad", "train.grad_clip"),
        ("train.warmup_steps", "train.warmup"),
        ("train.lrate", "train.lr"),
        ("run.seeds", "run.seed"),
        ("verify.worker", "verify.workers"),
        ("train.batch_size", None),
        ("sampler.num_generations", None),
        ("checkpoint.interval", None),
    ],
)
def test_the_namespace_is_no_likeness(name: str, meant: str | None) -> None:
    """Options of one namespace are compared by their last parts; initials stand for words."""
    assert nearest(name, KEYS) == meant


@pytest.mark.parametrize(
    ("name", "candidates", "meant"),
    [
        ("distill.kind", ["distill.k"], None),  # a letter begins too many words
        ("map-RGX", ["map-YRG", "map-RGB"], "map-RGB"),
        ("abcx", ["zabc", "abcy"], "abcy"),
        ("p_10", ["z_10", "p_11"], "p_11"),
        ("gpro", ["gspo", "grpo"], "grpo"),
        ("diff", ["epochs", "difficulty"], "difficulty"),
        ("one", ["one", "tone"], "tone"),
        ("GRPO", ["gspo", "grpo"], "grpo"),  # as papers write it
        ("Dr_GRPO", ["grpo", "dr-grpo"], "dr-grpo"),
        ("x", ["y"], None),
        ("", ["a", "abc"], None),
    ],
)
def test_of_equally_like_names_the_start_decides(
    name: str, candidates: list[str], meant: str | None
) -> None:
    """A slip is likelier at the end of a name; what begins with the name is meant by it."""
    assert nearest(name, candidates) == meant
    assert nearest(name, candidates[::-1]) == meant
