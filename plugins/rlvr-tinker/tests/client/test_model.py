"""Which model a spec means, and what is said where there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rlvr import CheckpointError, ConfigError, UnknownNameError
from rlvr_tinker.service.model_spec import ModelName, Served, choose
from rlvr_tinker.training.checkpoint import Stored, saved_model

SERVED = [Served(name="Qwen/Qwen3-8B"), Served(name="Qwen/Qwen3-4B"), Served(name="org/other")]


@pytest.mark.parametrize(
    ("spec", "base", "path", "only_samples"),
    [
        ("tinker:Qwen/Qwen3-8B", "Qwen/Qwen3-8B", "", False),
        ("tinker:", "", "", False),
        ("tinker://run/weights/a", "", "tinker://run/weights/a", False),
        ("tinker://s:train:0/sampler_weights/a", "", "tinker://s:train:0/sampler_weights/a", True),
    ],
)
def test_specs_are_read(spec: str, base: str, path: str, only_samples: bool) -> None:
    """A name, nothing (the only model), or saved weights of either kind."""
    found = ModelName.parse(spec)

    assert (found.base, found.path, found.only_samples) == (base, path, only_samples)


def test_a_checkpoint_is_a_model(tmp_path: Path) -> None:
    """The folder of a run's checkpoint means the weights that the service keeps for it."""
    path = "tinker://run/weights/a"
    Stored(path=path, version=1, digest="d", base="b", rank=8).write(tmp_path)

    assert saved_model(f"tinker:{tmp_path}") == path
    assert saved_model("tinker:") == "tinker:"
    (tmp_path / "tinker.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tinker\.json"):
        saved_model(f"tinker:{tmp_path}")


@pytest.mark.parametrize("spec", ["gpt2:x", "tinker", "tinker://x", "tinker://run/other/a"])
def test_other_specs_are_refused(spec: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigError):
        ModelName.parse(spec)


def test_the_nearest_names_are_told() -> None:
    """A typo, or another case."""
    with pytest.raises(UnknownNameError, match=r"did you mean: Qwen/Qwen3-8B"):
        choose(ModelName(base="qwen/qwen3-8b"), SERVED)


def test_a_name_like_no_other_gets_the_list() -> None:
    """All names, as far as they fit."""
    with pytest.raises(UnknownNameError, match="it has: Qwen/Qwen3-8B"):
        choose(ModelName(base="zzzzzz"), SERVED)


def test_no_name_means_the_only_model() -> None:
    """And is refused where there are several."""
    assert choose(ModelName(), SERVED[:1]) == SERVED[0]
    with pytest.raises(UnknownNameError, match=r"no model .* was named"):
        choose(ModelName(), SERVED)
