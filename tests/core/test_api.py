"""The command line's main commands as functions."""

from __future__ import annotations

import asyncio
import enum
import inspect
import json
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import structlog
from rlvr_process import run_rlvr, start_rlvr

import rlvr
from rlvr.cli import audit, evaluate, run, score
from rlvr.cli.parser import CommandParser
from rlvr.cli.train import called, in_python
from rlvr.concurrency import run_blocking
from tests.conftest import LEAN

pytest.importorskip("torch", reason="losses speak torch; pip install torch")

ELSEWHERE = {"help", "verbose", "quiet", "debug", "json", "overrides"}
"""Flags about printing, and the `key=value` words, which are `options`."""


@pytest.fixture(autouse=True)
def _lean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in LEAN.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize(
    ("command", "function", "renamed"),
    [
        (run, rlvr.train, {"callback": "callbacks", "max-staleness": "max_staleness"}),
        (evaluate, rlvr.evaluate, {"run": "model"}),
        (score, rlvr.score, {}),
        (audit, rlvr.audit, {}),
    ],
)
def test_names_and_defaults_are_those_of_the_command_line(
    command: Any, function: Callable[..., Any], renamed: dict[str, str]
) -> None:
    """Every flag is a parameter with the same default, and there are no others."""
    parser = CommandParser(prog="rlvr")
    command.configure(parser)
    flags = {
        renamed.get(name, name): action.default
        for action in parser._actions
        for name in [option.removeprefix("--") for option in action.option_strings[-1:]]
        if name not in ELSEWHERE
    }
    parameters = dict(inspect.signature(function).parameters)
    assert parameters.keys() - {"options", "quiet"} == flags.keys()
    for name, default in flags.items():
        assert parameters[name].default == (() if name in ("only", "by") else default), name


def test_a_run_is_trained_evaluated_and_resumed(tmp_path: Path) -> None:
    """The trained model goes to `evaluate` as it is; a longer run goes on from its checkpoint."""
    given: dict[str, Any] = {"options": {"eval.every": 0, "train.lr": 7e-3}, "quiet": True}
    first = rlvr.train("toy", steps=2, out=tmp_path / "run", seed=3, **given)

    assert (first.directory, first.steps) == (tmp_path / "run", 2)
    assert [line["step"] for line in first.metrics] == [1, 2]
    assert set(first.reports) == {0, 2}
    assert first.reports[2].interval == (first.reports[2].low, first.reports[2].high)
    assert first.best == 2
    assert repr(first).endswith("steps=2, reports=<at steps [0, 2]>, best=2)")
    given["options"]["eval.every"] = 2
    assert rlvr.train(resume=first.directory, steps=3, **given).steps == 3
    found = rlvr.evaluate("toy", model=str(first.model), samples=2)
    assert found.facts["model"] == str(first.directory)
    assert found.pass1 == found.report.whole.pass1
    assert {len(group.outcomes) for group in found.groups} == {2}
    assert "Trajectory" not in repr(found)  # what a notebook shows of a cell's last line


def test_a_run_is_found_from_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A notebook that changes its directory has the metrics, and the model."""
    monkeypatch.chdir(tmp_path)
    few: Any = {"quiet": True, "options": {"eval.every": 0, "eval.samples": 0}}
    rlvr.train("toy", steps=1, out="first", **few)
    run = rlvr.train("toy", model="first", steps=1, out="run", **few)
    (tmp_path / "below").mkdir()
    monkeypatch.chdir("below")

    assert [line["step"] for line in run.metrics] == [1]
    assert rlvr.evaluate(model=run.model, samples=1).facts["model"] == str(tmp_path / "run")
    assert rlvr.train(resume="../run", steps=2, **few).steps == 2
    monkeypatch.chdir("..")
    assert rlvr.train(resume="run", steps=3, **few).steps == 3


def test_a_misspelt_name_suggests() -> None:
    """A notebook shows the message alone."""
    with pytest.raises(AttributeError, match="no attribute 'trian', did you mean 'train'"):
        rlvr.trian  # type: ignore[attr-defined]  # noqa: B018
    assert not hasattr(rlvr, "__wrapped__")


def test_answers_are_scored_in_order(tmp_path: Path) -> None:
    """As data or as a file; what cannot be judged is no reward."""
    (name, *_) = [verdict["id"] for verdict in rlvr.score("toy", golden=True)]
    answers = [{"id": name, "completion": "~"}, {"id": "nobody", "completion": "a"}]
    file = tmp_path / "answers.jsonl"
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))

    for source in (answers, file, str(file)):
        wrong, unknown = rlvr.score("toy", completions=source)
        assert (wrong["id"], wrong["reward"]) == (name, 0.0)
        assert unknown["reward"] is None
        assert "nobody" in unknown["error"]
    with pytest.raises(rlvr.ConfigError, match="no answers"):
        rlvr.score("toy")


def test_answers_are_evaluated_from_data_and_from_files(tmp_path: Path) -> None:
    """The same figures as the command line's, whether a sequence, a file, or what `out` wrote."""
    answers = [
        {"id": f"toy_{letter}", "completion": text}
        for letter, text in (("a", "aaaa"), ("a", "aaab"), ("b", "bbbb"), ("c", "cccc"), ("c", "c"))
    ]
    file, saved = tmp_path / "answers.jsonl", tmp_path / "judged.jsonl"
    file.write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    words = ["--plugin", "toy", "--completions", str(file), "--by", "family", "--json"]
    printed = json.loads(run_rlvr("eval", *words, cwd=tmp_path).stdout)

    for source in (answers, file, str(file)):
        found = rlvr.evaluate("toy", completions=source, by="family", out=saved)
        assert found.pass1 == printed["pass_at"]["1"] == 0.375
        assert found.facts["missing"] == printed["missing"] == 3
        assert found.report.by["family"].keys() == set("abcd")
    again = rlvr.evaluate("toy", report=saved, against=file, by=["family"])
    assert again.pass1 == 0.375
    assert again.against is not None
    assert again.against.pass1 == 0.375
    assert again.comparison is not None
    assert again.comparison.whole.this == again.comparison.whole.against
    skipped = rlvr.evaluate("toy", completions=answers, missing="skip", samples=1)
    assert skipped.pass1 == 1.0
    assert len(skipped.groups) == 3


def test_flags_that_go_together_badly_are_refused(tmp_path: Path) -> None:
    """By the same rules as on the command line, and before any work."""
    answers = [{"id": "toy_a", "completion": "aaaa"}]
    for given, said in (
        ({"model": "starter"}, "found: model="),
        ({"figures": "yes"}, "figures=yes"),
        ({"completions": []}, "none for any of the 4 problems"),
        ({"completions": None, "missing": "skip"}, "no completions="),
        ({"completions": None, "report": "x", "options": {"train.lr": 1}}, "options=, which"),
        ({"by": "kind,family"}, "'kind'"),
    ):
        with pytest.raises(rlvr.ConfigError, match=said):
            rlvr.evaluate("toy", **{"completions": answers, **given})


def test_verdicts_are_written_as_the_command_writes_them(tmp_path: Path) -> None:
    """`out` holds a line an answer; None in between is no answer."""
    verdicts = rlvr.score("toy", golden=True, out=tmp_path / "v.jsonl")

    lines = (tmp_path / "v.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == verdicts


def test_a_model_is_compared_in_a_running_loop(tmp_path: Path) -> None:
    """Two models, as in a notebook; equal ones do not differ."""

    async def cell() -> rlvr.Evaluation:
        return rlvr.evaluate("toy", model="starter", against="starter", samples=1, seed=3)

    found = asyncio.run(cell())
    assert found.comparison is not None
    assert found.comparison.whole.this == found.comparison.whole.against


def test_an_audit_gives_what_the_command_prints() -> None:
    """Problems by id; an unknown one is refused."""
    found = rlvr.audit("toy", only=["toy_a"], mutants=1, repeats=1)

    assert list(found["problems"]) == ["toy_a"]
    assert list(rlvr.audit("toy", only="toy_a", mutants=1, repeats=1)["problems"]) == ["toy_a"]
    assert set(rlvr.audit("toy", mutants=1, repeats=1)["problems"]) > {"toy_a"}
    with pytest.raises(rlvr.UnknownNameError, match="toy_d"):
        rlvr.audit("toy", only=["toy_q"])


def test_mistakes_are_the_errors_of_the_command_line(tmp_path: Path) -> None:
    """An unknown option suggests the nearest, and nothing is begun."""
    with pytest.raises(rlvr.UnknownNameError, match=r"from the Python call\)\n.*train\.lr"):
        rlvr.train("toy", out=tmp_path / "none", options={"train.l": 1})

    with pytest.raises(rlvr.PluginError, match="'curv'"):  # one name, not four letters
        rlvr.train("toy", out=tmp_path / "none", callbacks="curv")
    assert not (tmp_path / "none").exists()
    with pytest.raises(rlvr.PluginError, match="'nope'"):
        rlvr.score("nope", task="toy", golden=True)
    with pytest.raises(rlvr.ConfigError, match="plugin=builtin"):
        rlvr.score("algos", task="toy", golden=True)
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "run.json").write_text("{}")
    with pytest.raises(rlvr.ConfigError, match=r"continue it with resume=.*, or choose .* out="):
        rlvr.train("toy", steps=1, out=tmp_path / "old")
    wrong: Any
    for wrong in ({"ab": "bc"}, ["bc"], [["ab", "bc"]]):
        with pytest.raises(rlvr.ConfigError, match=r'a list of \{"id"'):
            rlvr.score("toy", completions=wrong)
    for wrong in ("train.lr=1", ["train.lr=1"], 3):
        with pytest.raises(rlvr.ConfigError, match=r'{"train\.lr": 1e-4}'):
            rlvr.train("toy", out=tmp_path / "none", options=wrong)


ERRORS = [
    kind
    for name in rlvr.errors.__all__
    if isinstance(kind := getattr(rlvr, name), type) and issubclass(kind, rlvr.RlvrError)
]


def test_messages_name_the_arguments_of_the_function() -> None:
    """Flags of other programs, of options, and those of a command that is told stay flags."""
    said = "leave --max-staleness out, or --callback NAME\n  go on: rlvr run --resume x --out y"
    assert in_python(said, rlvr.train) == (
        "leave max_staleness= out, or callbacks=NAME\n  go on: rlvr run --resume x --out y"
    )
    assert in_python("--run runs/a, or --steps 3", rlvr.evaluate) == "model=runs/a, or --steps 3"
    for kept in (
        *("pip install --target x", "--sandbox docker", "Ctrl-C; a--model", "'--out x' was given"),
        *(
            ".venv/bin/rlvr run --out x",
            "'my dir/rlvr' run --resume x",
            "no /tmp/--out/x, /a --out.b",
        ),
        *("vllm serve NAME --model X", "usage: sim --seed N"),
    ):
        assert in_python(kept, rlvr.train) == kept
    both = "rlvr eval --out wrote it; answers go to --out"
    assert in_python(both, rlvr.train) == "rlvr eval --out wrote it; answers go to out="


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_stays_what_it_was(kind: type[rlvr.RlvrError]) -> None:
    """Its text, its one argument and what another process reads of it are the same."""
    error = kind("a", "b", "choose another --out")
    with pytest.raises(kind) as caught, called(rlvr.train):
        raise error

    assert caught.value is error
    assert str(error) == error.args[0] == str(pickle.loads(pickle.dumps(error)))
    assert str(error) == "a\n  b\n  choose another out="


@rlvr.reward
def mine(problem: rlvr.Problem, trajectory: rlvr.Trajectory) -> rlvr.Reward:
    return rlvr.Reward(value=1.0, score01=1.0)


FINISHED = rlvr.FinishedRun(directory=Path("r"), steps=1, reports={}, best=None)


DEEP: list[object] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    ("function", "given", "said"),
    [
        (rlvr.train, {"reward": mine}, "parts go by name: `rlvr plugins new`"),
        (rlvr.train, {"callbacks": [print]}, "no names; parts go by name"),
        (rlvr.train, {"callbacks": mine}, "no names; parts go by name"),
        (rlvr.train, {"out": 3}, "neither a text nor a Path$"),
        (rlvr.train, {"seed": 2**64}, "seed=.*\n.*more than 64 bits"),
        (rlvr.train, {"steps": 1.5}, "1.5 is no whole number; it is batches"),
        (rlvr.train, {"options": {1: 2}}, "give a mapping"),
        (rlvr.evaluate, {"missing": "skpi"}, "none of wrong, skip\n.*did you mean 'skip'"),
        (rlvr.evaluate, {"figures": False}, "none of yes, no"),
        (rlvr.evaluate, {"by": 3}, "no names"),
        (rlvr.score, {"golden": "yes"}, "neither True nor False"),
        (rlvr.train, {"quiet": "yes"}, "quiet='yes' .*\n.*neither True nor False"),
        (rlvr.train, {"resume": FINISHED}, r"neither a text nor a Path\n.*\.directory"),
        (rlvr.score, {"completions": "an answer" * 500}, "found: no such file"),
        (rlvr.score, {"completions": 3}, "give a path, or a list"),
        (rlvr.score, {"completions": [{"id": DEEP}]}, "recursion"),
        (rlvr.score, {"completions": [{"id": "toy_a", "completion": {3}}]}, "set is not JSON"),
        (rlvr.train, {"out": "a\0b"}, r"out=.*\n  found: a NUL character"),
        (rlvr.evaluate, {"against": Path("a\ud800")}, "against=.*\n  found: half a character"),
        (rlvr.score, {"completions": "a\0b"}, "completions=.*\n  found: a NUL character"),
        (rlvr.score, {"golden": True, "options": {"verify.store": "a\0b"}}, "verify.store cannot"),
        (rlvr.evaluate, {"samples": 10**12}, "eval.samples cannot be .*\n.*<= 1000000"),
        (rlvr.evaluate, {"samples": 10**6}, "4 problems times 1000000 samples"),
        (rlvr.audit, {"repeats": 10**12}, "give a number from 1 to 1000000"),
        (rlvr.train, {"options": {"train.passes": 10**12}}, "train.passes cannot be"),
        (rlvr.train, {"options": {"train.problems": 10**12}}, "train.problems cannot be"),
        (rlvr.train, {"options": {"torch.threads": 10**12}}, "torch.threads cannot be"),
        (rlvr.score, {"golden": True, "options": {"toy.length": 10**12}}, "toy.length cannot be"),
        (
            rlvr.train,
            {"callbacks": "curve", "options": {"curve.file": "c" * 201}},
            "curve.file cannot be",
        ),
        (rlvr.audit, {"mutants": "many"}, "mutants='many'"),
        (rlvr.audit, {"weak": "x"}, "weak='x'"),
        (rlvr.audit, {"weak": 10**400}, "weak=10.*\n.*it is too large"),
        (rlvr.audit, {"only": [1]}, r"only=.*\n  found: no names\n  give a text, or a list of"),
        (rlvr.train, {"preset": 3}, "preset=3 .*\n  found: neither a text nor a Path$"),
        (rlvr.train, {"steps": 10**400}, "steps=10.*\n.*more than 64 bits"),
        (rlvr.train, {"options": 10**5000}, "give a mapping"),
        (rlvr.train, {"options": {"train.lr": 10**400}}, "train.lr cannot be 10"),
        (rlvr.evaluate, {"options": {"eval.samples": 10**5000}}, "eval.samples cannot be"),
        (rlvr.evaluate, {"completions": ""}, "completions='' .*\n  found: an empty text"),
        (rlvr.score, {"completions": ""}, "completions='' .*\n  found: an empty text"),
    ],
)
def test_a_value_that_the_flag_does_not_take_is_refused(
    function: Callable[..., Any], given: dict[str, Any], said: str
) -> None:
    """As the command line would, in three sentences; nothing is begun."""
    with pytest.raises(rlvr.ConfigError, match=said):
        function("toy", **given)


NO_PATHS = {
    "too long": f"{'n' * 300}.toml",
    "through a file": "file/x.toml",
    "a loop of links": "loop/x.toml",
    "a NUL character": "a\0b.toml",
}


@pytest.mark.parametrize("path", NO_PATHS.values(), ids=[*NO_PATHS])
@pytest.mark.parametrize("function", [rlvr.train, rlvr.evaluate, rlvr.score, rlvr.audit])
def test_a_path_that_no_system_takes_is_refused(
    function: Callable[..., Any], path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever argument takes it; the error names it, and nothing is left."""
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("loop").symlink_to("loop")
    parameters = inspect.signature(function).parameters
    names = {n for n, p in parameters.items() if {"Path", "Answers"} & set(p.annotation.split())}
    assert {"out", "config"} <= names
    for name in names:
        given = {} if name == "report" else {"plugin": "toy"}
        if function is rlvr.score and name != "completions":
            given["golden"] = True
        with pytest.raises(rlvr.ConfigError) as refused:
            function(**given, **{name: Path(path)})
        assert path in str(refused.value) or f"{name}={Path(path)!r}" in str(refused.value), name
    assert sorted(os.listdir()) == ["file", "loop"]


def test_none_is_the_default() -> None:
    """Also where that is a number or a word, as a notebook's form hands it on."""
    given: Any = {"only": None, "mutants": None, "weak": None, "split": None, "options": None}
    assert list(rlvr.audit("toy", **given)["problems"]) == ["toy_a", "toy_b", "toy_c", "toy_d"]


class Choice(enum.Enum):
    RLOO = "rloo"
    CURVE = "curve"
    LR = np.float32(2**-7)


def test_scalars_iterators_and_home_are_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's scalars, members of enumerations, answers of a generator, and a path with ~."""
    monkeypatch.setenv("HOME", str(tmp_path))

    run = rlvr.train(
        "toy",
        steps=np.int64(0),  # type: ignore[arg-type]
        seed=np.arange(3)[2],
        algo=Choice.RLOO,  # type: ignore[arg-type]
        callbacks=[Choice.CURVE],  # type: ignore[list-item]
        out="~/run",
        quiet=np.True_,  # type: ignore[arg-type]
        options={"train.lr": Choice.LR, "sampler.group_size": np.array(2), "eval.every": 0},
    )

    assert run.directory == tmp_path / "run"
    assert {v["reward"] for v in rlvr.score("toy", golden=np.True_)} == {1.0}  # type: ignore[arg-type]
    used = json.loads((tmp_path / "run" / "run.json").read_text())["config"]
    assert (used["run.algo"], used["run.callbacks"]) == ("rloo", ["curve"])
    assert (used["run.seed"], used["train.lr"], used["sampler.group_size"]) == (2, 2**-7, 2)
    answer = {"id": "toy_a", "completion": "aaaa"}
    (tmp_path / "answers.jsonl").write_text(json.dumps(answer) + "\n")
    once: Any = iter([answer])
    for source in (once, "~/answers.jsonl"):
        assert [v["reward"] for v in rlvr.score("toy", completions=source)] == [1.0]


@pytest.mark.parametrize("own", [{"processors": [structlog.processors.JSONRenderer()]}, None])
def test_the_callers_logging_stays_as_it_was(own: dict[str, Any] | None) -> None:
    """Set up by the caller or not at all, also where the call fails."""
    structlog.reset_defaults()
    if own is not None:
        structlog.configure(**own)
    before = structlog.is_configured(), structlog.get_config()

    rlvr.score("toy", completions=[{"id": "toy_a", "completion": "a"}])
    with pytest.raises(rlvr.UnknownNameError):
        rlvr.audit("toy", only=["toy_q"])
    assert (structlog.is_configured(), structlog.get_config()) == before
    structlog.reset_defaults()


class Tee:
    """What many a script puts in the place of standard error."""

    def write(self, text: str) -> int:
        return len(text)

    def flush(self) -> None:
        pass


@pytest.mark.parametrize("stream", [None, Tee()])
def test_standard_error_may_be_closed_or_a_stand_in(
    stream: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A script without a terminal, or with a log of its own."""
    monkeypatch.setattr(sys, "stderr", stream)
    assert rlvr.train("toy", steps=0, out=tmp_path / "r", options={"eval.samples": 0}).steps == 0
    if stream is None:
        sys.stderr.close()  # what was opened in its place


def test_none_is_a_value_and_never_passed_over(tmp_path: Path) -> None:
    """It switches parity off; an option that cannot be none says so."""
    run = rlvr.train("toy", steps=0, out=tmp_path / "r", options={"parity.threshold": None})

    assert (
        json.loads((run.directory / "run.json").read_text())["config"]["parity.threshold"] is None
    )
    with pytest.raises(rlvr.ConfigError, match=r"train\.lr cannot be None"):
        rlvr.train("toy", out=tmp_path / "none", options={"train.lr": None})


def test_all_may_be_called_where_an_event_loop_runs(tmp_path: Path) -> None:
    """A notebook: the cell's own loop runs already."""

    async def cell() -> int:
        return rlvr.train("toy", steps=1, out=tmp_path / "run", quiet=True).steps

    assert asyncio.run(cell()) == 1


CELL = """
import asyncio, rlvr

async def cell():
    rlvr.train("toy", steps=100000, out="run", options={"eval.every": 0})

try:
    asyncio.run(cell())
except rlvr.RunInterruptedError as error:
    print(error)
"""


@pytest.mark.integration
def test_ctrl_c_in_a_notebook_writes_a_checkpoint(tmp_path: Path) -> None:
    """The run ends as on the command line, though its loop is in another thread."""
    (tmp_path / "cell.py").write_text(CELL)
    cell = start_rlvr(cwd=tmp_path, program=tmp_path / "cell.py")
    metrics = tmp_path / "run" / "metrics.jsonl"
    until = time.monotonic() + 120
    while not metrics.exists() and time.monotonic() < until and cell.poll() is None:
        time.sleep(0.05)
    cell.send_signal(signal.SIGINT)
    said, _ = cell.communicate(timeout=120)

    assert cell.returncode == 0
    assert "a checkpoint was written" in said
    assert list((tmp_path / "run" / "checkpoints").glob("step-*"))


def test_a_second_ctrl_c_waits_no_more_and_cancels_no_clean_up(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The first one cancels the work once; the work ends as it would have."""
    ended = threading.Event()

    async def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        try:
            await asyncio.sleep(60)
        finally:
            os.kill(os.getpid(), signal.SIGINT)
            await asyncio.sleep(1)
            ended.set()

    async def cell() -> None:
        with pytest.raises(KeyboardInterrupt):
            run_blocking(work)

    asyncio.run(cell())
    assert not ended.is_set()
    assert ended.wait(10)
    assert capsys.readouterr().err.count("Ctrl-C again stops at once") == 1


def test_ctrl_c_before_the_work_begins_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing blocks, and nothing is begun; a work that cancels itself is no Ctrl-C."""
    run = asyncio.run

    def late(main: Any) -> Any:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.7)
        return run(main)

    async def cancelled() -> None:
        raise asyncio.CancelledError

    async def cell() -> None:
        with pytest.raises(asyncio.CancelledError):
            run_blocking(cancelled)
        monkeypatch.setattr(asyncio, "run", late)
        with pytest.raises(KeyboardInterrupt):
            run_blocking(lambda: pytest.fail("it was begun"))

    run(cell())


@pytest.mark.integration
def test_the_package_runs_as_a_module() -> None:
    """`python -m rlvr` is the command line."""
    words = [sys.executable, "-m", "rlvr", "--version"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == f"rlvr {rlvr.__version__}"


@pytest.mark.serial
@pytest.mark.slow
def test_a_name_that_is_not_public_fails_in_mypy(tmp_path: Path) -> None:
    """`from rlvr import Typo` is found before anything runs; the functions are typed."""
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "script.py").write_text(
        "from pathlib import Path\n"
        "from rlvr import Typo\n"
        "import rlvr\n"
        "model: Path = rlvr.train('toy').model\n"
        "rlvr.train('toy', step=1)\n"
        "from rlvr.testing import Tpyo\n"
        "@rlvr.reward\n"
        "def short(problem: rlvr.Problem) -> rlvr.Reward: raise ValueError\n"
        "@rlvr.reward\n"
        "async def fit(p: rlvr.Problem, t: rlvr.Trajectory) -> rlvr.Reward: raise ValueError\n"
        "@rlvr.advantage(breaks_ties=True)\n"
        "def other(groups: int) -> list[list[float]]: raise ValueError\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(tmp_path / "script.py")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )

    errors = [line for line in done.stdout.splitlines() if "error:" in line]
    assert [line.split(":")[1] for line in errors] == ["2", "5", "6", "7", "11"], done.stdout
    assert 'no attribute "Typo"' in errors[0]
    assert 'no attribute "Tpyo"' in errors[2]
