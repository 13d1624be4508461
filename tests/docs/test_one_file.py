"""`docs/python.md`, and `examples/grpo_in_one_file.py`: a whole run on the public door alone."""

from __future__ import annotations

import ast
import os
import re
import runpy
import shutil
from pathlib import Path
from statistics import mean

import pytest
from rlvr_process import run_rlvr

from rlvr import Reward, Segment, Trajectory
from tests.conftest import LEAN

ROOT = Path(__file__).parents[2]
FILE = ROOT / "examples" / "grpo_in_one_file.py"


def test_it_uses_the_public_door_alone_and_fits() -> None:
    """At most 300 lines; of rlvr and its plugins it imports `rlvr` and nothing below."""
    source = FILE.read_text(encoding="utf-8")
    imported = {
        name
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
    }

    assert len(source.splitlines()) <= 300
    assert {name for name in imported if name.startswith("rlvr")} == {"rlvr"}


def test_its_numbers_by_hand() -> None:
    """Groups count by their spread, every token weighs the same, the clip counts where it cuts."""
    torch = pytest.importorskip("torch", reason="it trains with torch")
    own = runpy.run_path(str(FILE))

    def group(*rewards: float) -> list[tuple[Trajectory, Reward]]:
        one = Segment(author="policy", tokens=[1, 2], logprobs=[0.0, 0.0])
        return [
            (Trajectory(problem_id="p", segments=(one,)), Reward(value=r, score01=r))
            for r in rewards
        ]

    data = own["data_of"]([group(0.0, 0.5, 1.0), group(1.0, 1.0), []])
    # the middle answer has the advantage 0, and is one of three all the same
    assert [float(d.advantages[0]) for d in data] == pytest.approx([-(1.5**0.5), 0, 1.5**0.5], 1e-4)
    assert sum(float(d.weights.sum()) for d in data) == pytest.approx(1.0)
    double = torch.full((2,), 2.0).log()  # ratio 2, above the clip of 1.2
    loss, metrics = own["GrpoLoss"]()(data, [double] * 3, {})
    # 1/3 (2 * -a + 0 + 1.2 * a) of a = sqrt(1.5), less; only the last answer's gain is cut
    assert float(loss) == pytest.approx(0.8 * 1.5**0.5 / 3, 1e-4)
    assert metrics["clip_share"] == pytest.approx(1 / 3)


@pytest.mark.integration
def test_no_problem_a_step_is_refused() -> None:
    """In a sentence, before anything is opened."""
    pytest.importorskip("torch", reason="it trains with torch")
    done = run_rlvr("--problems", "0", program=FILE)

    assert done.returncode == 2
    assert "a step takes at least one" in done.stderr


@pytest.mark.slow
@pytest.mark.integration
def test_it_learns(tmp_path: Path) -> None:
    """On the toy task the mean reward of the last steps is well above that of the first."""
    pytest.importorskip("torch", reason="it trains with torch")
    words = ["--plugin", "toy", "--steps", "24", "train.lr=1e-2"]
    done = run_rlvr(*words, cwd=tmp_path, program=FILE, env={**os.environ, **LEAN})
    assert done.returncode == 0, done.stderr
    rewards = [float(found) for found in re.findall(r"reward ([\d.]+)", done.stdout)]

    assert len(rewards) == 24
    assert mean(rewards[-8:]) > mean(rewards[:8]) + 0.2


@pytest.mark.slow
@pytest.mark.integration
def test_it_trains_the_verilog_starter(tmp_path: Path) -> None:
    """The default plugin: a simulator finds some answers of the starter right, and it learns."""
    pytest.importorskip("torch", reason="it trains with torch")
    if not shutil.which("iverilog"):
        pytest.skip("no Icarus Verilog")
    few = ["--steps", "1", "--problems", "2", "sampler.max_tokens=64", "sampler.group_size=4"]
    done = run_rlvr(*few, cwd=tmp_path, program=FILE, env={**os.environ, **LEAN})

    assert done.returncode == 0, done.stderr
    numbers = re.search(r"before: ([\d.]+)% .*gradient (\S+) .*after: ", done.stdout, re.DOTALL)
    assert numbers, done.stdout
    assert float(numbers[1]) > 0
    assert float(numbers[2]) > 0


@pytest.mark.integration
def test_the_code_of_the_page_runs(tmp_path: Path) -> None:
    """
    Each block is a script of its own, as a reader would paste it; here with two steps.

    The second prints the wrong answers of the first one's run, which are nearly all.
    """
    pytest.importorskip("torch", reason="it trains with torch")
    page = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)

    assert len(blocks) == 3
    for number, block in enumerate(blocks):
        (tmp_path / "block.py").write_text(block.replace("steps=40", "steps=2"))
        env = {**os.environ, **LEAN}
        done = run_rlvr(cwd=tmp_path, program=tmp_path / "block.py", env=env)
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()
        if number == 1:
            assert len(lines) > 4
            assert all(re.match(r"toy_[a-d] '.*' Reward\(", line) for line in lines), lines
        else:
            assert len(lines) in (3, 4)


@pytest.mark.integration
@pytest.mark.slow
def test_the_ten_lines_of_the_readme_run(tmp_path: Path) -> None:
    """At most ten lines; here with one step and a few problems."""
    pytest.importorskip("torch", reason="it trains with torch")
    if not shutil.which("iverilog"):
        pytest.skip("no Icarus Verilog")
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    block = re.findall(r"^```python\n(import rlvr\n.*?)^```$", page, re.DOTALL | re.MULTILINE)[0]
    assert len([line for line in block.splitlines() if line]) <= 10
    few = '"train.problems": 1, "sampler.group_size": 2, "eval.samples": 0'
    short = '"sampler.max_tokens": 32'
    quick = block.replace("steps=24", f"steps=1, options={{{short}, {few}}}")
    quick = quick.replace("samples=4", f'samples=1, options={{{short}, "eval.problems": 3}}')
    assert quick.count(short) == 2

    (tmp_path / "quick.py").write_text(quick)
    done = run_rlvr(cwd=tmp_path, program=tmp_path / "quick.py", forks=False)

    assert done.returncode == 0, done.stderr
    run, starter, chance, *problems = done.stdout.splitlines()
    assert run.partition(" ")[0].endswith("/runs/python")
    assert starter.startswith("starter ")
    assert chance.startswith("p-value of the difference: ")
    assert len(problems) == 3
