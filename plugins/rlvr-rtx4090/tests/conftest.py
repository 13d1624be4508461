from __future__ import annotations

import pytest

from rlvr_rtx4090 import backend
from rlvr_rtx4090.card import GIB, Card, Reading

CARD = Card(name="NVIDIA GeForce RTX 4090", memory=24 * GIB, capability=(8, 9))
READING = Reading(
    power_w=410.5,
    limit_w=450.0,
    temperature_c=71.0,
    memory_gib=18.25,
    clock_mhz=2520.0,
    slowed_by=("heat",),
)


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of the backend but the card itself: it computes on the CPU."""
    monkeypatch.setattr(backend, "require_card", lambda: CARD)
    monkeypatch.setattr(backend, "read_card", lambda card: READING)
    monkeypatch.setattr(backend, "DEVICE", "cpu")
