"""The NVIDIA card: which it is, what it may reach at most, and its state during a run."""

from __future__ import annotations

import shutil
import subprocess

import torch
from attrs import frozen

from rlvr import PrerequisiteError

GIB = 2**30
FIX = "use --backend torch, which runs on a CPU too, or a machine with a GeForce RTX 4090"
_LIMITS = {
    "RTX 4090": (165.2, 1008.0),
    "H100 80GB HBM3": (989.4, 3350.0),
    "H100 PCIe": (756.0, 2000.0),
    "H200": (989.4, 4800.0),
    "A100": (312.0, 2039.0),
}
"""By a part of the name: dense bfloat16 TFLOP/s with float32 accumulation, and GB/s of memory.

Sources: NVIDIA's data sheets (Ada architecture whitepaper 1.1, table 2; H100, H200 and A100 data
sheets). No figure above them is believable.
"""
_SLOWED = {0x08: "hardware", 0x20: "heat", 0x40: "heat", 0x80: "power supply"}
"""Bits of the driver's reasons for lower clocks that tell of trouble; 0x04 is the power limit."""
_QUERY = (
    "power.draw,power.limit,temperature.gpu,memory.used,clocks.sm,clocks_throttle_reasons.active"
)


@frozen(kw_only=True)
class Card:
    """One NVIDIA card."""

    name: str
    memory: int  # bytes
    capability: tuple[int, int]  # (8, 9) for Ada
    uuid: str = ""

    @classmethod
    def find(cls) -> Card | None:
        """The card that torch would use; None: there is none."""
        if not torch.cuda.is_available():
            return None
        found = torch.cuda.get_device_properties(torch.cuda.current_device())
        return cls(
            name=found.name,
            memory=found.total_memory,
            capability=(found.major, found.minor),
            uuid=f"GPU-{uuid}" if (uuid := getattr(found, "uuid", "")) else "",
        )

    @property
    def limits(self) -> tuple[float, float] | None:
        """Most TFLOP/s (dense bfloat16) and GB/s by its data sheet; None: a card not listed."""
        return next((most for part, most in _LIMITS.items() if part in self.name), None)

    @property
    def is_meant(self) -> bool:
        """Whether it is the card that the backend is named after."""
        return "RTX 4090" in self.name

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name}, {self.memory / GIB:.1f} GiB, sm_{major}{minor}"


def require_card() -> Card:
    """
    The card, whichever NVIDIA card it is: plans follow its memory.

    Raises:
        PrerequisiteError: There is none, or it has no bfloat16 (before Ampere).
    """
    card = Card.find()
    asked = "the backend rtx4090 was asked for."
    if card is None:
        raise PrerequisiteError(asked, f"found: torch {torch.__version__} sees no NVIDIA card", FIX)
    if card.capability < (8, 0):
        raise PrerequisiteError(asked, f"found: {card}, which has no bfloat16", FIX)
    return card


@frozen(kw_only=True)
class Reading:
    """The state of a card at one moment."""

    power_w: float
    limit_w: float
    temperature_c: float
    memory_gib: float  # in use, by all processes
    clock_mhz: float
    slowed_by: tuple[str, ...] = ()  # causes of lower clocks that are no ordinary power limit

    @classmethod
    def parse(cls, line: str) -> Reading:
        """
        From a line of nvidia-smi without units; what a card does not tell (`[N/A]`) is NaN.

        Raises:
            ValueError: It is no such line.
        """
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) != len(_QUERY.split(",")):
            raise ValueError(f"not a reading of a card: {line!r}")
        power, limit, heat, memory, clock = (
            float("nan") if cell.startswith("[") else float(cell) for cell in cells[:5]
        )
        bits = 0 if cells[5].startswith("[") else int(cells[5], 16)
        causes = {cause: None for bit, cause in _SLOWED.items() if bits & bit}
        return cls(
            power_w=power,
            limit_w=limit,
            temperature_c=heat,
            memory_gib=memory / 1024,
            clock_mhz=clock,
            slowed_by=tuple(causes),
        )

    def metrics(self) -> dict[str, float]:
        """Metrics of a step; what the card does not tell is left out."""
        found = {
            "gpu/power_w": self.power_w,
            "gpu/temperature_c": self.temperature_c,
            "gpu/memory_gib": self.memory_gib,
            "gpu/clock_mhz": self.clock_mhz,
            "gpu/throttled": float(bool(self.slowed_by)),
        }
        return {name: number for name, number in found.items() if number == number}


def read_card(card: Card) -> Reading | None:
    """The state now, by nvidia-smi (it comes with the driver); None where that cannot tell."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    command = [program, f"--query-gpu={_QUERY}", "--format=csv,noheader,nounits"]
    command += ["-i", card.uuid] if card.uuid else []
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        return Reading.parse(done.stdout.splitlines()[0])
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
