"""Metrics of alignment: how many of the policy's tokens could be compared with the teacher's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlvr import Datum

ONE, UNMATCHED = "align/1-1", "align/unmatched_mass"
MASKED, RENDERED = "align/masked", "align/rendered"


def of_alignment(data: Sequence[Datum]) -> dict[str, float]:
    """
    Means over the policy's tokens of the data that such a teacher saw; {} where none did.

    `align/1-1`: share in a group of one token each. `align/masked`: share without a signal (control
    tokens, what cannot be spelt). `align/rendered`: share whose prompt the teacher read in its own
    template. `align/unmatched_mass`: of the probability that the teacher gave its likeliest tokens
    in 1-1 groups, the part on tokens that the policy does not have; where it was asked for them.
    """
    own = [d for d in data if ONE in d.annotations and d.mask.any()]
    if not own:
        return {}
    found = {name: float(_joined(own, name).mean()) for name in (ONE, MASKED, RENDERED)}
    asked = [d for d in own if UNMATCHED in d.annotations]
    if asked and (single := _joined(asked, ONE) > 0).any():
        found[UNMATCHED] = float(_joined(asked, UNMATCHED)[single].mean())
    return found


def _joined(data: Sequence[Datum], name: str) -> np.ndarray:
    return np.concatenate([np.asarray(d.annotations[name], np.float64)[d.mask] for d in data])
