"""The checkpoint of a run on the service: the name of its saved state, and what made it."""

from __future__ import annotations

import json
from pathlib import Path

from attrs import asdict, field, frozen
from attrs.validators import ge, instance_of

from rlvr import BackendError, CheckpointError

FILE = "tinker.json"
_FORMAT = 1


def saved_model(spec: str) -> str:
    """A model spec; in place of `tinker:FOLDER` of a checkpoint, that of the state it names."""
    folder = Path(spec.partition(":")[2])
    return Stored.read(folder).path if (folder / FILE).is_file() else spec


@frozen(kw_only=True)
class Stored:
    """
    A state of a run; weights and optimiser are the service's, under `path`.

    Attributes:
        path: The state, as the service names it.
        version: Updates it has seen.
        digest: Of all that made it.
        base: Base model.
        rank: Of the adapter.
        start: Saved weights that the run started from; "": the base model.
        reference: Saved weights of the start, for sampling; "": the base model.
    """

    path: str = field(validator=instance_of(str))
    version: int = field(validator=[instance_of(int), ge(0)])
    digest: str = field(validator=instance_of(str))
    base: str = field(validator=instance_of(str))
    rank: int = field(validator=instance_of(int))
    start: str = field(default="", validator=instance_of(str))
    reference: str = field(default="", validator=instance_of(str))

    def write(self, directory: Path) -> None:
        """Write one small file; a `CheckpointError` if it cannot be written."""
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2)
        try:
            (directory / FILE).write_text(text, encoding="utf-8")
        except OSError as error:
            raise CheckpointError(f"cannot write {directory / FILE}: {error}") from error

    @classmethod
    def read(cls, directory: Path) -> Stored:
        """What `write` wrote; a `CheckpointError` if it is missing or damaged."""
        try:
            record = json.loads((directory / FILE).read_text(encoding="utf-8"))
            if record.pop("format") != _FORMAT:
                raise ValueError("it was written by another version of rlvr-tinker")
            return cls(**record)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise CheckpointError(
                f"the checkpoint {directory} was to be loaded.",
                f"found: no usable {FILE}: {error}",
                "resume from another checkpoint of the run",
            ) from error

    def check(self, *, base: str, rank: int, start: str) -> None:
        """Refuse a state of another run: a `BackendError` if model, adapter or start differ."""
        compared = {
            "base model": (self.base, base),
            "rank": (self.rank, rank),
            "start": (self.start, start),
        }
        for what, (saved, now) in compared.items():
            if saved != now:
                raise BackendError(
                    f"the state {self.path} was to be loaded.",
                    f"found: its {what} is {saved!r}, the run's {now!r}",
                    "give the model and the tinker.* options that the run started with",
                )
