"""How a model is trained where the memory does not hold all that full training needs."""

from __future__ import annotations

import pytest
import torch

from rlvr_torch.fitting import plan
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
    found = plan(int(billions * 1e9), memory_gb * GB, "cuda", "float32", can_quantize=bits)

    assert {key: one.value for key, one in found.items()} == chosen
    assert all("GiB" in one.why for one in found.values() if one.value != "4bit")


def test_memory_of_this_machine_is_known() -> None:
    """More than a model of the tests needs, less than a petabyte."""
    assert GB // 4 < memory_of(torch.device("cpu")) < 2**50
