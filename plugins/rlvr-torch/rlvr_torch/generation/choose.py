"""Which engine samples: ours, or vLLM in this process."""

from __future__ import annotations

from collections.abc import Callable

import torch

from rlvr import Tokenizer
from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.engine import Engine
from rlvr_torch.generation.vllm import VLLMEngine
from rlvr_torch.models.interface import Net
from rlvr_torch.models.source import ModelSource
from rlvr_torch.runtime.batch_threads import BatchThreads


def build_engine(
    config: TorchConfig,
    net: Net,
    tokenizer: Tokenizer,
    source: ModelSource,
    read_version: Callable[[], int],
) -> Engine | VLLMEngine:
    """
    What `torch.engine` asks for.

    Args:
        config: The `torch.*` options.
        net: The weights that train.
        tokenizer: Of the model.
        source: Where the model comes from; vLLM reads it there too.
        read_version: Version of the live weights.

    Raises:
        BackendError: vLLM cannot run such a model.
        PrerequisiteError: vLLM or a GPU is missing.
    """
    dtype: torch.dtype = getattr(torch, config.dtype)
    if config.engine == "vllm":
        return VLLMEngine(
            net,
            tokenizer,
            model=source.hf.where if source.hf else "",
            read_version=read_version,
            dtype=dtype,
            memory=config.vllm_memory,
            rows=config.decode_rows,
        )
    return Engine(
        net,
        tokenizer,
        rows=config.decode_rows,
        prefill_tokens=config.microbatch_tokens,
        dtype=dtype,
        threads=BatchThreads.decoding(config.threads),
    )
