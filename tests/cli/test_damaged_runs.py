"""Damaged run directories: each file in many ways, read by every command that reads them."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rlvr.cli.main import main
from rlvr.records.run_directory import RunDir
from tests.conftest import LEAN

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = pytest.mark.integration

RUN = (
    "run", "--plugin", "toy", "--algo", "grpo", "--steps", "2", "--seed", "1", "--out", "whole",
    "eval.samples=1", "eval.every=1", "checkpoint.every=1", "train.problems=2",
    "sampler.group_size=2", "verify.store=off", "--callback", "none",
)  # fmt: skip
FILES = (
    "run.json", "metrics.jsonl", "eval.jsonl", "trace.jsonl", "events.jsonl",
    "trajectories/step-000001.jsonl", "trajectories/eval-000002.jsonl",
    "checkpoints/step-000002/manifest.json", "checkpoints/step-000002/model/trained-on.json",
)  # fmt: skip


def _line(change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        lines = path.read_bytes().splitlines(keepends=True)
        lines[-1:] = [change(lines[-1])]
        path.write_bytes(b"".join(lines))

    return damage


def _bytes(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        path.write_bytes(content)

    return damage


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "inside").write_text("x")


def _half(path: Path) -> None:
    """Cut within the line in the middle: a cut between two lines leaves nothing to see."""
    content = path.read_bytes()
    middle = len(content) // 2
    begin, end = content.rfind(b"\n", 0, middle) + 1, content.find(b"\n", middle)
    path.write_bytes(content[: (begin + (end if end >= 0 else len(content))) // 2])


def _swapped(value: object) -> Callable[[Path], None]:
    """Every value of the first object is another one: valid JSON with wrong types."""

    def damage(path: Path) -> None:
        text = path.read_text()
        if path.suffix == ".json":
            record = json.loads(text)
            path.write_text(json.dumps(dict.fromkeys(record, value)))
        else:
            first, *others = text.splitlines()
            changed = json.dumps(dict.fromkeys(json.loads(first), value))
            path.write_text("\n".join([changed, *others]) + "\n")

    return damage


def _each(drop: int) -> Callable[[Path], None]:
    """A field is missing."""

    def damage(path: Path) -> None:
        text = path.read_text()
        first, rest = (text, "") if path.suffix == ".json" else text.split("\n", 1)
        record = json.loads(first)
        record.pop(list(record)[drop % len(record)])
        path.write_text(json.dumps(record) + "\n" + rest)

    return damage


DAMAGE: dict[str, Callable[[Path], None]] = {
    "a byte that is not UTF-8": _line(lambda line: line[:5] + b"\xff" + line[5:]),
    "half a line": _line(lambda line: line[: len(line) // 2]),
    "no end of line": _line(lambda line: line.rstrip(b"\n")),
    "zero bytes": _line(lambda line: line + b"\0" * 100 + b"\n"),
    "a line of something": _line(lambda line: line + b"[1]\n17\nnull\n{}\n\"x\"\n"),
    "too deep": _line(lambda line: line + b"[" * 100_000 + b"\n"),
    "too many digits": _line(lambda line: line + b'{"step": ' + b"9" * 5000 + b"}\n"),
    "a huge number": _line(lambda line: line + b'{"step": ' + b"9" * 400 + b"}\n"),
    "a huge line": _line(lambda line: line + b'{"step": "' + b"x" * 2_000_000 + b'"}\n'),
    "empty": _bytes(b""),
    "only zeros": _bytes(b"\0" * 4096),
    "a packed file": _bytes(b"\x1f\x8b\x08\0\0\0\0\0\0\x03KL"),
    "half a file": _half,
    "a folder": _folder,
    "gone": Path.unlink,
    "nulls": _swapped(None),
    "texts": _swapped("text"),
    "lists": _swapped([1, "x"]),
    "objects": _swapped({"a": {"b": 1}}),
    "numbers": _swapped(-1.5),
    "flags": _swapped(True),
    "without a field": _each(0),
    "without another field": _each(3),
}  # fmt: skip
CASES = [(file, name) for file in FILES for name in DAMAGE]
UNREAD = ("events", "checkpoints")
"""No command reads them that only reads: there is no more to see than whether they are there."""
READING = [
    case for case in CASES
    if not case[0].startswith(UNREAD) or case[1] in ("a folder", "gone", "only zeros")
]  # fmt: skip
SAID_NOTHING = {"no end of line", "gone", "empty"}
"""What may well be no damage: a crash before the last line, or before the file."""
MAY_LACK = {
    "run.json": {"half a line", "without a field", "without another field"},
    "metrics.jsonl": {"without another field"},
}
"""Its last line is a brace; a run of another version may have told less."""


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps, with evaluations and a checkpoint of each."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert main([*RUN]) == 0
    return folder / "whole"


@pytest.fixture
def damaged(whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the run, to damage, below `runs/` of the present folder."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(whole, tmp_path / "runs" / "other")
    return Path(shutil.copytree(whole, tmp_path / "runs" / "one"))


def said(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Exit code and standard error of a command, which shows no traceback."""
    code = main(list(words))
    shown = capsys.readouterr()
    assert "Traceback" not in shown.err, (words, shown.err[-3000:])
    assert "this is a bug" not in shown.err, (words, shown.err)
    assert code in (0, 2, 3, 5, 6), (words, code, shown.err)
    return code, shown.err


def reading(capsys: pytest.CaptureFixture[str]) -> str:
    """What the commands say that only read."""
    told = ""
    for words in (
        ("runs", "list", "runs"), ("runs", "list", "runs", "--json"), ("runs", "show", "runs/one"),
        ("runs", "show", "one", "--json"), ("runs", "compare", "one", "other"),
        ("runs", "compare", "other", "one", "--json"), ("runs", "trace", "runs/one"),
        ("rescore", "runs/one", "--out", "rescored.jsonl"),
    ):  # fmt: skip
        told += said(capsys, *words)[1]
    return told


@pytest.mark.one_of(5, "trace.jsonl")
@pytest.mark.parametrize(("file", "name"), READING)
def test_reading_names_what_is_damaged_and_goes_on(
    file: str, name: str, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No traceback, and the file is named by a command that needs it."""
    DAMAGE[name](damaged / file)

    told = reading(capsys)

    is_read = not file.startswith(UNREAD)
    is_damage = name not in SAID_NOTHING | MAY_LACK.get(file, set())
    if is_read and is_damage:
        assert Path(file).name in told, told


SOME = random.Random(7).sample(CASES, 14)


@pytest.mark.parametrize(("file", "name"), SOME)
def test_resuming_and_evaluating_a_damaged_run(
    file: str, name: str, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run goes on from its last good checkpoint; damage is named and kept beside."""
    DAMAGE[name](damaged / file)
    told = ""
    for words in (
        ("eval", "--run", "runs/one", "verify.store=off"),
        ("torch", "export", "runs/one", "--out", "exported"),
        ("run", "--resume", "runs/one", "run.steps=3"),
    ):
        code, shown = said(capsys, *words)
        told += shown
        assert code == 0 or Path(file).name in shown or "checkpoint" in shown, (words, shown)
    if file == "run.json" and name in ("a folder", "half a file", "only zeros", "texts"):
        assert "run.json" in told
    elif file != "run.json":
        assert (damaged / "checkpoints" / "step-000003").is_dir(), told


def _weights(checkpoint: Path) -> Path:
    return max((checkpoint / "model").iterdir(), key=lambda path: path.stat().st_size)


CHECKPOINT_DAMAGE: dict[str, Callable[[Path], Any]] = {
    "weights cut short": lambda one: os.truncate(_weights(one), 10),
    "weights emptied": lambda one: os.truncate(_weights(one), 0),
    "weights gone": lambda one: _weights(one).unlink(),
    "manifest emptied": lambda one: os.truncate(one / "manifest.json", 0),
    "manifest gone": lambda one: (one / "manifest.json").unlink(),
    "all gone": lambda one: [shutil.rmtree(one), one.mkdir()],
    "a pipe": lambda one: [(one / "manifest.json").unlink(), os.mkfifo(one / "manifest.json")],
    "a file": lambda one: [shutil.rmtree(one), one.write_text("x")],
    "a link": lambda one: [shutil.rmtree(one), one.symlink_to("nothing")],
}


@pytest.mark.parametrize("steps", [2, 3], ids=["had reached its last step", "had not"])
@pytest.mark.parametrize("name", CHECKPOINT_DAMAGE)
def test_a_damaged_newest_checkpoint_is_passed_by(
    name: str, steps: int, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run goes on from the one before it, and says which it could not trust."""
    CHECKPOINT_DAMAGE[name](damaged / "checkpoints" / "step-000002")

    code, shown = said(capsys, "run", "--resume", "runs/one", f"run.steps={steps}")

    assert code == 0, shown
    assert re.search(r"checkpoint_passed_by .*step-000002", shown)
    assert re.search(r"run_resumed .*step-000001", shown)
    found = [json.loads(x)["step"] for x in (damaged / "metrics.jsonl").read_text().splitlines()]
    assert found == [*range(1, steps + 1)]


@pytest.mark.parametrize("name", CHECKPOINT_DAMAGE)
def test_what_was_passed_by_is_not_among_those_that_are_kept(
    name: str, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Else the intact ones would go, which it outnumbers or is newer than."""
    folder = damaged / "checkpoints"
    for step in (5, 6):
        ahead = shutil.copytree(folder / "step-000002", folder / f"step-{step:06d}")
        CHECKPOINT_DAMAGE[name](ahead)

    code, shown = said(capsys, "run", "--resume", "runs/one", "run.steps=7", "checkpoint.keep=1")

    assert code == 0, shown
    assert re.search(r"run_resumed .*step-000002", shown)
    assert said(capsys, "run", "--resume", "runs/one", "run.steps=7")[0] == 0
    assert (folder / "step-000007" / "manifest.json").is_file()


@pytest.mark.parametrize("name", ["weights emptied", "manifest gone", "a link"])
def test_a_damaged_newest_checkpoint_is_no_model(
    name: str, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every command that works on a run's model refuses it (exit 6); an older one can be named."""
    CHECKPOINT_DAMAGE[name](damaged / "checkpoints" / "step-000002")
    run = ("run", "--plugin", "toy", "--steps", "1", "eval.every=0", "--callback", "none")
    run += ("--out", "two", "--model")

    for words in (("eval", "--run", "runs/one"), (*run, "runs/one")):
        code, shown = said(capsys, *words)
        assert (code, "step-000002 cannot be" in shown) == (6, True), shown
    assert not Path("two").exists()
    if name == "a link":
        code, shown = said(capsys, *run, "runs/one/checkpoints/step-000001")
        assert code == 0, shown


def test_a_run_without_a_checkpoint_begins_anew_and_says_so(
    damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may have been killed before its first one."""
    shutil.rmtree(damaged / "checkpoints")

    code, shown = said(capsys, "run", "--resume", "runs/one")

    assert (code, "run_begins_anew" in shown) == (0, True), shown


@pytest.mark.parametrize("name", CHECKPOINT_DAMAGE)
def test_without_an_intact_checkpoint_a_resume_changes_nothing(
    name: str, damaged: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It never begins anew in silence: the run keeps its record and all it wrote (exit 6)."""
    for step in (1, 2):
        CHECKPOINT_DAMAGE[name](damaged / "checkpoints" / f"step-{step:06d}")
    kept = ("run.json", "metrics.jsonl", "eval.jsonl")
    before = [(damaged / file).read_text() for file in kept]

    code, shown = said(capsys, "run", "--resume", "runs/one", "run.steps=3")

    assert (code, "step-000002 cannot be" in shown) == (6, True), shown
    assert [(damaged / file).read_text() for file in kept] == before


def test_a_directory_that_is_moved_under_its_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The run stops: which file could not be written, no traceback; put back, it is resumed."""
    monkeypatch.chdir(tmp_path)
    write = RunDir.write_trajectories

    def moved(run: RunDir, label: str, step: int, *rest: Any, **more: Any) -> None:
        if step == 2 and run.path.is_dir():
            run.path.rename("moved")
        write(run, label, step, *rest, **more)

    with monkeypatch.context() as patch:
        patch.setattr(RunDir, "write_trajectories", moved)
        code, shown = said(capsys, *RUN)
    assert code == 6, shown
    assert "the run directory whole could not be written" in shown
    assert "step-000002.jsonl" in shown
    code, shown = said(capsys, "run", "--resume", "moved")
    assert code == 0, shown


FORBIDDEN = (
    "checkpoints", "checkpoints/step-000002", "checkpoints/step-000002/model",
    "checkpoints/step-000002/model/training.pt", "trajectories", "run.json", ".",
)  # fmt: skip
UNPRIVILEGED = ("setpriv", "--inh-caps=-all", "--bounding-set=-all")
"""Root without its capabilities is refused as anybody is."""


COMMANDS = (
    ("runs", "show", "r"),
    ("runs", "compare", "r", "../whole"),
    ("rescore", "r", "--out", "s.jsonl"),
    ("run", "--plugin", "toy", "--algo", "grpo", "--resume", "r", "--steps", "3"),
)
EACH = """
import contextlib, io, json, os, sys
from rlvr.cli.main import main

done = []
for folder, words in json.load(sys.stdin):
    os.chdir(folder)
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(words)
    done.append((int(code), err.getvalue()))
json.dump(done, sys.stdout)
"""


@pytest.fixture(scope="module")
def forbidden(
    whole: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Path, list[tuple[int, str]]]]:
    """By name: the run in which it may not be read, and what each command says of it."""
    if os.geteuid() == 0 and shutil.which("setpriv") is None:
        pytest.skip("root may read everything, and setpriv is not installed")
    top = tmp_path_factory.mktemp("forbidden")
    shutil.copytree(whole, top / "whole")
    runs = [top / str(number) / "r" for number in range(len(FORBIDDEN))]
    for run, name in zip(runs, FORBIDDEN, strict=True):
        shutil.copytree(whole, run)
        (run / name).chmod(0)
    todo = [(str(run.parent), words) for run in runs for words in COMMANDS]
    first = UNPRIVILEGED if os.geteuid() == 0 else ()
    done = subprocess.run(
        [*first, sys.executable, "-c", EACH], env={**os.environ, **LEAN},
        input=json.dumps(todo), capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip
    for run, name in zip(runs, FORBIDDEN, strict=True):
        if (run / name).exists():  # else its step was made again
            (run / name).chmod(0o755)
    assert done.returncode == 0, done.stderr
    told = iter(json.loads(done.stdout))
    return {n: (r, [next(told) for _ in COMMANDS]) for n, r in zip(FORBIDDEN, runs, strict=True)}


@pytest.mark.parametrize("name", FORBIDDEN)
def test_what_nobody_may_look_into_is_named(
    name: str, whole: Path, forbidden: dict[str, tuple[Path, list[tuple[int, str]]]]
) -> None:
    """By every command that needs it; no run begins anew beside what it cannot read."""
    run, all_of_them = forbidden[name]
    for code, said in all_of_them:
        assert "Traceback" not in said, said
        assert code in (0, 2, 6), said
        if code:
            assert "ermission denied" in said, said
    before = (whole / "metrics.jsonl").read_bytes()
    after = (run / "metrics.jsonl").read_bytes()
    if "step-000002" in name:  # passed by: the step is made again from the one before
        assert [json.loads(line)["step"] for line in after.splitlines()] == [1, 2, 3]
    else:
        assert after == before
