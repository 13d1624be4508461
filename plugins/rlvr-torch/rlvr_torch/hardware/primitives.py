"""The primitives that a device computes in its own way; `Hardware()` has the plain versions.

No other room of `rlvr_torch` asks what device it is on, but `runtime` and `generation/cpu`. A
backend for a certain card changes single primitives of `CUDA` with `attrs.evolve`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

import torch
from attrs import evolve, frozen

from rlvr_torch.config import TorchConfig
from rlvr_torch.generation.captured.attention import DecodeAttention, TableAttention
from rlvr_torch.generation.captured.engine import CapturedEngine
from rlvr_torch.generation.captured.graphs import Capture, CUDACapture
from rlvr_torch.generation.decode_weights import DecodeWeights
from rlvr_torch.generation.engine import Engine
from rlvr_torch.models.head_product import FLOAT32, BFloat16HeadProduct, HeadProduct
from rlvr_torch.models.interface import Heads, Net
from rlvr_torch.models.weight_storage import CopiedWeights, WeightStorage
from rlvr_torch.runtime.device import free_memory
from rlvr_torch.training.adamw import make_adamw
from rlvr_torch.training.packing.packed_attention import PackedAttention
from rlvr_torch.training.packing.prefix_packing import BlockAttention, PackedAttend
from rlvr_torch.training.packing.varlen_attention import CUDAFlashAttention

_TRITON = (8, 0)
"""Compute capability from which on Triton is supported: Ampere."""
_MIXED = "2.10"
"""PyTorch's first version whose products add bfloat16 inputs to float32 numbers (its pull request
167931)."""

_plain_engine = partial(Engine, reads_alone=False, weights_of=DecodeWeights)


def _by_kernels(heads: Sequence[Heads], device: torch.device) -> DecodeAttention:
    """Triton's kernels for an NVIDIA card that Triton takes, where it is installed."""
    if device.type != "cuda" or find_spec("triton") is None:
        return TableAttention(heads, device)
    from rlvr_torch.generation.captured import triton_attention

    is_old = torch.cuda.get_device_capability(device) < _TRITON
    if is_old or any(layer.width > triton_attention.WIDEST for layer in heads):
        return TableAttention(heads, device)
    try:
        triton_attention.build()
    except Exception as error:  # whatever it lacks: a C compiler, Python's headers
        warnings.warn(f"decoding without Triton's kernels: {error}", RuntimeWarning, 2)
        return TableAttention(heads, device)
    return triton_attention.TritonAttention(heads, device)


def _in_float32(dtype: torch.dtype) -> HeadProduct:
    return FLOAT32


def _on_tensor_cores(dtype: torch.dtype) -> HeadProduct:
    is_mixed = dtype != torch.float32 and torch.__version__ >= _MIXED
    return BFloat16HeadProduct() if is_mixed else FLOAT32


def _read_by_tensor_cores(net: Net, dtype: torch.dtype) -> DecodeWeights:
    return DecodeWeights(net, dtype, _on_tensor_cores(dtype))


_captured_engine = partial(
    CapturedEngine,
    reads_alone=False,
    weights_of=_read_by_tensor_cores,
    capture_of=CUDACapture,
    attention=_by_kernels,
    free_memory=free_memory,
)


def _in_blocks(dtype: torch.dtype) -> PackedAttend:
    return BlockAttention


def _by_flash(dtype: torch.dtype) -> PackedAttend:
    """NVIDIA's flash kernel, which takes half precision only."""
    if dtype == torch.float32:
        return BlockAttention
    return partial(PackedAttention, kernel=CUDAFlashAttention())


@frozen(kw_only=True)
class Hardware:
    """
    The primitives of a kind of device.

    Replacements of a primitive give what the plain version gives, but for rounding; tests compare
    them on a CPU.
    """

    packed_attention: Callable[[torch.dtype], PackedAttend] = _in_blocks
    """How packed rows attend in training, by the type of the products."""
    head_product: Callable[[torch.dtype], HeadProduct] = _in_float32
    """How the output head multiplies in training, by the type of the products, to float32 logits.
    Sampling's is the engine's (`weights_of`), and should be the same."""
    engine: Callable[..., Engine] = _plain_engine
    """Makes our engine: how decoding reads weights and prompts."""
    is_captured: bool = False
    """
    Whether the engine is a `CapturedEngine`, whose primitives are `capture_of`, `attention` and
    `draw`: `partial(CUDA.engine, draw=...)`.
    """
    weight_storage: Callable[[Net, torch.dtype], WeightStorage] = WeightStorage
    """How trained weights are stored for products in a lower type."""
    optimizer: Callable[..., torch.optim.Optimizer] = make_adamw
    """Makes the optimiser: arguments and state as `make_adamw`, which is the plain version."""
    has_own_memory: bool = True
    """Whether tensors have a memory of their own, beside the machine's."""
    has_tf32: bool = False
    """Whether products in float32 may round their inputs to TF32."""
    has_4bit: bool = False
    """Whether bitsandbytes computes with weights in 4 bits there."""
    is_compiled: bool = False
    """What `torch.compile=auto` means."""

    def chosen_by(self, config: TorchConfig) -> Hardware:
        """The same primitives with the replacements of `torch.attention` and `torch.graphs`."""
        changed = self
        if config.attention == "plain":
            changed = evolve(changed, packed_attention=_in_blocks)
        ways: dict[str, Any] = {} if config.graphs else {"capture_of": Capture}
        ways |= {"attention": TableAttention} if config.attention == "plain" else {}
        if self.is_captured and ways:
            changed = evolve(changed, engine=partial(self.engine, **ways))
        return changed


PLAIN = Hardware()
CPU = Hardware(engine=Engine, weight_storage=CopiedWeights, has_own_memory=False)
CUDA = Hardware(
    head_product=_on_tensor_cores,
    weight_storage=CopiedWeights,
    packed_attention=_by_flash,
    engine=_captured_engine,
    is_captured=True,
    has_tf32=True,
    has_4bit=True,
    is_compiled=True,
)


def hardware_of(device: torch.device) -> Hardware:
    """The primitives of a device; those of one that has none of its own are plain (Apple's GPU)."""
    return {"cpu": CPU, "cuda": CUDA}.get(device.type, PLAIN)
