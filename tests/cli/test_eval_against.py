"""`rlvr eval --against` and `--report`: two models on the same problems, as a person asks."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.integration

Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]
EVAL = ("eval", "--plugin", "toy")


def answers(folder: Path, name: str, letters: str) -> str:
    """A file of answers, one a letter: a capital letter stands for a wrong answer."""
    lines = [
        {"id": f"toy_{x.lower()}", "completion": x * 4 if x.islower() else "x"} for x in letters
    ]
    (folder / name).write_text("".join(json.dumps(line) + "\n" for line in lines))
    return name


def refused(done: Done, exit_code: int, *texts: str) -> None:
    """The exit code, every text on standard error, nothing on standard output, no traceback."""
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert not done.stdout
    for text in texts:
        assert text in done.stderr, done.stderr


@pytest.fixture(scope="module")
def judged(rlvr_in: Callable[[Path], Call], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of two evaluations: all right but d, and only d right."""
    folder = tmp_path_factory.mktemp("judged")
    for name, letters in (("one", "abcD"), ("two", "ABCd")):
        file = answers(folder, f"{name}.answers", letters)
        done = rlvr_in(folder)(*EVAL, "--completions", file, "--out", f"{name}.jsonl")
        assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def reports(judged: Path, tmp_path: Path) -> tuple[str, str]:
    """Both, and the answers in them, in this test's folder."""
    shutil.copytree(judged, tmp_path, dirs_exist_ok=True)
    return "one.jsonl", "two.jsonl"


def test_two_reports_are_compared_without_a_plugin(rlvr: Call, reports: tuple[str, str]) -> None:
    """Nothing is sampled or judged: 3 against 1 of 4 solved, and McNemar's p by hand."""
    one, two = reports

    done = rlvr("eval", "--report", one, "--against", two, "--json")
    text = rlvr("eval", "--report", one, "--against", two).stdout

    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    paired = told["paired"]
    assert (told["pass_at"]["1"], told["against"]["pass_at"]["1"]) == (0.75, 0.25)
    assert (paired["difference"], paired["problems"]) == (0.5, 4)
    assert (paired["only_this"], paired["only_against"]) == (3, 1)
    assert paired["p_value"] == 2 * 5 / 16
    assert paired["low"] < 0.5 < paired["high"]
    assert {"sample_s", "judge_s", "tokens", "verify_s"} <= told["against"].keys()
    assert "difference of pass@1: +50.0 points, 95 % [" in text
    assert "3 only by this, 1 only by the other, 0 by both; McNemar p = 0.625" in text
    assert "this:    one.jsonl (one.answers)" in text


def test_a_report_reads_as_the_evaluation_did(rlvr: Call, tmp_path: Path) -> None:
    """The same numbers as when it was judged, missing answers included; nothing is judged."""
    answers(tmp_path, "a.jsonl", "aabC")
    first = rlvr(*EVAL, "--completions", "a.jsonl", "--out", "s.jsonl", "--json")

    again = rlvr("eval", "--report", "s.jsonl", "--json")

    before, after = json.loads(first.stdout), json.loads(again.stdout)
    assert before["missing"] == 4
    for key in ("n", "split", "samples", "pass_at", "runs", "low", "high", "verify_s", "held_out"):
        assert after[key] == before[key], key


def test_swapped_sides_mirror_the_difference(rlvr: Call, reports: tuple[str, str]) -> None:
    """`A --against B` says of A what `B --against A` says of B, with the other sign."""
    told = [
        json.loads(rlvr("eval", "--report", x, "--against", y, "--json").stdout)["paired"]
        for x, y in (reports, reports[::-1])
    ]

    assert told[0]["difference"] == -told[1]["difference"]
    assert told[0]["low"] == pytest.approx(-told[1]["high"])
    assert told[0]["p_value"] == told[1]["p_value"]


def test_answers_against_answers_are_judged_on_both_sides(rlvr: Call, tmp_path: Path) -> None:
    """A file without verdicts is judged like `--completions`, with its own number of samples."""
    one, two = answers(tmp_path, "one", "aabBcCdd"), answers(tmp_path, "two", "abCD")

    done = rlvr(*EVAL, "--completions", one, "--against", two, "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["n"], told["against"]["n"], told["against"]["missing"]) == (2, 1, 0)
    assert told["paired"]["this"] == 0.75
    assert told["paired"]["against"] == 0.5


def test_problems_of_one_side_only_are_counted_and_named(rlvr: Call, tmp_path: Path) -> None:
    """Three problems are shared; one on each side is not, and one changed under its id."""
    answers(tmp_path, "one", "abcde")
    words = [*EVAL, "--completions", "one", "--missing", "skip"]
    assert rlvr(*words, "--letters", "abcd", "--out", "one.jsonl").returncode == 0
    assert rlvr(*words, "--letters", "bcde", "--out", "two.jsonl").returncode == 0
    lines = (tmp_path / "two.jsonl").read_text().splitlines()
    changed = [json.loads(line) for line in lines]
    changed[0]["digest"] = "another"
    (tmp_path / "two.jsonl").write_text("".join(json.dumps(r) + "\n" for r in changed))

    done = rlvr("eval", "--report", "one.jsonl", "--against", "two.jsonl", "--json")
    text = rlvr("eval", "--report", "one.jsonl", "--against", "two.jsonl").stdout

    left_out = json.loads(done.stdout)["paired"]["left_out"]
    assert left_out == {
        "only_this": ["toy_a"], "only_against": ["toy_e"], "changed": ["toy_b"], "unjudged": [],
    }  # fmt: skip
    assert "not compared: 1 problem (toy_a) that only this evaluation has" in text
    assert "not compared: 1 problem (toy_b) that differ" in text


def test_different_splits_are_said(rlvr: Call, tmp_path: Path) -> None:
    """They are compared by problem id, and a person learns that the splits had other names."""
    answers(tmp_path, "a", "abcd")
    for split in ("test", "train"):
        rlvr(*EVAL, "--completions", "a", "--split", split, "--out", f"{split}.jsonl")

    text = rlvr("eval", "--report", "test.jsonl", "--against", "train.jsonl").stdout

    assert "splits differ: test here, train there" in text


def test_reports_of_other_problems_are_refused(rlvr: Call, tmp_path: Path) -> None:
    """No shared problem is no difference of 0: exit 2, with what each side has."""
    answers(tmp_path, "a", "abxy")
    for name, letters in (("one", "ab"), ("two", "xy")):
        words = ("--letters", letters, "--out", f"{name}.jsonl")
        assert rlvr(*EVAL, "--completions", "a", *words).returncode == 0

    done = rlvr("eval", "--report", "one.jsonl", "--against", "two.jsonl", "--json")

    refused(done, 2, "2 problems here and 2 there, 0 with the same id", "--dataset and --split")


def test_what_is_no_other_side_is_refused_before_any_work(rlvr: Call, tmp_path: Path) -> None:
    """A folder without a run, a file that is not there: what can be named, and exit 2."""
    (tmp_path / "folder").mkdir()
    answers(tmp_path, "a", "abcd")

    for other, found in (("folder", "a folder that is no run"), ("nope", "no such file or run")):
        done = rlvr(*EVAL, "--completions", "a", "--against", other)
        refused(done, 2, f"a comparison with {other}", found, "gpt2:PATH")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--samples", "2"], "--samples, which would have no effect"),
        (["--plugin", "toy"], "--plugin, which would have no effect"),
        (["toy.letters=ab"], "key=value, which would have no effect"),
        (["--out", "again.jsonl"], "--out, which would have no effect"),
        (["--model", "starter"], "--model, which would have no effect"),
        (["--letters", "ab"], "--letters"),
    ],
)
def test_a_report_takes_no_flags_about_sampling(
    rlvr: Call, reports: tuple[str, str], words: list[str], message: str
) -> None:
    """Exit 2: no flag is accepted and ignored."""
    refused(rlvr("eval", "--report", reports[0], *words), 2, message)


def test_answers_are_no_report(rlvr: Call, tmp_path: Path) -> None:
    """They are sent to `--completions`."""
    answers(tmp_path, "a", "abcd")

    refused(rlvr("eval", "--report", "a"), 2, "answers without a verdict", "--completions a")


def test_an_error_of_the_other_side_loses_nothing(rlvr: Call, tmp_path: Path) -> None:
    """As JSON and as text this side is there, the error and its exit code come after it."""
    one = answers(tmp_path, "one", "abcD")
    (tmp_path / "two").write_text(json.dumps({"id": "no such problem", "completion": "x"}) + "\n")
    words = (*EVAL, "--completions", one, "--against", "two", "--out", "one.jsonl")

    done = rlvr(*words, "--json")
    text = rlvr(*words)

    assert done.returncode == text.returncode == 2
    told = json.loads(done.stdout)
    assert told["pass_at"]["1"] == 0.75
    assert "none for any of the 4 problems" in told["against_error"]
    assert "none for any of the 4 problems" in done.stderr
    assert "paired" not in told
    assert "pass@1 75.0%" in text.stdout
    assert len((tmp_path / "one.jsonl").read_text().splitlines()) == 4


# --- models ---------------------------------------------------------------------------------------


def test_a_model_against_a_report_is_asked_the_same(rlvr: Call, reports: tuple[str, str]) -> None:
    """The other side of a report samples as often, on the same split; both cost something."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")

    done = rlvr(*EVAL, "--report", reports[0], "--against", "starter", "--json")

    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["against"]["n"] == told["n"] == 1
    assert told["against"]["tokens"] > 0
    assert told["against"]["sample_s"] is not None
    assert told["tokens"] is None


def test_runs_and_their_checkpoints_are_two_sides(rlvr: Call, tmp_path: Path) -> None:
    """A run against its own checkpoints: the last one is itself, and an unknown one is named."""
    pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed")
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
    words = ("--steps", "2", "--out", "r", "eval.samples=0", "checkpoint.every=1")
    trained = rlvr("run", "--plugin", "toy", "--algo", "grpo", *words)
    assert trained.returncode == 0, trained.stderr
    last, first = (f"r/checkpoints/step-00000{step}" for step in (2, 1))
    asked = ("eval", "--run", "r", "--samples", "4", "--json", "--against")

    itself, before = rlvr(*asked, last, "--out", "s.jsonl"), rlvr(*asked, first)
    unknown = rlvr(*asked, "r/checkpoints/step-000009")

    assert itself.returncode == before.returncode == 0, itself.stderr + before.stderr
    told, other = json.loads(itself.stdout), json.loads(before.stdout)
    assert told["against"]["reward_mean"] == told["reward_mean"] == other["reward_mean"]
    assert told["against"]["tokens"] == told["tokens"]
    assert told["paired"]["p_value"] == 1.0
    assert other["against"]["reward_mean"] != other["reward_mean"]
    assert unknown.returncode == 6
    assert "found: step-000001, step-000002" in unknown.stderr
    kept = json.loads(rlvr("eval", "--report", "s.jsonl", "--json").stdout)
    assert (kept["evaluated"], kept["tokens"]) == ("r", told["tokens"])
