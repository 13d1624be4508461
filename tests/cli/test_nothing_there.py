"""Nothing to train on, to evaluate or to score: said as such, never reported as 0 %."""

from __future__ import annotations

import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from rlvr import ConfigError, score
from rlvr.cli.main import main
from rlvr.testing import require_tool
from tests.conftest import PluginSite

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_cvdp", reason="rlvr-cvdp is not installed: pip install rlvr-cvdp")

Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(autouse=True)
def _tools() -> None:
    require_tool("bwrap")
    require_tool("iverilog")


def starter_row(tmp_path: Path, split: str) -> str:
    root = Path(__file__).parents[2]
    path = root / "rlvr-cvdp/rlvr_cvdp/starter/problems.jsonl"
    row = json.loads(path.read_text(encoding="utf-8").splitlines()[0])
    (tmp_path / "d.jsonl").write_text(json.dumps({**row, "split": split}), encoding="utf-8")
    return "d.jsonl"


def test_a_data_set_that_is_not_there_is_said_before_torch_is_imported(
    plugin_site: PluginSite,
) -> None:
    """Within moments, and no run directory is left behind."""
    stop = "raise RuntimeError('torch was imported')\n"
    (plugin_site.path / "torch.py").write_text(stop, encoding="utf-8")
    for plugin in ("toy", "sad", "cvdp", "chess"):
        done = plugin_site.rlvr(
            "run", "--plugin", plugin, "--algo", "sad" if plugin == "sad" else "grpo",
            "--dataset", "none.jsonl", "--model", "gpt2:new",
        )  # fmt: skip
        assert done.returncode == 2, done.stderr
        assert "the data set none.jsonl was asked for" in done.stderr
    assert not (plugin_site.home / "runs").exists()


def test_nothing_to_train_on_says_where_the_problems_are(rlvr: Call, tmp_path: Path) -> None:
    """All problems in another split are no reason to look for broken rows."""
    done = rlvr("run", "--plugin", "cvdp", "--dataset", starter_row(tmp_path, "test"))

    assert done.returncode == 2
    assert "no usable problem in split 'train', 1 in test\n" in done.stderr


def test_a_model_that_is_no_run_is_not_taken_for_a_missing_plugin(
    rlvr: Call, tmp_path: Path
) -> None:
    """A run says which task it is of; so the name is what is wrong, not that no plugin is there."""
    (tmp_path / "runs/grpo3").mkdir(parents=True)
    (tmp_path / "runs/grpo3/run.json").write_text("{}")
    for name, told in {
        "runs/gpro3": "no run 'runs/gpro3': no run.json there.\n  did you mean 'grpo3'?",
        "grpo3": "found: a run of that name, runs/grpo3\n  name its folder: --model runs/grpo3",
    }.items():
        done = rlvr("eval", "--model", name)
        assert done.returncode == 2
        assert told in done.stderr
    assert "no plugin was chosen" in rlvr("eval", "--model", "gpt2:new").stderr


def test_a_split_that_is_not_there_names_those_that_are(rlvr: Call) -> None:
    """With how many problems each has."""
    for words in (("eval", "--split", "tset"), ("run", "eval.split=tset", "eval.samples=1")):
        done = rlvr(*words, "--plugin", "toy")
        assert done.returncode == 2
        assert "found: no usable problem in it, 4 in train" in done.stderr


def test_without_problems_to_evaluate_there_is_no_score(rlvr: Call, tmp_path: Path) -> None:
    """An empty test split is said once and not reported as 0 %."""
    dataset = starter_row(tmp_path, "train")
    done = rlvr(
        "run", "--plugin", "cvdp", "--dataset", dataset, "--out", "r", "--steps", "1",
        "sampler.group_size=2", "train.problems=1", "eval.samples=2",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert done.stderr.count("nothing_to_evaluate") == 1
    assert "pass@1" not in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["eval.split=nosuch", "eval.samples=1"], 2, "split 'nosuch' was to be evaluated"),
        (
            ["eval.split=train", "eval.samples=0", "--steps=0"],
            0,
            "nothing_is_evaluated .* found='eval.samples=0'",
        ),
    ],
)
def test_a_split_that_is_chosen_in_vain_is_said(
    words: list[str], code: int, said: str, rlvr: Call
) -> None:
    """Refused where it has no problem, a warning where nothing is evaluated."""
    done = rlvr("run", "--plugin", "toy", "--out", "r", *words)

    assert done.returncode == code, done.stderr
    assert re.search(said, done.stderr)


def test_golden_without_any_reference_is_no_result(rlvr: Call, tmp_path: Path) -> None:
    """Nothing was scored: that is a usage mistake, not a table of zeros."""
    dataset = starter_row(tmp_path, "train")
    row = json.loads((tmp_path / dataset).read_text(encoding="utf-8"))
    row["output"]["context"] = dict.fromkeys(row["output"]["context"], "")  # as published
    (tmp_path / dataset).write_text(json.dumps(row), encoding="utf-8")

    done = rlvr("score", "--plugin", "cvdp", "--dataset", dataset, "--golden")

    assert done.returncode == 2, done.stderr
    assert "none for any of the 1 problems" in done.stderr


@pytest.mark.parametrize("command", ["score", "eval"])
@pytest.mark.parametrize("content", ["", "\n  \n\r\n", "\t"], ids=["empty", "blank", "a tab"])
def test_a_file_without_an_answer_is_no_result(
    command: str, content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """0 of 0 answers is a usage mistake (exit 2), from a file, standard input and Python."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(content.encode())))

    for source, name in (("a.jsonl", "a.jsonl"), ("-", "standard input")):
        assert main([command, "--task", "toy", "--completions", source, "--out", "o.jsonl"]) == 2
        said = capsys.readouterr()
        assert f"the answers in {name} were to be" in said.err
        assert "found: none for any of the 4 problems" in said.err
        assert not said.out
    assert not (tmp_path / "o.jsonl").exists()
    with pytest.raises(ConfigError, match="none for any of the 4 problems"):
        score(task="toy", completions=[])


@pytest.mark.parametrize("content", ["[]", "id,completion", '[{"id": "toy_a"}]', "{}"])
def test_lines_that_are_no_answers_are_not_scored(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """A header, an array: exit 2, and nobody is told that the others were scored."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "a.jsonl").write_text(content, encoding="utf-8")

    assert main(["score", "--task", "toy", "--completions", "a.jsonl"]) == 2
    assert (
        "1 of 1 lines of a.jsonl could not be used; nothing was scored." in capsys.readouterr().err
    )


@pytest.mark.parametrize("source", [["--golden"], ["--completions", "a.jsonl"]])
def test_only_rows_that_cannot_be_used_are_no_result(
    rlvr: Call, tmp_path: Path, source: list[str]
) -> None:
    """Each reason is listed, then their count and the first one; exit 2, as of an empty file."""
    (tmp_path / "d.jsonl").write_text('{"id": \n[]\n', encoding="utf-8")
    (tmp_path / "a.jsonl").write_text('{"id": "x", "completion": "y"}\n', encoding="utf-8")

    done = rlvr("score", "--plugin", "cvdp", "--dataset", "d.jsonl", *source)

    assert done.returncode == 2, done.stderr
    assert not done.stdout
    assert "rlvr: line 2: unsupported: " in done.stderr
    assert "no problem in it; 2 unsupported rows, the first line 1: " in done.stderr
