"""How a model is trained where the memory does not hold all that full training needs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from attrs import evolve

from rlvr import Situation
from rlvr_torch import fitting
from rlvr_torch.fitting import ROOM, count_weights, fit_memory, model_facts, plan
from rlvr_torch.memory_plan import RANK
from rlvr_torch.runtime.device import memory_of

GB = 2**30


@pytest.mark.parametrize(
    ("billions", "memory_gb", "bits", "chosen"),
    [
        (0.5, 24, False, {}),
        (1.2, 24, False, {}),
        (1.5, 24, False, {"torch.lora_rank": 16}),
        (4.0, 24, False, {"torch.lora_rank": 16}),
        (7.0, 24, False, {"torch.lora_rank": 16, "torch.dtype": "bfloat16"}),
        (32.0, 24, True, {"torch.lora_rank": 16, "torch.dtype": "bfloat16",
                          "torch.quantize": "4bit"}),
        (32.0, 24, False, {"torch.lora_rank": 16, "torch.dtype": "bfloat16"}),
        (7.0, 140, True, {}),
        (8.0, 140, True, {"torch.lora_rank": 16}),
    ],
)  # fmt: skip
def test_the_first_way_that_fits(
    billions: float, memory_gb: int, bits: bool, chosen: dict[str, object]
) -> None:
    """16 bytes a weight in 80 % of the memory; then adapters, bfloat16, 4 bits."""
    found = plan(int(billions * 1e9), memory_gb * GB, "cuda", "float32", each=16, can_quantize=bits)

    assert {key: one.value for key, one in found.items()} == chosen
    assert all("GiB" in one.why for one in found.values() if one.value != "4bit")


@pytest.mark.parametrize(
    ("optimizer", "device", "each"),
    [
        ("adamw", "cuda", 16.0),
        ("adamw-8bit", "cuda", 10.0 + 8 / 256),
        ("adamw-offload", "cuda", 8.0),
        ("adamw", "cpu", 16.0),
        ("adamw-offload", "cpu", 24.0),  # copies of weight and gradient beside all of it
    ],
)
def test_full_training_is_as_large_as_its_optimizer(
    optimizer: str, device: str, each: float, monkeypatch: pytest.MonkeyPatch, make_hf: Any
) -> None:
    """A model that just fits gets no adapters; with 4 % less memory it does."""
    where = str(make_hf("llama"))
    need = count_weights(where) * each / ROOM
    monkeypatch.setattr(fitting, "choose_device", lambda name: torch.device(device))
    monkeypatch.setattr(fitting, "settled", lambda config, device: evolve(config, dtype="float32"))
    situation = Situation(model=f"hf:{where}", trains=True, values={"torch.optimizer": optimizer})
    for share, wanted in ((1.01, {}), (0.96, {"torch.lora_rank": RANK})):
        monkeypatch.setattr(fitting, "memory_of", lambda device, share=share: int(share * need))
        found = fit_memory(situation)
        assert {key: one.value for key, one in found.items()} == wanted


@pytest.mark.parametrize("family", ["llama", "gemma2", "gpt2", "mixtral"])
@pytest.mark.parametrize("shard", ["5GB", "20KB"])
def test_weights_are_counted_without_building_the_model(
    family: str, shard: str, monkeypatch: pytest.MonkeyPatch, make_hf: Any, tmp_path: Path
) -> None:
    """By the heads of its files: one or many, and no others; as many as the model has."""
    import transformers

    model = transformers.AutoModelForCausalLM.from_pretrained(make_hf(family))
    model.save_pretrained(tmp_path, max_shard_size=shard)
    (tmp_path / "consolidated.safetensors").write_bytes(b"another copy")
    assert (len(list(tmp_path.glob("model-*.safetensors"))) > 1) == (shard == "20KB")
    wanted = sum(value.numel() for value in model.parameters())
    with monkeypatch.context() as patch:
        patch.setattr(fitting, "import_transformers", lambda: pytest.fail("not needed"))
        assert count_weights(str(tmp_path)) == wanted


@pytest.mark.parametrize("damage", [b"", b"\xff" * 40, b"\x05" + b"\0" * 7 + b"[1,2]"])
def test_damaged_files_are_counted_by_the_configuration(
    damage: bytes, make_hf: Any, tmp_path: Path
) -> None:
    """Opening the model says what is wrong with it."""
    where = make_hf("llama")
    shutil.copy(where / "config.json", tmp_path)
    (tmp_path / "model.safetensors").write_bytes(damage)
    assert count_weights(str(tmp_path)) == count_weights(str(where))


def test_memory_of_this_machine_is_known() -> None:
    """More than a model of the tests needs, less than a petabyte."""
    assert GB // 4 < memory_of(torch.device("cpu")) < 2**50


@pytest.mark.parametrize(
    ("engine", "tokens", "length"), [("own", 20, 96), ("vllm", 20, 20), ("vllm", 0, 96)]
)
def test_the_context_is_the_samplers(make_hf: Any, engine: str, tokens: int, length: int) -> None:
    """Tasks fit their prompts into what vLLM takes, where that is less than the model does."""
    values = {"torch.engine": engine, "torch.vllm_tokens": tokens}
    facts = model_facts(Situation(model=f"hf:{make_hf('llama')}", values=values))
    assert facts.context_length == length
