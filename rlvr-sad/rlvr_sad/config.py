"""Options of the tasks `sad` and `house`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, lt

from rlvr import option


@frozen(kw_only=True)
class SadConfig:
    """Options of the task sad."""

    files: tuple[str, ...] = option((), "Further files or folders, besides --dataset")
    format: str = option("", "Read as this format only; empty: found by content")
    held_out: float = option(
        0.1, "Share of the tasks that are kept for evaluation", validator=[ge(0), lt(1)]
    )
    split_by: str = option("", "Label that names a record's task; empty: task_id and the like")
    min_reward: float | None = option(None, "Learn only from records of this reward or more")
    workers: int = option(0, "Processes that read files; 0: none besides this", validator=ge(0))


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
