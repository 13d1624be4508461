"""The command that gives a task of ours to the cookbook's loops."""

from __future__ import annotations

import pytest

pytest.importorskip("tinker_cookbook", reason="tinker-cookbook is not installed")

from rlvr_tinker_cookbook.train import RECIPE, Command, main

WORDS = {
    "plugin": "toy",
    "model_name": "MODEL",
    "learning_rate": "1e-4",
    "max_tokens": "8",
    "log_path": "LOG",
}


def command(**fields: str) -> Command:
    import chz

    words = [f"{name}={value}" for name, value in {**WORDS, **fields}.items()]
    made: Command = chz.Blueprint(Command).make_from_argv(words)
    return made


def test_words_are_the_loops_settings() -> None:
    """What is said reaches the cookbook's configuration and the data set."""
    config = command(
        options="toy.letters=a,b verify.workers=2", steps="3", loss_fn="ppo", lora_rank="4"
    ).reinforcement()
    assert (config.learning_rate, config.max_tokens, config.lora_rank) == (1e-4, 8, 4)
    assert (config.loss_fn, config.model_name, config.recipe_name) == ("ppo", "MODEL", RECIPE)
    assert config.renderer_name is None
    builder = config.dataset_builder
    assert builder.options == ["toy.letters=a,b", "verify.workers=2"]  # type: ignore[attr-defined]
    assert builder.batches == 3  # type: ignore[attr-defined]


def test_a_teacher_means_distillation() -> None:
    """Its weights and their weight reach the distillation loop."""
    config = command(teacher="T", teacher_path="tinker://x", kl_penalty_coef="0.5").distillation()
    assert config.kl_penalty_coef == 0.5
    teacher = config.dataset_configs[0].teacher_config
    assert (teacher.base_model, teacher.load_checkpoint_path) == ("T", "tinker://x")


def test_weights_without_a_name_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """A mistake is three sentences and exit 2, before anything is opened."""
    words = [f"{name}={value}" for name, value in WORDS.items()]
    assert main([*words, "teacher_path=tinker://x"]) == 2
    assert "add teacher=MODEL" in capsys.readouterr().err
