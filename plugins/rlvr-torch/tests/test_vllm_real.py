"""A real vLLM has the trainer's weights after each update, on a CPU or a GPU.

It runs where vLLM is installed, or in the environment whose python `TORCH_VLLM_PYTHON` names
(docs/torch.md has the commands); elsewhere the tests are skipped, and say so.
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rlvr
import rlvr_torch
from rlvr.testing.tools import missing

transformers = pytest.importorskip("transformers", reason="transformers is not installed")

YARN = {
    "rope_type": "yarn",  # vLLM's gpt-oss has no other
    "rope_theta": 1e4,
    "factor": 2.0,
    "original_max_position_embeddings": 48,
    "beta_fast": 32.0,
    "beta_slow": 1.0,
}


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has vLLM."""
    found = os.environ.get("TORCH_VLLM_PYTHON", "")
    if not found and importlib.util.find_spec("vllm") is not None:
        return sys.executable
    if not found:
        pytest.skip("vLLM is not installed, and TORCH_VLLM_PYTHON is not set")
    if not Path(found).exists():
        missing(f"TORCH_VLLM_PYTHON={found} is no file")
    return found


def model(make_hf, family: str, folder: Path) -> Path:
    """A small model in the sizes that vLLM's kernels take."""
    shape = transformers.AutoConfig.from_pretrained(make_hf(family))
    shape.hidden_size, shape.intermediate_size = 64, 48
    shape.num_attention_heads, shape.head_dim = 2, 32
    if family == "gpt_oss":
        shape.rope_parameters, shape.intermediate_size = YARN, 64
    if family != "gpt2":
        shape.num_key_value_heads = 1
        shape.tie_word_embeddings = family == "qwen3"
    made = transformers.AutoModelForCausalLM.from_config(shape)
    made.save_pretrained(folder)
    for file in make_hf(family).glob("token*"):
        (folder / file.name).write_bytes(file.read_bytes())
    return folder


@pytest.mark.integration
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("family", "targets", "left_out"),
    [
        ("gpt_oss", "", ""),
        ("mixtral", "", ""),
        ("llama", "k_proj,down_proj", ""),  # a part of what vLLM packs, and all of another layer
        ("llama", "k_proj,down_proj", "model.layers.1.mlp.down_proj"),
        ("gpt2", "c_attn", ""),  # vLLM has no LoRA for it
        ("qwen3", "", ""),  # with a tied head
        ("qwen3_moe", "", ""),
        ("llama", "", ""),
    ],
)
def test_updates_arrive(family, targets, left_out, python, make_hf, tmp_path):
    """Dense, tied, mixtures, and adapters by themselves or merged: the trainer's logprobs."""
    roots = [Path(module.__file__).parents[1] for module in (rlvr, rlvr_torch)]
    done = subprocess.run(
        [
            python,
            Path(__file__).with_name("vllm_gaps.py"),
            model(make_hf, family, tmp_path),
            targets,
            left_out,
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, roots))},
        capture_output=True,
        text=True,
        timeout=580,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert max(told["gaps"]) < (1e-4 if told["is_cpu"] else 0.2), told  # float32; bfloat16
    assert told["repeats"], "the seeds were not used"
    assert told["moved"] > 0.01, "the updates changed nothing, so nothing was shown"
    assert told["context"] == 96  # as long as the model's: nothing is cut where memory holds it
    assert told["is_native"] is (family == "llama" and targets != "" == left_out)
