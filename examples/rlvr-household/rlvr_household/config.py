"""Options of the task `house`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge

from rlvr import option


@frozen(kw_only=True)
class HouseConfig:
    """Which houses there are, how long one may take, and what the prompt explains."""

    train: int = option(512, "Problems of split train", validator=ge(1))
    test: int = option(128, "Problems of split test", validator=ge(1))
    seed: int = option(0, "Houses of another seed are other houses", validator=ge(0))
    steps: int = option(20, "Turns of an episode at most", unit="turns", validator=ge(1))
    explain: bool = option(False, "Explain the commands in the prompt (the starter knows them)")
    temperature: float = option(
        0.0, "Of the figures that rlvr eval measures besides; 0: greedy", validator=ge(0)
    )
