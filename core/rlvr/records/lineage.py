"""Lineage of a model: the families of problems it was trained on, recorded beside its weights.

A problem says which family it belongs to (`labels["family"]`); a run records the families that it
trained on, and those that its start model was trained on before, in `run.json` and beside the
weights of each checkpoint. So they are found from the model's path, over any number of runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from attrs import frozen

from rlvr.records.json_lines import object_in
from rlvr.types import Problem

FILE = "trained-on.json"
"""Beside a checkpoint's weights: what they were trained on."""


@frozen(kw_only=True)
class Lineage:
    """
    Families of problems that a model was trained on.

    Attributes:
        families: Problem families, sorted.
        source: File that says so, "" where none was found.
        is_complete: False where a run trained it on problems that name no family.
    """

    families: tuple[str, ...] = ()
    source: str = ""
    is_complete: bool = True

    def to_json(self) -> dict[str, Any]:
        """Plain values for a file."""
        return {"families": list(self.families), "families_complete": self.is_complete}

    @classmethod
    def from_json(cls, record: Mapping[str, Any], source: str = "") -> Lineage:
        """Read what `to_json` or `record_of` wrote; other records give an incomplete lineage."""
        own, before = record.get("families"), record.get("families_before", [])
        if not (isinstance(own, list) and isinstance(before, list)):
            return cls(source=source, is_complete=False)
        return cls(
            families=tuple(sorted({str(name) for name in (*own, *before)})),
            source=source,
            is_complete=record.get("families_complete") is True,
        )


UNKNOWN = Lineage(is_complete=False)
"""Lineage of answers whose model is not known."""


def families_of(problems: Iterable[Problem]) -> tuple[str, ...]:
    """The families that problems are labelled with, sorted."""
    return tuple(sorted({p.labels["family"] for p in problems if p.labels.get("family")}))


def lineage_of(model: str) -> Lineage:
    """
    The data that a spec's model was trained on, by the record nearest to its files.

    Looks for `trained-on.json` or a run's `run.json` in the folder that the spec names
    (`gpt2:PATH`) and above. A model without files here has no record.
    """
    if not model.partition(":")[2]:
        return Lineage()
    try:
        folder = Path(model.partition(":")[2]).expanduser().resolve(strict=True)
    except (OSError, RuntimeError, ValueError):
        return Lineage()
    for place in (folder, *folder.parents):
        for name, wanted in ((FILE, "families"), ("run.json", "config")):
            with suppress(OSError, ValueError):
                record = object_in(place / name)
                if wanted in record:
                    return Lineage.from_json(record, str(place / name))
    return Lineage()


def joined(first: Lineage, second: Lineage) -> Lineage:
    """Lineage of weights that come from two models, as an adapter's base or a teacher."""
    return Lineage(
        families=tuple(sorted({*first.families, *second.families})),
        source=", ".join(filter(None, dict.fromkeys((first.source, second.source)))),
        is_complete=first.is_complete and second.is_complete,
    )


def after_training(start: Lineage, problems: Sequence[Problem]) -> Lineage:
    """The lineage of a model that began with `start` and is trained on these problems."""
    is_complete = all(p.labels.get("family") for p in problems)
    return joined(start, Lineage(families=families_of(problems), is_complete=is_complete))


def record_of(start: Lineage, problems: Sequence[Problem]) -> dict[str, Any]:
    """Fields of `run.json`: own families, those trained on before, and whether these are all."""
    return {
        "families": list(families_of(problems)),
        "families_before": list(start.families),
        "families_complete": after_training(start, problems).is_complete,
    }
