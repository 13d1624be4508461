"""Option values for a model on the card, by the memory plan of rlvr-torch."""

from __future__ import annotations

from collections.abc import Mapping

from rlvr import Proposed, RlvrError, Situation
from rlvr_rtx4090.card import GIB, Card
from rlvr_torch.config import TorchConfig
from rlvr_torch.memory_table import planned

MEMORY = 24 * GIB
"""Bytes of the card where none is here: that of the RTX 4090."""


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
