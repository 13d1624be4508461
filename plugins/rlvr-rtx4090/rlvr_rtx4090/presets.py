"""Option values for a model on the card, by the memory plan of rlvr-torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import evolve, fields

from rlvr import Proposed, RlvrError, Situation
from rlvr_rtx4090.card import GIB, Card
from rlvr_torch.config import TorchConfig
from rlvr_torch.memory_plan import MemoryPlan, Settings, fit
from rlvr_torch.memory_table import shape_of

MEMORY = 24 * GIB
"""Bytes of the card where none is here: that of the RTX 4090."""
PROMPT = 1024
"""Tokens of a prompt that nobody counted."""
RANK = 16
"""Rank of the adapters in a folder, for the plan."""


def fit_card(situation: Situation) -> Mapping[str, Proposed]:
    """Propose how a model is trained on this card; without a card, on 24 GiB."""
    if not situation.trains:
        return {}
    card = Card.find()
    memory, name = (card.memory, card.name) if card else (MEMORY, "RTX 4090")
    values = situation.values
    try:
        plan = planned(
            situation.model,
            TorchConfig(**situation.options("torch")),
            memory,
            completion=int(values.get("sampler.max_tokens", 256)),
            group=int(values.get("sampler.group_size", 1)),
            has_reference=any(v for k, v in values.items() if k.endswith(".kl_coef")),
            said={key.removeprefix("torch.") for key in situation.said},
        )
    except (RlvrError, ValueError):  # opening the model says what is wrong with it
        return {}
    why = f"{name}, {memory / GIB:.0f} GiB: the plan needs {plan.peak / GIB:.1f} GiB"
    return {
        f"torch.{key}": Proposed(value, why)
        for key, value in plan.options().items()
        if values.get(f"torch.{key}") != value
    }


def planned(
    model: str,
    config: TorchConfig,
    memory: int,
    *,
    completion: int,
    group: int,
    has_reference: bool = False,
    said: set[str] | None = None,
) -> MemoryPlan:
    """
    The plan of a model with the options as they stand.

    Args:
        model: Model spec.
        config: The options.
        memory: Bytes of the card.
        completion: Most tokens of a completion.
        group: Completions of a prompt.
        has_reference: Whether the loss asks for the start weights.
        said: Options that must stay; None: all of them must.

    Raises:
        RlvrError: The model cannot be read.
    """
    shape = shape_of(model, config)
    names = fields(Settings)
    given: dict[str, Any] = {
        one.name: value
        for one in names
        if (value := getattr(config, one.name, "auto")) != "auto"  # what the plan may choose
    }
    fixed = set(given) if said is None else said & set(given)
    if config.adapter:
        given["lora_rank"], fixed = config.lora_rank or RANK, fixed | {"lora_rank"}
    if not model.startswith("hf:") or config.vision == "trained":
        fixed |= {"lora_rank", "quantize"}  # all weights are trained there
    kept = {name: value for name, value in given.items() if name in fixed}
    positions = shape.positions or PROMPT + completion
    completion = min(completion, positions // 2)
    settings = Settings(
        prompt=min(PROMPT, positions - completion),
        completion=completion,
        group=group,
        has_reference=has_reference and config.reference != "adapter-off",
    )
    return fit(shape, evolve(settings, **kept), memory, fixed=frozenset(fixed))
