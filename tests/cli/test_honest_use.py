"""A score on what a model was trained on is never called held-out, as a person meets it."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

from rlvr_torch.generation.cpu.matmul import has_blocks

pytestmark = pytest.mark.integration

Call = Callable[..., subprocess.CompletedProcess[str]]

TRAIN = ["run", "--plugin", "toy", "--steps", "2", "eval.samples=0"]
EVAL = ["eval", "--plugin", "toy", "toy.letters=abcd", "--samples", "2", "sampler.max_tokens=4"]


@pytest.fixture(scope="module")
def of_two_letters(
    rlvr_in: Callable[[Path], Call], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """The folder of a run trained on a and b."""
    folder = tmp_path_factory.mktemp("ab")
    trained = rlvr_in(folder)(*TRAIN, "--out", "r", "toy.letters=ab")
    assert trained.returncode == 0, trained.stderr
    return folder / "r"


@pytest.fixture
def run(of_two_letters: Path, tmp_path: Path) -> Path:
    """`r` in this test's folder: a run trained on a and b."""
    return Path(shutil.copytree(of_two_letters, tmp_path / "r"))


def test_a_score_on_trained_families_is_refused_the_name_held_out(rlvr: Call, run: Path) -> None:
    """Trained on a and b, asked about a to d: two seen ids, and the unseen part for itself."""
    record = json.loads((run / "run.json").read_text())
    assert (record["families"], record["families_before"]) == (["a", "b"], [])
    assert record["batch_invariant"] is has_blocks()  # a tiny model decodes on one core
    assert record["dataset"] == "rlvr/toy" or record["dataset"].endswith("toy")

    model = "gpt2:r/checkpoints/step-000002/model"
    done = rlvr(*EVAL, "--model", model, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["held_out"] is False
    assert told["seen"] == ["toy_a", "toy_b"]
    assert told["unseen"]["problems"] == 2

    said = rlvr(*EVAL, "--model", model).stdout
    assert "NOT held-out: 2 of 4 problems are of families that this model was trained on" in said
    assert "unseen part: pass@1" in said


@pytest.mark.usefixtures("run")
def test_other_families_are_held_out(rlvr: Call) -> None:
    """Trained on a and b, asked about c and d."""
    done = rlvr("eval", "--run", "r", "toy.letters=cd", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_out"] is True


def test_weights_that_moved_and_were_trained_on_still_say_it(
    rlvr: Call, run: Path, tmp_path: Path
) -> None:
    """A chain of runs, the first one's folder gone: its families are in the second one's model."""
    shutil.copytree(run / "checkpoints/step-000002/model", tmp_path / "copied")
    shutil.rmtree(run)
    words = ("toy.letters=cd", "sampler.max_tokens=4")  # a model of 16 positions, no preset
    second = rlvr(*TRAIN, "--out", "second", "--model", "gpt2:copied", *words)
    assert second.returncode == 0, second.stderr

    record = json.loads((tmp_path / "second/run.json").read_text())
    assert (record["families"], record["families_before"]) == (["c", "d"], ["a", "b"])
    told = json.loads(rlvr("eval", "--run", "second", "toy.letters=abcdef", "--json").stdout)
    assert told["seen"] == ["toy_a", "toy_b", "toy_c", "toy_d"]


def test_the_model_of_a_run_is_the_one_of_its_last_checkpoint(rlvr: Call, tmp_path: Path) -> None:
    """`eval --run` samples what `eval --model CHECKPOINT` samples, without naming anything."""
    rlvr(*TRAIN, "--out", "r", "toy.letters=abcd")

    by_run = rlvr("eval", "--run", "r", "--samples", "2", "--out", "run.jsonl")
    by_path = rlvr(*EVAL, "--model", "gpt2:r/checkpoints/step-000002/model", "--out", "path.jsonl")
    assert by_run.returncode == by_path.returncode == 0, by_run.stderr + by_path.stderr

    texts = [
        [
            [s["text"] for s in json.loads(line)["segments"]]
            for line in file.read_text().splitlines()
        ]
        for file in (tmp_path / "run.jsonl", tmp_path / "path.jsonl")
    ]
    assert texts[0] == texts[1]
    start = rlvr(*EVAL, "--out", "start.jsonl")
    assert start.returncode == 0
    assert (tmp_path / "start.jsonl").read_text() != (tmp_path / "run.jsonl").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--run", "nowhere"], "no run at nowhere"),
        (["--run", "r", "--model", "starter"], "--model starter too"),
    ],
)
def test_a_run_that_cannot_be_evaluated_is_refused(rlvr: Call, words: list[str], said: str) -> None:
    """No run there, or two models at once: exit 2 and what to do."""
    refused = rlvr("eval", *words)

    assert refused.returncode == 2
    assert said in refused.stderr


def test_evaluations_inside_a_run_are_marked(rlvr: Call, tmp_path: Path) -> None:
    """The toy task asks about what it trains on, and the run does not call that held-out."""
    done = rlvr("run", "--plugin", "toy", "--steps", "1", "--out", "r", "eval.samples=1")
    assert done.returncode == 0, done.stderr

    (first, *_) = [json.loads(x) for x in (tmp_path / "r/eval.jsonl").read_text().splitlines()]
    assert first["held_out"] is False
    assert len(first["seen"]) == 4
    assert "NOT held-out: 4 of a family that is trained on" in done.stdout


def test_answers_of_a_file_are_of_an_unknown_model(rlvr: Call, tmp_path: Path) -> None:
    """Nobody recorded who gave them."""
    (tmp_path / "answers.jsonl").write_text('{"id": "toy_a", "completion": "aaaa"}\n')

    done = rlvr("eval", "--plugin", "toy", "--completions", "answers.jsonl", "--json")

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["held_out"] is None
