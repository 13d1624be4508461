"""The backend `rtx4090`: `torch` on one NVIDIA card, with its heat and power among the metrics."""

from __future__ import annotations

from collections.abc import Sequence

import structlog
from attrs import evolve

from rlvr import BuildContext, ConfigError, Datum, Loss
from rlvr_rtx4090.card import read_card, require_card
from rlvr_torch.backend import TorchBackend
from rlvr_torch.config import TorchConfig

log = structlog.get_logger(__name__)

DEVICE = "cuda"


class Rtx4090Backend(TorchBackend):
    """
    The `TorchBackend` of one NVIDIA card.

    Another card than the RTX 4090 is taken too, with a plan for its memory, and is named.

    Args:
        config: The `torch.*` options; None for the defaults.
        context: As of `TorchBackend`.

    Raises:
        PrerequisiteError: There is no NVIDIA card, or one without bfloat16.
        ConfigError: `torch.device` names something else than the card.
    """

    def __init__(self, config: TorchConfig | None, context: BuildContext) -> None:
        self._card = require_card()
        config = config or TorchConfig()
        if config.device not in ("auto", DEVICE):
            raise ConfigError(
                f"torch.device={config.device} was asked for with --backend rtx4090.",
                "found: that backend computes on the NVIDIA card alone",
                "leave torch.device out, or use --backend torch",
            )
        if not self._card.is_meant:
            log.info("another_card", found=str(self._card), plan="for its memory")
        super().__init__(evolve(config, device=DEVICE), context)
        self._was_slowed = False

    async def update(self, data: Sequence[Datum], loss: Loss) -> dict[str, float]:
        """As `TorchBackend.update`, with the card's power, heat, memory and clock."""
        metrics = await super().update(data, loss)
        reading = read_card(self._card)
        if reading is None:
            return metrics
        if reading.slowed_by and not self._was_slowed:
            log.warning(
                "card_slowed",
                by=", ".join(reading.slowed_by),
                temperature_c=reading.temperature_c,
                power_w=reading.power_w,
                do="cool the machine better, or lower the power limit: nvidia-smi -pl 350",
            )
        self._was_slowed = bool(reading.slowed_by)
        return {**metrics, **reading.metrics()}
