"""Options of the task `sad`."""

from __future__ import annotations

from attrs import frozen
from attrs.validators import ge, lt

from rlvr import option


@frozen(kw_only=True)
class SadConfig:
    """Options of the task sad."""

    files: tuple[str, ...] = option((), "More files or folders, besides --dataset")
    format: str = option("", "Read as this format only; empty: found by content")
    held_out: float = option(
        0.1, "Share of the tasks that are kept for evaluation", validator=[ge(0), lt(1)]
    )
    split_by: str = option("", "Label that names a record's task; empty: task_id and the like")
    min_reward: float | None = option(None, "Learn only from records of this reward or more")
    workers: int = option(0, "Processes that read files; 0: none besides this", validator=ge(0))
