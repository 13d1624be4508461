"""Pass rates by problem id, as columns: with 100,000 problems they are copied and saved at once."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from rlvr.types import PassRate

_FIELDS = ("rate", "count", "step")
_TYPE = "<f8"
_Numbers = NDArray[np.float64]


def _columns(records: Collection[PassRate] = ()) -> _Numbers:
    rows = [[getattr(record, name) for record in records] for name in _FIELDS]
    return np.array(rows, dtype=_TYPE).reshape(len(_FIELDS), -1)


def _read_only(numbers: _Numbers) -> _Numbers:
    numbers.flags.writeable = False
    return numbers


@frozen(eq=False, repr=False)
class PassRates(Mapping[str, PassRate]):
    """
    A read-only mapping of problem ids to their pass rates; equal to a dict of the same records.

    Attributes:
        places: Id to its column.
        numbers: Rate, count and step, shape (3, P).
    """

    places: Mapping[str, int] = field(factory=dict)
    numbers: _Numbers = field(factory=_columns, converter=_read_only)

    def __getitem__(self, name: str) -> PassRate:
        rate, count, step = self.numbers[:, self.places[name]].tolist()
        return PassRate(rate=rate, count=int(count), step=int(step))

    def __contains__(self, name: object) -> bool:
        return name in self.places

    def __iter__(self) -> Iterator[str]:
        return iter(self.places)

    def __len__(self) -> int:
        return len(self.places)

    def __repr__(self) -> str:
        return f"PassRates({dict(self)!r})"

    def updated(self, met: Mapping[str, PassRate]) -> PassRates:
        """These rates with the records of `met`, which replace earlier ones."""
        if not met:
            return self
        new = [name for name in met if name not in self.places]
        places = {**self.places, **_numbered(new, len(self))} if new else self.places
        numbers = np.concatenate([self.numbers, np.empty((len(_FIELDS), len(new)))], axis=1)
        numbers[:, [places[name] for name in met]] = _columns(met.values())
        return PassRates(places, numbers)

    def without(self, names: Collection[str]) -> PassRates:
        """The rates of all other problems."""
        if not names:
            return self
        kept = [name for name in self.places if name not in names]
        return PassRates(_numbered(kept), self.numbers[:, [self.places[name] for name in kept]])

    def later(self, steps: int) -> PassRates:
        """The same rates, as if each problem had been met so many steps later."""
        return PassRates(self.places, self.numbers + np.array([[0], [0], [steps]]))

    def met_at(self, step: int, names: Collection[str]) -> PassRates:
        """The same rates, but these problems were met at this step; unknown ones count as half."""
        unknown = PassRate(rate=0.5, count=0, step=step)
        return self.updated({n: evolve(self.get(n, unknown), step=step) for n in names})

    def columns_of(self, names: Sequence[str]) -> tuple[NDArray[np.bool_], _Numbers, _Numbers]:
        """For each of these problems: whether it was met, its rate and its step (0 if not met)."""
        at = np.fromiter(map(self.places.get, names, repeat(-1)), np.intp, len(names))
        numbers = np.append(self.numbers, np.zeros((len(_FIELDS), 1)), axis=1)[:, at]
        return at >= 0, numbers[0], numbers[2]

    def to_json(self) -> dict[str, Any]:
        """Plain values for a checkpoint: the ids, and base64 of rates, counts and steps."""
        numbers = b64encode(self.numbers.astype(_TYPE).tobytes()).decode()
        return {"ids": list(self.places), "rate_count_step_f64": numbers}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> PassRates:
        """
        Read what `to_json` wrote.

        Raises:
            ValueError: Ids and numbers do not fit together.
        """
        places = _numbered(record["ids"])
        numbers = np.frombuffer(b64decode(record["rate_count_step_f64"], validate=True), _TYPE)
        if numbers.size != len(_FIELDS) * len(record["ids"]) or len(places) != len(record["ids"]):
            raise ValueError(f"{numbers.size} numbers of the pass rates of {len(places)} problems")
        return cls(places, numbers.reshape(len(_FIELDS), -1))


def pass_rates(records: Mapping[str, PassRate]) -> PassRates:
    """Records of pass rates as columns."""
    if isinstance(records, PassRates):
        return records
    return PassRates(_numbered(records), _columns(records.values()))


def _numbered(names: Collection[str], start: int = 0) -> dict[str, int]:
    return dict(zip(names, range(start, start + len(names)), strict=True))
