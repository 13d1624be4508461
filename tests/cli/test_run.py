"""`rlvr run`, `eval`, `rescore` on the toy task, as a person uses them."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from rlvr_process import Files, Started, run_rlvr, start_rlvr

from rlvr.concurrency import ending_signals
from rlvr.testing import require_tool
from tests.conftest import LEAN, PluginSite

pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed: pip install rlvr-algos")

pytestmark = pytest.mark.integration

Done = subprocess.CompletedProcess[str]
Call = Callable[..., Done]
CallIn = Callable[[Path], Call]


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def sampled(path: Path) -> list[dict[str, object]]:
    """The lines of a trajectory file without what a verification cost."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{**r, "outcome": {**r["outcome"], "cost_s": 0, "cached": 0}} for r in records]


@pytest.fixture(scope="module")
def two_steps(rlvr_in: CallIn, tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """What a run of two steps said, and its folder."""
    folder = tmp_path_factory.mktemp("two")
    done = rlvr_in(folder)("run", "--plugin", "toy", "--steps", "2", "--out", "r", "eval.samples=0")
    assert done.returncode == 0, done.stderr
    return done, folder / "r"


@pytest.fixture(scope="module")
def whole_line(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path]:
    """A run of GRPO with nothing set but its output, and its folder."""
    folder = tmp_path_factory.mktemp("whole")
    words = ("run", "--plugin", "toy", "--algo", "grpo", "--out", "r", "--json")
    env = {**os.environ, "RLVR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    done = run_rlvr(*words, cwd=folder, env=env, timeout_s=300)
    assert done.returncode == 0, done.stderr
    return done, folder / "r"


def test_a_run_leaves_everything_the_format_promises(rlvr: Call, tmp_path: Path) -> None:
    """run.json, metrics, evaluations, trajectories, events, checkpoints, curve."""
    done = rlvr(
        "run", "--plugin", "toy", "--algo", "grpo", "--steps", "3", "--out", "r", "--json",
        "checkpoint.every=2", "--callback", "curve",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    summary = json.loads(done.stdout)
    record = json.loads((tmp_path / "r/run.json").read_text())
    assert summary["steps"] == 3
    assert {"gain", "curve", "evaluations"} <= summary.keys()
    assert (record["status"], record["algo"], record["seed"]) == ("done", "grpo", 1)
    assert record["config"]["checkpoint.every"] == 2
    assert record["versions"].keys() >= {"python", "rlvr", "rlvr-torch", "rlvr-algos"}
    assert [m["step"] for m in lines(tmp_path / "r/metrics.jsonl")] == [1, 2, 3]
    assert [e["step"] for e in lines(tmp_path / "r/eval.jsonl")] == [0, 3]
    names = sorted(p.name for p in (tmp_path / "r/checkpoints").iterdir())
    assert names == ["step-000002", "step-000003"]
    assert (tmp_path / "r/curve.png").read_bytes().startswith(b"\x89PNG")
    assert len(lines(tmp_path / "r/trajectories/step-000001.jsonl")) == 16 * 8


def test_plain_lines_without_a_terminal(two_steps: tuple[Done, Path]) -> None:
    """One line a step with reward, pass rate, rates and time left."""
    done, _ = two_steps

    steps = [line for line in done.stderr.splitlines() if line.startswith("step ")]
    assert len(steps) == 2
    for word in ("reward", "pass", "tok/s", "verify/s", "left"):
        assert word in steps[0]


def test_what_is_run_is_said_before_the_model_is_loaded(rlvr: Call, tmp_path: Path) -> None:
    """The first line names it; where the model cannot be loaded, the directory is taken back."""
    done = rlvr("run", "--plugin", "toy", "--out", "r", "--model", "gpt2:new?tokenizer=none.json")
    lines = done.stderr.splitlines()
    assert done.returncode != 0
    assert lines[0].startswith("builtin/toy grpo on gpt2:new?tokenizer=none.json, ")
    assert lines[0].endswith("in r")
    assert any("none.json" in line for line in lines[1:])
    assert "no run began, and nothing of it stays in r" in lines
    assert not (tmp_path / "r").exists()


def start(tmp_path: Path, *words: str, files: Files | None = None) -> Started:
    own = {"RLVR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    words = ("run", "--plugin", "toy", *words)
    return start_rlvr(*words, cwd=tmp_path, env={**os.environ, **LEAN, **own}, files=files)


def wait_for(file: Path, lines: int = 0) -> None:
    for _ in range(1200):
        if file.exists() and len(file.read_text().splitlines()) >= lines:
            return
        time.sleep(0.05)
    raise AssertionError(f"{file} was not written within a minute")


def wait_for_step(tmp_path: Path, step: int) -> None:
    wait_for(tmp_path / "r/metrics.jsonl", step)


def test_ctrl_c_writes_a_checkpoint_and_the_resumed_run_is_the_whole_one(
    rlvr: Call, tmp_path: Path
) -> None:
    """Interrupted and resumed equals never interrupted, trajectory for trajectory.

    Nor does a run import what takes as long as PyTorch itself, as nothing here compiles.
    """
    options = ["--steps", "12", "eval.samples=0"]
    running = start(tmp_path, "--out", "r", *options)
    wait_for_step(tmp_path, 3)
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=60)

    assert running.returncode == 130, said
    assert "rlvr run --resume r" in said
    assert json.loads((tmp_path / "r/run.json").read_text())["status"] == "interrupted"

    resumed = rlvr("run", "--resume", "r")
    assert resumed.returncode == 0, resumed.stderr
    # an interpreter of its own, with other orders of sets
    other = {"PYTHONHASHSEED": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    whole = rlvr("run", "--plugin", "toy", "--out", "whole", *options, env=other)
    assert whole.returncode == 0, whole.stderr
    told = [x for x in whole.stderr.splitlines() if x.startswith("import time:")]
    names = {line.rpartition("|")[2].strip() for line in told}
    assert "torch" in names
    assert not names & {"torch._dynamo", "sympy"}
    for step in range(1, 13):
        name = f"trajectories/step-{step:06d}.jsonl"
        assert sampled(tmp_path / "r" / name) == sampled(tmp_path / "whole" / name)
    assert [m["step"] for m in lines(tmp_path / "r/metrics.jsonl")] == list(range(1, 13))


def test_a_closed_terminal_ends_a_run_after_a_checkpoint(tmp_path: Path) -> None:
    """As SIGTERM does, and although nothing can be said there any more."""
    ours, its = pty.openpty()
    with open(its, "w") as terminal:
        words = ("--out", "r", "--steps", "400", "eval.samples=0")
        running = start(tmp_path, *words, files=(terminal, terminal))
    metrics = tmp_path / "r/metrics.jsonl"
    while not metrics.exists() or len(lines(metrics)) < 2:
        os.read(ours, 65536)  # a display that nobody reads would block the run
    os.close(ours)
    running.send_signal(signal.SIGHUP)

    assert running.wait(60) == 130
    record = json.loads((tmp_path / "r/run.json").read_text())
    assert record["status"] == "interrupted"
    assert (tmp_path / f"r/checkpoints/step-{record['step']:06d}/manifest.json").is_file()
    assert not any(event["level"] == "error" for event in lines(tmp_path / "r/events.jsonl"))


def test_a_run_that_was_told_to_ignore_a_closed_terminal_does_so() -> None:
    """`nohup` ignores the signal for what it starts."""
    before = signal.getsignal(signal.SIGHUP)
    try:
        for handler, is_heard in ((signal.SIG_IGN, False), (signal.SIG_DFL, True)):
            signal.signal(signal.SIGHUP, handler)
            assert (signal.SIGHUP in ending_signals()) is is_heard
    finally:
        signal.signal(signal.SIGHUP, before)


def test_resume_auto_goes_on_with_the_newest_fitting_run(rlvr: Call, tmp_path: Path) -> None:
    """`--resume auto` finds the interrupted run, and starts a new one where none fits."""
    running = start(tmp_path, "--out", "r", "--steps", "400", "eval.samples=0")
    wait_for_step(tmp_path, 2)
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=60)
    done = len(lines(tmp_path / "r/metrics.jsonl"))

    words = ["run", "--plugin", "toy", "--out", "r", "--resume", "auto", "eval.samples=0"]
    resumed = rlvr(*words, "--steps", str(done + 2))
    assert resumed.returncode == 0, resumed.stderr
    assert [m["step"] for m in lines(tmp_path / "r/metrics.jsonl")] == list(range(1, done + 3))


def test_resume_auto_says_what_the_newest_unfinished_run_has_otherwise(
    rlvr: Call, one_step: Path, tmp_path: Path
) -> None:
    """Whoever mistyped an option sees it before the new run has cost anything."""
    for name, status in (("a", "stopped"), ("b", "done")):
        shutil.copytree(one_step, tmp_path / "r" / name)
        path = tmp_path / "r" / name / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "status": status}))
    shutil.copytree(tmp_path / "r/a", tmp_path / "r/0")
    for name, created in (("0", "2998-01-01"), ("b", "2999-01-01")):
        path = tmp_path / "r" / name / "run.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "created": created}))

    words = ["run", "--plugin", "toy", "--steps", "1", "--out", "r", "--resume", "auto"]
    torch = "beta1=0.8 beta2=0.9 decode_rows=99 max_skipped=2 slice_tokens=9 tf32=no weight_decay=1"
    others = [f"torch.{word}" for word in torch.split()]
    begun = rlvr(*words, "eval.samples=0", "train.lr=0.5", "run.seed=2", *others)
    assert begun.returncode == 0, begun.stderr
    assert "passed over: the run r/0 " in begun.stderr
    assert "changed: run.seed (1 -> 2), torch.beta1 (0.9 -> 0.8), torch.beta2" in begun.stderr
    assert "torch.weight_decay (0.0 -> 1.0) and 1 more\n" in begun.stderr
    assert "r/a" not in begun.stderr
    assert "r/b" not in begun.stderr


def test_a_resumed_run_evaluates_once_a_step_and_knows_its_start(
    rlvr: Call, tmp_path: Path
) -> None:
    """Evaluations of before the interruption are neither repeated nor forgotten."""
    words = ["run", "--plugin", "toy", "--out", "r", "eval.every=2", "eval.samples=2"]
    rlvr(*words, "--steps", "2")

    resumed = rlvr("run", "--resume", "r", "--steps", "4", "--json")
    assert resumed.returncode == 0, resumed.stderr

    assert [e["step"] for e in lines(tmp_path / "r/eval.jsonl")] == [0, 2, 4]
    assert "gain" in json.loads(resumed.stdout)


ENDLESS = """
    import asyncio
    from pathlib import Path
    from rlvr import CheckpointerSpec, RewardSpec, hookimpl, reward
    from rlvr.builtin.file_checkpoints import FileCheckpointer
    RLVR_API = 1
    class Endless(FileCheckpointer):
        async def save(self, *given):
            Path("began").touch()
            await asyncio.Event().wait()
    @reward
    async def busy(problem, trajectory):
        Path("began").touch()
        while True:
            pass
    @hookimpl
    def rlvr_checkpointers():
        yield CheckpointerSpec(name="endless", target=f"{__name__}:Endless", summary="Never ends")
    @hookimpl
    def rlvr_rewards():
        yield RewardSpec(name="busy", target=f"{__name__}:busy", summary="Never ends")
"""


@pytest.mark.parametrize("part", ["run.checkpointer=endless", "run.reward=busy"])
def test_a_second_ctrl_c_stops_at_once(part: str, plugin_site: PluginSite) -> None:
    """Nobody waits for a checkpoint that he does not want, nor for a reward without an end."""
    plugin_site.add("endless", ENDLESS)
    env = {**os.environ, **LEAN, "PYTHONPATH": str(plugin_site.path), "OMP_NUM_THREADS": "1"}
    words = ("run", "--plugin", "toy", "--out", "r", "eval.samples=0", part)
    running = start_rlvr(*words, "--steps", "400", cwd=plugin_site.home, env=env)
    is_busy = "reward" in part
    wait_for(plugin_site.home / "began") if is_busy else wait_for_step(plugin_site.home, 1)
    running.send_signal(signal.SIGINT)
    wait_for(plugin_site.home / "began")
    time.sleep(0.5 * is_busy)  # two signals at once are one
    running.send_signal(signal.SIGINT)
    _, said = running.communicate(timeout=20)

    assert running.returncode == 130
    assert re.search(r"rlvr: stopped; go on with: \S*rlvr run --resume r \(exit 130\)$", said)


def test_a_run_that_cannot_begin_leaves_no_directory(rlvr: Call, tmp_path: Path) -> None:
    """A model that does not exist is exit 2, and nothing is left to clean up."""
    failed = rlvr("run", "--plugin", "toy", "--model", "gpt2:nowhere", "--out", "r")

    assert failed.returncode == 2
    assert "no such folder" in failed.stderr
    assert not (tmp_path / "r").exists()


def test_a_run_without_a_gradient_says_so(rlvr: Call, two_steps: tuple[Done, Path]) -> None:
    """All answers of a group are equal near temperature 0; a run that learns says nothing."""
    cold = ("sampler.temperature=1e-5", "eval.samples=0")
    done = rlvr("run", "--plugin", "toy", "--steps", "2", "--out", "cold", *cold)
    assert done.returncode == 0
    assert "found='every advantage was zero in all 2 steps'" in done.stderr
    assert "or a short sampler.max_tokens and a train.lr" in done.stderr
    assert "nothing_was_learnt" not in two_steps[0].stderr


TAKE_PATHS = {
    "run --plugin toy": "--dataset --model --out --resume --config",
    "eval --plugin toy": "--dataset --model --completions --run --against --out --config",
    "eval --report": "",
    "score --plugin toy --golden": "--dataset --out --config",
    "score --plugin toy --completions": "",
    "audit --plugin toy": "--dataset --out --config",
    "rescore r": "--out --config",
    "runs compare r r": "--out",
    "runs trace r": "--out",
    "torch export r": "--out",
    "config show --config": "",
    **dict.fromkeys(("rescore", "runs list", "runs show", "runs compare", "runs trace"), ""),
    **dict.fromkeys(("torch export --out e", "plugins new"), ""),
}
"""Words before a path, then flags that each take another."""


@pytest.mark.usefixtures("begun")
@pytest.mark.parametrize("path", ["n" * 300, f"{'n' * 300}/x.toml", "file/x.toml", "loop/x.toml"])
def test_a_path_that_no_system_takes_is_no_bug(
    rlvr_here: Callable[..., tuple[int, str, str]], path: str
) -> None:
    """Too long, through a file or a loop of links: three sentences, and nothing is left."""
    Path("file").touch()
    Path("loop").symlink_to("loop")
    before = sorted(Path().rglob("*"))
    for words, flags in TAKE_PATHS.items():
        for flag in flags.split() or [""]:
            code, _, said = rlvr_here(*words.split(), *filter(None, [flag]), path)
            assert code == 2, (words, flag, said)
            assert "\n  " in said
            assert "Traceback" not in said
    assert sorted(Path().rglob("*")) == before


@pytest.mark.usefixtures("begun")
def test_resume_refuses_other_options(rlvr: Call) -> None:
    """A resumed run is the same run: the changed keys are named (exit 2)."""
    refused = rlvr("run", "--resume", "r", "--steps", "2", "train.lr=0.5")

    assert refused.returncode == 2
    assert "train.lr (0.007 -> 0.5)" in refused.stderr
    assert "run.steps" not in refused.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("r", "--out", "s"), "leave --out away"),
        (("r", "--steps", "0"), "run.steps=0 (from command line).\n  found: it has done 1 step"),
        (
            ("auto", "--plugin", "toy", "--out", ".", "eval.samples=0", "run.steps=0"),
            "found: it has done 1",
        ),
        (("r/checkpoints/step-000001",), "give the run itself: r"),
    ],
)
def test_what_resuming_does_not_do_is_said(
    rlvr: Call, begun: Path, words: tuple[str, ...], said: str
) -> None:
    """It moves no run, takes no step back, and goes on with a run rather than a checkpoint."""
    record = begun / "run.json"
    record.write_text(record.read_text().replace('"status": "done"', '"status": "stopped"'))
    before = {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()}

    done = rlvr("run", "--resume", *words)

    assert (done.returncode, said in done.stdout + done.stderr) == (2, True), done
    assert {path: path.read_bytes() for path in begun.rglob("*") if path.is_file()} == before


def test_a_schedule_that_ends_with_the_run_keeps_its_length(rlvr: Call) -> None:
    """More steps would change learning rates already used: refused unless they are constant."""
    rlvr("run", "--plugin", "toy", "--steps", "1", "--out", "r", "eval.samples=0",
         "train.decay=cosine")  # fmt: skip

    refused = rlvr("run", "--resume", "r", "--steps", "2")

    assert refused.returncode == 2
    assert "run.steps (1 -> 2)" in refused.stderr


def test_truncated_sampling_meets_a_ratio_only_by_refusal(rlvr: Call) -> None:
    """top-p with an importance-weighted loss is refused, never silent (exit 2)."""
    refused = rlvr("run", "--plugin", "toy", "--steps", "1", "sampler.top_p=0.9")

    assert refused.returncode == 2
    assert "importance-weighted" in refused.stderr


def test_failing_verifications_have_their_own_exit_code(rlvr: Call, tmp_path: Path) -> None:
    """Exit 5, the share and a reason named, a checkpoint to go on from."""
    failed = rlvr("run", "--plugin", "toy", "--steps", "1", "--out", "r", "toy.fail_share=0.6")

    assert failed.returncode == 5
    assert "could not run" in failed.stderr
    assert "rlvr plugins check builtin" in failed.stderr
    assert "verifications_failed" not in failed.stderr
    assert failed.stderr.count("was told to fail") == 1
    events = [event["event"] for event in lines(tmp_path / "r/events.jsonl")]
    assert "verification_failed" in events
    assert "Traceback" not in failed.stderr


def test_grpo_learns_the_toy_task(whole_line: tuple[Done, Path]) -> None:
    """The whole local line, from untrained weights to right answers, in seconds."""
    done, _ = whole_line

    summary = json.loads(done.stdout)
    assert summary["evaluations"][0]["pass1"] < 0.2
    assert summary["evaluations"][-1]["pass1"] > 0.9


def test_rescore_applies_the_reward_again(rlvr: Call, begun: Path) -> None:
    """The same reward on the same trajectories changes nothing, and says so."""
    done = rlvr("rescore", "r", "--json")
    assert done.returncode == 0, done.stderr

    summary = json.loads(done.stdout)
    assert (summary["scored"], summary["changed"]) == (128, 0)
    assert summary["mean_before"] == pytest.approx(summary["mean_after"])
    assert len(lines(begun / "rescored.jsonl")) == 128


def test_a_run_of_an_earlier_version_is_evaluated_but_not_resumed(rlvr: Call, begun: Path) -> None:
    """Its options that are gone are passed over; to go on with it is refused in plain words."""
    record = json.loads((begun / "run.json").read_text())
    gone = {"run.plugin": "toy", "run.out": "r", "verify.alarm": 0.1, "parity.probe": 4}
    record["config"] |= {**gone, "run.task": ""}
    (begun / "run.json").write_text(json.dumps(record))

    for words in (
        ("eval", "--run", "r", "--samples", "1"),
        ("eval", "--plugin", "toy", "--samples", "1", "--against", "r"),
        ("rescore", "r"),
    ):
        done = rlvr(*words)
        assert done.returncode == 0, done.stderr
    refused = rlvr("run", "--resume", "r")
    assert refused.returncode == 2
    assert "an earlier version of rlvr, which had run.plugin, run.out" in refused.stderr
    assert "rlvr eval --run r" in refused.stderr


def test_a_trained_checkpoint_is_a_model(rlvr: Call, whole_line: tuple[Done, Path]) -> None:
    """The run's directory, as `--model`, evaluates better than the start."""
    done = rlvr("eval", "--model", str(whole_line[1]), "--samples", "8", "--json")
    assert done.returncode == 0, done.stderr

    assert json.loads(done.stdout)["pass_at"]["1"] > 0.9


def test_events_are_kept_of_a_run_without_trouble(two_steps: tuple[Done, Path]) -> None:
    """`events.jsonl` holds the course of every run, not its warnings alone."""
    done, run = two_steps

    events = [event["event"] for event in lines(run / "events.jsonl")]
    assert [events[0], events[-1]] == ["run_started", "run_finished"]
    assert events.count("step_finished") == 2
    assert "step_finished" not in done.stderr


def test_groups_of_one_are_refused(rlvr: Call, tmp_path: Path) -> None:
    """A run that could learn nothing is refused before it begins (exit 2)."""
    refused = rlvr("run", "--plugin", "toy", "--out", "r", "sampler.group_size=1")

    assert refused.returncode == 2
    assert "sampler.group_size" in refused.stderr
    assert not (tmp_path / "r").exists()


def test_a_run_without_its_data_set_leaves_no_directory(rlvr: Call, tmp_path: Path) -> None:
    """What is refused before a part is built leaves nothing behind either."""
    refused = rlvr("run", "--plugin", "toy", "--dataset", "nowhere", "--out", "r")

    assert refused.returncode == 2
    assert not (tmp_path / "r").exists()


def test_no_command_ignores_a_data_set(rlvr: Call, tmp_path: Path) -> None:
    """The toy task reads no file, and says so rather than passing it over."""
    (tmp_path / "d.jsonl").write_text("{}\n")

    refused = rlvr("score", "--plugin", "toy", "--dataset", "d.jsonl", "--golden")

    assert refused.returncode == 2
    assert "leave --dataset out" in refused.stderr


def test_eval_takes_its_options_by_either_name(rlvr: Call) -> None:
    """`eval.samples=3` and `--samples 3` are the same; none is accepted and ignored."""
    for words in (["--samples", "3"], ["eval.samples=3"]):
        done = rlvr("eval", "--plugin", "toy", "--json", *words)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["samples"] == 4 * 3

    assert rlvr("eval", "--plugin", "toy", "--samples", "0").returncode == 2


def test_rescore_says_what_it_could_not_score(rlvr: Call, begun: Path) -> None:
    """Trajectories whose problem is gone are named, and failures have their exit code."""
    kept = begun / "trajectories/step-000001.jsonl"
    kept.write_text(kept.read_text().replace('"toy_a"', '"toy_gone"'))

    done = rlvr("rescore", "r", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["unknown"], summary["trajectories"]) == (32, 96)
    assert "toy_gone" in done.stderr

    assert rlvr("rescore", "r", "toy.fail_share=1.0").returncode == 5

    for file in (begun / "trajectories").glob("*.jsonl"):
        text = re.sub('"id": "toy_', '"id": "gone_', file.read_text(encoding="utf-8"))
        file.write_text(text, encoding="utf-8")
    done = rlvr("rescore", "r", "--out", "none.jsonl")
    assert done.returncode == 2, done.stdout
    assert "found: none is of the data set's 4 problems, but of gone_" in done.stderr
    assert not (begun.parent / "none.jsonl").exists()


def test_a_damaged_run_is_named_and_passed_over(rlvr: Call, tmp_path: Path) -> None:
    """`--resume auto` goes on past it; asked for by name it is exit 2, without a traceback."""
    (tmp_path / "runs/damaged").mkdir(parents=True)
    (tmp_path / "runs/damaged/run.json").write_text("{")

    for words in (["run", "--resume", "runs/damaged"], ["rescore", "runs/damaged"]):
        refused = rlvr(*words)
        assert refused.returncode == 2
        assert "Traceback" not in refused.stderr
    fresh = rlvr("run", "--plugin", "toy", "--steps", "1", "--resume", "auto", "eval.samples=0")
    assert "no unfinished run below runs fits; a new one is begun" in fresh.stderr
    assert fresh.returncode == 0, fresh.stderr


def test_resume_refuses_other_problems(rlvr: Call, begun: Path) -> None:
    """A data set that changed under a run makes it another run (exit 2); nothing of it changes."""
    record = json.loads((begun / "run.json").read_text())
    (begun / "run.json").write_text(json.dumps({**record, "dataset_hash": "another"}))
    before = {p: p.read_bytes() for p in begun.rglob("*") if p.is_file() and p.stat().st_size}

    refused = rlvr("run", "--resume", "r", "--steps", "2")

    assert before == {
        p: p.read_bytes() for p in begun.rglob("*") if p.is_file() and p.stat().st_size
    }

    assert refused.returncode == 2
    assert "other problems" in refused.stderr


def test_nothing_to_score_is_said(rlvr: Call, tmp_path: Path) -> None:
    """An empty data set is a mistake of the person (exit 2), not a success over no answers."""
    pytest.importorskip("rlvr_cvdp", reason="rlvr-cvdp is not installed: pip install rlvr-cvdp")
    require_tool("bwrap")
    require_tool("iverilog")
    (tmp_path / "empty.jsonl").write_text("")

    refused = rlvr("score", "--plugin", "cvdp", "--dataset", "empty.jsonl", "--golden")

    assert refused.returncode == 2, refused.stderr
    assert "no problem in it" in refused.stderr
