"""An official data set chooses its own lengths, template variables, split and adapters."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from chat_model import QWEN, make_chat_model, texts_of
from rlvr_process import run_rlvr

from rlvr.cli.main import main
from rlvr.testing import require_tool, shared_data
from tests.conftest import LEAN

pytestmark = [pytest.mark.integration, pytest.mark.timeout(600)]
pytest.importorskip("rlvr_torch", reason="rlvr-torch is not installed: pip install rlvr-torch")
pytest.importorskip("transformers", reason="needs: pip install 'rlvr-torch[hf]'")

NONAGENTIC = "nonagentic_no_commercial.jsonl"
Show = Callable[..., dict[str, tuple[Any, str]]]


@pytest.fixture(scope="session")
def chat_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chat model with a context of 16,384 tokens."""
    texts = texts_of(shared_data("cvdp", NONAGENTIC))
    return make_chat_model(tmp_path_factory.mktemp("chat"), texts, context=16384)


def call(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, **LEAN, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return run_rlvr(*words, cwd=folder, env=env, timeout_s=540)


@pytest.fixture
def show(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Show:
    """`rlvr config show` of a run, in this process: option to value and origin."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")

    def rows(*words: str) -> dict[str, tuple[Any, str]]:
        capsys.readouterr()
        with contextlib.chdir(tmp_path):
            code = main(["config", "show", "--plugin", "cvdp", "--json", *words])
        out, err = capsys.readouterr()
        assert code == 0, err
        return {row["key"]: (row["value"], row["origin"]) for row in json.loads(out)}

    return rows


def test_two_steps_on_the_real_file_cut_no_answer(chat_model: Path, tmp_path: Path) -> None:
    """The plain command: every answer ends by itself, and no prompt loses its middle."""
    for tool in ("iverilog", "bwrap"):
        require_tool(tool)
    words = ["--plugin", "cvdp", "--dataset", str(shared_data("cvdp", NONAGENTIC))]
    words += ["--model", f"hf:{chat_model}", "--steps", "2", "--out", "r"]

    done = call(tmp_path, "run", *words, "train.problems=3", "sampler.group_size=3")

    assert done.returncode == 0, done.stderr
    lines = [
        json.loads(line)
        for path in sorted((tmp_path / "r/trajectories").iterdir())
        for line in path.read_text(encoding="utf-8").splitlines()
    ]
    assert len(lines) == 18
    assert {line["finish"] for line in lines} == {"stop"}
    assert not any(line["prompt_cut"] for line in lines)
    config = json.loads((tmp_path / "r/run.json").read_text())["config"]
    assert config["torch.template"] == ["enable_thinking=false"]


def test_config_show_says_where_each_value_comes_from(chat_model: Path, show: Show) -> None:
    """Length, template and split name the data set and the reason."""
    path = str(shared_data("cvdp", NONAGENTIC))
    found = show("--model", f"hf:{chat_model}", "--dataset", path)

    length, why = found["sampler.max_tokens"]
    assert length > 1500
    assert why.startswith(f"data set {NONAGENTIC}: 95% of 36 answers are at most ")
    assert found["torch.template"] == (
        ["enable_thinking=false"],
        f"data set {NONAGENTIC}: the chat template reads enable_thinking; tokens go to the answer",
    )
    assert found["cvdp.holdout"][0] == 0.2
    assert "8 of 36 problems are kept for test" in found["cvdp.holdout"][1]
    assert found["torch.lora_rank"] == (0, "default")


@pytest.mark.thorough
def test_known_references_fit(chat_model: Path, show: Show) -> None:
    """Of all references that are known for a file, nineteen of twenty fit, answer fence and all."""
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(chat_model)
    references = shared_data("cvdp", "reference_solutions.jsonl")
    for name in (NONAGENTIC, "agentic_no_commercial.jsonl"):
        path = shared_data("cvdp", name)
        ids = {json.loads(line)["id"] for line in path.read_text().splitlines()}
        found = show("--model", f"hf:{chat_model}", "--dataset", str(path))
        sizes = [
            len(tokenizer.encode("".join(row["files"].values()))) + 16
            for row in map(json.loads, references.read_text().splitlines())
            if row["id"] in ids
        ]
        assert len(sizes) >= 10
        fit = sum(size <= found["sampler.max_tokens"][0] for size in sizes)
        assert fit >= 0.95 * len(sizes), (name, fit, len(sizes))


def test_what_a_person_types_wins(chat_model: Path, show: Show, tmp_path: Path) -> None:
    """On the command line, in a file and as a flag; and the rest follows from it."""
    path = str(shared_data("cvdp", NONAGENTIC))
    (tmp_path / "run.toml").write_text("[cvdp]\nholdout = 0.5\n")
    found = show(
        "--model", f"hf:{chat_model}", "--dataset", path, "--config", "run.toml",
        "sampler.max_tokens=99", "--template", "enable_thinking=true",
    )  # fmt: skip

    assert found["sampler.max_tokens"] == (99, "command line")
    assert found["torch.template"] == (["enable_thinking=true"], "command line")
    assert found["cvdp.holdout"] == (0.5, "run.toml")


def test_reasoning_gets_room(chat_model: Path, show: Show) -> None:
    """With the template's reasoning switched on, the length is not that of the answer alone."""
    words = ["--model", f"hf:{chat_model}", "--dataset", str(shared_data("cvdp", NONAGENTIC))]
    plain = show(*words)["sampler.max_tokens"]
    thinking = show(*words, "torch.template=enable_thinking=true")["sampler.max_tokens"]

    assert thinking[0] > 1.5 * plain[0]
    assert "four times for reasoning" in thinking[1]


@pytest.mark.one_of(2)
@pytest.mark.parametrize("agentic", [False, True])
def test_a_prompt_that_is_too_long_is_cut_by_its_ranks(
    agentic: bool, tmp_path: Path, show: Show
) -> None:
    """The budget follows from the context: every prompt that can be cut so far fits."""
    from transformers import AutoTokenizer

    from rlvr import BuildContext
    from rlvr_cvdp.config import CvdpConfig
    from rlvr_cvdp.task import CvdpTask

    path = shared_data("cvdp", "agentic_no_commercial.jsonl" if agentic else NONAGENTIC)
    texts = texts_of(shared_data("cvdp", NONAGENTIC))
    context = 12000 if agentic else 5000
    model = make_chat_model(tmp_path / "m", texts, context=context, vocab=1000)
    found = show("--model", f"hf:{model}", "--dataset", str(path))
    length, budget = found["sampler.max_tokens"][0], found["cvdp.max_prompt_tokens"][0]
    tokenizer = AutoTokenizer.from_pretrained(model)
    config = CvdpConfig(max_prompt_tokens=budget)

    problems = list(CvdpTask(config, BuildContext(dataset=path)).problems("all"))

    assert length >= context // 3
    assert any(problem.notes for problem in problems)
    for problem in problems:
        messages = [{"role": m.role, "content": m.content} for m in problem.prompt]
        text = tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, enable_thinking=False
        )
        size = len(tokenizer.encode(text))
        if not problem.notes.get("prompt_cut", {}).get("is_over"):
            assert size + length <= context, problem.id


def test_a_context_that_is_too_short_is_refused_with_its_numbers(tmp_path: Path) -> None:
    """No problem fits: that is said before anything is trained; typed lengths are taken."""
    path = str(shared_data("cvdp", NONAGENTIC))
    words = ["config", "show", "--plugin", "cvdp", "--dataset", path]
    words += ["--model", "gpt2:new?positions=512"]

    refused = call(tmp_path, *words)
    taken = call(tmp_path, *words, "sampler.max_tokens=200")

    assert refused.returncode == 2
    assert "its context holds 512 tokens; the shortest problem needs" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert taken.returncode == 0, taken.stderr


def test_adapters_where_full_weights_do_not_fit(tmp_path: Path, show: Show) -> None:
    """A model far larger than any memory: LoRA, in bfloat16, with the figures that say why."""
    config = {
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": 32000,
        "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126,
        "num_attention_heads": 128, "num_key_value_heads": 8, "max_position_embeddings": 8192,
    }  # fmt: skip
    (tmp_path / "big").mkdir()
    (tmp_path / "big/config.json").write_text(json.dumps(config))

    found = show("--model", f"hf:{tmp_path / 'big'}", "torch.device=cpu")

    assert found["torch.lora_rank"][0] == 16
    assert "billion weights in full need" in found["torch.lora_rank"][1]
    assert found["torch.dtype"][0] == "bfloat16"
    assert show("--model", f"hf:{tmp_path / 'big'}", "torch.lora_rank=0")["torch.lora_rank"] == (
        0,
        "command line",
    )


def _row(name: str, **changes: Any) -> dict[str, Any]:
    path = shared_data("cvdp", NONAGENTIC)
    row = next(map(json.loads, path.read_text(encoding="utf-8").splitlines()))
    return {**row, "id": name, **changes}


def test_every_form_of_the_file(chat_model: Path, show: Show, tmp_path: Path) -> None:
    """Renamed, mixed, with other rows, with solutions, words only, or with splits of its own."""
    own = [_row(f"my_{n}") for n in range(9)]
    solved = [
        _row(f"cvdp_copilot_s{n}_0001", output={"response": "", "context": {"rtl/a.sv": "x " * 99}})
        for n in range(9)
    ]
    words = {
        "id": "cvdp_copilot_w_0001", "categories": ["cid006", "easy"],
        "input": {"prompt": "Quote it.", "context": {"docs/a.md": "a b c d"}},
        "output": {"response": "a b c d", "context": {}}, "harness": {},
    }  # fmt: skip
    split = [{**row, "split": "train"} for row in own]
    broken = [{"id": "x"}, {**own[0], "id": "y", "harness": {"files": {}}}]
    agentic = shared_data("cvdp", "agentic_no_commercial.jsonl").read_text().splitlines()[:9]
    forms: dict[str, list[Any]] = {
        "renamed": own, "solved": solved, "words": [words], "split": split,
        "mixed": [*own, *broken, words, *map(json.loads, agentic)],
    }  # fmt: skip
    for name, rows in forms.items():
        path = tmp_path / f"{name}.txt"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        found = show("--model", f"hf:{chat_model}", "--dataset", str(path))
        assert found["sampler.max_tokens"][1].startswith(f"data set {name}.txt"), name
        assert (found["cvdp.holdout"][0] > 0) == (name not in ("words", "split")), name
        if name == "solved":
            assert "9 by their reference" in found["sampler.max_tokens"][1]
        if name == "words":
            assert found["sampler.max_tokens"][0] == 512


def test_an_evaluation_holds_nothing_out(chat_model: Path, show: Show) -> None:
    """The benchmark's score is that of all its problems."""
    path = str(shared_data("cvdp", NONAGENTIC))
    found = show("--for", "eval", "--model", f"hf:{chat_model}", "--dataset", path)

    assert found["cvdp.holdout"] == (0.0, "default")
    assert found["sampler.max_tokens"][0] > 1500


@pytest.mark.parametrize(
    ("template", "words", "default"),
    [
        (QWEN, "enable_thinking", ["enable_thinking=false"]),
        (QWEN.replace("enable_thinking", "thinking"), "thinking", ["thinking=false"]),
        (
            QWEN + "{{ reasoning_effort }}",
            "both",
            ["enable_thinking=false", "reasoning_effort=low"],
        ),
        (QWEN.partition("{% if enable_thinking")[0] + "{% endif %}", "none", []),
    ],
    ids=["qwen", "deepseek", "two", "none"],
)
def test_variables_come_from_the_template(
    template: str, words: str, default: list[str], tmp_path: Path, show: Show
) -> None:
    """What the model's own template reads is set; an unknown variable is refused with the known."""
    path = shared_data("cvdp", NONAGENTIC)
    model = make_chat_model(
        tmp_path / "m", texts_of(path)[:4], context=16384, template=template, vocab=600
    )
    found = show("--model", f"hf:{model}", "--dataset", str(path))

    assert found["torch.template"][0] == default, words

    from rlvr import ConfigError
    from rlvr_torch.models.hf.tokenizer import HFTokenizer

    with pytest.raises(ConfigError, match="reads"):
        HFTokenizer.load(str(model), template=["enable_thnking=false"])
    with pytest.raises(ConfigError, match="set by rlvr itself"):
        HFTokenizer.load(str(model), template=["messages=1"])
