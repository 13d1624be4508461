"""What rlvr says to bad input: rows of docs/bad-input.md, one test each.

A row's test has the row's key as `@row("key")`; the last test holds page and tests together.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rlvr_process import Started, start_rlvr

from rlvr.testing import require_tool
from tests.conftest import LEAN

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "bad-input.md"
STARTER = ROOT / "rlvr-cvdp" / "rlvr_cvdp" / "starter" / "problems.jsonl"
TINY = ("--task", "toy", "--algo", "grpo", "eval.samples=0")

Rlvr = Callable[..., "subprocess.CompletedProcess[str]"]
KEYS: list[str] = []


def _row(key: str) -> Callable[[Any], Any]:
    KEYS.append(key)
    return lambda test: test


def _assert_explained(done: Any, exit_code: int, *texts: str) -> None:
    """The exit code, every text on standard error, no traceback, and what to do about it."""
    assert done.returncode == exit_code, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("rlvr: ") or "\nrlvr: " in done.stderr, done.stderr
    for text in texts:
        assert text in done.stderr, done.stderr


# --- names ----------------------------------------------------------------------------------------


@_row("unknown plugin")
def test_unknown_plugin(rlvr: Rlvr) -> None:
    """A misspelt plugin is answered with what is installed and the nearest name; exit 3."""
    done = rlvr("run", "--plugin", "cvpd", "--algo", "grpo")

    _assert_explained(done, 3, "'cvpd'", "installed:", "did you mean 'cvdp'?")


@_row("unknown algorithm")
def test_unknown_algorithm(rlvr: Rlvr) -> None:
    """A misspelt algorithm is answered with the nearest one; exit 3."""
    done = rlvr("run", "--task", "toy", "--algo", "gpro")

    _assert_explained(done, 3, "'gpro'", "did you mean 'grpo'?")


@_row("unknown option")
def test_unknown_option(rlvr: Rlvr) -> None:
    """A misspelt option is answered with the nearest one, before anything is made; exit 2."""
    done = rlvr("run", *TINY, "--out", "made", "train.lrr=1e-4")

    _assert_explained(done, 2, "train.lrr", "train.lr")
    assert not Path(done.args[-2]).exists()


@_row("unknown flag")
def test_unknown_flag(rlvr: Rlvr) -> None:
    """A misspelt flag is answered with the nearest one; exit 2."""
    done = rlvr("run", "--plugn", "cvdp")
    of_task = rlvr("run", "--plugin", "toy", "--lettres", "xy")

    _assert_explained(done, 2, "--plugn", "--plugin")
    _assert_explained(of_task, 2, "--lettres", "did you mean '--letters'?")


@_row("impossible value")
def test_impossible_value(rlvr: Rlvr) -> None:
    """A value of the wrong kind or out of range names the option and what it takes; exit 2."""
    for word in ("train.lr=fast", "sampler.group_size=0", "train.decay=steep"):
        _assert_explained(rlvr("run", *TINY, word), 2, word.partition("=")[0])


# --- settings that do not go together -------------------------------------------------------------


@_row("group of one")
@pytest.mark.parametrize("algo", ["grpo", "best-of-n"])
def test_group_of_one(rlvr: Rlvr, tmp_path: Path, algo: str) -> None:
    """One answer has nothing to be compared with: refused with the fix; exit 2."""
    done = rlvr("run", "--task", "toy", "--algo", algo, "--out", "r", "sampler.group_size=1")

    _assert_explained(done, 2, "groups of one", "sampler.group_size=8", "--algo ")
    assert not (tmp_path / "r" / "trajectories").exists()


@pytest.mark.parametrize("algo", ["ppo", "reinforce++", "sft"])
def test_algorithms_that_compare_no_answers_take_groups_of_one(rlvr: Rlvr, algo: str) -> None:
    """A critic, a batch or a reference is their baseline; exit 0."""
    done = rlvr("run", *TINY, "--steps", "1", "--algo", algo, "sampler.group_size=1")

    assert done.returncode == 0, done.stderr


@_row("option of a part that is not used")
def test_option_of_another_part(rlvr: Rlvr) -> None:
    """An option that would change nothing names the part it belongs to; exit 2."""
    curriculum = rlvr("run", *TINY, "curriculum.target=0.4")
    other = rlvr("run", *TINY, "run.curriculum=pass-rate", "curriculum.stages=a,b")
    loss = rlvr("run", "--task", "toy", "--algo", "sft", "grpo.clip_low=0.1")

    _assert_explained(curriculum, 2, "curriculum.target", "--curriculum pass-rate")
    _assert_explained(other, 2, "curriculum.stages", "--curriculum difficulty")
    _assert_explained(loss, 2, "grpo.clip_low", "choose run.loss=grpo, or an algorithm that has it")


@_row("curriculum that does not fit")
def test_curriculum_that_does_not_fit(rlvr: Rlvr, tmp_path: Path) -> None:
    """Nothing is sampled for an order that no problem can follow; exit 2."""
    (tmp_path / "audit.json").write_text('{"version": 1, "problems": {"o": {"strength": 0.5}}}')
    words = ("run", "--task", "toy", "--out", "r", "eval.samples=4", "--curriculum")

    label = rlvr(*words, "difficulty")
    stage = rlvr(*words, "difficulty", "curriculum.label=family", "curriculum.stages=a,x")
    audit = rlvr(*words, "strength")
    other = rlvr(*words, "strength", "curriculum.audit=audit.json")
    name = rlvr(*words, "dificulty")

    _assert_explained(label, 2, "none of 4 problems", "their labels: family")
    _assert_explained(stage, 2, "'x'", "a (1), b (1), c (1), d (1)", "curriculum.stages=a,b,c,d")
    _assert_explained(audit, 2, "curriculum.audit", "rlvr audit")
    _assert_explained(other, 2, "audit.json", "0 of the 4 problems")
    _assert_explained(name, 3, "'dificulty'", "did you mean 'difficulty'?")
    assert not [*tmp_path.rglob("step-*.jsonl"), *tmp_path.rglob("eval.jsonl")]


@_row("two orders of training")
def test_two_orders_of_training(rlvr: Rlvr) -> None:
    """A curriculum and the task's own one cannot both be followed; exit 2."""
    done = rlvr(
        "run", "--plugin", "cvdp", "--curriculum", "pass-rate", "cvdp.curriculum=difficulty"
    )

    _assert_explained(done, 2, "two orders", "--curriculum", "cvdp.curriculum=difficulty")


@_row("contradictory settings")
def test_contradictory_settings(rlvr: Rlvr) -> None:
    """Each is refused with the option to change, before anything is sampled; exit 2."""
    truncated = rlvr("run", *TINY, "sampler.top_p=0.9")
    scattered = rlvr("run", *TINY, "train.problems=2", "train.minibatches=17")
    negative = rlvr("run", *TINY, "--max-staleness", "-1")

    _assert_explained(truncated, 2, "set sampler.top_p=1")
    _assert_explained(scattered, 2, "at most 16 trajectories", "train.minibatches")
    _assert_explained(negative, 2, "run.max_staleness cannot be -1", ">= 0")


@_row("context too short")
def test_context_too_short(rlvr: Rlvr) -> None:
    """The starter's context of 16 holds no prompt beside 15 new tokens; exit 2."""
    done = rlvr("run", *TINY, "sampler.max_tokens=15")

    _assert_explained(done, 2, "sampler.max_tokens", "context holds 16", "leaves 1")


# --- files ----------------------------------------------------------------------------------------


@_row("missing data set")
def test_missing_dataset(rlvr: Rlvr) -> None:
    """A data set that is not there is named, with where it was looked for; exit 2."""
    done = rlvr("score", "--plugin", "cvdp", "--dataset", "nowhere.jsonl", "--golden")

    _assert_explained(done, 2, "nowhere.jsonl")


@_row("broken line in answers")
def test_broken_answer_line(rlvr: Rlvr, tmp_path: Path) -> None:
    """A line that is no JSON is named by its number; the lines around it are scored; exit 2."""
    lines = ['{"id": "toy_a", "completion": "aaaa"}', '{"id": "toy_b", ', '{"id": "toy_c", "x": 1}']
    lines.append('{"id": "toy_c", "completion": "cccc"}')
    (tmp_path / "answers.jsonl").write_text("\n".join(lines), encoding="utf-8")

    done = rlvr(
        "score", "--task", "toy", "--completions", "answers.jsonl", "--out", "verdicts.jsonl"
    )

    _assert_explained(done, 2, "2 of 4 lines of answers.jsonl", "line 2: not JSON")
    assert "scored 2 of 4 answers" in done.stdout
    verdicts = _read(tmp_path / "verdicts.jsonl")
    assert [v["reward"] for v in verdicts] == [1.0, None, None, 1.0]
    assert verdicts[1]["error"].startswith("line 2: not JSON")
    assert verdicts[2]["error"].startswith("line 3: ")


@_row("broken line in a data set")
def test_broken_dataset_line(rlvr: Rlvr, tmp_path: Path) -> None:
    """A row that is no JSON is listed by its number; the others are problems as ever; exit 0."""
    row = STARTER.read_text(encoding="utf-8").splitlines()[0]
    answer = {"id": json.loads(row)["id"], "completion": "x"}
    (tmp_path / "set.jsonl").write_text(f'{{"id": \n{row}\n', encoding="utf-8")
    (tmp_path / "one.jsonl").write_text(json.dumps(answer), encoding="utf-8")

    done = rlvr(
        "score", "--plugin", "cvdp", "--dataset", "set.jsonl", "--completions", "one.jsonl",
        "--json",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert "line 1: unsupported" in done.stderr
    summary = json.loads(done.stdout.splitlines()[-1])
    assert (summary["problems"], summary["unsupported"]) == (1, 1)


@_row("missing harness")
def test_missing_harness(rlvr: Rlvr, tmp_path: Path) -> None:
    """A row without a harness is unsupported, with the reason, and an answer to it says so."""
    first, second = (json.loads(line) for line in STARTER.read_text("utf-8").splitlines()[:2])
    first["harness"] = {}
    (tmp_path / "set.jsonl").write_text(f"{json.dumps(first)}\n{json.dumps(second)}\n")
    (tmp_path / "answers.jsonl").write_text(json.dumps({"id": first["id"], "completion": "x"}))

    done = rlvr(
        "score", "--plugin", "cvdp", "--dataset", "set.jsonl", "--completions", "answers.jsonl",
        "--out", "verdicts.jsonl", "--json",
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert (summary["unscorable"], summary["unusable"]) == (1, 0)
    assert f"{first['id']}: unsupported: " in done.stderr
    (verdict,) = _read(tmp_path / "verdicts.jsonl")
    assert verdict["reward"] is None
    assert "harness" in verdict["error"]


@_row("unwritable directory")
def test_unwritable_directory(rlvr: Rlvr, tmp_path: Path) -> None:
    """A run directory that cannot be made is refused before any work; exit 2."""
    (tmp_path / "file").write_text("in the way")

    for out in ("file/run", "/proc/rlvr-run"):
        _assert_explained(rlvr("run", *TINY, "--out", out), 2, out, "--out DIR")


@_row("model of the wrong shape")
def test_model_of_the_wrong_shape(rlvr: Rlvr, one_step: Path, tmp_path: Path) -> None:
    """Weights that do not fit their config name tensor, shape found and expected; exit 6."""
    (weights,) = (one_step / "checkpoints").rglob("model.safetensors")
    model = Path(shutil.copytree(weights.parent, tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    config["n_positions"] += 8
    (model / "config.json").write_text(json.dumps(config))

    done = rlvr("run", *TINY, "--steps", "1", "--out", "other", "--model", f"gpt2:{model}")

    _assert_explained(done, 6, "wpe", "expected", "shape")


# --- the machine ----------------------------------------------------------------------------------


@_row("missing simulator")
def test_missing_simulator(rlvr: Rlvr, tmp_path: Path) -> None:
    """Without iverilog nothing is scored: the package to install is named; exit 4."""
    empty = tmp_path / "bin"
    empty.mkdir()

    done = rlvr("score", "--plugin", "cvdp", "--golden", env={"PATH": str(empty)})

    _assert_explained(done, 4, "iverilog", "apt-get install")


@_row("unreachable server")
def test_unreachable_server(rlvr: Rlvr) -> None:
    """Nobody listens on port 9: the URL and how to start a server are named; exit 4."""
    pytest.importorskip("rlvr_servers", reason="rlvr-servers is not installed")
    done = rlvr("eval", "--plugin", "toy", "--model", "server:http://127.0.0.1:9#m")

    _assert_explained(done, 4, "http://127.0.0.1:9/v1", "cannot be reached", "start it")


@_row("wrong file of answers")
def test_wrong_file_of_answers(rlvr: Rlvr, tmp_path: Path) -> None:
    """Answers to other problems are no answers that are all wrong; exit 2."""
    (tmp_path / "a.jsonl").write_text('{"id": "other", "completion": "x"}\n', encoding="utf-8")

    done = rlvr("eval", "--plugin", "toy", "--completions", "a.jsonl")

    _assert_explained(done, 2, "a.jsonl", "none for any of the 4 problems")


FULL = """
import sys
from rlvr.cli.main import main

for during in sys.argv[1:3]:
    words = [*sys.argv[3:], "--steps", "3", "--out", f"{during}/run", "checkpoint.every=1"]
    print(f"exit {main(words)}")
    print("====", file=sys.stderr)
"""


@pytest.fixture(scope="module")
def full(one_step: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What two runs say whose disk fills up, and the checkpoints that they leave."""
    require_tool("bwrap")
    size = _pages(one_step)
    sizes = {
        "checkpoint": size + _pages(one_step / "checkpoints") // 2,
        # one step and its checkpoint fit, and half of what the next one samples
        "trajectories": size + _pages(one_step / "trajectories") // 2,
    }  # fmt: skip
    folder = tmp_path_factory.mktemp("full")
    disks: list[str] = []
    for during, size in sizes.items():
        (folder / during).mkdir()
        disks += ["--size", str(size), "--tmpfs", str(folder / during)]
    left = "; ".join(f"echo ====; ls {during}/run/checkpoints" for during in sizes)

    done = subprocess.run(
        ["bwrap", "--dev-bind", "/", "/", *disks, "--chdir", str(folder),
         "sh", "-c", f'"$@"; {left}', "sh", sys.executable, "-c", FULL, *sizes, "run", *TINY],
        capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, **LEAN, "RLVR_CACHE_DIR": str(folder / "cache"), "OMP_NUM_THREADS": "1"},
    )  # fmt: skip

    codes, *names = done.stdout.split("====\n")
    assert codes.splitlines()[-2:] == ["exit 6", "exit 6"], done.stdout + done.stderr
    return dict(zip(sizes, zip(done.stderr.split("====\n"), names, strict=False), strict=True))


@_row("full disk")
@pytest.mark.parametrize("during", ["checkpoint", "trajectories"])
def test_full_disk(during: str, full: dict[str, tuple[str, str]]) -> None:
    """A disk that fills up costs what is new, not the old checkpoint, which is named; exit 6."""
    said, left = full[during]

    assert "No space left on device" in said
    assert f"last good checkpoint: {during}/run/checkpoints/step-000001" in said
    assert ("run directory" in said) == (during == "trajectories")
    assert left.split() == ["step-000001"]
    assert "Traceback" not in said


def _pages(folder: Path) -> int:
    """Bytes that the files and folders below `folder` take in memory pages of 4 KiB."""
    return sum(-(-max(path.stat().st_size, 1) // 4096) * 4096 for path in folder.rglob("*"))


# --- verifiers ------------------------------------------------------------------------------------


@_row("verifier fails too often")
def test_verifier_fails_too_often(rlvr: Rlvr, tmp_path: Path) -> None:
    """Failures past the share that is allowed stop the run with a checkpoint; exit 5."""
    done = rlvr("run", *TINY, "--steps", "2", "--out", "run", "toy.fail_share=1.0")

    _assert_explained(done, 5, "could not run", "last good checkpoint: ", "--resume run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


@pytest.fixture
def problem(tmp_path: Path) -> dict[str, Any]:
    """One starter problem in `one.jsonl`, and its solution; skips where tools are missing."""
    for tool in ("iverilog", "vvp", "bwrap"):
        require_tool(tool, fix="apt-get install iverilog bubblewrap")
    line = STARTER.read_text(encoding="utf-8").splitlines()[0]
    (tmp_path / "one.jsonl").write_text(f"{line}\n", encoding="utf-8")
    row = json.loads(line)
    ((path, text),) = row["output"]["context"].items()
    return {"id": row["id"], "path": path, "solution": text}


SCORE = ("score", "--plugin", "cvdp", "--dataset", "one.jsonl", "--completions", "answers.jsonl")
SCORE_TO = (*SCORE, "--out", "verdicts.jsonl", "verify.store=off")


@_row("verifier times out")
def test_verifier_times_out(rlvr: Rlvr, tmp_path: Path, problem: dict[str, Any]) -> None:
    """A verification past the runner's deadline has failed to run: no reward, and exit 5."""
    _answer(tmp_path, problem, "initial begin : hang integer i; i = 0; while (1) i = i + 1; end")

    done = rlvr(*SCORE_TO, "verify.deadline_s=1")

    assert done.returncode == 5, done.stderr
    (verdict,) = _read(tmp_path / "verdicts.jsonl")
    assert verdict["reward"] is None
    assert "did not answer within 1 s" in verdict["error"]


@pytest.mark.one_of(2)
@_row("simulator killed")
@pytest.mark.parametrize("times", ["once", "always"])
def test_simulator_killed(tmp_path: Path, problem: dict[str, Any], times: str) -> None:
    """
    A sandbox that is killed from outside: the answer is judged again.

    Where a known answer's sandbox is killed too, the verification has failed: no reward, exit 5.
    """
    limit_s = {"once": 2, "always": 10}[times]  # judged again, it takes all of it
    _answer(tmp_path, problem, "initial begin : hang integer i; i = 0; while (1) i = i + 1; end")
    env = {**os.environ, "RLVR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    with start_rlvr(*SCORE_TO, f"cvdp.timeout_s={limit_s}", cwd=tmp_path, env=env) as process:
        try:
            _kill_when_simulating(process)
            while times == "always" and process.poll() is None:
                for sandbox in _descendants(process.pid, "bwrap"):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(sandbox, signal.SIGKILL)
                time.sleep(0.05)
            _, errors = process.communicate(timeout=200)
        finally:
            process.kill()

    (verdict,) = _read(tmp_path / "verdicts.jsonl")
    if times == "once":
        assert process.returncode == 0, errors
        assert verdict["score01"] == 0.0
    else:
        assert process.returncode == 5, errors
        assert verdict["reward"] is None
        assert "verification failed" in verdict["error"]


@_row("output without end")
def test_output_without_end(rlvr: Rlvr, tmp_path: Path, problem: dict[str, Any]) -> None:
    """A design that prints without end is stopped at the limit, and is wrong, not unverified."""
    _answer(tmp_path, problem, f'initial while (1) $display("{"x" * 1000}");')

    done = rlvr(*SCORE_TO, "cvdp.output_mb=8", "cvdp.timeout_s=60")

    _assert_wrong(done, tmp_path)


@_row("endless loop in the design")
def test_endless_loop(tmp_path: Path, problem: dict[str, Any]) -> None:
    """A design that loops for ever is stopped at its time: wrong, not unverified; none is left."""
    _answer(tmp_path, problem, "initial begin : hang integer i; i = 0; while (1) i = i + 1; end")

    begun = time.monotonic()
    seen: set[int] = set()
    env = {**os.environ, "RLVR_CACHE_DIR": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    with start_rlvr(*SCORE_TO, "cvdp.timeout_s=1", cwd=tmp_path, env=env) as process:
        while process.poll() is None:
            seen.update(_descendants(process.pid, "vvp"))
            time.sleep(0.05)

    _assert_wrong(process, tmp_path)
    assert time.monotonic() - begun < 60
    assert seen
    assert not list(filter(_lives, seen))


# --- page -----------------------------------------------------------------------------------------


def test_every_row_of_the_page_has_its_test() -> None:
    """docs/bad-input.md lists what is tested here; a section of other rows names their tests."""
    page = PAGE.read_text(encoding="utf-8")
    found: list[str] = []
    for section in page.split("\n## ")[1:]:
        rows = re.findall(r"^\| \*\*(.+?)\*\* \|", section, re.MULTILINE)
        named = re.findall(r"`([\w/-]+/test_\w+\.py)`", section)
        assert len(rows) == sum(line.startswith("| **") for line in section.splitlines())
        assert named or {*rows} <= {*KEYS}, section
        assert all((PAGE.parents[1] / path).is_file() for path in named), named
        found += rows

    assert sorted(found) == sorted({*found})
    assert {*KEYS} <= {*found}


# --- helpers --------------------------------------------------------------------------------------


def _read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _answer(folder: Path, problem: dict[str, Any], block: str) -> None:
    """Write the right solution with `block` added before its `endmodule` as the only answer."""
    text = problem["solution"].replace("endmodule", f"{block}\nendmodule")
    line = json.dumps({"id": problem["id"], "files": {problem["path"]: text}})
    (folder / "answers.jsonl").write_text(f"{line}\n", encoding="utf-8")


def _assert_wrong(done: Any, folder: Path) -> None:
    assert done.returncode == 0, done
    (verdict,) = _read(folder / "verdicts.jsonl")
    assert verdict["error"] is None, verdict
    assert 0.0 <= verdict["reward"] < 1.0, verdict
    assert verdict["score01"] == 0.0, verdict


def _descendants(root: int, name: str) -> list[int]:
    """Process ids below `root` whose command is `name`, parents first."""
    parents: dict[int, tuple[int, str]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = stat.read_text().split(" (", 1)
        except (OSError, ValueError):
            continue
        command, _, fields = rest.rpartition(") ")
        parents[int(pid)] = (int(fields.split()[1]), command)
    found = []
    for pid, (parent, command) in sorted(parents.items()):
        while parent not in (root, 0) and parent in parents:
            parent = parents[parent][0]
        if parent == root and command == name:
            found.append(pid)
    return found


def _lives(pid: int) -> bool:
    """Whether there is such a process that has not ended."""
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _kill_when_simulating(process: Started) -> None:
    """Wait until a simulation runs below the process, then kill its outermost sandbox."""
    deadline = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < deadline:
        sandboxes = _descendants(process.pid, "bwrap")
        # The worker is a simulator itself; a simulation is a fork of it.
        if sandboxes and len(_descendants(process.pid, "vvp")) > 1:
            os.kill(sandboxes[0], signal.SIGKILL)
            return
        time.sleep(0.05)
    pytest.fail("no simulation was started")
