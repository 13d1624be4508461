"""How-to and algorithm pages: their code runs, their commands run, their tables are complete."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import attrs
import pytest
from rlvr_process import run_rlvr

from rlvr.cli.main import main
from rlvr.plugins.resolve import load_object

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(python|toml|sh)\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def blocks(page: Path, language: str) -> list[str]:
    """The page's fenced blocks of a language."""
    return [body for kind, body in FENCE.findall(page.read_text("utf-8")) if kind == language]


def build(page: Path, folder: Path) -> None:
    """Write the page's files: a block's first line is a comment with the path."""
    for body in blocks(page, "python") + blocks(page, "toml"):
        first, _, rest = body.partition("\n")
        path = folder / first.removeprefix("# ")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rest, encoding="utf-8")


def install(name: str, folder: Path) -> None:
    """What `pip install -e` leaves behind, without pip: the entry point's metadata."""
    info = folder / f"rlvr_{name}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: rlvr-{name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[rlvr]\n{name} = rlvr_{name}.plugin\n")


def run(command: list[str], folder: Path) -> str:
    """Run in the folder with its packages importable; output of a command that must succeed."""
    environment = {**os.environ, "PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    if command[0] == "rlvr":
        done = run_rlvr(*command[1:], cwd=folder, env=environment)
    else:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240
        )
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def commands(page: Path) -> list[list[str]]:
    """The page's `rlvr run` commands, as argument lists."""
    lines = "\n".join(blocks(page, "sh")).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("rlvr run")]


@pytest.mark.integration
@pytest.mark.parametrize(
    "page",
    [
        *("write-a-curriculum", "write-a-loss", "write-a-reward"),
        *("write-an-advantage", "write-a-checkpointer"),
    ],
)
def test_pages_build_a_plugin_that_passes_its_contracts(page: str, tmp_path: Path) -> None:
    """The files of the page, as printed, pass the tests of the page, as printed."""
    build(DOCS / "how-to" / f"{page}.md", tmp_path)

    # -W error: what a reader sees must not warn either
    out = run([sys.executable, "-m", "pytest", "-q", "-W", "error", "tests"], tmp_path)

    assert re.search(r"\d\d passed", out), out
    assert "failed" not in out


@pytest.mark.integration
def test_the_loss_of_the_page_trains(tmp_path: Path) -> None:
    """`rlvr run` finds the page's plugin by its entry point and its metric is written."""
    page = DOCS / "how-to" / "write-a-loss.md"
    build(page, tmp_path)
    install("mine", tmp_path)
    (command,) = commands(page)

    run([*command, "--out", str(tmp_path / "run")], tmp_path)

    assert "capped/share" in (tmp_path / "run" / "metrics.jsonl").read_text("utf-8")


@pytest.mark.integration
def test_the_curriculum_of_the_page_orders_a_run(tmp_path: Path) -> None:
    """`rlvr run` finds the page's plugin by its entry point, and `run.json` has its option."""
    page = DOCS / "how-to" / "write-a-curriculum.md"
    build(page, tmp_path)
    install("mine", tmp_path)
    (command,) = commands(page)

    run([*command, "--out", str(tmp_path / "run"), "eval.samples=0"], tmp_path)

    config = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))["config"]
    assert (config["run.curriculum"], config["curriculum.label"]) == ("balanced", "family")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("name", "left"), [("advantage", "metrics.jsonl"), ("checkpointer", "zipped")]
)
def test_the_part_of_the_page_runs(name: str, left: str, tmp_path: Path) -> None:
    """`rlvr run` finds an advantage's and a checkpointer's page's plugin, and uses it."""
    page = DOCS / "how-to" / f"write-a{'n' * (name[0] == 'a')}-{name}.md"
    build(page, tmp_path)
    install({"advantage": "ranked", "checkpointer": "zipped"}[name], tmp_path)
    (command,) = commands(page)

    run([*command, "--out", str(tmp_path / "run"), "eval.samples=0"], tmp_path)

    written = tmp_path / "run" / left
    assert (
        "ranked/credit" in written.read_text("utf-8") if written.is_file() else [*written.iterdir()]
    )


ALGORITHMS = (
    "grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce-plus-plus", "ppo", "best-of-n",
    "sft",
)  # fmt: skip


@pytest.mark.integration
@pytest.mark.parametrize("page", ALGORITHMS)
def test_commands_of_algorithm_pages_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command of the page runs; two steps of it, to keep it short, in this process."""
    torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    found = commands(DOCS / "algorithms" / f"{page}.md")

    assert found
    for number, command in enumerate(found):
        command[command.index("--steps") + 1] = "2"
        code = main([*command[1:], "--out", str(tmp_path / str(number)), "eval.samples=0"])
        assert code == 0, shlex.join(command)


def test_algorithm_pages_name_every_option_and_vetted_value() -> None:
    """Every option is on its algorithm's page or the shared one; every vetted value on its page."""
    pytest.importorskip("rlvr_algos", reason="rlvr-algos is not installed")
    plugin = pytest.importorskip("rlvr_algos.plugin")
    pages = {
        path.stem.replace("-plus-plus", "++"): path.read_text("utf-8")
        for path in (DOCS / "algorithms").glob("*.md")
    }
    distilling = (DOCS / "algorithms" / "distill" / "index.md").read_text("utf-8")
    losses = {spec.name: spec for spec in plugin.rlvr_losses()}
    advantages = {spec.name: spec for spec in plugin.rlvr_advantages()}
    for algorithm in plugin.rlvr_algorithms():
        text = pages[algorithm.name] + pages["shared-options"]
        text += distilling if "distill/index.md" in pages[algorithm.name] else ""
        for spec in (losses[algorithm.loss], advantages[algorithm.advantage]):
            record = load_object(spec.config, "algos") if spec.config else None
            for name in attrs.fields_dict(record) if record else ():
                told = [f"`{n}.{name}`" for n in (spec.option_namespace, "LOSS", "distill")]
                assert any(key in text for key in told), (algorithm.name, told[0])
        for key, value in algorithm.values.items():
            page = pages[algorithm.name]
            row = re.search(rf"^\| `{re.escape(key)}` \|[^|]*\| ([^|]+) \|", page, re.M)
            assert row, f"{algorithm.name}.md does not tell {key}"
            assert row[1] == (value if isinstance(value, str) else _shown(value)), (key, row[1])


def _shown(value: float | bool) -> str:
    """A number as the tables print it: true, 0.28, 1, 1e-6."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}".replace("e-0", "e-")
