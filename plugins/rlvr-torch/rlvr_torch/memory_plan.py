"""Memory that a run needs, calculated from the shape of a model and the settings.

What a layer keeps for the backward pass is counted tensor by tensor, as PyTorch's autograd keeps
it; tests compare it with what real nets keep (within 8 %). Of a model with states it is counted on
a net without numbers (`Shape.kept`). Two constants of a card are estimates, not measurements:
`CONTEXT` and `SPARE`.

Shapes: C width, H query heads, K key heads, D width of a head, I width of the MLP, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from attrs import evolve, frozen

from rlvr_torch.models.shape import Shape

GIB = 2**30
CONTEXT = 768 * 2**20
"""Bytes that CUDA, its libraries and captured graphs take beside tensors (an estimate)."""
SPARE = 0.06
"""Share of a card that fragmentation leaves unusable (an estimate)."""
RANK = 16
"""Rank of adapters that nobody chose."""
_NF4 = 0.5 + 1 / 64 + 4 / (64 * 256)
"""Bytes of a weight in 4 bits: half a byte, and an 8-bit scale for each 64 (QLoRA, section 3)."""
_MOMENTS = {
    "adamw": 8.0,
    "adamw-unfused": 8.0,
    "adamw-8bit": 2.0 + 8 / 256,
    "adamw-offload": 0.0,
}
"""Bytes of AdamW's two moments of a trained weight on the device."""
_PAGE = 64
"""Tokens of a page of the KV cache."""
_HOST = {"adamw-offload": 16.0}
"""Bytes in the machine's memory: moments, and copies of a weight and its gradient."""
_BYTES = {"float32": 4, "bfloat16": 2}


def trained_bytes(optimizer: str, *, is_on_host: bool = False) -> float:
    """
    Bytes that training a weight takes beside the weight: its gradient and the optimiser's state.

    Args:
        optimizer: `torch.optimizer`.
        is_on_host: Whether the device's memory is the machine's, where offloaded state is too.
    """
    return 4 + _MOMENTS[optimizer] + (_HOST.get(optimizer, 0.0) if is_on_host else 0)


@frozen(kw_only=True)
class Settings:
    """The options that memory follows from; names and values are those of `torch.*`."""

    dtype: str = "bfloat16"
    weight_copies: bool = True
    lora_rank: int = 0  # 0: all weights are trained
    quantize: str = "none"
    checkpointing: str = "none"
    optimizer: str = "adamw"
    microbatch_tokens: int = 8192
    logprob_chunk: int = 1024
    decode_rows: int = 256
    prompt: int = 512  # tokens
    completion: int = 512  # tokens, at most
    group: int = 8  # completions of a prompt
    has_reference: bool = False  # the loss asks for the start weights
    copies_prompts: bool = False  # attention copies a prompt's keys for each completion

    @property
    def longest(self) -> int:
        """Tokens of the longest sequence: a micro-batch holds one at least."""
        return self.prompt + self.completion


@frozen(kw_only=True)
class MemoryPlan:
    """The bytes of each part, and whether they fit."""

    shape: Shape
    settings: Settings
    memory: int  # bytes of the device
    steady: Mapping[str, int]  # there all the time
    training: Mapping[str, int]  # during an update
    sampling: Mapping[str, int]  # while completions are drawn
    tried: Sequence[str] = ()  # what was changed, in order of cost, until it fitted

    @property
    def peak(self) -> int:
        """Bytes at the worst moment: training and sampling take turns."""
        turns = (sum(self.training.values()), sum(self.sampling.values()))
        return sum(self.steady.values()) + max(turns)

    @property
    def fits(self) -> bool:
        return self.peak <= usable(self.memory)

    def options(self) -> dict[str, Any]:
        """The values by key of `torch.*`."""
        names = ("dtype", "lora_rank", "quantize", "checkpointing", "optimizer")
        chosen = {name: getattr(self.settings, name) for name in names}
        return {
            **chosen,
            "microbatch_tokens": self.settings.microbatch_tokens,
            "decode_rows": self.settings.decode_rows,
        }


def usable(memory: int) -> int:
    """Bytes of a card that tensors may take."""
    return int(memory * (1 - SPARE)) - CONTEXT


def plan_memory(shape: Shape, settings: Settings, memory: int) -> MemoryPlan:
    """The plan of exactly these settings, whether it fits or not."""
    compute, rank = _BYTES[settings.dtype], settings.lora_rank
    adapters = shape.layers * rank * sum(map(sum, shape.matrices))
    trained = adapters or shape.weights
    steady = {"weights": shape.weights * 4}
    if rank:
        stored = _NF4 if settings.quantize == "4bit" else compute
        rest = (shape.weights - shape.linear) * compute
        steady = {"weights": int(shape.linear * stored) + rest, "adapters": adapters * 4}
    copies = {"bfloat16 copies": (adapters or shape.linear) * 2 if compute == 2 else 0}
    if settings.weight_copies:
        steady |= copies
    steady["optimiser"] = int(trained * _MOMENTS[settings.optimizer])
    if settings.has_reference and not rank:
        steady["reference"] = (shape.weights - shape.linear) * 4 + shape.linear * compute
    head = shape.vocabulary * shape.width
    each = 6 if compute == 2 else 4  # float32 logits, and their gradient in bfloat16
    logits = min(settings.logprob_chunk, settings.microbatch_tokens) * shape.vocabulary * each
    rounded = head * 2 if compute == 2 and not rank else 0  # of a float32 head
    per_key = 2 * (shape.layers - shape.stateful) * shape.keys * compute
    rows = _power(settings.decode_rows)
    pages = _power(settings.decode_rows * -(-settings.completion // _PAGE)) + 2  # two: no row's
    count = -(-settings.decode_rows // settings.group)
    cache = per_key * (count * _power(settings.prompt) + pages * _PAGE)
    before = (pages // 2 + 1) * _PAGE  # slots of completions before their pages last doubled
    grown = per_key // (2 * max(1, shape.layers - shape.stateful)) * before
    # As `CapturedEngine.sleep`: up to half of what is free beside it. States are never kept.
    is_kept = not shape.stateful and 3 * cache <= usable(memory) - sum(steady.values())
    return MemoryPlan(
        shape=shape,
        settings=settings,
        memory=memory,
        steady=steady,
        training={
            "gradients": trained * 4,
            "activations": activations(shape, settings),
            "logits and head": logits + rounded + (0 if rank else head * 4),
            **({} if settings.weight_copies else copies),  # autocast's, for a pass
            **({"kept KV cache": cache} if is_kept else {}),
        },
        sampling={
            "KV cache": cache,
            "growing KV cache": grown,
            **({"states": shape.state * 4 * (count + settings.decode_rows)} if shape.state else {}),
            "sampled logits": 2 * rows * shape.vocabulary * 4 + rounded,
        },
    )


def activations(shape: Shape, settings: Settings) -> int:
    """
    Bytes that a micro-batch keeps for its backward pass.

    With checkpointing, the input of each layer and everything of one layer.
    """
    tokens = settings.microbatch_tokens
    each, copied = tokens * layer_bytes(shape, settings), shared_bytes(shape, settings)
    if settings.checkpointing == "layers":
        return tokens * shape.layers * shape.width * 4 + each + copied
    return shape.layers * each + (shape.layers - shape.stateful) * copied


def layer_bytes(shape: Shape, settings: Settings) -> int:
    """
    Bytes a token leaves in a layer; of layers that differ, the mean.

    GPT-2: both norms' inputs (float32 always) and outputs, queries, keys, values, what attention
    gives before and after it is put in order, the MLP before and after its activation. Gated: the
    inputs of the norms, and normalised too where the norm is trained; their outputs (cast for
    each matrix by itself where products are in bfloat16), gate, its activation, up and product.
    """
    size, width, rank = _BYTES[settings.dtype], shape.width, settings.lora_rank
    if shape.kept is not None:
        return int(shape.kept(settings.dtype, rank))
    queries, keys = shape.queries, shape.keys
    if not shape.is_gated:
        wide = 2 * width + 5 * width + 2 * shape.inner
        return 2 * width * 4 + wide * size
    norms = (2 if rank else 4) * width * 4
    casts = (5 if size == 2 else 2) * width * size
    heads = 3 * queries * size + 2 * keys * size
    if shape.has_head_norms:
        heads += (queries + keys) * (4 + (0 if rank else size))
    return norms + casts + heads + 4 * shape.inner * size + len(shape.matrices) * rank * size


def shared_bytes(shape: Shape, settings: Settings) -> int:
    """Bytes of a layer's copies of shared prompts' keys and values, and of its mask."""
    if not settings.copies_prompts:
        return 0
    size, whole = _BYTES[settings.dtype], settings.longest
    alone = settings.prompt + settings.group * settings.completion
    rows = settings.microbatch_tokens * settings.group / alone  # completions of a micro-batch
    return int(rows * whole * (2 * shape.keys + settings.completion) * size)


def _power(count: int) -> int:
    return 1 << (count - 1).bit_length()


CHANGES: Sequence[tuple[str, Mapping[str, Any]]] = (
    ("torch.checkpointing=layers: a third more products", {"checkpointing": "layers"}),
    (
        f"torch.lora_rank={RANK}: adapters are trained, not the weights",
        {"lora_rank": RANK, "checkpointing": "none"},
    ),
    ("torch.checkpointing=layers: a third more products", {"checkpointing": "layers"}),
    ("torch.quantize=4bit: frozen weights in 4 bits", {"quantize": "4bit"}),
)
"""What to change where a run does not fit, cheapest first; each comes on top of those before."""


def fit(
    shape: Shape,
    settings: Settings,
    memory: int,
    *,
    fixed: frozenset[str] = frozenset(),
) -> MemoryPlan:
    """
    The first plan that fits: batches are halved first, then `CHANGES` are made in their order.

    Args:
        shape: The model.
        settings: What is wanted.
        memory: Bytes of the card.
        fixed: Settings that must stay as they are: a person gave them.

    Returns:
        The plan; where nothing fits, the last one that was tried (`fits` is False).
    """
    tried: list[str] = []
    plan = _batches(shape, settings, memory, fixed)
    for text, change in CHANGES:
        if plan.fits:
            break
        if fixed & set(change) or all(getattr(settings, k) == v for k, v in change.items()):
            continue
        settings = evolve(settings, **change)
        tried.append(text)
        plan = _batches(shape, settings, memory, fixed)
    return evolve(plan, tried=tuple(tried))


def _batches(shape: Shape, settings: Settings, memory: int, fixed: frozenset[str]) -> MemoryPlan:
    """The largest micro-batch and rows that fit; else the smallest."""
    plan = plan_memory(shape, settings, memory)
    for name, sizes in (
        ("microbatch_tokens", _halves(settings.microbatch_tokens, settings.longest)),
        ("decode_rows", _halves(settings.decode_rows, settings.group)),
    ):
        if name in fixed:
            continue
        part = "training" if name == "microbatch_tokens" else "sampling"
        for size in sizes:
            change: dict[str, Any] = {name: size}
            plan = plan_memory(shape, evolve(plan.settings, **change), memory)
            if sum(plan.steady.values()) + sum(getattr(plan, part).values()) <= usable(memory):
                break
    return plan


def _halves(size: int, least: int) -> Iterator[int]:
    """`size` and its halves, down to `least`."""
    while size > least:
        yield size
        size //= 2
    yield least
