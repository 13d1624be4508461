"""The engine that samples: ours, with the device's primitives, or vLLM (`torch.engine`)."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlvr import Tokenizer
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.interface import InferenceEngine
from rlvr_torch.generation.vllm import VLLMEngine
from rlvr_torch.hardware.primitives import Hardware
from rlvr_torch.models.interface import Net
from rlvr_torch.runtime.batch_threads import BatchThreads


def make_engine(
    config: TorchConfig,
    hardware: Hardware,
    net: Net,
    tokenizer: Tokenizer,
    *,
    where: str,  # directory or hub id of an `hf:` model; "" for others
    dtype: torch.dtype,  # of our engine's matrix products
    cores: int,  # over which each operation of our engine is spread on a CPU
    read_version: Callable[[], int],  # version of the live weights
) -> InferenceEngine:
    """The engine that the options mean; raises as `VLLMEngine`."""
    if config.engine == "vllm":
        return VLLMEngine(
            net,
            tokenizer,
            model=where,
            read_version=read_version,
            tokens=config.vllm_tokens,
            memory=config.vllm_memory,
            rows=config.decode_rows,
        )
    return hardware.engine(
        net,
        tokenizer,
        rows=config.decode_rows,
        prefill_tokens=config.microbatch_tokens,
        dtype=dtype,
        threads=BatchThreads.decoding(cores),
    )
