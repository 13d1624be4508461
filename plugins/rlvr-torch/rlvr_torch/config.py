"""Options of the backend `torch`: `torch.KEY=VALUE`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import and_, ge, lt

from rlvr import option


@frozen(kw_only=True)
class TorchConfig:
    """Where and how the local backend computes."""

    device: str = option(
        "auto",
        "Where it runs; auto: cuda, else mps, else cpu",
        choices=("auto", "cpu", "cuda", "mps"),
    )
    dtype: str = option(
        "float32",
        "Type of matrix products; weights, optimiser and logprobs stay float32",
        choices=("float32", "bfloat16"),
    )
    threads: int = option(0, "CPU threads; 0: one a core", validator=ge(0))
    logprob_chunk: int = option(
        1024, "Tokens whose logits exist at one time in training", unit="tokens", validator=ge(1)
    )
    decode_rows: int = option(256, "Completions sampled at the same time", validator=ge(1))
    beta1: float = option(0.9, "AdamW decay of the mean", validator=and_(ge(0), lt(1)))
    beta2: float = option(0.95, "AdamW decay of the variance", validator=and_(ge(0), lt(1)))
