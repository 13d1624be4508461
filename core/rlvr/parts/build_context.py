"""The values that a part gets when it is built; plugins import it from `rlvr.parts`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen

from rlvr.config.coerce import names_in
from rlvr.types import SamplingParams


@frozen(kw_only=True)
class BuildContext:
    """
    The values that a part gets when it is built.

    Attributes:
        model: Model spec as the person gave it, `starter` already resolved; "" where none.
        dataset: Path of the data set, None for the task's embedded one. A run whose task and
            reward never read this, though it is given, is refused: nobody used the data set.
        run_dir: Directory of the run, None outside a run.
        seed: Seed of the run.
        steps: Optimiser batches the run will take; 0 outside a run.
        workers: Verifications that may run at the same time.
        train: The resolved `train.*` options (a `TrainOptions` record), None outside a run.
        uses_starter_model: True when `--model starter` (also the default) was chosen.
        sampling: How trajectories are drawn; None where nothing is sampled.
        namespace: Where the part's options stand ("grpo"), for messages.
        inner: The part that this one is built around (`LossSpec.around`, `TeacherSpec.adapts`).
        tokenizer: The policy's, for what adapts a teacher to it.
        notes: Texts for messages, by name.
    """

    model: str = ""
    _dataset: Path | None = field(default=None, alias="dataset")
    run_dir: Path | None = None
    seed: int = 0
    steps: int = 0
    workers: int = 1
    train: Any = None
    uses_starter_model: bool = False
    sampling: SamplingParams | None = None
    namespace: str = ""
    inner: Any = None
    tokenizer: Any = None
    notes: Mapping[str, str] = field(factory=dict)
    _readings: list[Path] = field(factory=list, alias="readings", eq=False, repr=False)

    @property
    def dataset(self) -> Path | None:  # documented above
        if self._dataset is not None:
            self._readings.append(self._dataset)
        return self._dataset

    @property
    def datasets(self) -> tuple[Path, ...]:
        """The paths in `dataset`, for a task that reads several (`TaskSpec.reads_several`)."""
        if self.dataset is None:
            return ()
        if os.path.exists(self.dataset):  # its name may hold commas; a long list is no path at all
            return (self.dataset,)
        return tuple(map(Path, names_in(str(self.dataset))))
