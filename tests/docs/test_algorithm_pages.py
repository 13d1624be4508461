"""Algorithm pages: their commands run, their tables are complete."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import attrs
import pytest

from rlvr.cli.main import main
from rlvr.plugins.resolve import load_object
from tests.conftest import LEAN

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```sh\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def commands(page: Path) -> list[list[str]]:
    """The page's `rlvr run` commands, as argument lists."""
    lines = "\n".join(FENCE.findall(page.read_text("utf-8"))).replace("\\\n", " ").splitlines()
    return [shlex.split(line) for line in lines if line.startswith("rlvr run")]


ALGORITHMS = (
    "grpo", "dr-grpo", "dapo", "gspo", "cispo", "rloo", "reinforce-plus-plus", "ppo", "best-of-n",
    "sft",
)  # fmt: skip


@pytest.mark.one_of(4, "grpo", "dapo", "gspo", "rloo")
@pytest.mark.integration
@pytest.mark.parametrize("page", ALGORITHMS)
def test_commands_of_algorithm_pages_run(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each command of the page runs; two steps of it, to keep it short, in this process."""
    torch = pytest.importorskip("torch", reason="losses speak torch; pip install torch")
    torch.set_num_threads(1)
    monkeypatch.chdir(tmp_path)
    for name, value in LEAN.items():
        monkeypatch.setenv(name, value)
    found = commands(DOCS / "algorithms" / f"{page}.md")

    assert found
    for number, command in enumerate(found):
        command[command.index("--steps") + 1] = "2"
        if "--out" not in command:  # a later command of the page names it
            command += ["--out", str(number)]
        code = main([*command[1:], "eval.samples=0"])
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
